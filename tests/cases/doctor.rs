//! `seawall doctor` on directories that are good, in use, somebody else's, in memory, or not there.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::setup;

fn command() -> Command {
    let binary = env::var_os("SEAWALL_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_seawall").into());
    let mut command = Command::new(binary);
    command.arg("doctor");
    command
}

/// Exit code, and the object that was printed.
fn doctor(dir: &Path) -> (i32, Value) {
    let output = command().arg("--json").arg(dir).output();
    let output = output.expect("run the doctor");
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().expect("an exit code"), report)
}

/// The levels of all findings of one check.
fn levels<'r>(report: &'r Value, check: &str) -> Vec<&'r str> {
    let findings = report["findings"].as_array().expect("findings").iter();
    let of_check = findings.filter(|f| f["check"] == check);
    of_check
        .map(|f| f["level"].as_str().expect("a level"))
        .collect()
}

#[test]
fn the_doctor_looks_at_a_directory_in_use_and_disturbs_nobody() {
    if seawall_testkit::kafka::jars().is_some() {
        return;
    }
    let mut broker = setup().start();
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).expect("list");
        let mut names: Vec<_> = entries.map(|e| e.expect("a name").file_name()).collect();
        names.sort();
        names
    };
    let before = names(broker.data());
    let (code, report) = doctor(broker.data());
    assert_ne!(code, 2, "it could look: {report}");
    assert_eq!(levels(&report, "inUse"), ["note"], "{report}");
    assert_eq!(levels(&report, "rename"), ["fine"], "{report}");
    assert!(report["fsync"]["samples"].as_u64().expect("samples") > 0);
    let data = broker.data().to_str().expect("a path").to_owned();
    let drop_in = report["dropIn"].as_str().expect("a drop-in");
    assert!(
        drop_in.contains(&format!("RequiresMountsFor={data}\n")),
        "{drop_in}"
    );
    assert_eq!(names(broker.data()), before);
    broker.stop_and_restart();
    let (_, report) = doctor(broker.data());
    assert_eq!(levels(&report, "inUse"), ["note"], "{report}");
}

#[test]
fn the_doctor_refuses_what_is_kafkas_and_what_is_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_, report) = doctor(dir.path());
    assert_eq!(levels(&report, "contents"), [""; 0]);
    fs::write(dir.path().join("meta.properties"), "version=1\n").expect("write");
    let (code, report) = doctor(dir.path());
    assert_eq!((code, &report["verdict"]), (1, &Value::from("unfit")));
    assert_eq!(levels(&report, "contents"), ["refusal"]);
    assert_eq!(
        levels(&report, "rename"),
        [""; 0],
        "nothing is tried out there"
    );

    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let (code, report) = doctor(memory.path());
    assert_eq!(code, 1, "{report}");
    assert_eq!(levels(&report, "fileSystem"), ["refusal"]);
    assert_eq!(levels(&report, "fsyncTooFast"), ["warning"]);
}

#[test]
fn a_crash_test_is_refused_where_a_broker_or_kafka_has_its_data() {
    if seawall_testkit::kafka::jars().is_some() {
        return;
    }
    let broker = setup().start();
    let kafkas = tempfile::tempdir().expect("a directory");
    fs::write(kafkas.path().join("meta.properties"), "version=1\n").expect("write");
    for (dir, why) in [
        (broker.data(), "a broker is running"),
        (kafkas.path(), "Kafka's own data"),
    ] {
        let output = command()
            .arg(dir)
            .args(["--crash-test", "--seconds", "1"])
            .output();
        let output = output.expect("run the crash test");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
        let names = fs::read_dir(dir)
            .expect("list")
            .map(|e| e.expect("a name").file_name());
        let made = names.filter(|name| name.to_string_lossy().starts_with(".probe-"));
        assert_eq!(made.count(), 0);
    }
}

#[test]
fn the_doctor_does_not_make_what_is_not_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, _) = doctor(&dir.path().join("absent"));
    assert_eq!(code, 2);
    assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 0);
}
