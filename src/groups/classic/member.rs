//! One member of a classic group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::join::{JoinRefused, JoinReply};
use super::sync::SyncReply;
use crate::groups::effects::Effects;
use crate::groups::error::GroupError;

/// An assignor that a member knows, and what it tells that assignor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Protocol {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Opaque.
    pub(crate) metadata: Bytes,
}

/// See the module.
pub(super) struct Member {
    pub(super) instance: Option<Arc<str>>,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) rebalance_timeout: Duration,
    pub(super) session_timeout: Duration,
    /// In the order of its preference.
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
    /// It is in its first join.
    pub(super) is_new: bool,
    /// The end of its session.
    pub(super) expires: Instant,
    pub(super) join: Option<JoinReply>,
    pub(super) sync: Option<SyncReply>,
    /// It has asked for its assignment of this generation.
    pub(super) synced: bool,
}

impl Member {
    pub(super) fn metadata(&self, protocol: &str) -> Option<&Bytes> {
        let mut protocols = self.protocols.iter();
        protocols
            .find(|known| &*known.name == protocol)
            .map(|known| &known.metadata)
    }

    pub(super) fn knows(&self, protocol: &str) -> bool {
        self.metadata(protocol).is_some()
    }

    /// Whether it cannot be expected to send heartbeats (G4).
    pub(super) fn waits(&self) -> bool {
        !self.is_new && (self.join.is_some() || self.sync.is_some())
    }

    /// Tells whoever waits for this member that it is over.
    pub(super) fn refuse(&mut self, id: &str, why: GroupError, fx: &mut Effects) {
        if let Some(reply) = self.join.take() {
            fx.answer(reply, Err(JoinRefused::of(why, id)));
        }
        if let Some(reply) = self.sync.take() {
            fx.answer(reply, Err(why));
        }
    }
}
