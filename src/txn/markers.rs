//! Carrying out a decision: a marker in every partition, then the groups' offsets.
//!
//! Owns:     who has confirmed, and trying again until all have.
//! Does not: decide, persist, or write to a log itself.
//!
//! # Invariants
//! M1. A marker that may have been written is offered as such (`again`): the log does
//!     not take it twice.
//! M2. What cannot be reached is tried again with growing pauses, for ever: a
//!     decision is never given up. Only what does not exist any more is left out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seawall_storage::{AppendReject, Marker, MarkerValue, TxnOutcome};

use super::offsets;
use super::state::{Txn, TxnPartition};
use crate::broker::Broker;
use crate::partition::{AppendError, Part, PartSink, Partition, Stored, now};
use crate::timer::Deadline;

/// Pauses between tries.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// There is one coordinator, and it never changes.
const COORDINATOR_EPOCH: i32 = 0;

/// What has to be confirmed.
#[derive(Clone)]
enum Task {
    Partition(TxnPartition),
    Group(String),
}

/// One decision.
struct Run {
    broker: Arc<Broker>,
    id: Arc<str>,
    txn: Txn,
    outcome: TxnOutcome,
    tasks: Vec<Task>,
    state: Mutex<State>,
}

struct State {
    /// Of each task, whether its present try is over and how.
    tried: Vec<Option<Confirmed>>,
    open: usize,
    again: bool,
    pause: Duration,
    /// The next try.
    next: Option<Deadline>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Confirmed {
    Yes,
    NotYet,
}

/// Carries out what was decided of `txn`; completes it in the end. `again`: an
/// earlier process may have begun.
pub(super) fn carry_out(broker: &Arc<Broker>, id: &Arc<str>, txn: &Txn, again: bool) {
    let Some(outcome) = txn.phase.decided() else {
        return;
    };
    let partitions = txn.partitions.iter().cloned().map(Task::Partition);
    let groups = txn.groups.iter().cloned().map(Task::Group);
    let tasks: Vec<Task> = partitions.chain(groups).collect();
    let run = Arc::new(Run {
        broker: Arc::clone(broker),
        id: Arc::clone(id),
        txn: txn.clone(),
        outcome,
        state: Mutex::new(State {
            tried: vec![Some(Confirmed::NotYet); tasks.len()],
            open: 0,
            again,
            pause: PAUSE_MIN,
            next: None,
        }),
        tasks,
    });
    run.start();
}

impl Run {
    /// Tries everything that is not confirmed yet.
    fn start(self: &Arc<Self>) {
        let (todo, again) = {
            let mut state = self.state.lock();
            let mut todo = Vec::new();
            for (index, tried) in state.tried.iter_mut().enumerate() {
                if *tried == Some(Confirmed::NotYet) {
                    *tried = None;
                    todo.push(index);
                }
            }
            // One more than the tasks, so that no answer ends the try before all of
            // them were asked.
            state.open = todo.len() + 1;
            (todo, std::mem::replace(&mut state.again, true))
        };
        for index in todo {
            self.ask(index, again);
        }
        self.answered();
    }

    fn ask(self: &Arc<Self>, index: usize, again: bool) {
        match self.tasks.get(index) {
            None => {}
            Some(Task::Partition(partition)) => match self.find(partition) {
                Found::Open(found) => {
                    let part = Part::new(Arc::new(Sink(Arc::clone(self))), index);
                    found.offer_marker(&self.marker(), again, part);
                }
                Found::Gone => self.confirm(index, Confirmed::Yes),
                Found::Offline => self.confirm(index, Confirmed::NotYet),
            },
            Some(Task::Group(_)) if self.broker.txns.is_staging(&self.id) => {
                self.confirm(index, Confirmed::NotYet);
            }
            Some(Task::Group(group)) => {
                let run = Arc::clone(self);
                let commit = self.outcome == TxnOutcome::Commit;
                let producer = self.txn.producer().id;
                let done = Box::new(move |applied: bool| {
                    let confirmed = if applied {
                        Confirmed::Yes
                    } else {
                        Confirmed::NotYet
                    };
                    run.confirm(index, confirmed);
                });
                offsets::end(&self.broker, group, producer, commit, done);
            }
        }
    }

    fn marker(&self) -> Marker {
        let producer = self.txn.producer();
        Marker {
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            value: MarkerValue {
                outcome: self.outcome,
                coordinator_epoch: COORDINATOR_EPOCH,
            },
            time: now(),
        }
    }

    fn find(&self, partition: &TxnPartition) -> Found {
        let map = self.broker.topics.load();
        let Ok(topic) = map.with_id(partition.topic_id()) else {
            // A topic whose catalog row cannot be read may come back.
            return match map.named(&partition.topic) {
                Err(crate::topics::LookupError::Damaged) => Found::Offline,
                Ok(_) | Err(_) => Found::Gone,
            };
        };
        match topic.partition(partition.index().get()) {
            Ok(found) => Found::Open(Arc::clone(found)),
            Err(_) => Found::Offline,
        }
    }

    fn confirm(self: &Arc<Self>, index: usize, confirmed: Confirmed) {
        match self.state.lock().tried.get_mut(index) {
            Some(tried @ None) => *tried = Some(confirmed),
            Some(Some(_)) | None => return,
        }
        self.answered();
    }

    fn answered(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.open -= 1;
        if state.open > 0 {
            return;
        }
        let all = state.tried.iter().all(|t| *t == Some(Confirmed::Yes));
        if all {
            let pending = state.next.take();
            drop(state);
            drop(pending);
            return self.broker.txns.completed(&self.broker, &self.id);
        }
        let pause = state.pause;
        state.pause = (pause * 2).min(PAUSE_MAX);
        drop(state);
        self.try_again_in(pause);
    }

    fn try_again_in(self: &Arc<Self>, pause: Duration) {
        log::warn!(
            "transactional id {:?}: not every partition has its marker yet, trying again in {pause:?}",
            self.id
        );
        let run = Arc::clone(self);
        let when = Instant::now() + pause;
        let next = self.broker.timer.at(when, move || run.start());
        let before = self.state.lock().next.replace(next);
        drop(before);
    }
}

enum Found {
    Open(Arc<Partition>),
    /// Deleted: nobody can be misled by records that are not there.
    Gone,
    Offline,
}

/// Hears of one try of one marker.
struct Sink(Arc<Run>);

impl PartSink for Sink {
    fn claim(&self, _index: usize) -> bool {
        true
    }

    fn settle(&self, index: usize, outcome: Result<Stored, AppendError>) {
        let run = &self.0;
        let confirmed = match outcome {
            Ok(_) | Err(AppendError::Deleted) => Confirmed::Yes,
            Err(AppendError::Rejected(AppendReject::ProducerFenced, _)) => {
                // A later epoch was here, which ended whatever was open.
                log::warn!("transactional id {:?}: a marker came too late", run.id);
                Confirmed::Yes
            }
            Err(_) => Confirmed::NotYet,
        };
        run.confirm(index, confirmed);
    }
}
