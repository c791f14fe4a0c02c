//! Every phase and every command: what is never allowed to happen, and the rules one by one.

use super::machine::{Command, Decision, TxnError, complete, decide, is_expired};
use super::state::{EPOCH_LAST, Phase, Producer, Txn, TxnPartition};
use super::verify;
use seawall_storage::{PartitionIndex, ProducerId, TopicId, TxnOutcome};
use std::collections::BTreeSet;

const FRESH: ProducerId = ProducerId::new(900);

fn partition() -> TxnPartition {
    let id = TopicId(uuid::Uuid::from_u128(7));
    TxnPartition::new("t", id, PartitionIndex::new(0))
}

fn add(producer: Producer, v2: bool) -> Command {
    Command::Add {
        producer,
        partitions: BTreeSet::from([partition()]),
        group: None,
        v2,
    }
}

fn end(producer: Producer, outcome: TxnOutcome, v2: bool) -> Command {
    Command::End {
        producer,
        outcome,
        v2,
    }
}

fn init(expected: Option<Producer>) -> Command {
    Command::Init {
        timeout_ms: 1_000,
        expected,
    }
}

/// A transactional id that is driven as the driver would.
struct Driven {
    txn: Option<Txn>,
    now_ms: i64,
    fresh: i64,
}

impl Driven {
    fn new() -> Self {
        Self {
            txn: None,
            now_ms: 1_000,
            fresh: 10,
        }
    }

    fn step(&mut self, command: &Command) -> Result<Producer, TxnError> {
        self.now_ms += 1;
        let first = decide(self.txn.as_ref(), command, None, self.now_ms);
        let decision = match first {
            Decision::NeedsProducerId => {
                self.fresh += 1;
                let fresh = Some(ProducerId::new(self.fresh));
                decide(self.txn.as_ref(), command, fresh, self.now_ms)
            }
            other => other,
        };
        match decision {
            Decision::Answer(answer) => answer,
            Decision::Change { next, answer } => {
                self.check_change(&next);
                self.txn = Some(*next);
                answer
            }
            Decision::NeedsProducerId => panic!("it has one"),
            Decision::Wait => Err(TxnError::Concurrent),
        }
    }

    /// X1 and X2.
    fn check_change(&self, next: &Txn) {
        let Some(before) = &self.txn else { return };
        assert_eq!(before.phase.decided(), None, "X1");
        let (old, new) = (before.producer(), next.producer());
        assert!(
            new.epoch >= old.epoch || new.id != old.id,
            "X2: {old:?} {new:?}"
        );
    }

    fn carry_out(&mut self) {
        let done = self.txn.as_ref().and_then(|txn| complete(txn, self.now_ms));
        self.txn = done.or(self.txn.take());
    }

    fn phase(&self) -> Phase {
        self.txn.as_ref().unwrap().phase
    }

    fn producer(&self) -> Producer {
        self.txn.as_ref().unwrap().producer()
    }

    fn with_epoch(epoch: i16) -> Self {
        let mut driven = Self::new();
        driven.step(&init(None)).unwrap();
        let producer = driven.producer();
        let txn = driven.txn.as_mut().unwrap();
        txn.set_producer(Producer::new(producer.id.get(), epoch));
        driven
    }
}

#[test]
fn x04_no_epoch_is_used_twice_and_none_passes_the_last() {
    for v2 in [true, false] {
        let mut driven = Driven::with_epoch(EPOCH_LAST - 3);
        let mut given = BTreeSet::new();
        for _ in 0..12 {
            let before = driven.producer();
            if !v2 {
                driven.step(&init(None)).unwrap();
            }
            let producer = driven.producer();
            driven.step(&add(producer, v2)).unwrap();
            let next = driven.step(&end(producer, TxnOutcome::Commit, v2)).unwrap();
            driven.carry_out();
            assert_eq!(next, driven.producer(), "what the client is told holds");
            assert!(given.insert((producer.id.get(), producer.epoch.get())));
            assert!(driven.producer().epoch.get() <= EPOCH_LAST, "{before:?}");
        }
        assert!(driven.fresh > 11, "a new id took over");
    }
}

#[test]
fn x04_a_fenced_last_epoch_is_followed_by_a_new_id() {
    let mut driven = Driven::with_epoch(EPOCH_LAST);
    let producer = driven.producer();
    driven.step(&add(producer, false)).unwrap();
    assert_eq!(driven.step(&init(None)), Err(TxnError::Concurrent));
    assert_eq!(driven.producer().epoch.get(), i16::MAX);
    driven.carry_out();
    let next = driven.step(&init(None)).unwrap();
    assert_ne!(next.id, producer.id);
    assert_eq!(next.epoch.get(), 0);
    assert_eq!(
        driven.step(&add(producer, false)),
        Err(TxnError::UnknownProducer)
    );
}

#[test]
fn an_answer_that_was_lost_is_given_again_after_a_rotation() {
    let mut driven = Driven::with_epoch(EPOCH_LAST);
    let before = driven.producer();
    let told = driven.step(&init(Some(before))).unwrap();
    assert_ne!(told.id, before.id);
    assert_eq!(driven.step(&init(Some(before))), Ok(told));
    assert_eq!(driven.step(&init(Some(before))), Ok(told));
    driven.step(&init(None)).unwrap();
    assert_eq!(driven.step(&init(Some(before))), Err(TxnError::Fenced));
}

#[test]
fn a_decision_is_left_only_by_carrying_it_out() {
    for (outcome, phase) in [
        (TxnOutcome::Commit, Phase::PrepareCommit),
        (TxnOutcome::Abort, Phase::PrepareAbort),
    ] {
        for v2 in [true, false] {
            let mut driven = Driven::new();
            driven.step(&init(None)).unwrap();
            let producer = driven.producer();
            driven.step(&add(producer, v2)).unwrap();
            let next = driven.step(&end(producer, outcome, v2)).unwrap();
            let commands = [
                init(None),
                init(Some(producer)),
                add(next, v2),
                add(producer, v2),
                end(producer, TxnOutcome::Commit, v2),
                end(producer, TxnOutcome::Abort, v2),
                end(next, TxnOutcome::Abort, v2),
                Command::Expire,
            ];
            driven.now_ms += 1_000_000;
            for command in commands {
                // `step` asserts X1 for whatever changes.
                let _ = driven.step(&command);
                assert_eq!(driven.phase(), phase, "{command:?}");
            }
            assert!(!is_expired(driven.txn.as_ref().unwrap(), 0, i64::MAX));
            driven.carry_out();
            assert_eq!(driven.phase().decided(), None);
            let txn = driven.txn.as_ref().unwrap();
            assert!(txn.partitions.is_empty() && txn.groups.is_empty());
        }
    }
}

#[test]
fn x01_only_what_takes_too_long_expires() {
    let mut driven = Driven::new();
    driven.step(&init(None)).unwrap();
    let producer = driven.producer();
    driven.now_ms += 1_000_000;
    driven.step(&Command::Expire).unwrap();
    assert_eq!(driven.phase(), Phase::Empty, "nothing is open");
    driven.step(&add(producer, false)).unwrap();
    driven.now_ms += 900;
    driven.step(&Command::Expire).unwrap();
    assert_eq!(driven.phase(), Phase::Ongoing);
    driven.now_ms += 200;
    driven.step(&Command::Expire).unwrap();
    assert_eq!(driven.phase(), Phase::PrepareAbort);
    assert_eq!(driven.producer(), producer.next_epoch());
    driven.carry_out();
    let late = verify::partition(driven.txn.as_ref(), producer, &partition());
    assert_eq!(late, Err(TxnError::Fenced));
    assert_eq!(
        driven.step(&init(Some(producer))),
        Ok(producer.next_epoch())
    );
}

#[test]
fn unused_ids_are_forgotten_and_open_transactions_never() {
    let mut txn = Txn::new(FRESH, 1_000, 500);
    assert!(!is_expired(&txn, 1_000, 1_499));
    assert!(is_expired(&txn, 1_000, 1_500));
    txn.phase = Phase::Ongoing;
    assert!(!is_expired(&txn, 1_000, i64::MAX));
}
