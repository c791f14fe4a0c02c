//! `seawall doctor` on a disk that keeps its word, on one that fails, and on one whose fsync lies.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use seawall_faultfs::{Call, Errno, Fault, FaultFs};
use seawall_testkit::nix::sys::signal::{Signal, kill};
use seawall_testkit::nix::unistd::Pid;
use seawall_testkit::wait::{self, SOON};

use crate::{DATA, mounted, seed};

/// Acknowledged before the power goes: some hundred fsyncs over several segments.
const ACKS: usize = 2_000;

fn seawall(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.arg("doctor").args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> (i32, String) {
    let output: Output = seawall(args).output().expect("run the doctor");
    let code = output.status.code().unwrap_or_else(|| panic!("{output:?}"));
    (code, String::from_utf8_lossy(&output.stdout).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Runs a crash test on `fs` until enough is acknowledged, pulls the plug, and returns what was acknowledged.
fn cut_under_test(fs: &FaultFs) -> String {
    let dir = fs.path(DATA);
    fs::create_dir(&dir).expect("make a directory");
    fs::File::open(&dir)
        .and_then(|d| d.sync_all())
        .expect("sync it");
    fs::File::open(fs.root())
        .and_then(|d| d.sync_all())
        .expect("sync its name");
    let test = seawall(&[text(&dir), "--crash-test"])
        .stdout(Stdio::piped())
        .spawn();
    let mut test = test.expect("start the crash test");
    let lines = BufReader::new(test.stdout.take().expect("its output")).lines();
    let mut told = String::new();
    for line in lines.take(1 + ACKS) {
        told += &line.expect("a line");
        told.push('\n');
    }
    test.kill().expect("kill it");
    test.wait().expect("wait for it");
    fs.power_cut();
    told
}

/// A simulated cut leaves this machine running; after a real one it has another boot id, the third word of a run.
fn of_another_boot(told: &str) -> String {
    let boot = told.split_ascii_whitespace().nth(2).expect("a boot id");
    told.replacen(boot, "00000000-0000-0000-0000-000000000000", 1)
}

fn verify(fs: &FaultFs, told: &str) -> (i32, String) {
    let lines = tempfile::NamedTempFile::new().expect("a file");
    fs::write(lines.path(), told).expect("write it");
    run(&[
        text(&fs.path(DATA)),
        "--crash-test-verify",
        text(lines.path()),
    ])
}

#[test]
fn the_crash_test_passes_on_a_disk_that_keeps_its_word() {
    let seed = seed();
    for round in 0..3 {
        let fs = FaultFs::mount(seed.wrapping_add(round));
        let told = of_another_boot(&cut_under_test(&fs));
        let (code, said) = verify(&fs, &told);
        assert_eq!(code, 0, "{said}");
        assert!(
            said.contains(&format!("All {ACKS} acknowledged batches")),
            "{said}"
        );
        // What was found whole is not kept.
        assert_eq!(fs::read_dir(fs.path(DATA)).expect("list").count(), 0);
    }
}

#[test]
fn the_crash_test_finds_an_fsync_that_lies() {
    let fs = FaultFs::mount(seed());
    let _lie = fs.order(Call::Sync, "", Fault::Lie);
    let told = cut_under_test(&fs);
    let (code, said) = verify(&fs, &told);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("LOST: "), "{said}");
    // The evidence stays.
    assert_eq!(fs::read_dir(fs.path(DATA)).expect("list").count(), 1);
}

#[test]
fn the_doctor_names_a_mount_that_fails_and_leaves_nothing_there() {
    let fs = FaultFs::mount(1);
    let root = text(fs.root());
    let (code, said) = run(&[root]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("WARNING fileSystem") && said.contains("FUSE"),
        "{said}"
    );
    for (call, check) in [
        (Call::Sync, "fsync"),
        (Call::SyncDir, "directorySync"),
        (Call::Rename, "rename"),
    ] {
        let failing = fs.order(call, "", Fault::Fail(Errno::Io));
        let (code, said) = run(&[root, "--json"]);
        assert_eq!(code, 1, "{said}");
        let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let mut findings = report["findings"].as_array().expect("findings").iter();
        assert!(
            findings.any(|f| f["check"] == check && f["level"] == "refusal"),
            "{said}"
        );
        assert_eq!(report["verdict"], "unfit");
        failing.lift();
        assert_eq!(fs::read_dir(fs.root()).expect("list").count(), 0);
    }
}

#[test]
fn a_broker_says_at_its_start_what_its_directory_stands_on() {
    let (_fs, broker) = mounted(|setup| setup);
    // It is said beside the start, by a thread of its own.
    wait::until("it is said", SOON, || {
        broker.log().contains("FUSE: an fsync is as good as")
    });
}

#[test]
fn a_crash_test_without_a_power_cut_is_no_proof() {
    let fs = FaultFs::mount(seed());
    let told = cut_under_test(&fs);
    let (code, said) = verify(&fs, &told);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("proves nothing"), "{said}");
    // The check can be made again after a cut.
    let (code, said) = verify(&fs, &of_another_boot(&told));
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_crash_test_leaves_half_of_the_room_to_others() {
    let fs = FaultFs::mount(1);
    fs.set_capacity(Some(16 << 20), Errno::NoSpace);
    let (code, said) = run(&[text(fs.root()), "--crash-test", "--seconds", "600"]);
    assert_eq!(code, 0, "{said}");
    let used = fs.used() >> 20;
    assert!((7..10).contains(&used), "{used} MiB are used");
}

#[test]
fn a_signal_takes_what_the_doctor_made() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let fs = FaultFs::mount(1);
        let names = || fs::read_dir(fs.root()).expect("list").count();
        let _slow = fs.order(Call::Sync, "", Fault::Delay(Duration::from_millis(50)));
        let mut doctor = seawall(&[text(fs.root())])
            .spawn()
            .expect("start the doctor");
        wait::until("it is at work", SOON, || names() == 1);
        let pid = Pid::from_raw(i32::try_from(doctor.id()).expect("a pid"));
        kill(pid, signal).expect("send the signal");
        let ended = doctor.wait().expect("wait for it");
        assert_eq!(ended.signal(), Some(signal as i32), "{ended:?}");
        assert_eq!(names(), 0);
    }
}
