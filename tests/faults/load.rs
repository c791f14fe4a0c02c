//! Producers and readers that run until their broker is killed under them, and go on with the next one.

use std::collections::VecDeque;
use std::sync::Arc;

use seawall_testkit::calls::{self, FETCH, PRODUCE};
use seawall_testkit::kafka_wire::{FetchRequest, ProduceRequest};
use seawall_testkit::raw::decode_response;
use seawall_testkit::requests::{self, FetchFrom, FetchLimits, TopicRef};
use seawall_testkit::{BatchBuilder, Bytes, Raw};

use super::model::{Ledger, payload};
use super::writer::Writer;
use crate::codes;

/// Answers that a producer waits for at a time: with the one before them, the five that a broker remembers.
const IN_FLIGHT: usize = 4;
const WAIT: FetchLimits = FetchLimits {
    max_wait_ms: 100,
    min_bytes: 1,
    max_bytes: 1 << 20,
};

/// What a sick disk may answer: later, or later since an earlier one was refused.
const REFUSALS: [i16; 2] = [codes::KAFKA_STORAGE_ERROR, codes::OUT_OF_ORDER_SEQUENCE];

/// A batch that waits for its answer: its number and the correlation id.
type Waiting = (i32, i32);

/// A producer with acks=all that retries what a crash left unanswered.
pub(crate) struct Forced {
    name: usize,
    writer: Writer,
    ledger: Arc<Ledger>,
    /// Offsets by number.
    told: Vec<i64>,
    sent: i32,
}

impl Forced {
    pub(crate) fn new(name: usize, writer: Writer, ledger: Arc<Ledger>) -> Self {
        Self {
            name,
            writer,
            ledger,
            told: Vec::new(),
            sent: 0,
        }
    }

    /// Runs until the connection closes. Begins with the last answered batch again, which must get its old offset.
    pub(crate) fn run(&mut self, raw: &mut Raw) {
        let answered = i32::try_from(self.told.len()).expect("few");
        let mut next = (answered - 1).max(0);
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        loop {
            while waiting.len() <= IN_FLIGHT && next < self.told_count() + 4 {
                waiting.push_back((next, self.send(raw, next)));
                next += 1;
            }
            let (number, correlation) = waiting.pop_front().expect("something is in flight");
            let Some(frame) = raw.read_frame_unless_killed() else {
                return;
            };
            match read_answer(correlation, frame) {
                (codes::NONE, offset) => self.answered(number, offset),
                (code, _) => {
                    assert!(
                        REFUSALS.contains(&code),
                        "producer {}: error {code}",
                        self.name
                    );
                    if !drain(raw, &mut waiting) {
                        return;
                    }
                    // As a client does: again from the first that was not answered, in order.
                    next = self.told_count();
                }
            }
        }
    }

    fn told_count(&self) -> i32 {
        i32::try_from(self.told.len()).expect("few")
    }

    fn send(&mut self, raw: &mut Raw, number: i32) -> i32 {
        let batch = self.writer.batch(number);
        self.ledger.sends(self.name, number, true, &payload(&batch));
        self.sent = self.sent.max(number + 1);
        self.writer.send(raw, number, 30_000)
    }

    fn answered(&mut self, number: i32, offset: i64) {
        let batch = self.writer.batch(number);
        self.ledger.told(offset, &payload(&batch));
        match self
            .told
            .get(usize::try_from(number).expect("not negative"))
        {
            Some(before) => assert_eq!(offset, *before, "a retry of producer {}", self.name),
            None => self.told.push(offset),
        }
    }
}

/// A producer with acks=1, which never retries.
pub(crate) struct Unforced {
    name: usize,
    topic: TopicRef,
    partition: i32,
    ledger: Arc<Ledger>,
    sent: i32,
}

impl Unforced {
    pub(crate) fn new(name: usize, topic: &TopicRef, partition: i32, ledger: Arc<Ledger>) -> Self {
        let topic = topic.clone();
        Self {
            name,
            topic,
            partition,
            ledger,
            sent: 0,
        }
    }

    /// Runs until the connection closes.
    pub(crate) fn run(&mut self, raw: &mut Raw) {
        loop {
            let value = format!("unforced {} record {}", self.name, self.sent);
            let batch = BatchBuilder::of(&[&value]).build();
            self.ledger
                .sends(self.name, self.sent, false, &payload(&batch));
            self.sent += 1;
            let records = vec![(self.partition, Some(batch.clone()))];
            let request = requests::produce(PRODUCE, &self.topic, 1, records);
            let correlation = raw.send(PRODUCE, &request);
            let Some(frame) = raw.read_frame_unless_killed() else {
                return;
            };
            match read_answer(correlation, frame) {
                (codes::NONE, offset) => self.ledger.told(offset, &payload(&batch)),
                (code, _) => assert_eq!(code, codes::KAFKA_STORAGE_ERROR, "producer {}", self.name),
            }
        }
    }
}

/// Reads the answers to what is in flight behind a refused batch: refused too, or of a batch that is sent again. Says
/// whether the connection still stands.
fn drain(raw: &mut Raw, waiting: &mut VecDeque<Waiting>) -> bool {
    for (_, correlation) in waiting.drain(..) {
        let Some(frame) = raw.read_frame_unless_killed() else {
            return false;
        };
        let (code, _) = read_answer(correlation, frame);
        assert!(
            code == codes::NONE || REFUSALS.contains(&code),
            "error {code} behind a refused batch"
        );
    }
    true
}

fn read_answer(correlation: i32, frame: Bytes) -> (i16, i64) {
    let mut answer = decode_response::<ProduceRequest>(PRODUCE, correlation, frame);
    let part = answer.responses.remove(0).partition_responses.remove(0);
    (part.error_code, part.base_offset)
}

/// Reads from `next` on until the connection closes, and has the ledger remember all it is shown. Gives where it stood.
pub(crate) fn observe(
    raw: &mut Raw,
    topic: &TopicRef,
    partition: i32,
    next: i64,
    ledger: &Ledger,
) -> i64 {
    let mut next = next;
    loop {
        let request = requests::fetch(FETCH, topic, WAIT, &[FetchFrom::new(partition, next)]);
        let correlation = raw.send(FETCH, &request);
        let Some(frame) = raw.read_frame_unless_killed() else {
            return next;
        };
        let answer = decode_response::<FetchRequest>(FETCH, correlation, frame);
        let data = &answer.responses[0].partitions[0];
        assert_eq!(data.error_code, codes::NONE, "a reader at offset {next}");
        for batch in calls::whole_batches(data) {
            assert!(
                batch.base_offset() <= next,
                "a reader at {next} missed something"
            );
            next = batch.last_offset() + 1;
            ledger.shown(&batch);
        }
    }
}
