//! `seawall doctor` on a disk that keeps its word, on one that fails, and on one whose fsync lies.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use seawall_faultfs::{Call, Errno, Fault, FaultFs};

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
        let told = cut_under_test(&fs);
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
    let log = broker.log();
    assert!(log.contains("FUSE: an fsync is as good as"), "{log}");
}
