//! A fetch and its session: what it asks in all, and which rows it gets.
//!
//! Owns:     full, incremental and sessionless fetches (KIP-227) as the wire has
//!           them.
//! Does not: keep sessions (`crate::fetch_sessions` does), or read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use seawall_net::wire::{
    FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse,
    ForgottenTopic, StrBytes, Uuid,
};
use seawall_storage::Offset;

use super::super::codes::ErrorCode;
use super::super::{text, topic_id_from_wire, topic_id_to_wire};
use super::{AskedPart, TOPIC_IDS_FROM};
use crate::fetch_sessions::{
    FetchSessions, Kept, PartKey, Seen, Session, SessionEpoch, SessionError, SessionId, TopicKey,
    Wanted,
};
use crate::topics::TopicMap;

/// How a fetch and sessions have to do with each other.
pub(super) enum Context {
    /// Nothing: it gets a row for all that it names.
    None,
    /// It gets all rows, and a session if there is room.
    Opens { by_id: bool },
    /// It gets the rows that have news.
    Within {
        session: Arc<Session>,
        epoch: SessionEpoch,
    },
}

/// A fetch with its session looked up.
pub(super) struct Begun {
    pub(super) context: Context,
    /// All that is wanted, in the order in which it is read.
    pub(super) wanted: Vec<(PartKey, Wanted)>,
}

/// Finds what a request asks in all; what it says goes into its session.
pub(super) fn begin(
    sessions: &FetchSessions,
    map: &TopicMap,
    request: &FetchRequest,
    version: i16,
) -> Result<Begun, SessionError> {
    let by_id = version >= TOPIC_IDS_FROM;
    let epoch = SessionEpoch::new(request.session_epoch);
    if !epoch.is_full() {
        return within(sessions, map, request, by_id);
    }
    // A full fetch ends the session that it names.
    sessions.close(SessionId::new(request.session_id));
    let context = match epoch {
        SessionEpoch::INITIAL => Context::Opens { by_id },
        _ => Context::None,
    };
    let wanted = without_repetitions(wanted(map, request, by_id));
    Ok(Begun { context, wanted })
}

fn within(
    sessions: &FetchSessions,
    map: &TopicMap,
    request: &FetchRequest,
    by_id: bool,
) -> Result<Begun, SessionError> {
    let id = SessionId::new(request.session_id);
    let epoch = SessionEpoch::new(request.session_epoch);
    let session = sessions.find(id).ok_or(SessionError::NotFound)?;
    let wanted = wanted(map, request, by_id);
    let begun = session.begin(epoch, by_id, wanted, &forgotten(map, request, by_id))?;
    if begun.parts.is_empty() {
        // Nothing is left of it, and so it ends.
        sessions.close(id);
        return Ok(Begun {
            context: Context::None,
            wanted: Vec::new(),
        });
    }
    if !sessions.touch(id, begun.parts.len(), Instant::now()) {
        return Err(SessionError::NotFound);
    }
    Ok(Begun {
        context: Context::Within {
            session,
            epoch: begun.epoch,
        },
        wanted: begun.parts,
    })
}

fn wanted(map: &TopicMap, request: &FetchRequest, by_id: bool) -> Vec<(PartKey, Wanted)> {
    let count = request.topics.iter().map(|topic| topic.partitions.len());
    let mut all = Vec::with_capacity(count.sum());
    for topic in &request.topics {
        let key = topic_key(map, &topic.name, topic.topic_id, by_id);
        for part in &topic.partitions {
            let topic = key.clone();
            let index = part.index;
            all.push((PartKey { topic, index }, Wanted::from(part)));
        }
    }
    all
}

fn forgotten(map: &TopicMap, request: &FetchRequest, by_id: bool) -> Vec<PartKey> {
    let of_topic = |topic: &ForgottenTopic| {
        let key = topic_key(map, &topic.name, topic.topic_id, by_id);
        let part = move |index: &i32| PartKey {
            topic: key.clone(),
            index: *index,
        };
        topic.partitions.iter().map(part).collect::<Vec<_>>()
    };
    request.forgotten_topics.iter().flat_map(of_topic).collect()
}

/// A name that we know is shared, not copied.
fn topic_key(map: &TopicMap, name: &StrBytes, id: Uuid, by_id: bool) -> TopicKey {
    if by_id {
        return TopicKey::Id(topic_id_from_wire(id));
    }
    match map.named(name.as_str()) {
        Ok(topic) => TopicKey::Named(Arc::clone(&topic.name)),
        Err(_) => TopicKey::Named(name.as_str().into()),
    }
}

/// Where a partition is named twice the last one counts.
fn without_repetitions(wanted: Vec<(PartKey, Wanted)>) -> Vec<(PartKey, Wanted)> {
    if wanted.len() < 2 {
        return wanted;
    }
    let mut places: HashMap<PartKey, usize> = HashMap::with_capacity(wanted.len());
    let mut all: Vec<(PartKey, Wanted)> = Vec::with_capacity(wanted.len());
    for (key, wanted) in wanted {
        match places.get(&key).and_then(|place| all.get_mut(*place)) {
            Some(before) => before.1 = wanted,
            None => {
                places.insert(key.clone(), all.len());
                all.push((key, wanted));
            }
        }
    }
    all
}

impl From<&FetchPartition> for Wanted {
    fn from(part: &FetchPartition) -> Self {
        Self {
            offset: Offset::new(part.fetch_offset),
            leader_epoch: part.current_leader_epoch,
            last_fetched_epoch: part.last_fetched_epoch,
            max_bytes: part.partition_max_bytes,
        }
    }
}

impl From<&FetchPartitionResponse> for Seen {
    fn from(row: &FetchPartitionResponse) -> Self {
        Self {
            high_watermark: row.high_watermark,
            log_start: row.log_start_offset,
            has_records: row.records.as_ref().is_some_and(|r| !r.is_empty()),
            is_exceptional: row.error_code != 0 || row.diverging_epoch.is_some(),
        }
    }
}

impl Context {
    /// The answer that has these rows, one for each part, as far as they are
    /// news for the session.
    pub(super) fn response(
        &self,
        sessions: &FetchSessions,
        parts: &[AskedPart],
        rows: Vec<FetchPartitionResponse>,
    ) -> FetchResponse {
        match self {
            Self::None => all_of(SessionId::NONE, parts, rows),
            Self::Opens { by_id } => {
                let kept = parts
                    .iter()
                    .zip(&rows)
                    .map(|(part, row)| Kept::new(part.key.clone(), part.wanted, Seen::from(row)));
                let id = sessions.open(*by_id, kept.collect(), Instant::now());
                all_of(id, parts, rows)
            }
            Self::Within { session, epoch } => {
                let keys = parts.iter().map(|part| &part.key);
                let chosen = session.choose(*epoch, keys.zip(rows.iter().map(Seen::from)));
                match chosen {
                    Ok(chosen) => {
                        let rows = parts.iter().zip(rows).zip(chosen);
                        let rows = rows.filter(|(_, chosen)| *chosen).map(|(row, _)| row);
                        response(session.id, rows)
                    }
                    Err(error) => FetchResponse {
                        session_id: session.id.get(),
                        ..refusal(error)
                    },
                }
            }
        }
    }
}

/// An answer without rows: the reader begins a new session then.
pub(super) fn refusal(error: SessionError) -> FetchResponse {
    FetchResponse {
        error_code: ErrorCode::from(error).code(),
        ..FetchResponse::default()
    }
}

fn all_of(id: SessionId, parts: &[AskedPart], rows: Vec<FetchPartitionResponse>) -> FetchResponse {
    response(id, parts.iter().zip(rows))
}

/// Neighbours of one topic share an entry. A topic that is not read in one go,
/// since its partitions had their turns at different times, has several.
fn response<'a>(
    id: SessionId,
    rows: impl Iterator<Item = (&'a AskedPart, FetchPartitionResponse)>,
) -> FetchResponse {
    let mut topics: Vec<FetchTopicResponse> = Vec::new();
    let mut last: Option<&TopicKey> = None;
    for (part, row) in rows {
        let key = &part.key.topic;
        if last != Some(key) {
            last = Some(key);
            topics.push(entry(key));
        }
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(row);
        }
    }
    FetchResponse {
        session_id: id.get(),
        topics,
        ..FetchResponse::default()
    }
}

fn entry(key: &TopicKey) -> FetchTopicResponse {
    let mut topic = FetchTopicResponse::default();
    match key {
        TopicKey::Named(name) => topic.name = text(name),
        TopicKey::Id(id) => topic.topic_id = topic_id_to_wire(*id),
    }
    topic
}
