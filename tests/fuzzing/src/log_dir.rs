//! A partition's directory in which one file is not what was written: segments, indexes, snapshots, the manifest.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use seawall_storage::disk::{Disk, SimDisk};
use seawall_storage::inspect::{InspectOptions, inspect_partition};
use seawall_storage::{
    Batch, BatchVerdict, Log, LogConfig, MarkerRound, Offered, OpenOptions, PartitionIndex,
    ProducerRules, Resources, Stop, Timestamp, TopicId, TxnOrigin,
};

const DIR: &str = "/log/t-3";
/// A batch of three records, and one of an idempotent producer's transaction, as bytes of a producer.
const BATCHES: [&[u8]; 2] = [
    include_bytes!("../../../fuzz/corpus/batch/plain"),
    include_bytes!("../../../fuzz/corpus/batch/transactional"),
];

/// The first byte names the file, the others are its content.
pub(crate) fn log_dir(input: &[u8]) {
    let Some((file, content)) = input.split_first() else {
        return;
    };
    let files = template();
    let Some((path, _)) = files.get(usize::from(*file) % files.len().max(1)) else {
        return;
    };
    let disk = SimDisk::new();
    let dir = Path::new(DIR);
    make_dirs(&disk, dir);
    for (path, content) in files {
        disk.put(path, content);
    }
    disk.put(path, content);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let options = InspectOptions {
        topic_id: Some(topic()),
        partition: PartitionIndex(3),
        recovered_this_boot: false,
        progress: &|_| {},
    };
    // Whatever it finds, it ends.
    let _ = inspect_partition(&*disk, dir, &options, &mut |_| {});
    for (stop, recovered) in [(Stop::Clean, true), (Stop::Unclean, false)] {
        // Refused or not, it ends.
        if let Ok(log) = open(&disk, stop, recovered) {
            let view = log.read_view();
            assert!(view.start_offset() <= view.end_offset());
        }
    }
}

fn make_dirs(disk: &dyn Disk, dir: &Path) {
    for dir in [Path::new("/log"), dir] {
        // It may be there.
        let _ = disk.create_dir(dir);
    }
}

fn topic() -> TopicId {
    TopicId(uuid::Uuid::from_u128(0x5ea))
}

fn open(disk: &Arc<dyn Disk>, stop: Stop, recovered: bool) -> Result<Log, ()> {
    let options = OpenOptions {
        topic_id: topic(),
        partition: PartitionIndex(3),
        config: LogConfig {
            segment_bytes: 600,
            index_interval_bytes: 64,
            ..LogConfig::default()
        },
        stop,
        recovered_this_boot: recovered,
        now: Timestamp(1_000_000),
        resources: Resources::new(16),
        progress: &|_| {},
    };
    Log::open(Arc::clone(disk), Path::new(DIR), &options).map_err(drop)
}

/// The files of a log of a few segments, by their paths.
///
/// # Panics
/// A log cannot be written on a simulated disk.
pub fn template() -> &'static [(PathBuf, Vec<u8>)] {
    static FILES: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let sim = SimDisk::new();
        make_dirs(&sim, Path::new(DIR));
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let mut log = open(&disk, Stop::Unclean, false).expect("a new log");
        for round in 0..12 {
            append(&mut log, BATCHES[usize::from(round % 4 == 3)]);
        }
        if let Some(point) = log.flush_point() {
            point.file.sync_data().expect("a sync");
            log.mark_synced(&point);
        }
        if let Some(plan) = log.close_plan() {
            plan.run().expect("a close");
        }
        drop(log);
        let mut files: Vec<_> = disk
            .list(Path::new(DIR))
            .expect("a directory")
            .into_iter()
            .filter(|entry| !entry.is_dir)
            .map(|entry| Path::new(DIR).join(entry.name))
            .filter_map(|path| Some((path.clone(), sim.content(&path)?)))
            .collect();
        files.sort();
        files
    })
}

fn append(log: &mut Log, bytes: &'static [u8]) {
    let rules = ProducerRules {
        max_batch_bytes: 1 << 20,
        zstd: true,
        check_crc: true,
    };
    let batch = Batch::from_producer(&Bytes::from_static(bytes), &rules).expect("a good batch");
    let offered = [Offered {
        batch,
        append_time: None,
        keep: true,
        txn: TxnOrigin::VerifiedIn(MarkerRound(u64::MAX)),
    }];
    for _ in 0..2 {
        let outcome = log.append_group(&offered, Timestamp(2_000_000));
        if outcome.verdicts.first() != Some(&BatchVerdict::Deferred) {
            return;
        }
        let new = log.roll_plan().run().expect("a roll");
        log.install(new).expect("nothing happened in between");
    }
}
