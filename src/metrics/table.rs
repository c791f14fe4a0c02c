//! Every metric: its name, what it is, and where its numbers come from.
//!
//! Names are for ever: dashboards and alerts of others hang on them.

use std::sync::atomic::{AtomicU64, Ordering};

use seawall_net::CloseReason;

use super::seen::Seen;
use super::text::Samples;
use super::{Kind, Metric};
use crate::cleaner::CleanerCounts;
use crate::security::sasl;
use crate::startup::Phase;
use crate::{api, tripwire};

type Source = fn(&Seen<'_>, &mut Samples<'_>);

const fn metric(name: &'static str, kind: Kind, help: &'static str, source: Source) -> Metric {
    Metric {
        name,
        kind,
        unit: "",
        labels: &[],
        help,
        source,
    }
}

const fn counter(name: &'static str, help: &'static str, source: Source) -> Metric {
    metric(name, Kind::Counter, help, source)
}

const fn gauge(name: &'static str, help: &'static str, source: Source) -> Metric {
    metric(name, Kind::Gauge, help, source)
}

const fn histogram(name: &'static str, help: &'static str, source: Source) -> Metric {
    metric(name, Kind::Histogram, help, source)
}

impl Metric {
    const fn by(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    const fn bytes(mut self) -> Self {
        self.unit = "bytes";
        self
    }

    const fn seconds(mut self) -> Self {
        self.unit = "seconds";
        self
    }
}

const DIR: &[&str] = &["dir"];
const PARTITION: &[&str] = &["topic", "partition"];
const GROUP: &[&str] = &["group", "topic", "partition"];

#[rustfmt::skip]
pub(super) static TABLE: &[Metric] = &[
    // The process.
    gauge("seawall_build_info", "Always 1; the labels say what runs.",
        |_, out| out.put(&[env!("CARGO_PKG_VERSION"), env!("SEAWALL_COMMIT")], 1_u64)).by(&["version", "commit"]),
    gauge("seawall_uptime_seconds", "How long the process runs.",
        |s, out| out.put(&[], s.running.uptime())).seconds(),
    gauge("seawall_ready", "1 if /readyz says that clients can be sent here.",
        |s, out| out.put(&[], s.running.not_ready().is_none())),
    gauge("seawall_starting", "1 until the broker serves.",
        |s, out| out.put(&[], matches!(s.running.startup.phase(), Phase::Claiming | Phase::Opening))),
    gauge("seawall_event_loop_silence_seconds", "How long ago all event loops were last seen going round; about a second is normal.",
        |s, out| out.put(&[], s.running.silence())).seconds(),
    gauge("seawall_recovery_partitions", "Partitions that the start has to open.",
        |s, out| out.put(&[], s.running.startup.recovery().partitions)),
    gauge("seawall_recovery_partitions_opened", "Those of them that are open, or offline for a reason.",
        |s, out| out.put(&[], s.running.startup.recovery().opened)),
    counter("seawall_recovery_read_bytes_total", "Bytes of logs that recovery read.",
        |s, out| out.put(&[], s.running.startup.recovery().bytes)).bytes(),
    counter("seawall_config_reloads_total", "Configurations that were read again and taken over.",
        |s, out| out.put(&[], s.running.reloads.get())),
    counter("seawall_config_reloads_refused_total", "Configurations that were read again and refused.",
        |s, out| out.put(&[], s.running.reloads_refused.get())),
    counter("seawall_tripwire_produce_batches_decoded_total", "Batches decoded while a produce was gated or appended. Must stay 0.",
        |_, out| out.put(&[], tripwire::PRODUCE.count())),
    counter("seawall_tripwire_fetch_batches_decoded_total", "Batches decoded while a fetch was read. Must stay 0.",
        |_, out| out.put(&[], tripwire::FETCH.count())),
    // Requests.
    counter("seawall_requests_total", "Requests started, by API.",
        |_, out| for api in &api::TABLE { out.put(&[api.name], api.requests.load(Ordering::Relaxed)); }).by(&["api"]),
    counter("seawall_errors_total", "Errors told to clients, by API and Kafka's name of the code.",
        |_, out| for (api, code, count) in api::codes::answered() { out.put(&[api, code], count); }).by(&["api", "code"]),
    counter("seawall_refusals_total", "Batches of produces that were not acknowledged, by reason.",
        |s, out| s.refusals(out)).by(&["reason"]),
    histogram("seawall_produce_seconds", "From the end of a Produce's frame to its answer.",
        |s, out| s.request_histogram(out, |c| c.produces.read())).seconds(),
    histogram("seawall_fetch_seconds", "From the end of a Fetch's frame to its answer, long polls included.",
        |s, out| s.request_histogram(out, |c| c.fetches.read())).seconds(),
    counter("seawall_fetched_bytes_total", "Bytes of batches that fetches brought.",
        |s, out| out.put(&[], s.of_broker(|b| b.counts.fetched_bytes.get()))).bytes(),
    gauge("seawall_fetch_sessions", "Readers whose wishes are remembered between their fetches.",
        |s, out| out.put(&[], s.of_broker(|b| b.fetch_sessions.stats().sessions as u64))),
    gauge("seawall_fetch_session_partitions", "Partitions that those readers want.",
        |s, out| out.put(&[], s.of_broker(|b| b.fetch_sessions.stats().partitions as u64))),
    counter("seawall_fetch_session_evictions_total", "Readers that were forgotten to make room for others.",
        |s, out| out.put(&[], s.of_broker(|b| b.fetch_sessions.stats().evictions))),
    // Sockets.
    gauge("seawall_connections", "Connections that are open.",
        |s, out| out.put(&[], s.running.net_stats().connections)),
    counter("seawall_connections_accepted_total", "Connections accepted.",
        |s, out| out.put(&[], s.running.net_stats().accepted)),
    counter("seawall_connections_refused_total", "Connections refused by a limit, or for want of descriptors.",
        |s, out| out.put(&[], s.running.net_stats().refused)),
    counter("seawall_connections_turned_away_total", "Connections that came too fast from their address.",
        |s, out| out.put(&[], s.running.net_stats().turned_away)),
    counter("seawall_connections_held_back_total", "Times that a listener with a limit of its own began to let connections wait.",
        |s, out| out.put(&[], s.running.net_stats().held_back)),
    counter("seawall_connections_closed_total", "Connections that ended, by the reason.",
        |s, out| for (reason, count) in CloseReason::LABELS.iter().zip(s.running.net_stats().closed) { out.put(&[reason], count); }).by(&["reason"]),
    counter("seawall_connections_faulty_total", "Connections closed for what their peer sent.",
        |s, out| out.put(&[], s.running.net_stats().peer_faults)),
    counter("seawall_frames_total", "Complete frames read from sockets.",
        |s, out| out.put(&[], s.running.net_stats().frames)),
    counter("seawall_replies_total", "Replies put into the output of a connection.",
        |s, out| out.put(&[], s.running.net_stats().replies)),
    counter("seawall_received_bytes_total", "Bytes read from sockets.",
        |s, out| out.put(&[], s.running.net_stats().bytes_in)).bytes(),
    counter("seawall_sent_bytes_total", "Bytes written to sockets.",
        |s, out| out.put(&[], s.running.net_stats().bytes_out)).bytes(),
    // Rules and limits.
    gauge("seawall_acl_rules", "Rules about who may do what; 0 without an authorizer.",
        |s, out| out.put(&[], s.of_broker(|b| b.authorizer.standard().map_or(0, |s| s.rules.len() as u64)))),
    counter("seawall_authorization_denials_total", "Requests or parts of them that were refused, by operation and resource.",
        |s, out| s.denials(out)).by(&["operation", "resource"]),
    counter("seawall_quota_throttles_total", "Requests and connections that were held up by a limit, by its kind.",
        |s, out| s.throttles(out)).by(&["quota"]),
    // Encryption and logins.
    counter("seawall_tls_handshakes_total", "TLS handshakes that were completed.",
        |s, out| out.put(&[], s.running.net_stats().tls.handshakes)),
    counter("seawall_tls_handshakes_resumed_total", "TLS handshakes that took up an earlier session.",
        |s, out| out.put(&[], s.running.net_stats().tls.resumed)),
    counter("seawall_tls_handshakes_failed_total", "TLS handshakes that either side refused or that were not completed in time.",
        |s, out| out.put(&[], s.running.net_stats().tls.failed)),
    gauge("seawall_tls_certificate_expiry_timestamp_seconds", "When the first of the broker's certificates expires, in seconds since 1970; 0 without TLS.",
        |s, out| out.put(&[], s.of_broker(|b| b.doors.first_end_s()))).seconds(),
    counter("seawall_logins_total", "Logins by SASL, repeated ones included.",
        |_, out| out.put(&[], sasl::LOGINS.load(Ordering::Relaxed))),
    counter("seawall_logins_failed_total", "Logins by SASL that were refused.",
        |_, out| out.put(&[], sasl::LOGINS_FAILED.load(Ordering::Relaxed))),
    counter("seawall_logins_expired_total", "Connections that were closed because their login had run out.",
        |_, out| out.put(&[], sasl::LOGINS_EXPIRED.load(Ordering::Relaxed))),
    gauge("seawall_frames_in_flight_bytes", "Bytes of frames that are reserved (queued.max.request.bytes is the limit).",
        |s, out| out.put(&[], s.running.net_stats().frame_bytes_reserved)).bytes(),
    gauge("seawall_frames_waiting", "Frames that wait for room below that limit.",
        |s, out| out.put(&[], s.running.net_stats().frames_waiting)),
    counter("seawall_panics_total", "Panics caught on net threads. Must stay 0.",
        |s, out| out.put(&[], s.running.net_stats().panics)),
    // Partitions.
    gauge("seawall_topics", "Topics that are open.",
        |s, out| out.put(&[], s.topics())),
    gauge("seawall_topics_acked_before_flush", "Topics with flush.messages above 1: their acks=all does not mean stable storage.",
        |s, out| out.put(&[], s.with_the_dial_turned())),
    gauge("seawall_partitions", "Partitions, by state.",
        |s, out| s.states(out)).by(&["state"]),
    gauge("seawall_partitions_online", "Partitions that are neither stalled, failed nor offline.",
        |s, out| out.put(&[], s.of_broker(|b| b.sum_partitions(|p| u64::from(p.is_online()))))),
    gauge("seawall_partition_state", "0: online, 1: stalled, 2: failed, 3: offline.",
        |s, out| s.each_state(out)).by(PARTITION),
    gauge("seawall_partition_log_start_offset", "The first offset that is there.",
        |s, out| s.each_partition(out, |p| p.view().start_offset().get())).by(PARTITION),
    gauge("seawall_partition_high_watermark_offset", "One past the last offset that readers see.",
        |s, out| s.each_partition(out, |p| p.high_watermark().get())).by(PARTITION),
    gauge("seawall_partition_log_end_offset", "One past the last offset that is written.",
        |s, out| s.each_partition(out, |p| p.view().end_offset().get())).by(PARTITION),
    gauge("seawall_series_left_out", "Partitions and committed offsets that are not told one by one, since there are more than metrics.series.max.",
        |s, out| s.left_out(out)).by(&["of"]),
    // Log dirs.
    gauge("seawall_log_dir_used", "1 if the configured log dir is there and used.",
        |s, out| s.dirs_present(out)).by(DIR),
    gauge("seawall_log_dir_free_bytes", "What may still be used of its file system.",
        |s, out| s.of_dirs(out, |d| d.claim.free_bytes())).by(DIR).bytes(),
    gauge("seawall_log_dir_size_bytes", "How large its file system is.",
        |s, out| s.of_dirs(out, |d| d.total_bytes())).by(DIR).bytes(),
    gauge("seawall_log_dir_has_space", "0 while it refuses appends for want of space.",
        |s, out| s.of_dirs(out, |d| d.reserve.is_held().into())).by(DIR),
    gauge("seawall_log_dir_claim_fresh", "0 while it is not sure that the dir is ours alone.",
        |s, out| s.of_dirs(out, |d| d.claim.is_fresh().into())).by(DIR),
    counter("seawall_appended_batches_total", "Batches written.",
        |s, out| s.of_dirs(out, |d| d.counts.batches.get())).by(DIR),
    counter("seawall_appended_records_total", "Records written.",
        |s, out| s.of_dirs(out, |d| d.counts.records.get())).by(DIR),
    counter("seawall_appended_bytes_total", "Bytes of batches written.",
        |s, out| s.of_dirs(out, |d| d.counts.bytes.get())).by(DIR).bytes(),
    counter("seawall_read_bytes_total", "Bytes of batches read for fetches.",
        |s, out| s.of_dirs(out, |d| d.counts.read_bytes.get())).by(DIR).bytes(),
    counter("seawall_read_uncopied_bytes_total", "Bytes of those that went from the page cache into a socket without a copy.",
        |s, out| s.of_dirs(out, |d| d.counts.piped_bytes.get())).by(DIR).bytes(),
    histogram("seawall_append_seconds", "How long the append of a group took, with the wait for its partition.",
        |s, out| s.dir_histograms(out, |c| c.writes.read())).by(DIR).seconds(),
    histogram("seawall_read_seconds", "How long a read for a fetch took.",
        |s, out| s.dir_histograms(out, |c| c.reads.read())).by(DIR).seconds(),
    histogram("seawall_fsync_seconds", "How long an fsync of a log took.",
        |s, out| s.dir_histograms(out, |c| c.fsyncs.read())).by(DIR).seconds(),
    counter("seawall_fsync_failures_total", "Fsyncs of logs that failed.",
        |s, out| s.of_dirs(out, |d| d.counts.fsyncs_failed.get())).by(DIR),
    histogram("seawall_group_commit_batches", "Batches that one flush acknowledged.",
        |s, out| s.dir_histograms(out, |c| c.groups.read())).by(DIR),
    counter("seawall_flushes_total", "Flushes that succeeded.",
        |s, out| out.put(&[], s.of_broker(|b| b.sum_dirs(|dir| dir.counts.groups.count())))),
    counter("seawall_forced_acks_total", "Batches acknowledged by those flushes.",
        |s, out| out.put(&[], s.of_broker(|b| b.sum_dirs(|dir| dir.counts.groups.sum())))),
    gauge("seawall_calls_in_flight", "Calls to disks, and waits for a thread, that have not come back, by what they are.",
        |s, out| s.calls(|call, seen| out.put(&[call], seen.count))).by(&["call"]),
    gauge("seawall_calls_in_flight_age_seconds", "How long the oldest of them has been running.",
        |s, out| s.calls(|call, seen| out.put(&[call], seen.age))).by(&["call"]).seconds(),
    // Queues.
    gauge("seawall_lane_bytes", "Bytes of batches that wait for their append.",
        |s, out| s.of_dirs(out, |d| d.queued.now())).by(DIR).bytes(),
    gauge("seawall_pool_queue", "Jobs that wait for a thread, by pool.",
        |s, out| s.pools(out)).by(&["pool"]),
    gauge("seawall_committer_threads", "Threads that flush.",
        |s, out| s.of_dirs(out, |d| d.committer.load().threads as u64)).by(DIR),
    gauge("seawall_deadlines", "Deadlines that are pending.",
        |s, out| out.put(&[], s.of_broker(|b| b.timer.pending() as u64))),
    // Groups.
    gauge("seawall_groups", "Consumer groups.",
        |s, out| out.put(&[], s.of_broker(|b| b.groups.len() as u64))),
    gauge("seawall_group_committed_offset", "The offset that a group goes on from.",
        |s, out| s.committed(out)).by(GROUP),
    gauge("seawall_group_lag", "Records between that offset and the high watermark.",
        |s, out| s.lag(out)).by(GROUP),
    // Compaction.
    counter("seawall_compaction_passes_total", "Passes of compaction that changed something.",
        |s, out| out.put(&[], compaction(s, |counts| &counts.passes))),
    counter("seawall_compaction_read_bytes_total", "Bytes of batches read by compaction.",
        |s, out| out.put(&[], compaction(s, |counts| &counts.bytes_read))).bytes(),
    counter("seawall_compaction_freed_bytes_total", "Bytes that compaction made segments smaller by.",
        |s, out| out.put(&[], compaction(s, |counts| &counts.bytes_freed))).bytes(),
    counter("seawall_compaction_removed_records_total", "Records that compaction removed.",
        |s, out| out.put(&[], compaction(s, |counts| &counts.records_removed))),
    counter("seawall_compaction_opaque_batches_total", "Batches that stay as they are because nobody can read them.",
        |s, out| out.put(&[], compaction(s, |counts| &counts.opaque_batches))),
    counter("seawall_compaction_damaged_runs_total", "Runs of segments that are not compacted because a batch in them is damaged.",
        |s, out| out.put(&[], compaction(s, |counts| &counts.damaged))),
];

fn compaction(seen: &Seen<'_>, count: fn(&CleanerCounts) -> &AtomicU64) -> u64 {
    seen.of_broker(|broker| {
        broker.sum_dirs(|dir| count(&dir.cleaner.counts).load(Ordering::Relaxed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::State;
    use crate::metrics::Format;
    use crate::running::Running;
    use std::collections::HashSet;

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        let mut names = HashSet::new();
        for metric in TABLE {
            let name = metric.name;
            assert!(names.insert(name), "{name} stands twice");
            assert!(name.starts_with("seawall_"), "{name}");
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(plain), "{name}");
            let total = name.strip_suffix("_total");
            assert_eq!(total.is_some(), metric.kind == Kind::Counter, "{name}");
            let stem = total.unwrap_or(name);
            for unit in ["bytes", "seconds"] {
                assert_eq!(stem.ends_with(unit), metric.unit == unit, "{name}");
            }
            assert!(metric.help.ends_with('.'), "{name}");
            assert!(!metric.help.contains(['\n', '\\', '|']), "{name}");
        }
        assert!(names.len() > 50);
    }

    #[test]
    fn states_have_the_numbers_that_the_table_tells() {
        let row = TABLE.iter().find(|m| m.name == "seawall_partition_state");
        let told: Vec<String> = State::ALL
            .iter()
            .map(|state| format!("{}: {}", state.place(), state.name()))
            .collect();
        assert_eq!(row.unwrap().help, format!("{}.", told.join(", ")));
    }

    #[test]
    fn a_page_can_be_had_before_anything_is_open() {
        let page = crate::metrics::render(&Running::new(), Format::OpenMetrics);
        assert!(page.contains("\nseawall_starting 1\n"), "{page}");
        assert!(page.contains("\nseawall_connections 0\n"), "{page}");
        assert!(page.ends_with("# EOF\n"));
    }
}
