//! The threads of a running broker are those that the README lists.

use std::fs;

use seawall_testkit::BatchBuilder;
use seawall_testkit::calls::{self, create_topic};

use crate::{broker, not_for_kafka};

/// What the names in the README's table of threads begin with: `append` of `append-D-N`.
fn documented() -> Vec<String> {
    let readme =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("README.md");
    let table = readme
        .lines()
        .skip_while(|line| !line.starts_with("| name | count |"))
        .skip(2);
    let names = table
        .take_while(|line| line.starts_with('|'))
        .filter_map(|row| row.split('`').nth(1));
    names
        .map(|name| {
            name.split("-D")
                .next()
                .unwrap_or(name)
                .trim_end_matches("-N")
                .to_owned()
        })
        .collect()
}

#[test]
fn every_thread_of_a_busy_broker_has_a_documented_name() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "busy", 8, &[]);
    for partition in 0..8 {
        calls::append(
            &mut raw,
            &topic,
            partition,
            BatchBuilder::of(&["x"]).build(),
        );
        calls::read_from(&mut raw, &topic, partition, 0);
    }
    let documented = documented();
    let tasks = fs::read_dir(format!("/proc/{}/task", broker.pid())).expect("tasks");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    assert!(names.len() > 5, "{names:?}");
    for name in names.iter().filter(|name| *name != "seawall") {
        let known = documented.iter().any(|stem| {
            name.strip_prefix(stem.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        assert!(
            known,
            "thread {name} is not in the README's table: {documented:?}"
        );
    }
}
