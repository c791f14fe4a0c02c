//! Fetch: reads on the read workers, long polls without a thread.
//!
//! Owns:     what a fetch asks, and the form of its answer.
//! Does not: look into records, or read on a net thread.
//!
//! `wait` holds a fetch from its frame to its answer, `read` makes the rows,
//! `session` says what is asked beyond the frame, and which rows go out.

mod read;
mod session;
mod wait;

use std::sync::Arc;

use seawall_net::wire::{FetchRequest, FetchResponse};
use seawall_net::{Flow, Pipes};

use super::codes::ErrorCode;
use super::gates::Access;
use super::slot::{Slot, Work};
use super::{Call, MALFORMED, UNENCODABLE};
use crate::broker::Broker;
use crate::fetch_sessions::{PartKey, TopicKey, Wanted};
use crate::partition::Partition;
use crate::security::acl::Operation;
use crate::security::quota::Client;
use crate::topics::{Topic, TopicMap};
use wait::Fetch;
pub(super) use wait::Parked;

/// The lowest version that names topics by id (KIP-516).
const TOPIC_IDS_FROM: i16 = 13;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = FetchRequest::decode(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let client = call.client();
    let may_have = client.as_ref();
    let may_have = may_have.and_then(|who| call.broker.quotas.fetch_bytes_max(who));
    match begin(call.broker, call.access(), &request, version) {
        Ok(mut ask) => {
            ask.bound(may_have);
            ask.pipes = call.slot.conn().pipes().cloned();
            ask.payer = client.map(|who| (Arc::clone(call.broker), who));
            let fetch = Fetch::new(ask, call.broker, call.request.received, call.slot);
            call.conn.parked = Parked::new(&fetch);
            fetch.start(request.max_wait_ms);
        }
        Err(response) => respond(call.slot, version, response),
    }
    Flow::Done
}

/// What is asked, or the answer to a request that asks nothing.
fn begin(
    broker: &Broker,
    access: Access<'_>,
    request: &FetchRequest,
    version: i16,
) -> Result<Ask, FetchResponse> {
    if !(0..=1).contains(&request.isolation_level) {
        return Err(FetchResponse {
            error_code: ErrorCode::InvalidRequest.code(),
            ..FetchResponse::default()
        });
    }
    let map = broker.topics.load();
    let begun = session::begin(&broker.fetch_sessions, &map, request, version);
    let begun = begun.map_err(session::refusal)?;
    let found = find_all(access, &map, begun.wanted);
    Ok(Ask::new(broker, found, begun.context, (request, version)))
}

/// A fetch request with its partitions looked up.
struct Ask {
    version: i16,
    read_committed: bool,
    min_bytes: u64,
    max_bytes: usize,
    context: session::Context,
    parts: Vec<AskedPart>,
    /// Pipes that may carry records to the reader.
    pipes: Option<Arc<Pipes>>,
    /// Who pays for what read workers do, where limits are set.
    payer: Option<(Arc<Broker>, Client)>,
}

/// What is asked of one partition.
struct AskedPart {
    key: PartKey,
    wanted: Wanted,
    partition: Result<Arc<Partition>, Missing>,
}

/// Why there is nothing to read.
#[derive(Clone, Copy)]
struct Missing {
    code: ErrorCode,
    /// There is no such topic, or not for this reader. That alone answers no fetch before its time, as
    /// in Kafka: a reader of a deleted topic would ask without a pause.
    topic: bool,
}

impl Ask {
    fn new(
        broker: &Broker,
        parts: Vec<AskedPart>,
        context: session::Context,
        (request, version): (&FetchRequest, i16),
    ) -> Self {
        let cap = usize::try_from(broker.config.fetch_bytes_max).unwrap_or(usize::MAX);
        let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0).min(cap);
        let min_bytes = u64::try_from(request.min_bytes).unwrap_or(0);
        Self {
            version,
            read_committed: request.isolation_level == 1,
            // More than an answer can hold would wait for ever.
            min_bytes: min_bytes.min(max_bytes as u64),
            max_bytes,
            context,
            parts,
            pipes: None,
            payer: None,
        }
    }

    /// Measures a read until its drop.
    fn work(&self) -> Option<Work> {
        let (broker, who) = self.payer.as_ref()?;
        Some(Work::of(broker, who))
    }

    /// Takes no more than a limit lets the reader have at once.
    fn bound(&mut self, bytes: Option<usize>) {
        self.max_bytes = self.max_bytes.min(bytes.unwrap_or(usize::MAX));
        self.min_bytes = self.min_bytes.min(self.max_bytes as u64);
    }

    /// Whether there is a topic from which more may come.
    fn may_wait(&self) -> bool {
        let gone = |part: &AskedPart| part.partition.as_ref().is_err_and(|missing| missing.topic);
        self.min_bytes > 0 && !self.parts.iter().all(gone)
    }
}

fn find_all(access: Access<'_>, map: &TopicMap, all: Vec<(PartKey, Wanted)>) -> Vec<AskedPart> {
    let mut parts: Vec<AskedPart> = Vec::with_capacity(all.len());
    let mut found = Err(ErrorCode::UnknownTopicOrPartition);
    for (key, wanted) in all {
        if parts.last().is_none_or(|last| last.key.topic != key.topic) {
            found = topic_of(access, map, &key.topic);
        }
        parts.push(AskedPart {
            partition: partition_of(found, key.index),
            key,
            wanted,
        });
    }
    parts
}

fn topic_of<'a>(
    access: Access<'_>,
    map: &'a TopicMap,
    key: &TopicKey,
) -> Result<&'a Arc<Topic>, ErrorCode> {
    match key {
        TopicKey::Named(name) => access.named(map, Operation::Read, name),
        TopicKey::Id(id) => access.with_id(map, Operation::Read, *id),
    }
}

fn partition_of(
    topic: Result<&Arc<Topic>, ErrorCode>,
    index: i32,
) -> Result<Arc<Partition>, Missing> {
    let partition = topic
        .map_err(|code| Missing { code, topic: true })?
        .partition(index);
    partition.cloned().map_err(|error| Missing {
        code: ErrorCode::from(&error),
        topic: false,
    })
}

fn respond(slot: Slot, version: i16, response: FetchResponse) {
    match response.encode(version) {
        Ok(body) => slot.reply(body),
        Err(error) => {
            log::error!("Fetch: {error}");
            slot.close(UNENCODABLE);
        }
    }
}
