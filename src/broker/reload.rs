//! Settings that change while the broker runs.
//!
//! Owns:     which of them are taken over, and how they reach topics and partitions.
//! Does not: read the configuration (`config` does) or decide when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Broker;
use crate::cluster;
use crate::config::{Config, Settings};

/// Settings that are no defaults of topics and change all the same.
pub struct Live {
    producer_expiry_ms: AtomicU64,
    cleaner_backoff_ms: AtomicU64,
}

impl Live {
    pub(super) fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self {
            producer_expiry_ms: AtomicU64::new(config.producer_id_expiration_ms),
            cleaner_backoff_ms: AtomicU64::new(config.cleaner_backoff_ms),
        })
    }

    /// Says whether partitions must hear of it.
    fn take(&self, newer: &Config) -> bool {
        let (backoff_ms, expiry_ms) = (newer.cleaner_backoff_ms, newer.producer_id_expiration_ms);
        self.cleaner_backoff_ms.store(backoff_ms, Ordering::Relaxed);
        self.producer_expiry_ms.swap(expiry_ms, Ordering::Relaxed) != expiry_ms
    }

    /// producer.id.expiration.ms
    pub(super) fn producer_expiry_ms(&self) -> u64 {
        self.producer_expiry_ms.load(Ordering::Relaxed)
    }

    /// log.cleaner.backoff.ms
    pub(super) fn cleaner_backoff_ms(&self) -> u64 {
        self.cleaner_backoff_ms.load(Ordering::Relaxed)
    }
}

impl Broker {
    /// What holds now.
    pub fn settings(&self) -> Arc<Settings> {
        self.cluster.catalog.settings()
    }

    /// Takes over what can be: defaults of topics, whose partitions act on them soon. Returns the keys that have
    /// changed and wait for a restart.
    pub fn take_settings(&self, config: &Config) -> Vec<&'static str> {
        let (now, newer) = (self.settings(), &*config.settings);
        for dir in self.dirs.iter().flatten() {
            dir.cleaner.set_pace(config.cleaner_bytes_per_second);
        }
        let of_partitions = self.live.take(config);
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
        if of_partitions {
            let all = self.cluster.catalog.load();
            all.topics()
                .iter()
                .for_each(|entry| self.reconfigure(entry));
        } else {
            taken.changed.iter().for_each(|e| self.reconfigure(e));
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
            state.submit(move || {
                partition.set_config(newest);
                partition.expire_producers();
            });
        }
    }
}
