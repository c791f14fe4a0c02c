//! An idempotent producer that a test steers by hand: numbered one-record batches, sent and answered apart.

use seawall_testkit::calls;
use seawall_testkit::kafka_wire::ProduceRequest;
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::{BatchBuilder, Bytes, Raw};

/// See the module.
pub(crate) struct Writer {
    topic: TopicRef,
    partition: i32,
    id: i64,
    epoch: i16,
    padding: usize,
}

impl Writer {
    pub(crate) fn new(raw: &mut Raw, topic: &TopicRef, partition: i32) -> Self {
        let (id, epoch) = calls::new_producer(raw);
        Self {
            topic: topic.clone(),
            partition,
            id,
            epoch,
            padding: 0,
        }
    }

    /// Makes each record this much larger.
    pub(crate) fn padded(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    /// The value of a record; no two are equal.
    pub(crate) fn value(&self, sequence: i32) -> String {
        let padding = "x".repeat(self.padding);
        format!("producer {} record {sequence} {padding}", self.id)
    }

    /// The same number is the same batch.
    pub(crate) fn batch(&self, sequence: i32) -> Bytes {
        BatchBuilder::of(&[&self.value(sequence)])
            .producer(self.id, self.epoch, sequence)
            .build()
    }

    /// Sends a batch with acks=all; gives the correlation id of the answer to come.
    pub(crate) fn send(&self, raw: &mut Raw, sequence: i32, timeout_ms: i32) -> i32 {
        let records = vec![(self.partition, Some(self.batch(sequence)))];
        let mut request = requests::produce(calls::PRODUCE, &self.topic, -1, records);
        request.timeout_ms = timeout_ms;
        raw.send(calls::PRODUCE, &request)
    }

    /// Reads an answer: error code and base offset.
    pub(crate) fn answer(raw: &mut Raw, correlation: i32) -> (i16, i64) {
        let mut answer = raw.receive::<ProduceRequest>(calls::PRODUCE, correlation);
        let part = answer.responses.remove(0).partition_responses.remove(0);
        (part.error_code, part.base_offset)
    }

    /// Sends a batch and reads the answer.
    pub(crate) fn produce(&self, raw: &mut Raw, sequence: i32) -> (i16, i64) {
        let correlation = self.send(raw, sequence, 30_000);
        Self::answer(raw, correlation)
    }

    /// Asserts that the partition holds exactly the records `0..count`, each once, at its number, byte for byte.
    pub(crate) fn assert_log_is(&self, raw: &mut Raw, count: i32, what: &str) {
        let stored = calls::read_from(raw, &self.topic, self.partition, 0);
        let expected: Vec<(i64, Bytes)> = (0..count)
            .map(|number| (i64::from(number), payload(&self.batch(number))))
            .collect();
        let found: Vec<(i64, Bytes)> = stored
            .iter()
            .map(|batch| (batch.base_offset(), batch.payload()))
            .collect();
        assert_eq!(found.len(), expected.len(), "{what}: records in the log");
        assert!(
            found == expected,
            "{what}: other records than were produced"
        );
    }
}

fn payload(batch: &Bytes) -> Bytes {
    batch.slice(seawall_testkit::batch::HEADER_LEN..)
}
