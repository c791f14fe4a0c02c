//! Transactions while the disk of their coordinator or of a partition hangs, fails, runs full or loses its power.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use seawall_faultfs::{Call, Errno, Fault, FaultFs};
use seawall_testkit::calls::create_topic;
use seawall_testkit::requests::TopicRef;
use seawall_testkit::txn::{Tx, fetch_committed, init_once, read_committed};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Broker, Raw};

use crate::{codes, cut_power, mounted, place, setup_on};

/// Where the slots lie, for orders.
const SLOTS: &str = "data/__cluster/txn_state/";
const NOT_AVAILABLE: i16 = 15;

fn start() -> (FaultFs, Broker, Raw, TopicRef) {
    let (fs, broker) = mounted(|setup| setup.set("log.flush.stall.timeout.ms", "1000"));
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "accounts", 1, &[]);
    (fs, broker, raw, topic)
}

fn commit(raw: &mut Raw, tx: &mut Tx, topic: &TopicRef) -> i64 {
    let sent = tx.send_v2(raw, (topic, 0), 0);
    assert_eq!(sent.0, codes::NONE);
    assert_eq!(tx.end_v2(raw, true), codes::NONE);
    sent.1
}

#[test]
fn a_decision_that_cannot_be_written_is_not_taken_and_can_be_taken_later() {
    let ways = [
        (Call::Sync, Errno::Io),
        (Call::SyncDir, Errno::Io),
        (Call::Write, Errno::NoSpace),
        (Call::Create, Errno::NoSpace),
        (Call::Rename, Errno::Stale),
    ];
    for (call, errno) in ways {
        let what = format!("{call:?} {errno:?}");
        let (fs, mut broker, mut raw, topic) = start();
        let mut tx = Tx::begin(&mut raw, "sick");
        assert_eq!(
            tx.send_v2(&mut raw, (&topic, 0), 0),
            (codes::NONE, 0),
            "{what}"
        );
        let sick = fs.order(call, SLOTS, Fault::Fail(errno));
        assert_eq!(tx.end_once(&mut raw, 5, true).0, NOT_AVAILABLE, "{what}");
        let refused = init_once(&mut raw, 4, "another", 1_000, (-1, -1));
        assert!(
            refused.0 == codes::NONE || refused.0 == NOT_AVAILABLE,
            "{what}"
        );
        assert_eq!(
            fetch_committed(&mut raw, &topic, 0).last_stable,
            0,
            "{what}"
        );
        sick.lift();
        assert_eq!(tx.end_v2(&mut raw, true), codes::NONE, "{what}");
        tx.settled(&mut raw);
        broker.kill9();
        cut_power(&fs);
        broker.start_again();
        let mut raw = broker.connect();
        tx.settled(&mut raw);
        assert_eq!(
            read_committed(&mut raw, &topic),
            (vec![0, 1], vec![]),
            "{what}"
        );
    }
}

#[test]
fn a_hung_slot_answers_in_time_and_goes_on_when_the_disk_does() {
    let (fs, broker, mut raw, topic) = start();
    let mut tx = Tx::begin(&mut raw, "hung");
    assert_eq!(tx.send_v2(&mut raw, (&topic, 0), 0), (codes::NONE, 0));
    let hang = fs.order(Call::Sync, SLOTS, Fault::Hang);
    assert_eq!(tx.end_once(&mut raw, 5, true).0, NOT_AVAILABLE);
    let mut other = broker.connect();
    assert_eq!(
        fetch_committed(&mut other, &topic, 0).last_stable,
        0,
        "nothing is decided"
    );
    assert_eq!(
        tx.end_once(&mut other, 5, true).0,
        NOT_AVAILABLE,
        "who waits behind it"
    );
    hang.lift();
    assert_eq!(tx.end_v2(&mut raw, true), codes::NONE);
    assert_eq!(tx.settled(&mut raw), "CompleteCommit");
    commit(&mut raw, &mut tx, &topic);
    tx.settled(&mut raw);
    assert_eq!(read_committed(&mut raw, &topic), (vec![0, 1, 2, 3], vec![]));
}

#[test]
fn a_marker_that_cannot_be_made_durable_is_written_once_the_partition_is_well() {
    for fault in [Fault::Fail(Errno::Io), Fault::Hang] {
        let (fs, mut broker, mut raw, topic) = start();
        let mut tx = Tx::begin(&mut raw, "marked");
        assert_eq!(tx.send_v2(&mut raw, (&topic, 0), 0), (codes::NONE, 0));
        let sick = fs.order(Call::Sync, &place("accounts", 0), fault);
        assert_eq!(
            tx.end_v2(&mut raw, true),
            codes::NONE,
            "the decision is durable"
        );
        sick.wait_for_hits(1, SOON);
        let got = fetch_committed(&mut raw, &topic, 0);
        assert!(
            got.batches.is_empty(),
            "nobody sees it before its marker is durable"
        );
        assert_eq!(tx.describe(&mut raw).1, "PrepareCommit");
        sick.lift();
        assert_eq!(tx.settled(&mut raw), "CompleteCommit");
        assert_eq!(
            read_committed(&mut raw, &topic),
            (vec![0, 1], vec![]),
            "one marker"
        );
        broker.kill9();
        cut_power(&fs);
        broker.start_again();
        let mut raw = broker.connect();
        assert_eq!(tx.settled(&mut raw), "CompleteCommit");
        assert_eq!(read_committed(&mut raw, &topic), (vec![0, 1], vec![]));
    }
}

/// What a client was told of a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Committed,
    Aborted,
    /// It was on its way when the broker went.
    Nothing,
}

#[test]
fn a_power_cut_takes_no_transaction_apart() {
    for round in 0..3 {
        let fs = FaultFs::mount(round);
        let mut broker = setup_on(&fs).start();
        let topics =
            ["left", "right"].map(|name| create_topic(&mut broker.connect(), name, 1, &[]));
        // By producer id and first offset in "left".
        let told = Mutex::new(BTreeMap::new());
        thread::scope(|threads| {
            for n in 0..4 {
                let (raw, topics, told) = (broker.connect(), &topics, &told);
                threads.spawn(move || {
                    // The broker is killed in the middle of it.
                    let run = std::panic::AssertUnwindSafe(|| transfers(raw, topics, n, told));
                    let _ = std::panic::catch_unwind(run);
                });
            }
            wait::until("enough was committed", SOON, || {
                told.lock().expect("told").len() > 60
            });
            broker.kill9();
        });
        cut_power(&fs);
        broker.start_again();
        check(&broker, &topics, &told.into_inner().expect("told"));
    }
}

type Outcomes = BTreeMap<(i64, i64), (i64, Told)>;

fn transfers(mut raw: Raw, topics: &[TopicRef; 2], n: usize, told: &Mutex<Outcomes>) {
    let raw = &mut raw;
    let mut tx = Tx::begin(raw, &format!("cut-{n}"));
    for round in 0.. {
        let (_, left) = tx.send_once_or_panic(raw, (&topics[0], 0));
        let (_, right) = tx.send_once_or_panic(raw, (&topics[1], 0));
        let key = (tx.producer.0, left);
        told.lock()
            .expect("told")
            .insert(key, (right, Told::Nothing));
        let commit = round % 3 != 2;
        assert_eq!(tx.end_v2(raw, commit), codes::NONE);
        let outcome = if commit {
            Told::Committed
        } else {
            Told::Aborted
        };
        told.lock().expect("told").insert(key, (right, outcome));
    }
}

/// Both halves of each are seen, or neither.
fn check(broker: &Broker, topics: &[TopicRef; 2], told: &Outcomes) {
    let raw = &mut broker.connect();
    for n in 0..4 {
        // Aborts what was open.
        Tx::begin(raw, &format!("cut-{n}"));
    }
    let seen = topics.each_ref().map(|topic| seen(raw, topic));
    for ((producer, left), (right, told)) in told {
        let halves = [
            seen[0].contains(&(*producer, *left)),
            seen[1].contains(&(*producer, *right)),
        ];
        let wanted = match told {
            Told::Committed => true,
            Told::Aborted => false,
            Told::Nothing => halves[0],
        };
        assert_eq!(
            halves, [wanted; 2],
            "{producer} at {left} and {right}: {told:?}"
        );
    }
}

/// Producer id and offset of every record that a reader of committed records keeps.
fn seen(raw: &mut Raw, topic: &TopicRef) -> Vec<(i64, i64)> {
    let (mut kept, mut next) = (Vec::new(), 0);
    loop {
        let got = fetch_committed(raw, topic, next);
        let Some(last) = got.batches.last() else {
            assert_eq!(got.last_stable, got.high_watermark, "nothing is left open");
            return kept;
        };
        next = last.last_offset() + 1;
        for batch in got
            .batches
            .iter()
            .filter(|batch| batch.attributes() & 0x20 == 0)
        {
            let (id, offset) = (batch.producer_id(), batch.base_offset());
            if !got.aborted.contains(&(id, offset)) {
                kept.push((id, offset));
            }
        }
    }
}
