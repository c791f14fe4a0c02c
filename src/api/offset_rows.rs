//! What OffsetCommit and TxnOffsetCommit share: one offset of a request becomes a row of its group.
//!
//! Owns:     the checks of a single offset; who may commit it the group decides.

use std::sync::Arc;

use seawall_net::wire::StrBytes;
use seawall_storage::Timestamp;

use super::codes::ErrorCode;
use crate::broker::Broker;
use crate::groups::{Committed, Row};
use crate::partition::now;
use crate::topics::Topic;

/// One offset as the client says it.
pub(super) struct AskedOffset<'a> {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) metadata: Option<&'a StrBytes>,
}

/// What is the same for all offsets of a request.
pub(super) struct Keep {
    metadata_bytes_max: usize,
    now_ms: i64,
    expires_ms: Option<i64>,
}

impl Keep {
    /// `retention_ms`: how long they are to be kept, if the client says so.
    pub(super) fn new(broker: &Broker, retention_ms: Option<i64>) -> Self {
        let Timestamp(now_ms) = now();
        Self {
            metadata_bytes_max: broker.groups.config.metadata_bytes_max,
            now_ms,
            expires_ms: retention_ms.map(|ms| now_ms.saturating_add(ms)),
        }
    }

    /// The row, if the partition is there and the metadata is not too long.
    pub(super) fn row(
        &self,
        topic: Result<&Arc<Topic>, ErrorCode>,
        asked: &AskedOffset<'_>,
    ) -> Result<Row, ErrorCode> {
        let topic = topic?;
        if !topic.has_partition(asked.partition) {
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        let metadata = asked.metadata.map_or("", |metadata| metadata.as_str());
        if metadata.len() > self.metadata_bytes_max {
            return Err(ErrorCode::OffsetMetadataTooLarge);
        }
        Ok(Row {
            topic: Arc::clone(&topic.name),
            id: topic.id,
            partition: asked.partition,
            committed: Committed {
                offset: asked.offset,
                leader_epoch: asked.leader_epoch,
                metadata: metadata.into(),
                committed_ms: self.now_ms,
                expires_ms: self.expires_ms,
            },
        })
    }
}
