//! Transactions in one log: cases x05 and x07 as far as a log reaches.

use std::path::Path;
use std::sync::Arc;

use seawall_storage::disk::{Crash, Disk, SimDisk};
use seawall_storage::inspect::{Finding, InspectOptions, inspect_partition};
use seawall_storage::{
    AbortedTxn, AppendReject, Batch, BatchVerdict, Log, Offered, Offset, PartitionIndex,
    ProducerId, Stop, Timestamp, TxnOrigin, TxnOutcome,
};

use crate::support::{
    Setup, append, close, flush, idempotent, marker, offered, plain, roll, transactional,
};

const DIR: &str = "/topic/3";
const END: Offset = Offset(i64::MAX);

fn setup() -> (SimDisk, Setup) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    disk.sync_dir(Path::new("/")).expect("sync");
    let setup = Setup::new(Arc::new(disk.clone()), Path::new(DIR));
    (disk, setup)
}

fn one(log: &mut Log, batch: &Batch) -> BatchVerdict {
    append(log, std::slice::from_ref(batch))[0]
}

fn put(log: &mut Log, batch: &Batch) {
    let verdict = one(log, batch);
    assert!(
        matches!(verdict, BatchVerdict::Appended { .. }),
        "{verdict:?}"
    );
}

/// Offers a batch that stands to transactions like that.
fn offer(log: &mut Log, batch: &Batch, txn: TxnOrigin) -> BatchVerdict {
    let offered = Offered {
        txn,
        ..offered(batch)
    };
    let outcome = log.append_group(std::slice::from_ref(&offered), Timestamp(2_000_000));
    outcome.verdicts[0]
}

fn appended(base: i64, last: i64) -> BatchVerdict {
    BatchVerdict::Appended {
        base: Offset(base),
        last: Offset(last),
    }
}

fn aborted(producer: i64, first: i64, last: i64) -> AbortedTxn {
    AbortedTxn {
        first_offset: Offset(first),
        last_offset: Offset(last),
        producer: ProducerId(producer),
    }
}

const INVALID: BatchVerdict = BatchVerdict::Rejected(AppendReject::InvalidTxnState);
const FENCED: BatchVerdict = BatchVerdict::Rejected(AppendReject::ProducerFenced);

fn stable(log: &Log) -> Offset {
    log.read_view().last_stable_offset(END)
}

fn all_aborted(log: &Log) -> Vec<AbortedTxn> {
    let view = log.read_view();
    view.aborted_in(Offset(0), END).expect("aborted")
}

#[test]
fn x07_the_oldest_open_transaction_holds_the_stable_offset() {
    let (_disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    assert_eq!(one(&mut log, &plain(1, 2, 10)), appended(0, 1));
    assert_eq!(one(&mut log, &transactional(1, 0, 0, 2)), appended(2, 3));
    assert_eq!(one(&mut log, &transactional(2, 0, 0, 1)), appended(4, 4));
    assert_eq!(one(&mut log, &plain(2, 1, 10)), appended(5, 5));
    assert_eq!(stable(&log), Offset(2));
    put(&mut log, &marker(2, 0, TxnOutcome::Commit));
    assert_eq!(stable(&log), Offset(2));
    put(&mut log, &marker(1, 0, TxnOutcome::Abort));
    let view = log.read_view();
    assert_eq!(
        view.last_stable_offset(Offset(7)),
        Offset(2),
        "a marker that nobody may see yet ends nothing"
    );
    assert_eq!(view.last_stable_offset(Offset(8)), Offset(8));
    assert_eq!(all_aborted(&log), [aborted(1, 2, 7)]);
    log.settle_transactions(Offset(8));
    assert_eq!(stable(&log), Offset(8));
}

#[test]
fn nothing_transactional_is_written_that_no_coordinator_knows() {
    let (_disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    roll(&mut log);
    let first = transactional(1, 0, 0, 1);
    assert_eq!(offer(&mut log, &first, TxnOrigin::Unverified), INVALID);
    let at = TxnOrigin::VerifiedIn(log.read_view().marker_round());
    assert_eq!(offer(&mut log, &first, at), appended(0, 0));
    let second = transactional(1, 0, 1, 1);
    assert_eq!(
        offer(&mut log, &second, TxnOrigin::Unverified),
        appended(1, 1)
    );
    assert_eq!(
        offer(&mut log, &idempotent(1, 0, 2, 1), TxnOrigin::Unverified),
        INVALID,
        "no plain batch inside of a transaction"
    );
    let verified = TxnOrigin::VerifiedIn(log.read_view().marker_round());
    put(&mut log, &marker(1, 0, TxnOutcome::Commit));
    let late = transactional(1, 0, 2, 1);
    assert_eq!(
        offer(&mut log, &late, verified),
        INVALID,
        "verified too early"
    );
    let verified = TxnOrigin::VerifiedIn(log.read_view().marker_round());
    assert_eq!(offer(&mut log, &late, verified), appended(3, 3));
}

#[test]
fn a_marker_is_never_doubled_and_fences_what_was_verified_before_it() {
    let (_disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    put(&mut log, &transactional(1, 4, 0, 1));
    let commit = marker(1, 4, TxnOutcome::Commit);
    let again = TxnOrigin::Marker { again: true };
    let stands = BatchVerdict::Duplicate {
        base: Offset(1),
        last: Offset(1),
        append_time: None,
    };
    assert_eq!(offer(&mut log, &commit, again), appended(1, 1));
    assert_eq!(offer(&mut log, &commit, again), stands);
    let verified = TxnOrigin::VerifiedIn(log.read_view().marker_round());
    assert_eq!(offer(&mut log, &commit, again), stands);
    let late = transactional(1, 4, 1, 1);
    assert_eq!(offer(&mut log, &late, verified), INVALID);
    let in_time = TxnOrigin::VerifiedIn(log.read_view().marker_round());
    assert_eq!(offer(&mut log, &late, in_time), appended(2, 2));
    assert_eq!(offer(&mut log, &commit, again), appended(3, 3));
    assert_eq!(
        offer(&mut log, &marker(1, 3, TxnOutcome::Abort), again),
        FENCED
    );
    assert_eq!(
        offer(&mut log, &marker(1, 5, TxnOutcome::Abort), again),
        appended(4, 4),
        "a raised epoch is worth a marker: it fences"
    );
    let old = transactional(1, 4, 2, 1);
    assert_eq!(one(&mut log, &old), FENCED);
    assert_eq!(one(&mut log, &transactional(1, 5, 0, 1)), appended(5, 5));
    assert!(
        all_aborted(&log).is_empty(),
        "the second marker ended nothing"
    );
}

/// One transaction over several segments, one in each, and one that stays open.
fn fill(log: &mut Log) -> Vec<AbortedTxn> {
    let mut wanted = Vec::new();
    put(log, &transactional(50, 0, 0, 1));
    for n in 0..12 {
        let base = log.end_offset().0;
        put(log, &transactional(n, 0, 0, 2));
        append(log, &[plain(7, 1, 900)]);
        let last = log.end_offset().0;
        let outcome = if n % 3 == 0 {
            TxnOutcome::Commit
        } else {
            TxnOutcome::Abort
        };
        put(log, &marker(n, 0, outcome));
        if outcome == TxnOutcome::Abort {
            wanted.push(aborted(n, base, last));
        }
    }
    let last = log.end_offset().0;
    put(log, &marker(50, 0, TxnOutcome::Abort));
    wanted.insert(0, aborted(50, 0, last));
    put(log, &transactional(51, 0, 0, 1));
    wanted
}

fn check_all(log: &Log, wanted: &[AbortedTxn], open: Offset) {
    assert_eq!(all_aborted(log), wanted);
    assert_eq!(stable(log), open);
    let view = log.read_view();
    let touched = view.aborted_in(Offset(0), Offset(1)).expect("aborted");
    assert_eq!(touched, &wanted[..1], "its marker is segments away");
    let middle = wanted[3];
    let touched = view
        .aborted_in(middle.last_offset, middle.last_offset.plus(1))
        .expect("aborted");
    assert_eq!(touched, [wanted[0], middle]);
}

#[test]
fn aborted_transactions_are_found_over_segments_restarts_and_without_their_files() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    let wanted = fill(&mut log);
    let open = log.end_offset().plus(-1);
    check_all(&log, &wanted, open);
    close(&log);
    check_all(&setup.open(Stop::Clean), &wanted, open);
    assert_eq!(
        setup
            .resources
            .indexes_rebuilt
            .load(std::sync::atomic::Ordering::Relaxed),
        0,
        "a clean start reads the files"
    );
    let files = disk.list(Path::new(DIR)).expect("list");
    let indexes: Vec<_> = files
        .iter()
        .filter(|entry| entry.name.ends_with(".txnindex"))
        .collect();
    assert!(indexes.len() > 4, "one for each segment");
    for (n, entry) in indexes.iter().enumerate() {
        let path = Path::new(DIR).join(&entry.name);
        if n % 3 == 0 {
            disk.remove_file(&path).expect("remove");
        } else {
            let mut content = disk.content(&path).expect("content");
            content[20] ^= 1;
            disk.put(&path, &content);
        }
    }
    check_all(&setup.open(Stop::Clean), &wanted, open);
}

#[test]
fn x05_a_kill_keeps_open_and_aborted_transactions() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    let wanted = fill(&mut log);
    let open = log.end_offset().plus(-1);
    drop(log);
    disk.restart(Crash::KeepAll);
    let mut log = setup.open(Stop::Unclean);
    check_all(&log, &wanted, open);
    let again = TxnOrigin::Marker { again: true };
    roll(&mut log);
    let end = log.end_offset();
    let verdict = offer(&mut log, &marker(51, 0, TxnOutcome::Commit), again);
    assert_eq!(verdict, appended(end.0, end.0));
    assert_eq!(stable(&log), end.plus(1));
    assert_eq!(all_aborted(&log), wanted);
}

#[test]
fn a_producer_in_a_transaction_does_not_expire() {
    let (_disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    put(&mut log, &transactional(1, 0, 0, 1));
    let late = Timestamp(2_000_000 + 7 * 24 * 3600 * 1000);
    assert_eq!(log.expire_producers(late), 0);
    put(&mut log, &marker(1, 0, TxnOutcome::Abort));
    assert_eq!(log.expire_producers(late), 1);
    assert_eq!(stable(&log), log.end_offset());
}

#[test]
fn a_healed_log_knows_its_transactions() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    put(&mut log, &transactional(1, 0, 0, 1));
    put(&mut log, &marker(1, 0, TxnOutcome::Abort));
    put(&mut log, &transactional(2, 0, 0, 1));
    flush(&mut log);
    put(&mut log, &marker(2, 0, TxnOutcome::Abort));
    put(&mut log, &transactional(3, 0, 0, 1));
    log.mark_sync_failed();
    let healed = log.heal_plan().expect("failed").run().expect("heals");
    assert_eq!(log.heal_done(healed).records, 0);
    let wanted = [aborted(1, 0, 1), aborted(2, 2, 3)];
    assert_eq!(all_aborted(&log), wanted);
    assert_eq!(stable(&log), Offset(4));
    close(&log);
    disk.restart(Crash::LoseAll);
    let log = setup.open(Stop::Clean);
    assert_eq!(all_aborted(&log), wanted);
    assert_eq!(stable(&log), Offset(4));
}

#[test]
fn an_inspection_compares_the_files_with_the_batches() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    fill(&mut log);
    close(&log);
    assert!(findings(&disk).is_empty(), "{:?}", findings(&disk));
    let indexes: Vec<_> = disk.list(Path::new(DIR)).expect("list");
    let mut indexes = indexes
        .iter()
        .map(|entry| Path::new(DIR).join(&entry.name))
        .filter(|path| path.extension().is_some_and(|ext| ext == "txnindex"));
    let (first, second) = (indexes.next().expect("one"), indexes.next().expect("two"));
    let good = disk.content(&second).expect("content");
    let mut content = good.clone();
    content[20] ^= 1;
    disk.put(&second, &content);
    assert_eq!(findings(&disk).len(), 1, "a flipped bit");
    let whole = disk.content(&first).expect("content");
    disk.put(&second, &whole);
    assert!(findings(&disk).is_empty(), "of another end: not believed");
    let none = [b"SWTX".as_slice(), &[0, 1], &good[6..14], &[0; 8]].concat();
    let sum = crc32c::crc32c(&none).to_be_bytes();
    disk.put(&second, &[none, sum.to_vec()].concat());
    assert_eq!(findings(&disk).len(), 1, "nothing aborted, says the file");
}

fn findings(disk: &SimDisk) -> Vec<String> {
    let options = InspectOptions {
        topic_id: None,
        partition: PartitionIndex(3),
        recovered_this_boot: false,
        progress: &|_| {},
    };
    let mut found = Vec::new();
    inspect_partition(disk, Path::new(DIR), &options, &mut |finding: Finding| {
        found.push(format!("{}: {}", finding.file, finding.what));
    })
    .expect("listed");
    found
}
