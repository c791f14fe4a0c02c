//! Fetch: reads on the read workers, long polls without a thread.
//!
//! Owns:     what a fetch asks, and the form of its answer.
//! Does not: look into records, or read on a net thread.
//!
//! `wait` holds a fetch from its frame to its answer, `read` makes the rows.

mod read;
mod wait;

use std::sync::Arc;

use seawall_net::wire::{FetchRequest, FetchResponse, StrBytes, Uuid};
use seawall_net::{Flow, ReplySlot};
use seawall_storage::Offset;

use super::codes::ErrorCode;
use super::{Call, MALFORMED, UNENCODABLE, text, topic_id_from_wire};
use crate::broker::Broker;
use crate::partition::Partition;
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
    if let Some(code) = refused(&request) {
        let response = FetchResponse {
            error_code: code.code(),
            ..FetchResponse::default()
        };
        respond(call.slot, version, response);
        return Flow::Done;
    }
    let ask = Ask::new(call.broker, &request, version);
    let fetch = Fetch::new(ask, call.slot);
    call.conn.parked = Parked::new(&fetch);
    fetch.start(
        &call.broker.timer,
        call.request.received,
        request.max_wait_ms,
    );
    Flow::Done
}

/// Fetch sessions are not kept: session id 0 in every answer tells a client to
/// ask in full. One who comes with a session anyway learns that it is gone.
fn refused(request: &FetchRequest) -> Option<ErrorCode> {
    if request.session_id != 0 && request.session_epoch > 0 {
        return Some(ErrorCode::FetchSessionIdNotFound);
    }
    if !(0..=1).contains(&request.isolation_level) {
        return Some(ErrorCode::InvalidRequest);
    }
    None
}

/// A fetch request with its partitions looked up.
struct Ask {
    version: i16,
    read_committed: bool,
    min_bytes: u64,
    max_bytes: usize,
    topics: Vec<(StrBytes, Uuid, usize)>,
    parts: Vec<AskedPart>,
}

/// What is asked of one partition.
struct AskedPart {
    index: i32,
    offset: Offset,
    leader_epoch: i32,
    last_fetched_epoch: i32,
    max_bytes: usize,
    partition: Result<Arc<Partition>, ErrorCode>,
}

impl Ask {
    fn new(broker: &Broker, request: &FetchRequest, version: i16) -> Self {
        let map = broker.topics.load();
        let mut topics = Vec::with_capacity(request.topics.len());
        let mut parts = Vec::new();
        for topic in &request.topics {
            let found = if version >= TOPIC_IDS_FROM {
                map.with_id(topic_id_from_wire(topic.topic_id))
            } else {
                map.named(topic.name.as_str())
            };
            for asked in &topic.partitions {
                let partition = found.and_then(|topic| topic.partition(asked.index));
                let partition = partition.cloned().map_err(|e| ErrorCode::from(&e));
                parts.push(AskedPart {
                    index: asked.index,
                    offset: Offset::new(asked.fetch_offset),
                    leader_epoch: asked.current_leader_epoch,
                    last_fetched_epoch: asked.last_fetched_epoch,
                    max_bytes: usize::try_from(asked.partition_max_bytes).unwrap_or(0),
                    partition,
                });
            }
            let name = text(topic.name.as_str());
            topics.push((name, topic.topic_id, topic.partitions.len()));
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
            topics,
            parts,
        }
    }
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
