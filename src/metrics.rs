//! What `/metrics` tells, from one table.
//!
//! Owns:     names, kinds and help texts; the parts count in plain numbers.
//! Does not: count anything itself.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use seawall_net::CloseReason;

use crate::api;
use crate::cleaner::CleanerCounts;
use crate::running::Running;
use crate::security::Authorizer;

/// The text format that Prometheus reads.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&Running) -> u64,
}

const fn metric(
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&Running) -> u64,
) -> Metric {
    Metric {
        name,
        kind,
        help,
        value,
    }
}

static TABLE: &[Metric] = &[
    metric(
        "seawall_tripwire_produce_batches_decoded_total",
        "counter",
        "Batches decoded while a produce was gated or appended. Must stay 0.",
        |_| crate::tripwire::PRODUCE.count(),
    ),
    metric(
        "seawall_tripwire_fetch_batches_decoded_total",
        "counter",
        "Batches decoded while a fetch was read. Must stay 0.",
        |_| crate::tripwire::FETCH.count(),
    ),
    metric(
        "seawall_topics",
        "gauge",
        "Topics that are open.",
        |running| running.broker.topics.load().len() as u64,
    ),
    metric(
        "seawall_partitions_online",
        "gauge",
        "Partitions that are neither stalled, failed nor offline.",
        |running| running.broker.sum_partitions(|p| u64::from(p.is_online())),
    ),
    metric(
        "seawall_flushes_total",
        "counter",
        "Flushes that succeeded.",
        |running| running.broker.sum_partitions(|p| p.commits().0),
    ),
    metric(
        "seawall_forced_acks_total",
        "counter",
        "Batches acknowledged by those flushes.",
        |running| running.broker.sum_partitions(|p| p.commits().1),
    ),
    metric(
        "seawall_compaction_passes_total",
        "counter",
        "Passes of compaction that changed something.",
        |running| compaction(running, |counts| &counts.passes),
    ),
    metric(
        "seawall_compaction_read_bytes_total",
        "counter",
        "Bytes of batches read by compaction.",
        |running| compaction(running, |counts| &counts.bytes_read),
    ),
    metric(
        "seawall_compaction_freed_bytes_total",
        "counter",
        "Bytes that compaction made segments smaller by.",
        |running| compaction(running, |counts| &counts.bytes_freed),
    ),
    metric(
        "seawall_compaction_removed_records_total",
        "counter",
        "Records that compaction removed.",
        |running| compaction(running, |counts| &counts.records_removed),
    ),
    metric(
        "seawall_compaction_opaque_batches_total",
        "counter",
        "Batches that stay as they are because nobody can read them.",
        |running| compaction(running, |counts| &counts.opaque_batches),
    ),
    metric(
        "seawall_compaction_damaged_runs_total",
        "counter",
        "Runs of segments that are not compacted because a batch in them is damaged.",
        |running| compaction(running, |counts| &counts.damaged),
    ),
    metric(
        "seawall_fetch_sessions",
        "gauge",
        "Readers whose wishes are remembered between their fetches.",
        |running| running.broker.fetch_sessions.stats().sessions as u64,
    ),
    metric(
        "seawall_fetch_session_partitions",
        "gauge",
        "Partitions that those readers want.",
        |running| running.broker.fetch_sessions.stats().partitions as u64,
    ),
    metric(
        "seawall_fetch_session_evictions_total",
        "counter",
        "Readers that were forgotten to make room for others.",
        |running| running.broker.fetch_sessions.stats().evictions,
    ),
    metric(
        "seawall_connections",
        "gauge",
        "Connections that are open.",
        |running| running.net_stats().connections,
    ),
    metric(
        "seawall_connections_refused_total",
        "counter",
        "Connections refused by a limit or for want of descriptors.",
        |running| running.net_stats().refused,
    ),
    metric(
        "seawall_connections_turned_away_total",
        "counter",
        "Connections that came too fast from their address.",
        |running| running.net_stats().turned_away,
    ),
    metric(
        "seawall_connections_accepted_total",
        "counter",
        "Connections accepted.",
        |running| running.net_stats().accepted,
    ),
];

fn compaction(running: &Running, count: fn(&CleanerCounts) -> &AtomicU64) -> u64 {
    let broker = &running.broker;
    broker.sum_dirs(|dir| count(&dir.cleaner.counts).load(Ordering::Relaxed))
}

/// Connections that ended, by the reason: its names are fixed.
fn closes(running: &Running, out: &mut String) {
    let name = "seawall_connections_closed_total";
    let _ = writeln!(
        out,
        "# HELP {name} Connections that ended, by the reason.\n# TYPE {name} counter"
    );
    let counts = CloseReason::LABELS.iter().zip(running.net_stats().closed);
    for (reason, count) in counts {
        let _ = writeln!(out, "{name}{{reason=\"{reason}\"}} {count}");
    }
}

/// Answers that held somebody up, by the kind of limit.
fn quotas(running: &Running, out: &mut String) {
    let name = "seawall_quota_throttles_total";
    let _ = writeln!(
        out,
        "# HELP {name} Requests and connections that were held up by a limit.\n# TYPE {name} counter"
    );
    for (kind, count) in running.broker.quotas.throttled() {
        let _ = writeln!(out, "{name}{{quota=\"{kind}\"}} {count}");
    }
}

/// Refusals by what was asked: the labels are Kafka's names, and so bounded in number.
fn access(running: &Running, out: &mut String) {
    let Authorizer::Standard(standard) = &running.broker.authorizer else {
        return;
    };
    let (rules, denials) = ("seawall_acl_rules", "seawall_authorization_denials_total");
    let count = standard.rules.len();
    let _ = writeln!(
        out,
        "# HELP {rules} Rules about who may do what.\n# TYPE {rules} gauge\n{rules} {count}\n\
         # HELP {denials} Requests or parts of them that were refused, by operation and resource.\n\
         # TYPE {denials} counter"
    );
    for (resource, operation, count) in standard.denials.all() {
        let (resource, operation) = (resource.name(), operation.name());
        let labels = format!("operation=\"{operation}\",resource=\"{resource}\"");
        let _ = writeln!(out, "{denials}{{{labels}}} {count}");
    }
}

/// All metrics in the text format.
pub fn render(running: &Running) -> String {
    let mut out = String::new();
    let requests = "seawall_requests_total";
    let _ = writeln!(
        out,
        "# HELP {requests} Requests started, by API.\n# TYPE {requests} counter"
    );
    for api in &api::TABLE {
        let count = api.requests.load(Ordering::Relaxed);
        let _ = writeln!(out, "{requests}{{api=\"{}\"}} {count}", api.name);
    }
    closes(running, &mut out);
    access(running, &mut out);
    quotas(running, &mut out);
    for metric in TABLE {
        let (name, kind, help) = (metric.name, metric.kind, metric.help);
        let value = (metric.value)(running);
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
        );
    }
    out
}
