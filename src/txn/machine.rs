//! The rules of transactions: what a command does to a transactional id.
//!
//! Owns:     every transition and every refusal, as a pure function.
//! Does not: persist, wait, reply, write markers or hand out producer ids; the
//!           driver does, and asks again.
//!
//! # Invariants
//! X1. A decision (`PrepareCommit`, `PrepareAbort`) is never taken back; only
//!     [`complete`] leaves it.
//! X2. An epoch is never used twice, and never passes `i16::MAX`: before that the
//!     transactional id gets a new producer id.
//!
//! The rules are Kafka's: KIP-98, KIP-360 (bumps that a client asks for), KIP-890
//! (version 2: the end of each transaction raises the epoch).

use std::collections::BTreeSet;

use seawall_storage::{ProducerId, TxnOutcome};

use super::state::{EPOCH_LAST, Phase, Producer, Txn, TxnPartition};

/// What somebody asks of a transactional id.
#[derive(Clone, Debug)]
pub enum Command {
    /// A producer begins, or goes on after an error (KIP-360).
    Init {
        /// How long its transactions may take.
        timeout_ms: i32,
        /// Who it was, if it goes on.
        expected: Option<Producer>,
    },
    /// The transaction reaches more partitions or groups.
    Add {
        /// Who says so.
        producer: Producer,
        /// More partitions.
        partitions: BTreeSet<TxnPartition>,
        /// Another group.
        group: Option<String>,
        /// By a client of version 2.
        v2: bool,
    },
    /// The transaction ends.
    End {
        /// Who says so.
        producer: Producer,
        /// How.
        outcome: TxnOutcome,
        /// By a client of version 2.
        v2: bool,
    },
    /// The transaction is aborted if it has taken too long.
    Expire,
}

/// Why a command is refused. The client's fault, but for `Concurrent`; nothing was
/// changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TxnError {
    /// No such transactional id, or not with that producer id.
    UnknownProducer,
    /// The epoch is not the one that may use it.
    Fenced,
    /// The last transaction is still being ended; to be tried again.
    Concurrent,
    /// Nothing that can be done in this phase.
    InvalidState,
    /// The partition is not in the transaction; aborting helps.
    NotInTransaction,
    /// The timeout is not one that the broker allows.
    InvalidTimeout,
    /// The transactional id is empty.
    InvalidId,
    /// The disk's fault: the change could not be made durable.
    Unavailable,
}

/// What comes of a command.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Nothing changes; this is the answer.
    Answer(Result<Producer, TxnError>),
    /// This must be durable before the answer is let out.
    Change {
        /// The new state.
        next: Box<Txn>,
        /// The answer then.
        answer: Result<Producer, TxnError>,
    },
    /// A producer id that was never used must be brought first.
    NeedsProducerId,
    /// To be asked again when the decision under way is carried out.
    Wait,
}

/// Decides. `fresh`: a producer id that was never used, once it was asked for.
pub fn decide(
    txn: Option<&Txn>,
    command: &Command,
    fresh: Option<ProducerId>,
    now_ms: i64,
) -> Decision {
    match (command, txn) {
        (
            Command::Init {
                timeout_ms,
                expected,
            },
            _,
        ) => {
            let init = Init {
                timeout_ms: *timeout_ms,
                expected: *expected,
                fresh,
                now_ms,
            };
            init.decide(txn)
        }
        (Command::Expire, None) => refuse(TxnError::UnknownProducer),
        (Command::Expire, Some(txn)) if txn.is_overdue(now_ms) => {
            change(fenced(txn, now_ms), Ok(txn.producer()))
        }
        (Command::Expire, Some(txn)) => Decision::Answer(Ok(txn.producer())),
        (Command::Add { .. } | Command::End { .. }, None) => refuse(TxnError::UnknownProducer),
        (
            Command::Add {
                producer,
                partitions,
                group,
                v2,
            },
            Some(txn),
        ) => {
            let add = Add {
                partitions,
                group: group.as_ref(),
                v2: *v2,
                now_ms,
            };
            add.decide(txn, *producer)
        }
        (
            Command::End {
                producer,
                outcome,
                v2,
            },
            Some(txn),
        ) => {
            let end = End {
                outcome: *outcome,
                fresh,
                now_ms,
            };
            if *v2 {
                end.decide_v2(txn, *producer)
            } else {
                end.decide_v1(txn, *producer)
            }
        }
    }
}

/// The decision is carried out: every marker and every offset is durable (X1).
pub fn complete(txn: &Txn, now_ms: i64) -> Option<Txn> {
    let phase = match txn.phase.decided()? {
        TxnOutcome::Commit => Phase::CompleteCommit,
        TxnOutcome::Abort => Phase::CompleteAbort,
    };
    let mut next = Txn {
        phase,
        partitions: BTreeSet::new(),
        groups: BTreeSet::new(),
        updated_ms: now_ms,
        ..txn.clone()
    };
    if txn.next_producer_id >= 0 {
        next.previous_producer_id = txn.producer().id.get();
        next.set_producer(Producer::new(txn.next_producer_id, 0));
        next.next_producer_id = -1;
    }
    Some(next)
}

/// Whether nobody has used the transactional id for so long that it may be
/// forgotten.
pub fn is_expired(txn: &Txn, expiration_ms: i64, now_ms: i64) -> bool {
    let idle = match txn.phase {
        Phase::Empty | Phase::CompleteCommit | Phase::CompleteAbort => true,
        Phase::Ongoing | Phase::PrepareCommit | Phase::PrepareAbort => false,
    };
    idle && now_ms.saturating_sub(txn.updated_ms) >= expiration_ms
}

fn refuse(error: TxnError) -> Decision {
    Decision::Answer(Err(error))
}

fn change(next: Txn, answer: Result<Producer, TxnError>) -> Decision {
    Decision::Change {
        next: Box::new(next),
        answer,
    }
}

pub(super) fn check_producer(txn: &Txn, producer: Producer) -> Result<(), TxnError> {
    let ours = txn.producer();
    if ours.id != producer.id {
        return Err(TxnError::UnknownProducer);
    }
    if ours.epoch != producer.epoch {
        return Err(TxnError::Fenced);
    }
    Ok(())
}

/// The transaction is aborted over its producer's head: the raised epoch fences it.
/// If that producer goes on (KIP-360), or ends what was ended for it, it learns the new
/// epoch as if it had asked for it; anybody else gets a higher one.
fn fenced(txn: &Txn, now_ms: i64) -> Txn {
    let mut next = Txn {
        phase: Phase::PrepareAbort,
        last_epoch: txn.producer().epoch.get(),
        updated_ms: now_ms,
        v2: true,
        ..txn.clone()
    };
    next.set_producer(txn.producer().next_epoch());
    next
}

struct Init {
    timeout_ms: i32,
    expected: Option<Producer>,
    fresh: Option<ProducerId>,
    now_ms: i64,
}

impl Init {
    fn decide(&self, txn: Option<&Txn>) -> Decision {
        let Some(txn) = txn else {
            return match self.fresh {
                Some(id) => self.began(&Txn::new(id, self.timeout_ms, self.now_ms), -1),
                None => Decision::NeedsProducerId,
            };
        };
        if !self.expected.is_none_or(|expected| is_of(txn, expected)) {
            return refuse(TxnError::Fenced);
        }
        match txn.phase {
            Phase::PrepareCommit | Phase::PrepareAbort => refuse(TxnError::Concurrent),
            // The client asks again, and gets a higher epoch still.
            Phase::Ongoing => change(fenced(txn, self.now_ms), Err(TxnError::Concurrent)),
            Phase::Empty | Phase::CompleteCommit | Phase::CompleteAbort => self.bump(txn),
        }
    }

    fn bump(&self, txn: &Txn) -> Decision {
        let current = txn.producer();
        let own = self.expected.is_none_or(|e| e.epoch == current.epoch);
        if current.is_exhausted() && own {
            return self.rotate(txn);
        }
        match self.expected {
            None => self.began(txn, -1),
            Some(_) if own => self.began(txn, current.epoch.get()),
            // The answer to the same request was lost.
            Some(expected) if expected.epoch.get() == txn.last_epoch => {
                Decision::Answer(Ok(current))
            }
            Some(_) => refuse(TxnError::Fenced),
        }
    }

    /// X2.
    fn rotate(&self, txn: &Txn) -> Decision {
        let Some(id) = self.fresh else {
            return Decision::NeedsProducerId;
        };
        let current = txn.producer();
        let last_epoch = self.expected.map_or(-1, |_| current.epoch.get());
        let mut next = Txn {
            previous_producer_id: current.id.get(),
            ..txn.clone()
        };
        next.set_producer(Producer {
            id,
            epoch: seawall_storage::ProducerEpoch::NONE,
        });
        self.began(&next, last_epoch)
    }

    fn began(&self, txn: &Txn, last_epoch: i16) -> Decision {
        let producer = txn.producer().next_epoch();
        let mut next = Txn {
            phase: Phase::Empty,
            last_epoch,
            timeout_ms: self.timeout_ms,
            started_ms: -1,
            updated_ms: self.now_ms,
            ..txn.clone()
        };
        next.set_producer(producer);
        change(next, Ok(producer))
    }
}

/// Whether a producer that goes on is the one that used the transactional id last,
/// or did before its epochs ran out and did not hear of that.
fn is_of(txn: &Txn, expected: Producer) -> bool {
    expected.id == txn.producer().id
        || (expected.id.get() == txn.previous_producer_id && expected.is_exhausted())
}

struct Add<'a> {
    partitions: &'a BTreeSet<TxnPartition>,
    group: Option<&'a String>,
    v2: bool,
    now_ms: i64,
}

impl Add<'_> {
    fn decide(&self, txn: &Txn, producer: Producer) -> Decision {
        let decided = txn.phase.decided().is_some();
        // The producer of the next transaction may be here before the last one's
        // decision is carried out.
        if decided && producer == Producer::new(txn.next_producer_id, 0) {
            return Decision::Wait;
        }
        if let Err(error) = check_producer(txn, producer) {
            return refuse(error);
        }
        if decided {
            return Decision::Wait;
        }
        let ongoing = txn.phase == Phase::Ongoing;
        let known = self.partitions.is_subset(&txn.partitions)
            && self.group.is_none_or(|group| txn.groups.contains(group));
        if ongoing && known {
            return Decision::Answer(Ok(producer));
        }
        let mut next = Txn {
            phase: Phase::Ongoing,
            started_ms: if ongoing { txn.started_ms } else { self.now_ms },
            updated_ms: self.now_ms,
            v2: self.v2,
            ..txn.clone()
        };
        next.partitions.extend(self.partitions.iter().cloned());
        next.groups.extend(self.group.cloned());
        change(next, Ok(producer))
    }
}

struct End {
    outcome: TxnOutcome,
    fresh: Option<ProducerId>,
    now_ms: i64,
}

impl End {
    /// Up to EndTxn v4: the epoch stays, and a repeated request looks like the first.
    fn decide_v1(&self, txn: &Txn, producer: Producer) -> Decision {
        if let Err(error) = check_producer(txn, producer) {
            return refuse(error);
        }
        match self.agrees(txn.phase) {
            Stands::Open => change(self.prepared(txn), Ok(producer)),
            Stands::UnderWay => refuse(TxnError::Concurrent),
            Stands::Done => Decision::Answer(Ok(producer)),
            Stands::Otherwise => refuse(TxnError::InvalidState),
        }
    }

    /// From EndTxn v5: the epoch tells a repeated request from the next one.
    fn decide_v2(&self, txn: &Txn, producer: Producer) -> Decision {
        let ours = txn.producer();
        let bumped = txn.v2 && ours == producer.next_epoch();
        if txn.phase.decided().is_some() {
            let next = Producer::new(txn.next_producer_id, 0);
            let known = bumped || ours == producer || next == producer;
            return refuse(match known {
                true => TxnError::Concurrent,
                false if ours.id == producer.id => TxnError::Fenced,
                false => TxnError::UnknownProducer,
            });
        }
        let wrapped = txn.previous_producer_id == producer.id.get()
            && producer.epoch.get() == EPOCH_LAST
            && ours.epoch.get() == 0;
        if ours.id != producer.id && !wrapped {
            return refuse(TxnError::UnknownProducer);
        }
        let complete = matches!(txn.phase, Phase::CompleteCommit | Phase::CompleteAbort);
        let again = complete && (bumped || wrapped);
        if ours != producer && !again {
            return refuse(TxnError::Fenced);
        }
        match (self.agrees(txn.phase), again) {
            (Stands::Open, _) => self.prepared_v2(txn),
            (Stands::Done, true) => Decision::Answer(Ok(ours)),
            // An abort of nothing raises the epoch all the same.
            (_, false) if self.outcome == TxnOutcome::Abort => self.prepared_v2(txn),
            (Stands::UnderWay | Stands::Done | Stands::Otherwise, _) => {
                refuse(TxnError::InvalidState)
            }
        }
    }

    fn agrees(&self, phase: Phase) -> Stands {
        match (phase, self.outcome) {
            (Phase::Ongoing, _) => Stands::Open,
            (Phase::PrepareCommit, TxnOutcome::Commit)
            | (Phase::PrepareAbort, TxnOutcome::Abort) => Stands::UnderWay,
            (Phase::CompleteCommit, TxnOutcome::Commit)
            | (Phase::CompleteAbort, TxnOutcome::Abort) => Stands::Done,
            (
                Phase::Empty
                | Phase::PrepareCommit
                | Phase::PrepareAbort
                | Phase::CompleteCommit
                | Phase::CompleteAbort,
                _,
            ) => Stands::Otherwise,
        }
    }

    fn prepared(&self, txn: &Txn) -> Txn {
        let phase = match self.outcome {
            TxnOutcome::Commit => Phase::PrepareCommit,
            TxnOutcome::Abort => Phase::PrepareAbort,
        };
        Txn {
            phase,
            v2: false,
            updated_ms: self.now_ms,
            ..txn.clone()
        }
    }

    fn prepared_v2(&self, txn: &Txn) -> Decision {
        let current = txn.producer();
        let next_id = match (current.is_exhausted(), self.fresh) {
            (false, _) => -1,
            (true, Some(id)) => id.get(),
            (true, None) => return Decision::NeedsProducerId,
        };
        let mut next = Txn {
            last_epoch: current.epoch.get(),
            next_producer_id: next_id,
            v2: true,
            ..self.prepared(txn)
        };
        if txn.phase != Phase::Ongoing {
            next.started_ms = self.now_ms;
        }
        next.set_producer(current.next_epoch());
        let after = complete(&next, self.now_ms).unwrap_or_else(|| next.clone());
        change(next, Ok(after.producer()))
    }
}

/// How a phase stands to an outcome that is asked for.
enum Stands {
    /// It can still be decided.
    Open,
    /// That is the decision, and it is being carried out.
    UnderWay,
    /// That is how it ended.
    Done,
    /// Neither.
    Otherwise,
}
