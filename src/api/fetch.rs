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
use seawall_net::{Flow, ReplySlot};

use super::codes::ErrorCode;
use super::{Call, MALFORMED, UNENCODABLE};
use crate::broker::Broker;
use crate::fetch_sessions::{PartKey, TopicKey, Wanted};
use crate::partition::Partition;
use crate::topics::{LookupError, Topic, TopicMap};
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
    match begin(call.broker, &request, version) {
        Ok(ask) => {
            let fetch = Fetch::new(ask, call.broker, call.request.received, call.slot);
            call.conn.parked = Parked::new(&fetch);
            fetch.start(request.max_wait_ms);
        }
        Err(response) => respond(call.slot, version, response),
    }
    Flow::Done
}

/// What is asked, or the answer to a request that asks nothing.
fn begin(broker: &Broker, request: &FetchRequest, version: i16) -> Result<Ask, FetchResponse> {
    if !(0..=1).contains(&request.isolation_level) {
        return Err(FetchResponse {
            error_code: ErrorCode::InvalidRequest.code(),
            ..FetchResponse::default()
        });
    }
    let map = broker.topics.load();
    let begun = session::begin(&broker.fetch_sessions, &map, request, version);
    let begun = begun.map_err(session::refusal)?;
    Ok(Ask::new(broker, &map, begun, request, version))
}

/// A fetch request with its partitions looked up.
struct Ask {
    version: i16,
    read_committed: bool,
    min_bytes: u64,
    max_bytes: usize,
    context: session::Context,
    parts: Vec<AskedPart>,
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
    /// There is no such topic. That alone answers no fetch before its time, as
    /// in Kafka: a reader of a deleted topic would ask without a pause.
    topic: bool,
}

impl Ask {
    fn new(
        broker: &Broker,
        map: &TopicMap,
        begun: session::Begun,
        request: &FetchRequest,
        version: i16,
    ) -> Self {
        let mut parts: Vec<AskedPart> = Vec::with_capacity(begun.wanted.len());
        let mut found = Err(LookupError::UnknownTopic);
        for (key, wanted) in begun.wanted {
            if parts.last().is_none_or(|last| last.key.topic != key.topic) {
                found = topic_of(map, &key.topic);
            }
            parts.push(AskedPart {
                partition: partition_of(found, key.index),
                key,
                wanted,
            });
        }
        let cap = usize::try_from(broker.config.fetch_bytes_max).unwrap_or(usize::MAX);
        let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0).min(cap);
        let min_bytes = u64::try_from(request.min_bytes).unwrap_or(0);
        Self {
            version,
            read_committed: request.isolation_level == 1,
            // More than an answer can hold would wait for ever.
            min_bytes: min_bytes.min(max_bytes as u64),
            max_bytes,
            context: begun.context,
            parts,
        }
    }

    /// Whether there is a topic from which more may come.
    fn may_wait(&self) -> bool {
        let gone = |part: &AskedPart| part.partition.as_ref().is_err_and(|missing| missing.topic);
        self.min_bytes > 0 && !self.parts.iter().all(gone)
    }
}

fn topic_of<'a>(map: &'a TopicMap, key: &TopicKey) -> Result<&'a Arc<Topic>, LookupError> {
    match key {
        TopicKey::Named(name) => map.named(name),
        TopicKey::Id(id) => map.with_id(*id),
    }
}

fn partition_of(
    topic: Result<&Arc<Topic>, LookupError>,
    index: i32,
) -> Result<Arc<Partition>, Missing> {
    let missing = |topic| {
        move |error: LookupError| Missing {
            code: ErrorCode::from(&error),
            topic,
        }
    };
    let partition = topic.map_err(missing(true))?.partition(index);
    partition.cloned().map_err(missing(false))
}

fn respond(slot: ReplySlot, version: i16, response: FetchResponse) {
    match response.encode(version) {
        Ok(body) => slot.reply(body),
        Err(error) => {
            log::error!("Fetch: {error}");
            slot.close(UNENCODABLE);
        }
    }
}
