//! The rules of the design and of style that a machine can check: what may know what, how long a function may be, what
//! stands nowhere, and tables that must agree with the code.
//!
//! Reads the sources as text, with comments and the insides of strings blanked, so that words in prose do not count.

mod tidy {
    pub(crate) mod rust;
    pub(crate) mod tree;
}

use std::collections::BTreeSet;

use tidy::rust::{self, Source};
use tidy::tree::{self, manifest_dependencies};

/// A function may have this many lines of code in its body.
const FUNCTION_LINES_MAX: usize = 70;
/// A file may have this many lines, comments and tests included.
const FILE_LINES_MAX: usize = 800;
/// Functions that were longer when the rule came: file, name, lines. Numbers here only go down.
const LONGER_ALREADY: &[(&str, &str, usize)] = &[];

/// The files that need unsafe code, each with its reason. There are none: what needs it is behind nix, mio and rustix.
const UNSAFE: &[(&str, &str)] = &[];

fn fail_if_any(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

/// Lines of these sources that hold one of the words, as file:line.
fn lines_with(sources: &[Source], words: &[&str]) -> Vec<String> {
    let hits = sources.iter().flat_map(|source| {
        let lines = source.code.lines().enumerate();
        lines
            .filter(|(_, line)| words.iter().any(|word| rust::holds_word(line, word)))
            .map(|(number, line)| format!("{}:{}: {}", source.path, number + 1, line.trim()))
    });
    hits.collect()
}

#[test]
fn the_library_crates_do_not_know_each_other_nor_the_broker() {
    let mut found = Vec::new();
    for (folder, others) in [
        ("net", ["seawall_storage", "seawall_committer", "seawall"]),
        ("storage", ["seawall_net", "seawall_committer", "seawall"]),
        ("committer", ["seawall_net", "seawall_storage", "seawall"]),
    ] {
        found.extend(lines_with(&tree::sources(&[folder]), &others));
        let dependencies = manifest_dependencies(&format!("{folder}/Cargo.toml"));
        let wrong = dependencies
            .iter()
            .filter(|name| others.contains(&name.replace('-', "_").as_str()));
        found.extend(wrong.map(|name| format!("{folder}/Cargo.toml: {name}")));
    }
    fail_if_any(
        "net, storage and committer are libraries without arrows among them",
        &found,
    );
}

#[test]
fn no_part_depends_on_what_it_must_not_know() {
    let mut found = Vec::new();
    for (folder, unknown) in [
        (
            "storage",
            [
                "mio",
                "socket2",
                "kafka-wire",
                "parking_lot",
                "crossbeam-channel",
                "signal-hook",
            ]
            .as_slice(),
        ),
        (
            "committer",
            ["mio", "socket2", "kafka-wire", "kafka-wire-core", "nix"].as_slice(),
        ),
        ("net", ["crc32c"].as_slice()),
        (
            ".",
            [
                "mio",
                "kafka-wire",
                "kafka-wire-core",
                "tokio",
                "async-std",
                "anyhow",
            ]
            .as_slice(),
        ),
    ] {
        let manifest = if folder == "." {
            "Cargo.toml".to_owned()
        } else {
            format!("{folder}/Cargo.toml")
        };
        let dependencies = manifest_dependencies(&manifest);
        let wrong = dependencies
            .iter()
            .filter(|name| unknown.contains(&name.as_str()));
        found.extend(wrong.map(|name| format!("{manifest}: {name}")));
    }
    fail_if_any("a dependency on what the part does not know", &found);
}

#[test]
fn storage_has_no_threads_and_no_locks() {
    let words = [
        "Mutex",
        "RwLock",
        "Condvar",
        "std::thread",
        "thread::spawn",
        "parking_lot",
        "TcpStream",
        "UdpSocket",
    ];
    fail_if_any(
        "storage knows neither threads, locks nor sockets",
        &lines_with(&tree::sources(&["storage/src"]), &words),
    );
}

#[test]
fn committer_knows_no_files_and_no_kafka() {
    let words = ["std::fs", "File", "RecordBatch", "kafka_wire", "TcpStream"];
    fail_if_any(
        "the committer knows neither bytes nor files",
        &lines_with(&tree::sources(&["committer/src"]), &words),
    );
}

#[test]
fn wire_types_are_named_only_in_net_and_in_the_api_files() {
    let mut sources = tree::sources(&["src", "storage", "committer"]);
    sources.retain(|source| !source.path.starts_with("src/api/"));
    let words = [
        "kafka_wire",
        "kafka_wire_core",
        "wire::messages",
        "messages::",
    ];
    fail_if_any(
        "a wire type outside net/ and src/api/",
        &lines_with(&sources, &words),
    );
}

#[test]
fn functions_are_short() {
    let mut found = Vec::new();
    for source in tree::sources(&tree::OURS) {
        for function in rust::functions(&source) {
            let known = LONGER_ALREADY
                .iter()
                .find(|known| (known.0, known.1) == (&source.path, &function.name));
            let limit = known.map_or(FUNCTION_LINES_MAX, |known| known.2);
            if function.lines > limit {
                found.push(format!(
                    "{}:{}: {} has {} lines",
                    source.path, function.at, function.name, function.lines
                ));
            }
        }
    }
    fail_if_any(
        &format!("functions have at most {FUNCTION_LINES_MAX} lines"),
        &found,
    );
}

#[test]
fn the_list_of_longer_functions_only_gets_shorter() {
    let sources = tree::sources(&tree::OURS);
    let stale = LONGER_ALREADY.iter().filter(|(path, name, lines)| {
        let functions = sources
            .iter()
            .filter(|source| source.path == *path)
            .flat_map(rust::functions);
        !functions
            .into_iter()
            .any(|function| function.name == *name && function.lines == *lines)
    });
    let stale: Vec<String> = stale
        .map(|(path, name, lines)| format!("{path}: {name}, {lines}"))
        .collect();
    fail_if_any(
        "these have become shorter or are gone: change the list",
        &stale,
    );
}

#[test]
fn files_are_not_too_long_and_open_with_what_they_own() {
    let mut found = Vec::new();
    for source in tree::sources(&tree::OURS) {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines", source.path));
        }
        // A file of unit tests has the header of the file it tests.
        if !source.text.starts_with("//!") && !source.path.ends_with("tests.rs") {
            found.push(format!("{}: no header comment", source.path));
        }
    }
    fail_if_any(
        &format!("files open with `//!` and have at most {FILE_LINES_MAX} lines"),
        &found,
    );
}

#[test]
fn nothing_sleeps_and_nothing_is_left_to_do() {
    let words = [
        "sleep(",
        "sleep_ms(",
        "todo!",
        "unimplemented!",
        "dbg!",
        "#[ignore]",
    ];
    let found = lines_with(&tree::sources(&tree::OURS), &words);
    fail_if_any(
        "a sleep, a gap, or an ignored test without a reason",
        &found,
    );
}

#[test]
fn unsafe_code_stands_only_in_the_files_that_are_named_for_it() {
    let sources = tree::sources(&tree::OURS);
    let is_named = |line: &String| UNSAFE.iter().any(|(path, _)| line.starts_with(path));
    let mut found = lines_with(&sources, &["unsafe"]);
    found.retain(|line| !is_named(line));
    for (path, reason) in UNSAFE {
        let text = sources.iter().find(|source| source.path == *path);
        let needs = text.is_some_and(|source| rust::holds_word(&source.code, "unsafe"));
        if !needs || reason.len() < 20 {
            found.push(format!("{path} is named without need, or without a reason"));
        }
    }
    // The compiler refuses it too, in every crate that takes the lints of the workspace.
    for manifest in tree::manifests() {
        let text = tree::read(&manifest);
        if !text.contains("[lints]\nworkspace = true") {
            found.push(format!(
                "{manifest} does not take the lints of the workspace"
            ));
        }
    }
    let lints = tree::read("Cargo.toml");
    assert!(
        lints.contains("unsafe_code = \"deny\""),
        "the workspace allows it"
    );
    fail_if_any("unsafe code", &found);
}

#[test]
fn every_api_row_has_its_file_and_stands_in_the_readme() {
    let table = tree::read("src/api/mod.rs");
    let rows = rust::api_rows(&table);
    assert!(rows.len() >= 12, "the table was not found: {rows:?}");
    let readme: BTreeSet<Vec<String>> = tree::markdown_rows("README.md", "| key |")
        .into_iter()
        .collect();
    let mut found = Vec::new();
    for row in &rows {
        let file = format!("src/api/{}.rs", row.module);
        let folder = format!("src/api/{}/mod.rs", row.module);
        if !tree::exists(&file) && !tree::exists(&folder) {
            found.push(format!("{} has no file {file}", row.name));
        }
        if row.module != rust::snake_case(&row.name) {
            found.push(format!("{} is handled by module {}", row.name, row.module));
        }
        let cells = vec![
            row.key.clone(),
            row.name.clone(),
            format!("{} to {}", row.versions.0, row.versions.1),
        ];
        if !readme.contains(&cells) {
            found.push(format!("README.md has no row | {} |", cells.join(" | ")));
        }
    }
    if readme.len() != rows.len() {
        found.push(format!(
            "README.md has {} API rows, the table {}",
            readme.len(),
            rows.len()
        ));
    }
    fail_if_any("API table, files and README", &found);
}

#[test]
fn threads_in_the_code_are_those_of_the_readme() {
    let documented: BTreeSet<String> = tree::thread_table()
        .iter()
        .map(|name| rust::stem(name))
        .collect();
    assert!(
        documented.len() >= 5,
        "the table of threads was not found in README.md: {documented:?}"
    );
    let sources = tree::sources(&["src", "net/src", "committer/src", "storage/src"]);
    let named: BTreeSet<String> = sources.iter().flat_map(rust::thread_names).collect();
    let text: Vec<String> = sources
        .iter()
        .map(|source| rust::without_tests(&source.text))
        .collect();
    let mut found: Vec<String> = named
        .difference(&documented)
        .map(|name| format!("the code starts a thread {name:?} that README.md does not list"))
        .collect();
    for name in &documented {
        let quoted = [format!("\"{name}\""), format!("\"{name}-")];
        if !text
            .iter()
            .any(|text| quoted.iter().any(|quoted| text.contains(quoted.as_str())))
        {
            found.push(format!(
                "README.md lists a thread {name:?} that no code names"
            ));
        }
    }
    fail_if_any("threads in the code and in README.md", &found);
}
