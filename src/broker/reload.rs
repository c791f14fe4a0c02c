//! Settings that change while the broker runs.
//!
//! Owns:     which of them are taken over, and how they reach topics and partitions.
//! Does not: read the configuration (`config` does) or decide when.

use std::sync::Arc;

use super::Broker;
use crate::cluster;
use crate::config::Settings;

impl Broker {
    /// What holds now.
    pub fn settings(&self) -> Arc<Settings> {
        self.cluster.catalog.settings()
    }

    /// Takes over what can be: defaults of topics, whose partitions act on them soon. Returns the keys that have
    /// changed and wait for a restart.
    pub fn take_settings(&self, newer: &Settings) -> Vec<&'static str> {
        let now = self.settings();
        let (live, restart): (Vec<_>, Vec<_>) = now
            .changes(newer)
            .into_iter()
            .partition(|key| Settings::is_live(key));
        // Again where nothing has changed: a topic may have missed it the last time.
        let taken = self.cluster.catalog.set_settings(now.taking(newer, &live));
        for name in taken.busy {
            log::warn!(
                "topic {name} is being changed: it takes over new defaults with that, or at the next reload"
            );
        }
        for entry in taken.changed {
            self.reconfigure(&entry);
        }
        if !live.is_empty() {
            log::info!("taken over: {}", live.join(", "));
        }
        restart
    }

    fn reconfigure(&self, entry: &cluster::Topic) {
        let Some(topic) = self.configure(entry.id) else {
            return;
        };
        for partition in topic.open_partitions() {
            let (topic, partition) = (Arc::clone(&topic), Arc::clone(partition));
            let newest = self.newest_config(&topic);
            // It waits for a write under way, and so belongs to the log dir.
            let state = Arc::clone(&partition.dir().state);
            state.submit(move || partition.set_config(newest));
        }
    }
}
