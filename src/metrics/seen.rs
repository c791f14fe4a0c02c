//! The broker at the moment of one scrape, and how the table's sources walk through it.
//!
//! Owns:     which partitions and committed offsets are told one by one.
//! Does not: name anything.

use std::sync::Arc;

use super::text::Samples;
use crate::broker::Broker;
use crate::counts::{DirCounts, RequestCounts};
use crate::health::{State, state_of};
use crate::histogram::Observed;
use crate::logdir::LogDir;
use crate::partition::Partition;
use crate::running::Running;
use crate::topics::{Slot, TopicMap};

/// See the module.
pub(super) struct Seen<'a> {
    pub(super) running: &'a Running,
    broker: Option<&'a Arc<Broker>>,
    map: Arc<TopicMap>,
    /// By state, in the order of [`State::ALL`].
    states: [u64; State::ALL.len()],
    /// Whether partitions are told one by one.
    each: bool,
    lag: Lag,
}

/// What groups have not read yet.
#[derive(Default)]
struct Lag {
    rows: Vec<LagRow>,
    left_out: u64,
}

struct LagRow {
    group: Arc<str>,
    topic: Arc<str>,
    partition: i32,
    committed: i64,
    lag: i64,
}

impl<'a> Seen<'a> {
    pub(super) fn new(running: &'a Running) -> Self {
        let broker = running.broker();
        let map = broker.map(|broker| broker.topics.load_full());
        let map = map.unwrap_or_default();
        let mut states = [0; State::ALL.len()];
        for slot in map.iter().flat_map(|topic| &topic.partitions) {
            states[state_of(slot).place()] += 1;
        }
        let max = broker.map_or(0, |broker| broker.config.metric_series_max);
        let lag = broker.map(|broker| Lag::read(broker, &map, max));
        Self {
            running,
            broker,
            each: states.iter().sum::<u64>() <= max,
            states,
            lag: lag.unwrap_or_default(),
            map,
        }
    }

    /// A number of the broker, 0 before there is one.
    pub(super) fn of_broker(&self, number: impl FnOnce(&Broker) -> u64) -> u64 {
        self.broker.map_or(0, |broker| number(broker))
    }

    /// A number of every log dir in use.
    pub(super) fn of_dirs(&self, out: &mut Samples<'_>, number: impl Fn(&LogDir) -> u64) {
        self.each_dir(|path, dir| out.put(&[path], number(dir)));
    }

    /// A histogram of every log dir in use.
    pub(super) fn dir_histograms(
        &self,
        out: &mut Samples<'_>,
        histogram: impl Fn(&DirCounts) -> Observed,
    ) {
        self.each_dir(|path, dir| out.histogram(&[path], &histogram(&dir.counts)));
    }

    fn each_dir(&self, mut tell: impl FnMut(&str, &LogDir)) {
        for (path, dir) in self.broker.iter().flat_map(|broker| broker.log_dirs()) {
            if let Some(dir) = dir {
                tell(&path, dir);
            }
        }
    }

    /// Whether each configured log dir is used.
    pub(super) fn dirs_present(&self, out: &mut Samples<'_>) {
        for (path, dir) in self.broker.iter().flat_map(|broker| broker.log_dirs()) {
            out.put(&[&path], dir.is_some());
        }
    }

    /// Queues of the pools, by the names of their threads.
    pub(super) fn pools(&self, out: &mut Samples<'_>) {
        let Some(broker) = self.broker else { return };
        out.put(&["work"], broker.workers().queued());
        out.put(&["login"], broker.login_workers().queued());
        self.each_dir(|_, dir| {
            for (name, pool) in [
                ("append", &dir.appends),
                ("read", &dir.reads),
                ("state", &dir.state),
                ("maint", &dir.maint),
            ] {
                out.put(&[&format!("{name}-{}", dir.index)], pool.queued());
            }
            let commit = format!("commit-{}", dir.index);
            out.put(&[&commit], dir.committer.load().queued);
        });
    }

    /// A histogram of requests.
    pub(super) fn request_histogram(
        &self,
        out: &mut Samples<'_>,
        histogram: impl Fn(&RequestCounts) -> Observed,
    ) {
        if let Some(broker) = self.broker {
            out.histogram(&[], &histogram(&broker.counts));
        }
    }

    /// Batches refused, by reason.
    pub(super) fn refusals(&self, out: &mut Samples<'_>) {
        for (reason, count) in self
            .broker
            .iter()
            .flat_map(|broker| broker.counts.refused())
        {
            out.put(&[reason], count);
        }
    }

    /// What rules refused, by what was asked: the labels are Kafka's names, and so bounded in number.
    pub(super) fn denials(&self, out: &mut Samples<'_>) {
        let standards = self.broker.iter().filter_map(|b| b.authorizer.standard());
        for (resource, operation, count) in standards.flat_map(|s| s.denials.all()) {
            out.put(&[operation.name(), resource.name()], count);
        }
    }

    /// What limits held up, by the kind of limit.
    pub(super) fn throttles(&self, out: &mut Samples<'_>) {
        for (kind, count) in self.broker.iter().flat_map(|b| b.quotas.throttled()) {
            out.put(&[kind], count);
        }
    }

    /// Calls to the disk that have not come back.
    pub(super) fn calls(&self, mut tell: impl FnMut(&'static str, seawall_committer::InFlight)) {
        for (call, in_flight) in self.broker.iter().flat_map(|broker| broker.calls()) {
            tell(call.name(), in_flight);
        }
    }

    /// Partitions by state.
    pub(super) fn states(&self, out: &mut Samples<'_>) {
        for (state, count) in State::ALL.into_iter().zip(self.states) {
            out.put(&[state.name()], count);
        }
    }

    /// The state of partitions, one by one: all, or above the limit those that are not well.
    pub(super) fn each_state(&self, out: &mut Samples<'_>) {
        for topic in self.map.iter() {
            for (index, slot) in topic.partitions.iter().enumerate() {
                let state = state_of(slot);
                if self.each || state != State::Online {
                    out.put(&[&topic.name, &index.to_string()], state.place());
                }
            }
        }
    }

    /// A number of open partitions, one by one.
    pub(super) fn each_partition(&self, out: &mut Samples<'_>, number: impl Fn(&Partition) -> i64) {
        for topic in self.map.iter().filter(|_| self.each) {
            for (index, slot) in topic.partitions.iter().enumerate() {
                if let Slot::Open(partition) = slot {
                    out.put(&[&topic.name, &index.to_string()], number(partition));
                }
            }
        }
    }

    /// Topics that are open.
    pub(super) fn topics(&self) -> usize {
        self.map.len()
    }

    /// Topics whose acks=all is answered before the flush.
    pub(super) fn with_the_dial_turned(&self) -> usize {
        let turned = self.map.iter();
        turned
            .filter(|topic| topic.config.load().flush_messages > 1)
            .count()
    }

    /// What groups have committed.
    pub(super) fn committed(&self, out: &mut Samples<'_>) {
        for row in &self.lag.rows {
            let partition = row.partition.to_string();
            out.put(&[&row.group, &row.topic, &partition], row.committed);
        }
    }

    /// What groups have not read.
    pub(super) fn lag(&self, out: &mut Samples<'_>) {
        for row in &self.lag.rows {
            let partition = row.partition.to_string();
            out.put(&[&row.group, &row.topic, &partition], row.lag);
        }
    }

    /// What is not told one by one.
    pub(super) fn left_out(&self, out: &mut Samples<'_>) {
        let all: u64 = self.states.iter().sum();
        let partitions = if self.each { 0 } else { all };
        out.put(&["partition"], partitions);
        out.put(&["group"], self.lag.left_out);
    }
}

impl Lag {
    fn read(broker: &Broker, map: &TopicMap, max: u64) -> Self {
        let mut lag = Self::default();
        broker.groups.each_table(|group, table| {
            for (topic, offsets) in &table.offsets {
                let open = map.named(topic).ok().filter(|open| open.id == offsets.id);
                for (index, committed) in &offsets.partitions {
                    let Some(Ok(partition)) = open.map(|open| open.partition(*index)) else {
                        continue;
                    };
                    if lag.rows.len() as u64 >= max {
                        lag.left_out += 1;
                        continue;
                    }
                    let end = partition.high_watermark().get();
                    lag.rows.push(LagRow {
                        group: Arc::clone(group),
                        topic: Arc::clone(topic),
                        partition: *index,
                        committed: committed.offset,
                        lag: end.saturating_sub(committed.offset).max(0),
                    });
                }
            }
        });
        lag
    }
}
