//! Stretches that go out unread: what a read would bring, or nothing.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustix::pipe::{PipeFlags, pipe_with};
use seawall_storage::disk::{Disk, RealDisk};
use seawall_storage::{Log, Offset, ReadSpec, ReadView, Resources, Stop, Stretch};
use tempfile::TempDir;

use crate::support::{Setup, append, close, flush, plain, read_all, roll, spec};

/// Handles stay open, and with them what was checked, whatever other tests open.
pub(crate) fn keeps_all() -> Arc<Resources> {
    Resources::new(100_000)
}

fn setup() -> (TempDir, Setup) {
    let home = TempDir::new().expect("a directory");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut setup = Setup::new(disk, &home.path().join("3"));
    setup.resources = keeps_all();
    (home, setup)
}

fn fill(log: &mut Log, from: u32) {
    for tag in from..from + 40 {
        append(log, &[plain(tag, 3, 20 + (tag as usize * 7) % 90)]);
    }
    flush(log);
}

/// As a reader asks.
fn asked(from: i64, upto: i64, max_bytes: usize) -> ReadSpec {
    ReadSpec {
        upto: Offset(upto),
        gaps: false,
        ..spec(from, max_bytes)
    }
}

fn content(stretch: &Stretch) -> Option<Vec<u8>> {
    let (mut reader, writer) = {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        (std::fs::File::from(reader), writer)
    };
    let mut done = 0;
    while done < stretch.len() {
        let fd = std::os::fd::AsFd::as_fd(&writer);
        done += stretch.splice(done, fd).expect("splice");
    }
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("read");
    Some(bytes)
}

/// How many reads a stretch answers, out of all that a reader might ask.
/// `content`: what comes out of the pipe.
pub(crate) fn compare(view: &ReadView, content: impl Fn(&Stretch) -> Option<Vec<u8>>) -> usize {
    let end = view.end_offset().0;
    let mut found = 0;
    for from in 0..end {
        for upto in [from, from + 1, from + 10, end] {
            for max_bytes in [1, 300, 1000, 5000] {
                let spec = asked(from, upto, max_bytes);
                let Some(stretch) = view.stretch(&spec, 1).expect("stretch") else {
                    continue;
                };
                let (len, next) = (stretch.len(), stretch.next);
                assert!(len <= max_bytes && next.0 <= upto);
                let read = view.read(&asked(from, next.0, len)).expect("read");
                assert_eq!((read.next, read.bytes.len()), (next, len));
                let same = content(&stretch).is_none_or(|bytes| bytes == read.bytes);
                assert!(same, "from {from} upto {upto}");
                let more = view.stretch(&spec, len + 1).expect("stretch");
                assert!(more.is_none(), "fewer than asked for are no stretch");
                found += 1;
            }
        }
    }
    found
}

#[test]
fn a_stretch_is_what_a_read_brings_and_only_of_what_was_checked() {
    let (_home, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    fill(&mut log, 0);
    assert_eq!(
        compare(&log.read_view(), content),
        0,
        "nothing was checked yet"
    );
    read_all(&log, 0, 1000);
    let live = compare(&log.read_view(), content);
    assert!(live > 100, "{live}");
    // From index files, and through handles that have checked nothing.
    close(&log);
    drop(log);
    let mut log = setup.open(Stop::Clean);
    fill(&mut log, 40);
    let before = compare(&log.read_view(), content);
    read_all(&log, 0, 1000);
    let after = compare(&log.read_view(), content);
    assert!(after > before && after > live, "{before} {after}");
}

#[test]
fn what_an_index_file_names_is_looked_at() {
    let (home, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    fill(&mut log, 0);
    roll(&mut log);
    close(&log);
    drop(log);
    let log = setup.open(Stop::Clean);
    let checked = read_all(&log, 0, 1000);
    let view = log.read_view();
    assert!(compare(&view, content) > 100);
    // The same bytes but for the base offset of every batch of the first file: no boundary can be confirmed.
    let first = first_log(&home.path().join("3"));
    let mut bytes = std::fs::read(&first).expect("read");
    let mut at = 0;
    while at < bytes.len() {
        let len = checked
            .iter()
            .find(|b| b.bytes()[..] == bytes[at..at + b.len()]);
        let len = len.expect("a batch").len();
        bytes[at] ^= 1;
        at += len;
    }
    std::fs::write(&first, bytes).expect("write");
    let end = view.end_offset().0;
    for from in 1..20 {
        let stretch = view.stretch(&asked(from, end, 5000), 1).expect("stretch");
        let in_first = stretch.is_some_and(|s| s.base.0 < 10);
        assert!(!in_first, "from {from}");
    }
}

fn first_log(dir: &Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(dir).expect("list");
    let mut logs: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "log"))
        .collect();
    logs.sort();
    logs.remove(0)
}
