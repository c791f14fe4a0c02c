//! Offsets that nobody will ask for again.
//!
//! Owns:     when a committed offset ends: `offsets.retention.minutes` after its group has lost its last member, or after
//!           its commit where the group never had any, or has members that do not read the topic, as in Kafka.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::group::Group;
use super::offsets::{Change, Committed};
use super::{Cell, Groups, now_ms};

/// Whether a topic is for certain no longer that incarnation: not merely unreadable at the moment (D12).
pub(crate) type IsGone<'a> = &'a dyn Fn(&str, seawall_storage::TopicId) -> bool;

impl Groups {
    /// Called every second or so; looks through the groups when it is time.
    pub(crate) fn sweep(&self, is_gone: IsGone<'_>) {
        if self.check_loaded().is_err() {
            return;
        }
        let mut checked = self.checked.lock();
        if checked.elapsed() < self.config.retention_check {
            return;
        }
        *checked = Instant::now();
        drop(checked);
        self.forget_ended(is_gone);
    }

    /// A topic was deleted: its offsets go with it.
    pub(crate) fn topic_deleted(&self, name: &str, id: seawall_storage::TopicId) {
        for cell in self.cells() {
            self.command(&cell, |group, fx| {
                let stored = group.offsets.stored().offsets.get(name);
                let Some(topic) = stored.filter(|topic| topic.id == id) else {
                    return;
                };
                let name: Arc<str> = name.into();
                let partitions = topic.partitions.keys();
                let gone = partitions.map(|partition| (Arc::clone(&name), *partition));
                let gone = gone.collect();
                group.offsets.push(Change::Forget(gone));
                fx.store();
            });
        }
    }

    /// Takes away what has ended: by the clock, or with its topic.
    fn forget_ended(&self, is_gone: IsGone<'_>) {
        let now = now_ms();
        let retention = self.config.retention;
        for cell in self.cells() {
            self.forget_in(&cell, now, retention, is_gone);
        }
    }

    fn forget_in(&self, cell: &Arc<Cell>, now: i64, retention: Duration, is_gone: IsGone<'_>) {
        self.command(cell, |group, fx| {
            if group.check_open().is_err() {
                return;
            }
            let ended = ended(group, now, retention, is_gone);
            if !ended.is_empty() {
                group.offsets.push(Change::Forget(ended));
                fx.store();
            } else if group.is_idle() && group.has_file() {
                group.delete(fx);
            }
        });
        self.forget_unstored(cell);
    }
}

fn ended(group: &Group, now: i64, retention: Duration, gone: IsGone<'_>) -> Vec<(Arc<str>, i32)> {
    let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
    let stored = Arc::clone(group.offsets.stored());
    let is_over = |committed: &Committed, since: Option<i64>| match (committed.expires_ms, since) {
        (Some(at), Some(_)) => at <= now,
        (None, Some(since)) => {
            let from = since.max(committed.committed_ms);
            now.saturating_sub(from) >= retention
        }
        (_, None) => false,
    };
    let mut ended = Vec::new();
    for (name, topic) in &stored.offsets {
        let (gone, since) = (gone(name, topic.id), group.ages_since(name));
        for (partition, committed) in &topic.partitions {
            if gone || (is_over(committed, since) && !group.offsets.is_staged(name, *partition)) {
                ended.push((Arc::clone(name), *partition));
            }
        }
    }
    ended
}
