//! The transactional load: producers that each commit one transaction after the other, and the same without transactions.
//!
//! Owns:     its connections and threads, one of each per producer.
//! Does not: choose the broker or print.
//!
//! # Invariants
//! T1. Every transaction counted was committed: all answers had error code zero, but for those that ask to come again.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use kafka_wire::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_wire::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_wire::{
    AddPartitionsToTxnRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest,
    ProduceRequest,
};
use kafka_wire_core::{Bytes, StrBytes};

use crate::admin::{Admin, no_error};
use crate::batch::{self, Shape};
use crate::error::{Error, Result};
use crate::wait;

/// The coordinator is busy, or not there yet: come again.
const COME_AGAIN: [i16; 4] = [14, 15, 16, 51];
const PATIENCE: Duration = Duration::from_secs(60);

/// How a producer makes its records count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// acks=all by an idempotent producer.
    Plain,
    /// Partitions are added, the epoch stays.
    V1,
    /// KIP-890.
    V2,
}

/// One load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) topic: String,
    pub(crate) kind: Kind,
    pub(crate) producers: usize,
    /// Each transaction writes one batch to each.
    pub(crate) partitions: i32,
    pub(crate) shape: Shape,
    pub(crate) time: Duration,
}

/// What a load achieved.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) count: usize,
    /// From the first request of a transaction to the last answer.
    pub(crate) whole: Vec<Duration>,
    /// Of EndTxn alone.
    pub(crate) end: Vec<Duration>,
}

/// Runs `load` against the broker at `addr`.
pub(crate) fn run(addr: SocketAddr, load: &Load) -> Result<Run> {
    let mut producers = Vec::new();
    for index in 0..load.producers {
        producers.push(Producer::new(addr, load, index)?);
    }
    let deadline = Instant::now() + load.time;
    let threads: Vec<_> = producers
        .into_iter()
        .map(|producer| thread::spawn(move || producer.run(deadline)))
        .collect();
    let mut all = Run::default();
    for thread in threads {
        let run = thread
            .join()
            .map_err(|_| Error::Usage("a producer panicked"))??;
        all.count += run.count;
        all.whole.extend(run.whole);
        all.end.extend(run.end);
    }
    Ok(all)
}

struct Producer {
    broker: Admin,
    kind: Kind,
    id: StrBytes,
    producer: (i64, i16),
    topic: StrBytes,
    partitions: i32,
    batch: Vec<u8>,
    sequence: i32,
    records: i32,
}

impl Producer {
    fn new(addr: SocketAddr, load: &Load, index: usize) -> Result<Self> {
        let mut broker = Admin::connect(addr)?;
        let id = StrBytes::from(format!("{}-{:?}-{index}", load.topic, load.kind).as_str());
        let producer = match load.kind {
            Kind::Plain => broker.producer_id()?,
            Kind::V1 | Kind::V2 => begin(&mut broker, &id)?,
        };
        let seed = u64::try_from(index).unwrap_or_default();
        let mut batch = batch::build(load.shape, seed + 1)?;
        if load.kind != Kind::Plain {
            batch::set_transactional(&mut batch);
        }
        Ok(Self {
            broker,
            kind: load.kind,
            id,
            producer,
            topic: StrBytes::from(load.topic.as_str()),
            partitions: load.partitions,
            batch,
            sequence: 0,
            records: load.shape.records,
        })
    }

    fn run(mut self, deadline: Instant) -> Result<Run> {
        let mut run = Run::default();
        while Instant::now() < deadline {
            let begun = Instant::now();
            if self.kind == Kind::V1 {
                self.add_partitions()?;
            }
            self.produce()?;
            let ending = Instant::now();
            if self.kind != Kind::Plain {
                self.commit()?;
                run.end.push(ending.elapsed());
            }
            run.whole.push(begun.elapsed());
            run.count += 1;
        }
        Ok(run)
    }

    fn add_partitions(&mut self) -> Result<()> {
        let mut topic = AddPartitionsToTxnTopic::default();
        topic.name = self.topic.clone();
        topic.partitions = (0..self.partitions).collect();
        let mut request = AddPartitionsToTxnRequest::default();
        request.v3_and_below_transactional_id = self.id.clone();
        request.v3_and_below_producer_id = self.producer.0;
        request.v3_and_below_producer_epoch = self.producer.1;
        request.v3_and_below_topics = vec![topic];
        wait::until("the coordinator to have time", PATIENCE, || {
            let answer = self.broker.call(&request, 3)?;
            let rows = answer.results_by_topic_v3_and_below.iter();
            let codes = rows.flat_map(|topic| &topic.results_by_partition);
            accept(
                "AddPartitionsToTxn",
                codes.map(|row| row.partition_error_code),
            )
        })
    }

    fn produce(&mut self) -> Result<()> {
        batch::set_producer(&mut self.batch, self.producer.0, self.producer.1);
        batch::set_sequence(&mut self.batch, self.sequence);
        self.sequence = self.sequence.checked_add(self.records).unwrap_or_default();
        let records = Bytes::copy_from_slice(&self.batch);
        let mut data = TopicProduceData::default();
        data.name = self.topic.clone();
        for index in 0..self.partitions {
            let mut partition = PartitionProduceData::default();
            partition.index = index;
            partition.records = Some(records.clone());
            data.partition_data.push(partition);
        }
        let mut request = ProduceRequest::default();
        request.acks = -1;
        request.timeout_ms = 30_000;
        request.topic_data.push(data);
        request.transactional_id = (self.kind != Kind::Plain).then(|| self.id.clone());
        let version = if self.kind == Kind::V2 { 12 } else { 11 };
        wait::until("the transaction to take records", PATIENCE, || {
            let answer = self.broker.call(&request, version)?;
            let rows = answer.responses.iter().flat_map(|t| &t.partition_responses);
            accept("Produce", rows.map(|row| row.error_code))
        })
    }

    fn commit(&mut self) -> Result<()> {
        let mut request = EndTxnRequest::default();
        request.transactional_id = self.id.clone();
        (request.producer_id, request.producer_epoch) = self.producer;
        request.committed = true;
        let version = if self.kind == Kind::V2 { 5 } else { 4 };
        let next = wait::until("the transaction to end", PATIENCE, || {
            let answer = self.broker.call(&request, version)?;
            let next = (answer.producer_id, answer.producer_epoch);
            Ok(accept("EndTxn", [answer.error_code].into_iter())?.map(|()| next))
        })?;
        if self.kind == Kind::V2 {
            (self.producer, self.sequence) = (next, 0);
        }
        Ok(())
    }
}

/// A producer with a transactional id.
fn begin(broker: &mut Admin, id: &StrBytes) -> Result<(i64, i16)> {
    let mut find = FindCoordinatorRequest::default();
    find.key = id.clone();
    find.key_type = 1;
    wait::until("a coordinator", PATIENCE, || {
        let answer = broker.call(&find, 3)?;
        accept("FindCoordinator", [answer.error_code].into_iter())
    })?;
    let mut request = InitProducerIdRequest::default();
    request.transactional_id = Some(id.clone());
    request.transaction_timeout_ms = 60_000;
    request.producer_id = -1;
    request.producer_epoch = -1;
    wait::until("a transactional producer", PATIENCE, || {
        let answer = broker.call(&request, 4)?;
        let producer = (answer.producer_id, answer.producer_epoch);
        let accepted = accept("InitProducerId", [answer.error_code].into_iter())?;
        Ok(accepted.map(|()| producer))
    })
}

/// `None`: to be sent again (T1).
fn accept(api: &'static str, codes: impl Iterator<Item = i16>) -> Result<Option<()>> {
    for code in codes {
        if COME_AGAIN.contains(&code) {
            return Ok(None);
        }
        no_error(api, code)?;
    }
    Ok(Some(()))
}
