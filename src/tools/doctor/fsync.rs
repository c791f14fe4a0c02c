//! How long an fsync takes, and whether that can be true.
//!
//! Owns:     the measurement and its limits.
//! Does not: clean up; the caller removes the directory.
//!
//! It writes as a log does (appends, then `fdatasync`, through the broker's own `Disk`), with bytes that no filer can compress.
use super::finding::Finding;
use seawall_storage::disk::{Disk, DiskFile};
use serde::Serialize;
use std::io::{self, IoSlice};
use std::path::Path;
use std::time::{Duration, Instant};

/// As many samples as make a 99th percentile worth its name, on a disk that is not slow.
const SAMPLES_MAX: usize = 500;
/// And no longer than this.
const SAMPLE_TIME: Duration = Duration::from_secs(4);
/// What one sample appends.
const SAMPLE_BYTES: usize = 4096;
/// Written at once for the second look.
const BULK_BYTES: usize = 32 << 20;
/// Left alone where there is less room than this.
const BULK_ROOM: u64 = 256 << 20;

/// No flush of a disk or round trip to a server and its disk is faster: half of them below this is a cache that answers.
const LOCAL_MIN_US: u64 = 12;
const REMOTE_MIN_US: u64 = 40;
/// 32 MiB faster than this is 32 GB/s: memory, not storage.
const BULK_MIN_US: u64 = 1000;
/// Producers notice.
const SLOW_US: u64 = 50_000;
/// A quarter of the time after which a partition counts as stalled.
const VERY_SLOW_US: u64 = 5_000_000;

/// The distribution, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Latencies {
    samples: usize,
    p50_us: u64,
    p90_us: u64,
    p99_us: u64,
    max_us: u64,
    /// The fsync of 32 MiB; `None` where there was no room for it.
    bulk_us: Option<u64>,
}

/// Measures in `dir`, where `room` bytes are free.
pub(super) fn measure(disk: &dyn Disk, dir: &Path, room: u64) -> io::Result<Latencies> {
    let file = disk.create_new(&dir.join("fsync"))?;
    disk.sync_dir(dir)?;
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut times = Vec::new();
    let started = Instant::now();
    let mut at = 0;
    while times.len() < SAMPLES_MAX && (times.is_empty() || started.elapsed() < SAMPLE_TIME) {
        at = append(&*file, &noise.bytes(SAMPLE_BYTES), at)?;
        times.push(timed_sync(&*file)?);
    }
    let bulk_us = if room >= BULK_ROOM {
        append(&*file, &noise.bytes(BULK_BYTES), at)?;
        Some(timed_sync(&*file)?)
    } else {
        None
    };
    times.sort_unstable();
    Ok(Latencies {
        samples: times.len(),
        p50_us: percentile(&times, 50),
        p90_us: percentile(&times, 90),
        p99_us: percentile(&times, 99),
        max_us: percentile(&times, 100),
        bulk_us,
    })
}

/// Appends all of `bytes` and returns the new end.
fn append(file: &dyn DiskFile, bytes: &[u8], at: u64) -> io::Result<u64> {
    let mut slices = [IoSlice::new(bytes)];
    seawall_storage::disk::write_all_at(file, &mut slices, at).map_err(|ended| ended.error)?;
    Ok(at.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX)))
}

fn timed_sync(file: &dyn DiskFile) -> io::Result<u64> {
    let begun = Instant::now();
    file.sync_data()?;
    Ok(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX))
}

/// The smallest sample that `percent` of all do not exceed; 0 without samples.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

impl Latencies {
    pub(super) fn judge(&self, remote: bool) -> Vec<Finding> {
        let what = format!(
            "{} fsyncs: half within {} us, 99 % within {} us, the slowest {} us",
            self.samples, self.p50_us, self.p99_us, self.max_us
        );
        let mut found = vec![if self.max_us >= VERY_SLOW_US {
            Finding::warning("fsync", what)
                .advice("Partitions stall when one takes longer than log.flush.stall.timeout.ms")
        } else if self.p50_us >= SLOW_US {
            Finding::note("fsync", what).advice(
                "Every acks=all batch waits that long at least; a write cache with a battery helps",
            )
        } else {
            Finding::fine("fsync", what)
        }];
        found.extend(self.too_fast(remote));
        found
    }

    fn too_fast(&self, remote: bool) -> Option<Finding> {
        let least = if remote { REMOTE_MIN_US } else { LOCAL_MIN_US };
        let bulk = self.bulk_us.filter(|us| *us < BULK_MIN_US);
        if self.p50_us >= least && bulk.is_none() {
            return None;
        }
        let what = match bulk {
            Some(us) => format!("an fsync of 32 MiB took {us} us, which no disk can do"),
            None => format!(
                "half of the fsyncs took {} us or less, which is faster than any disk",
                self.p50_us
            ),
        };
        Some(Finding::warning("fsyncTooFast", what).advice(
            "It looks like a cache without a battery, an export with async, a virtual disk with cache=unsafe, or libeatmydata: \
             prove with --crash-test and a real power cut that it keeps what it says",
        ))
    }
}

/// Bytes without a pattern (xorshift64).
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len);
        while out.len() < len {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            out.extend_from_slice(&self.0.to_le_bytes());
        }
        out.truncate(len);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let sorted: Vec<u64> = (1..=200).collect();
        assert_eq!(
            [50, 90, 99, 100].map(|p| percentile(&sorted, p)),
            [100, 180, 198, 200]
        );
        assert_eq!(percentile(&[7], 50), 7);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn an_fsync_at_the_speed_of_memory_is_doubted() {
        let disk = Latencies {
            samples: 500,
            p50_us: 300,
            p90_us: 400,
            p99_us: 900,
            max_us: 4_000,
            bulk_us: Some(20_000),
        };
        let levels = |l: Latencies, remote| l.judge(remote).iter().map(|f| f.level).max().unwrap();
        assert_eq!(levels(disk, false), Level::Fine);
        assert_eq!(
            levels(Latencies { p50_us: 2, ..disk }, false),
            Level::Warning
        );
        assert_eq!(levels(Latencies { p50_us: 30, ..disk }, false), Level::Fine);
        assert_eq!(
            levels(Latencies { p50_us: 30, ..disk }, true),
            Level::Warning
        );
        assert_eq!(
            levels(
                Latencies {
                    bulk_us: Some(90),
                    ..disk
                },
                false
            ),
            Level::Warning
        );
        assert_eq!(
            levels(
                Latencies {
                    max_us: 6_000_000,
                    ..disk
                },
                false
            ),
            Level::Warning
        );
    }
}
