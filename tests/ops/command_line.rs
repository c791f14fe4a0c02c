//! What the command line says to people.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

use seawall_testkit::calls::{append, create_topic};
use seawall_testkit::{BatchBuilder, tempfile};

use crate::setup;

fn seawall(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words).output().expect("run seawall")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn config_check_names_each_problem_with_file_line_key_and_way_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("server.properties");
    let wrong = "# comment\nnum.partition=1\nlog.retention.hours=x\nlisteners=FOO\nnode.id=1\n";
    fs::write(&file, wrong).expect("write");
    let name = file.display().to_string();
    let checked = seawall(&["config", "check", "--config", &name]);
    let expected = format!(
        "{name}:2: unknown key 'num.partition'; did you mean 'num.partitions'?\n    \
         write num.partitions, or take the line out\n\
         {name}:3: log.retention.hours=x: it must be a whole number of 32 bits\n    \
         correct the value, or take the line out for the default: 168\n\
         {name}:4: listeners=FOO: it must be of the form NAME://host:port\n    \
         correct it; `seawall config default` says what listeners is\n\
         3 problems\n"
    );
    assert_eq!(text(&checked.stdout), expected);
    assert_eq!(checked.status.code(), Some(1));
}

#[test]
fn config_check_is_content_with_a_kafka_file_and_says_what_has_no_effect() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("server.properties");
    fs::write(&file, "num.io.threads=8\nnum.partitions=3\n").expect("write");
    let name = file.display().to_string();
    let checked = seawall(&["config", "check", "--config", &name]);
    let expected = format!("{name}:1: num.io.threads has no effect in this broker\n{name}: fine\n");
    assert_eq!(text(&checked.stdout), expected);
    assert_eq!(checked.status.code(), Some(0));
    let missing = dir.path().join("missing").display().to_string();
    let checked = seawall(&["config", "check", "--config", &missing]);
    assert_eq!(checked.status.code(), Some(2));
    assert!(text(&checked.stdout).contains(&missing));
}

#[test]
fn a_start_that_fails_names_the_file_the_key_and_the_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = taken.local_addr().expect("an address").port();
    for (line, key) in [
        (
            format!("listeners=PLAINTEXT://127.0.0.1:{port}"),
            "listeners",
        ),
        (format!("admin.listener=127.0.0.1:{port}"), "admin.listener"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("server.properties");
        let others = "listeners=PLAINTEXT://127.0.0.1:0\nadmin.listener=127.0.0.1:0\n";
        fs::write(&file, format!("{others}{line}\n")).expect("write");
        let (name, data) = (file.display().to_string(), dir.path().join("data"));
        let started = seawall(&["--config", &name, "--data-dir", &data.to_string_lossy()]);
        let told = text(&started.stderr);
        assert_eq!(started.status.code(), Some(1), "{told}");
        for part in [
            &format!("({key}, {name}:3)"),
            "Address already in use",
            "ss -ltnp",
        ] {
            assert!(told.contains(part), "{part} is not in {told}");
        }
    }
}

#[test]
fn the_version_tells_the_commit() {
    let told = text(&seawall(&["--version"]).stdout);
    let version = concat!("seawall ", env!("CARGO_PKG_VERSION"), " (commit ");
    let commit = told
        .trim_end()
        .strip_prefix(version)
        .and_then(|t| t.strip_suffix(')'));
    let commit = commit.unwrap_or_else(|| panic!("{told}"));
    let is_hash = commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit());
    let in_git = Path::new(env!("CARGO_MANIFEST_DIR")).join(".git").exists();
    assert!(is_hash || (!in_git && commit == "unknown"), "{told}");
}

#[test]
fn outside_of_git_the_build_says_unknown_or_what_it_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("build-script");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut compile = Command::new(rustc);
    compile
        .arg("--edition=2024")
        .arg("-o")
        .arg(&script)
        .arg(source);
    assert!(compile.status().expect("run rustc").success());
    let told = |given: &str| {
        let mut run = Command::new(&script);
        run.env("CARGO_MANIFEST_DIR", dir.path())
            .env("SEAWALL_COMMIT", given);
        text(&run.current_dir(dir.path()).output().expect("run it").stdout)
    };
    assert!(told("").contains("cargo::rustc-env=SEAWALL_COMMIT=unknown\n"));
    assert!(told("abc").contains("cargo::rustc-env=SEAWALL_COMMIT=abc\n"));
}

#[test]
fn verify_shows_progress_on_a_terminal_and_is_quiet_elsewhere() {
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "seen", 1, &[]);
    append(&mut raw, &topic, 0, BatchBuilder::of(&["x"]).build());
    drop(raw);
    broker.shut_down();
    let data = broker.data().to_string_lossy().into_owned();
    let piped = seawall(&["verify", "--data-dir", &data]);
    assert!(piped.status.success());
    assert_eq!(text(&piped.stderr), "");
    assert!(!text(&piped.stdout).contains('\x1b'));
    let line = format!(
        "'{}' verify --data-dir '{data}'",
        env!("CARGO_BIN_EXE_seawall")
    );
    let terminal = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .output();
    let shown = text(&terminal.expect("run script").stdout);
    assert!(shown.contains("\r\x1b[K0 MiB, in "), "{shown:?}");
    assert!(shown.contains("no damage"), "{shown:?}");
}
