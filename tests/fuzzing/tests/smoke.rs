//! The bounded run: the kept corpus, and inputs like it, through every target.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use seawall_fuzzing::mutate::Dice;
use seawall_fuzzing::{
    API_NAMES, TARGETS, Target, log_dir_files, request_seed, state_is_accepted, state_seeds,
};
use seawall_testkit::batch::{BatchBuilder, Codec};

/// Inputs of each target in everyday runs; a log dir is a whole recovery, and so fewer.
const INPUTS: usize = 60_000;
const LOG_DIRS: usize = 3_000;
/// Half of them are a catalog, all of which is read.
const STATE_FILES: usize = 20_000;
/// The same in every run, so that a failure can be repeated.
const SEED: u64 = 0x5ea_3a11;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let dir = root().join("fuzz/corpus").join(target.name);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let inputs = paths.iter().map(|path| fs::read(path).expect("a seed"));
    inputs.collect()
}

fn inputs_of(target: &Target) -> usize {
    let everyday = match target.name {
        "log_dir" => LOG_DIRS,
        "state_file" => STATE_FILES,
        _ => INPUTS,
    };
    let full = std::env::var_os("SEAWALL_TEST_FULL").is_some();
    if full { everyday * 50 } else { everyday }
}

#[test]
fn inputs_like_those_of_clients_and_disks_end_without_a_panic() {
    let mut all = 0;
    for target in &TARGETS {
        let seeds = corpus(target);
        assert!(!seeds.is_empty(), "{} has no corpus", target.name);
        seeds.iter().for_each(|seed| (target.run)(seed));
        let mut dice = Dice::new(SEED);
        let count = inputs_of(target);
        for _ in 0..count {
            (target.run)(&dice.like(&seeds));
        }
        all += count + seeds.len();
        println!(
            "{}: {count} inputs like {} kept ones",
            target.name,
            seeds.len()
        );
    }
    println!("{all} inputs in all");
}

#[test]
fn every_request_that_is_served_is_decoded_here() {
    let table = fs::read_to_string(root().join("src/api/mod.rs")).expect("the API table");
    let rows = table.split("static TABLE").nth(1).expect("the table");
    let rows = &rows[..rows.find("];").expect("its end")];
    let names: BTreeSet<&str> = rows
        .split("api(")
        .skip(1)
        .filter_map(|row| row.split('"').nth(1))
        .collect();
    assert!(names.len() > 40, "{names:?}");
    let here: BTreeSet<&str> = API_NAMES
        .iter()
        .map(|name| name.trim_end_matches("Request"))
        .collect();
    let missing: Vec<_> = names.difference(&here).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn state_files_as_they_should_be_are_accepted() {
    for (name, seed) in state_seeds() {
        assert!(state_is_accepted(&seed), "{name}");
        assert!(!state_is_accepted(&seed[..seed.len() - 3]), "{name}, cut");
    }
}

#[test]
fn the_seeds_that_can_be_made_are_kept() {
    let keep = std::env::var_os("SEAWALL_UPDATE_FILES").is_some();
    for (target, name, seed) in seeds() {
        let path = root().join("fuzz/corpus").join(target).join(&name);
        if keep {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, &seed).expect("write");
        }
        let kept = fs::read(&path).unwrap_or_default();
        assert!(
            kept == seed,
            "run this with SEAWALL_UPDATE_FILES=1: {target}/{name}"
        );
    }
}

fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut all = Vec::new();
    for (which, name) in API_NAMES.iter().enumerate() {
        // The newest version, and the newest one before flexible versions came: the two forms there are.
        let versions: Vec<u8> = (0..=20)
            .filter(|v| request_seed(which, *v).is_some())
            .collect();
        let picked: BTreeSet<u8> = versions
            .first()
            .into_iter()
            .chain(versions.last())
            .copied()
            .collect();
        for version in picked {
            let seed = request_seed(which, version).expect("a version that there is");
            all.push(("request", format!("{name}-{version}"), seed));
        }
    }
    for (key, version) in [(3_u8, 1_u8), (3, 12), (18, 4), (0, 9)] {
        let mut header = vec![0, key, 0, version, 0, 0, 0, 7, 0, 4];
        header.extend_from_slice(b"test\0body");
        let mut frame = vec![7, 0, 0, 0, u8::try_from(header.len()).expect("short")];
        frame.extend_from_slice(&header);
        all.push(("header", format!("{key}-{version}"), header));
        all.push(("frame", format!("{key}-{version}"), frame));
    }
    let subscription = b"\0\x01\0\0\0\x01\0\x01t\xff\xff\xff\xff\0\0\0\0".to_vec();
    all.push(("subscription", "v1".to_owned(), subscription));
    let three = || BatchBuilder::of(&["one", "two", "three"]);
    all.push(("batch", "plain".to_owned(), three().build().to_vec()));
    let in_txn = three().producer(7, 0, 0).attribute_bits(1 << 4).build();
    all.push(("batch", "transactional".to_owned(), in_txn.to_vec()));
    let gzip = three().codec(Codec::Gzip).build();
    all.push(("batch", "gzip".to_owned(), gzip.to_vec()));
    for codec in 2..=4 {
        let said = three().attribute_bits(codec).build();
        all.push(("batch", format!("codec-{codec}"), said.to_vec()));
    }
    let logins: [(&str, u8, &[u8]); 5] = [
        ("plain", 0, b"\0alice\0secret"),
        ("first", 1, b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL"),
        ("first-for-another", 1, b"y,a=a=2Cb,n=a=2Cb,r=x,ext=1"),
        (
            "final",
            2,
            b"c=biws,r=NONCE,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        ),
        ("final-short", 2, b"c=biws,r=NONCE,p=AAAA"),
    ];
    for (name, kind, message) in logins {
        all.push(("sasl", name.to_owned(), [&[kind], message].concat()));
    }
    let state = state_seeds().into_iter();
    all.extend(state.map(|(name, seed)| ("state_file", name, seed)));
    for (place, (path, content)) in log_dir_files().iter().enumerate() {
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let place = u8::try_from(place).expect("few files");
        if name.ends_with(".json") {
            // Without its checksum it is read on: what is changed in it is met.
            let text = String::from_utf8_lossy(content);
            let lines: Vec<&str> = text.lines().filter(|l| !l.contains("crc32c")).collect();
            let bare = [&[place], lines.join("\n").as_bytes()].concat();
            all.push(("log_dir", format!("bare-{name}"), bare));
        }
        all.push(("log_dir", name, [&[place], &content[..]].concat()));
    }
    all
}
