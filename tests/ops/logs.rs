//! The lines that the broker writes to stderr.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use seawall_testkit::tempfile;

/// What a broker that refuses its configuration writes, with this `JOURNAL_STREAM`.
fn stderr_of_a_refusal(stream: impl FnOnce(&fs::Metadata) -> String) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let stderr = File::options()
        .append(true)
        .open(file.path())
        .expect("open");
    let stream = stream(&file.as_file().metadata().expect("metadata"));
    let status = Command::new(env!("CARGO_BIN_EXE_seawall"))
        .args([
            "--set",
            "num.partitions=0",
            "--set",
            "nope.at.all.x=1\n<0>forged",
        ])
        .env("JOURNAL_STREAM", stream)
        .stdin(Stdio::null())
        .stderr(stderr)
        .status()
        .expect("run the broker");
    assert_eq!(status.code(), Some(78));
    fs::read_to_string(file.path()).expect("read")
}

#[test]
fn in_the_journal_a_line_begins_with_its_priority_and_is_one_event() {
    let text = stderr_of_a_refusal(|stat| format!("{}:{}", stat.dev(), stat.ino()));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    for line in &lines {
        assert!(line.starts_with("<3>seawall: --set: "), "{line}");
    }
}

#[test]
fn elsewhere_a_line_begins_with_the_time() {
    let text = stderr_of_a_refusal(|stat| format!("{}:{}", stat.dev(), stat.ino() + 1));
    assert_eq!(text.lines().count(), 2, "{text}");
    for line in text.lines() {
        assert!(
            line.starts_with("[20") && line.contains(" ERROR seawall] "),
            "{line}"
        );
    }
}
