//! Compaction: what stays, what goes, and that no crash brings back what was deleted. f09, i11.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use seawall_storage::disk::{Crash, Disk, SimDisk};
use seawall_storage::names::{CHECKPOINT, COMPACTION, SNAPSHOT};
use seawall_storage::records::{DecodeSite, Limits, Records};
use seawall_storage::{
    Attributes, Batch, BatchHeader, BatchVerdict, Compaction, CompactionRules, CompactionStats,
    CompactionTask, LeaderEpoch, Log, Offset, PartitionIndex, ProducerEpoch, ProducerId,
    ReadBatches, ReadSpec, Sequence, Stop, Swap, Throttle, Timestamp, TopicId, read_progress,
    write_progress,
};

use crate::support::{
    Setup, TOPIC, append, assert_contiguous, close, header, parse, read_all, roll, seal,
};

pub(crate) const DIR: &str = "/topic/3";
pub(crate) const HOUR: i64 = 3_600_000;
/// A record of the model: key and value, or none for a tombstone.
pub(crate) type Pair<'a> = (&'a str, Option<&'a str>);

pub(crate) struct Unhurried;

impl Throttle for Unhurried {
    fn took(&mut self, _bytes: u64) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn setup() -> (Setup, SimDisk) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    disk.sync_dir(Path::new("/")).expect("sync");
    let mut setup = Setup::new(Arc::new(disk.clone()), Path::new(DIR));
    setup.config.segment_bytes = 400;
    (setup, disk)
}

pub(crate) fn rules() -> CompactionRules {
    CompactionRules {
        dirty_ratio_min: 0.0,
        lag_min_ms: 0,
        lag_max_ms: u64::MAX,
        delete_retention_ms: 1000,
        segment_bytes: 400,
        index_interval_bytes: 100,
        map_bytes_max: 1 << 20,
        batch_bytes_max: 1 << 20,
    }
}

fn varint(out: &mut Vec<u8>, value: i64) {
    let mut z = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while z >= 0x80 {
        out.push(u8::try_from(z & 0x7f).expect("7 bits") | 0x80);
        z >>= 7;
    }
    out.push(u8::try_from(z).expect("7 bits"));
}

fn nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => varint(out, -1),
        Some(bytes) => {
            varint(out, i64::try_from(bytes.len()).expect("small"));
            out.extend_from_slice(bytes);
        }
    }
}

pub(crate) fn payload(pairs: &[(Option<&str>, Option<&str>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (delta, (key, value)) in pairs.iter().enumerate() {
        let delta = i64::try_from(delta).expect("small");
        let mut body = vec![0];
        varint(&mut body, 10 * delta);
        varint(&mut body, delta);
        nullable(&mut body, key.map(str::as_bytes));
        nullable(&mut body, value.map(str::as_bytes));
        varint(&mut body, 1);
        nullable(&mut body, Some(b"h"));
        nullable(&mut body, None);
        varint(&mut out, i64::try_from(body.len()).expect("small"));
        out.extend_from_slice(&body);
    }
    out
}

pub(crate) fn fields(count: usize, time: i64) -> BatchHeader {
    let count = i32::try_from(count).expect("small");
    BatchHeader {
        max_timestamp: Timestamp(time + 10 * i64::from(count - 1)),
        ..header(count, time)
    }
}

pub(crate) fn keyed(pairs: &[Pair<'_>]) -> Batch {
    let pairs: Vec<_> = pairs.iter().map(|(k, v)| (Some(*k), *v)).collect();
    parse(&seal(fields(pairs.len(), HOUR), &payload(&pairs)))
}

fn of_producer(id: i64, sequence: i32, pairs: &[Pair<'_>]) -> Batch {
    let pairs: Vec<_> = pairs.iter().map(|(k, v)| (Some(*k), *v)).collect();
    let fields = BatchHeader {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(0),
        base_sequence: Sequence(sequence),
        ..fields(pairs.len(), HOUR)
    };
    parse(&seal(fields, &payload(&pairs)))
}

pub(crate) type Row = (i64, Option<String>, Option<String>, i64);

fn text(bytes: Option<Bytes>) -> Option<String> {
    bytes.map(|b| String::from_utf8(b.to_vec()).expect("text"))
}

/// Offset, key, value and timestamp of all records.
pub(crate) fn rows(batches: &[Batch]) -> Vec<Row> {
    let records = batches.iter().flat_map(|batch| {
        Records::decode(batch, &Limits::default(), DecodeSite::Tool).expect("decode")
    });
    let rows = records.map(|record| {
        let r = record.expect("record");
        assert_eq!(r.headers.len(), 1, "headers stay");
        (r.offset.0, text(r.key), text(r.value), r.timestamp.0)
    });
    rows.collect()
}

/// What a reader of all of it ends up with.
pub(crate) fn table<'a>(rows: impl IntoIterator<Item = &'a Row>) -> BTreeMap<String, String> {
    let mut table = BTreeMap::new();
    for (_, key, value, _) in rows {
        let key = key.clone().expect("a key");
        match value {
            Some(value) => table.insert(key, value.clone()),
            None => table.remove(&key),
        };
    }
    table
}

pub(crate) fn all_rows(log: &Log) -> Vec<Row> {
    let batches = read_all(log, log.start_offset().0, 300);
    let first = batches
        .first()
        .map_or(log.end_offset(), |b| b.header().base_offset);
    assert_contiguous(&batches, first.0, log.end_offset());
    rows(&batches)
}

pub(crate) fn checkpoint(log: &mut Log) -> std::io::Result<()> {
    if let Some(point) = log.flush_point() {
        point.file.sync_data()?;
        log.mark_synced(&point);
    }
    if let Some(plan) = log.checkpoint_plan(Timestamp(2_000_000)) {
        log.checkpoint_done(Some(plan.run()?));
    }
    Ok(())
}

pub(crate) fn topic() -> (TopicId, PartitionIndex) {
    (TopicId(uuid::Uuid::from_u128(TOPIC)), PartitionIndex(3))
}

fn drive(log: &mut Log, swap: &mut Swap) -> std::io::Result<()> {
    assert!(swap.is_let_go());
    swap.run()?;
    log.swapped(swap);
    Ok(())
}

/// As a broker compacts: all that is dirty now, and the file that says so.
pub(crate) fn compact(
    log: &mut Log,
    disk: &dyn Disk,
    rules: &CompactionRules,
    now: i64,
) -> std::io::Result<CompactionStats> {
    let end = log.end_offset();
    if log.snapshot_offset(end) < end {
        checkpoint(log)?;
    }
    let (id, index) = topic();
    let clean = read_progress(disk, Path::new(DIR), id, index);
    let limit = log.snapshot_offset(Offset(0)).min(log.durable_offset());
    let view = log.read_view();
    let limit = view.last_stable_offset(limit);
    let dirty = view.dirty(clean, rules, Timestamp(now), limit)?;
    let Some(dirty) = dirty.filter(|dirty| dirty.is_due) else {
        return Ok(CompactionStats::default());
    };
    let keep = log.remembered_batches().into_iter().collect();
    let task = CompactionTask {
        dirty,
        rules: *rules,
        keep,
        now: Timestamp(now),
    };
    let pass = Compaction::begin(&view, task, &mut Unhurried)?;
    drop(view);
    let Some(mut pass) = pass else {
        return Ok(CompactionStats::default());
    };
    while let Some(run) = pass.next_run(&mut Unhurried)? {
        let mut swap = log.splice(run).expect("nobody else works here");
        drive(log, &mut swap)?;
    }
    write_progress(disk, Path::new(DIR), id, index, pass.end())?;
    Ok(pass.stats)
}

fn logs(disk: &SimDisk) -> usize {
    let entries = disk.list(Path::new(DIR)).expect("list");
    assert!(
        !entries.iter().any(|e| e.name.starts_with(".tmp-")),
        "nothing temporary is left: {entries:?}"
    );
    entries.iter().filter(|e| e.name.ends_with(".log")).count()
}

fn offsets(rows: &[Row]) -> Vec<i64> {
    rows.iter().map(|row| row.0).collect()
}

#[test]
fn of_each_key_the_latest_record_stays_at_its_offset() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    append(
        &mut log,
        &[keyed(&[
            ("a", Some("1")),
            ("b", Some("1")),
            ("c", Some("1")),
        ])],
    );
    append(
        &mut log,
        &[keyed(&[("a", Some("2"))]), keyed(&[("b", Some("2"))])],
    );
    append(&mut log, &[keyed(&[("a", Some("3")), ("d", Some("1"))])]);
    let before = all_rows(&log);
    roll(&mut log);
    append(&mut log, &[keyed(&[("d", Some("2"))])]);
    let stats = compact(&mut log, &disk, &rules(), HOUR).expect("compaction");
    assert_eq!(stats.records_removed, 3);
    let after = all_rows(&log);
    assert_eq!(
        offsets(&after),
        [2, 4, 5, 6, 7],
        "the last segment is left alone"
    );
    assert!(
        after[..4].iter().all(|row| before.contains(row)),
        "nothing else changed"
    );
    for stop in [Stop::Unclean, Stop::Clean] {
        let log = setup.open(stop);
        assert_eq!(all_rows(&log), after, "{stop:?}");
    }
    assert_eq!(log.end_offset(), Offset(8));
}

#[test]
fn nothing_changes_where_nothing_is_superseded() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[keyed(&[("a", Some("1")), ("b", Some("1"))])]);
    roll(&mut log);
    let name = Path::new(DIR).join("00000000-00000000000000000000.log");
    let before = disk.content(&name);
    let writes = disk.calls(None);
    checkpoint(&mut log).expect("checkpoint");
    let writes = disk.calls(None) - writes;
    let calls = disk.calls(None);
    compact(&mut log, &disk, &rules(), HOUR).expect("compaction");
    assert_eq!(disk.content(&name), before);
    assert!(disk.calls(None) - calls < writes + 10, "no file is written");
    assert_eq!(logs(&disk), 2);
}

#[test]
fn all_codecs_come_out_as_they_went_in() {
    for codec in 0..=4_u16 {
        let (setup, disk) = setup();
        let mut log = setup.open(Stop::Clean);
        let plain = payload(&[
            (Some("a"), Some("old")),
            (Some("b"), Some("stays")),
            (Some("a"), None),
        ]);
        let packed = pack(codec, &plain);
        let fields = BatchHeader {
            attributes: Attributes(codec),
            ..fields(3, HOUR)
        };
        append(&mut log, &[parse(&seal(fields, &packed))]);
        let before = all_rows(&log);
        roll(&mut log);
        compact(&mut log, &disk, &rules(), HOUR).expect("compaction");
        let batches = read_all(&log, 0, 1000);
        assert_eq!(
            batches[0].header().attributes.0 & 7,
            codec,
            "the same codec"
        );
        assert_eq!(all_rows(&log), before[1..], "codec {codec}");
    }
}

fn pack(codec: u16, plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    match codec {
        1 => {
            let mut gzip =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            gzip.write_all(plain).expect("gzip");
            gzip.finish().expect("gzip")
        }
        2 => snap::raw::Encoder::new()
            .compress_vec(plain)
            .expect("snappy"),
        3 => {
            let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
            lz4.write_all(plain).expect("lz4");
            lz4.finish().expect("lz4")
        }
        4 => ruzstd::encoding::compress_to_vec(plain, ruzstd::encoding::CompressionLevel::Fastest),
        _ => plain.to_vec(),
    }
}

#[test]
fn tombstones_stay_until_their_horizon_and_go_then() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[keyed(&[("a", Some("1")), ("b", Some("1"))])]);
    append(&mut log, &[keyed(&[("a", None), ("c", Some("1"))])]);
    roll(&mut log);
    let expected = all_rows(&log)[1..].to_vec();
    compact(&mut log, &disk, &rules(), HOUR).expect("the horizon is set");
    assert_eq!(all_rows(&log), expected, "timestamps are what they were");
    let horizon = |log: &Log| {
        let batches = read_all(log, 0, 1000);
        let marked = batches
            .iter()
            .find(|b| b.header().attributes.has_delete_horizon());
        marked.map(|b| b.header().base_timestamp.0)
    };
    assert_eq!(horizon(&log), Some(HOUR + 1000));
    for (now, offsets_left) in [(HOUR + 999, vec![1, 2, 3, 4]), (HOUR + 1000, vec![1, 3, 5])] {
        append(&mut log, &[keyed(&[("z", Some("1"))])]);
        roll(&mut log);
        compact(&mut log, &disk, &rules(), now).expect("compaction");
        assert_eq!(offsets(&all_rows(&log))[..3], offsets_left[..3], "at {now}");
    }
    let log = setup.open(Stop::Unclean);
    assert_eq!(offsets(&all_rows(&log)), [1, 3, 5]);
}

#[test]
fn records_without_a_key_go_and_what_cannot_be_read_stays() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[keyed(&[("a", Some("1"))])]);
    let keyless = payload(&[(None, Some("x")), (Some("k"), Some("y"))]);
    append(&mut log, &[parse(&seal(fields(2, HOUR), &keyless))]);
    let bomb = BatchHeader {
        attributes: Attributes(1),
        ..fields(1, HOUR)
    };
    append(&mut log, &[parse(&seal(bomb, &pack(1, &vec![0; 4096])))]);
    append(&mut log, &[keyed(&[("a", None)])]);
    roll(&mut log);
    let small = CompactionRules {
        batch_bytes_max: 1000,
        ..rules()
    };
    let stats = compact(&mut log, &disk, &small, HOUR).expect("compaction");
    assert_eq!(stats.opaque_batches, 1);
    append(&mut log, &[keyed(&[("z", Some("1"))])]);
    roll(&mut log);
    compact(&mut log, &disk, &small, 2 * HOUR).expect("compaction");
    let batches = read_all(&log, 0, 10_000);
    assert_contiguous(&batches, 0, log.end_offset());
    let left: Vec<(i64, i32)> = batches
        .iter()
        .map(|b| (b.header().base_offset.0, b.header().record_count))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(
        left,
        [(1, 1), (3, 1), (4, 1), (5, 1)],
        "a tombstone behind it stays: who knows what it deletes there"
    );
}

#[test]
fn a_small_map_compacts_in_several_passes() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    for round in 0..6 {
        for key in 0..20 {
            let (key, value) = (format!("key-{key}"), format!("{round}"));
            append(&mut log, &[keyed(&[(&key, Some(&value))])]);
        }
    }
    roll(&mut log);
    let small = CompactionRules {
        map_bytes_max: 24 * 10,
        ..rules()
    };
    let wanted = table(&all_rows(&log));
    let mut passes = 0;
    loop {
        let stats = compact(&mut log, &disk, &small, HOUR).expect("compaction");
        if stats.keys == 0 {
            break;
        }
        assert!(stats.map_bytes <= 240);
        passes += 1;
        assert!(passes < 100, "progress");
        assert_eq!(table(&all_rows(&log)), wanted);
    }
    assert!(passes > 5);
    let rows = all_rows(&setup.open(Stop::Unclean));
    assert_eq!(rows.len(), 20, "{rows:?}");
}

#[test]
fn small_segments_are_joined_and_empty_ones_vanish() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    for n in 0..30 {
        append(
            &mut log,
            &[
                keyed(&[("same", Some("x"))]),
                keyed(&[(&format!("{n}"), None)]),
            ],
        );
        roll(&mut log);
    }
    let before = logs(&disk);
    assert!(before > 20);
    for pass in 0..4 {
        compact(&mut log, &disk, &rules(), HOUR + pass * 2000).expect("compaction");
        append(&mut log, &[keyed(&[("more", Some("x"))])]);
        roll(&mut log);
    }
    assert!(logs(&disk) < 8, "{} files", logs(&disk));
    let keys: Vec<_> = all_rows(&log).into_iter().map(|row| row.1).collect();
    assert_eq!(
        keys.iter().filter(|k| k.as_deref() == Some("same")).count(),
        1
    );
    let again = setup.open(Stop::Unclean);
    assert_eq!(again.end_offset(), log.end_offset());
}

#[test]
fn i11_an_idempotent_producer_goes_on_after_compaction_with_and_without_a_snapshot() {
    for without in [
        &[] as &[&str],
        &[SNAPSHOT],
        &[SNAPSHOT, CHECKPOINT, COMPACTION],
    ] {
        let (setup, disk) = setup();
        let mut log = setup.open(Stop::Clean);
        for sequence in 0..12 {
            append(&mut log, &[of_producer(5, sequence, &[("k", Some("v"))])]);
        }
        roll(&mut log);
        append(&mut log, &[keyed(&[("k", Some("last"))])]);
        roll(&mut log);
        compact(&mut log, &disk, &rules(), HOUR).expect("compaction");
        assert_eq!(offsets(&all_rows(&log)), [12]);
        for name in without {
            disk.remove_file(&Path::new(DIR).join(name))
                .expect("a hint");
        }
        let mut log = setup.open(Stop::Unclean);
        for (sequence, base) in [(11, 11), (7, 7)] {
            let verdicts = append(&mut log, &[of_producer(5, sequence, &[("k", Some("v"))])]);
            assert!(
                matches!(verdicts[0], BatchVerdict::Duplicate { base: Offset(b), .. } if b == base),
                "{without:?} {verdicts:?}"
            );
        }
        let next = append(&mut log, &[of_producer(5, 12, &[("k", Some("v"))])]);
        assert!(
            matches!(next[0], BatchVerdict::Appended { .. }),
            "{without:?} {next:?}"
        );
    }
}

#[test]
fn readers_of_an_older_view_read_what_they_had_until_they_let_go() {
    let (setup, disk) = setup();
    let rules = CompactionRules {
        segment_bytes: 4000,
        ..rules()
    };
    let mut log = setup.open(Stop::Clean);
    for _ in 0..4 {
        append(
            &mut log,
            &[keyed(&[("a", Some("1"))]), keyed(&[("b", Some("1"))])],
        );
        roll(&mut log);
    }
    checkpoint(&mut log).expect("checkpoint");
    let end = log.end_offset();
    assert_eq!(log.snapshot_offset(end), end);
    let view = log.read_view();
    let dirty = view
        .dirty(Offset(0), &rules, Timestamp(HOUR), end)
        .expect("dirty");
    let dirty = dirty.expect("all of it");
    let task = CompactionTask {
        dirty,
        rules,
        keep: log.remembered_batches().into_iter().collect(),
        now: Timestamp(HOUR),
    };
    let begun = Compaction::begin(&view, task, &mut Unhurried);
    let mut pass = begun.expect("keys").expect("dirty");
    let run = pass.next_run(&mut Unhurried).expect("run").expect("one");
    let mut swap = log.splice(run).expect("fits");
    assert!(!swap.is_let_go());
    assert_eq!(
        offsets(&all_rows(&log)),
        [6, 7],
        "new readers see the new file"
    );
    let mut old = Vec::new();
    let mut next = Offset(0);
    while next < end {
        let got = view
            .read(&crate::support::spec(next.0, 100))
            .expect("old view");
        old.push(got.next);
        next = got.next;
    }
    assert_eq!(old.len(), 8, "the old view shows what it always did");
    drop(view);
    drive(&mut log, &mut swap).expect("swap");
    assert_eq!(offsets(&all_rows(&log)), [6, 7]);
    assert_eq!(logs(&disk), 2);
}

#[test]
fn f09_readers_get_no_batch_that_stands_for_nothing_unless_it_is_the_end() {
    let (mut setup, disk) = setup();
    setup.resources = crate::stretches::keeps_all();
    let mut log = setup.open(Stop::Clean);
    for turn in 0..3 {
        append(
            &mut log,
            &[keyed(&[("a", Some("x"))]), keyed(&[("b", Some("x"))])],
        );
        append(&mut log, &[keyed(&[(&format!("only-{turn}"), Some("x"))])]);
    }
    append(&mut log, &[keyed(&[("gone", None)])]);
    roll(&mut log);
    compact(&mut log, &disk, &rules(), HOUR).expect("compaction");
    append(&mut log, &[keyed(&[("z", Some("x"))])]);
    roll(&mut log);
    compact(&mut log, &disk, &rules(), 2 * HOUR).expect("compaction");
    let view = log.read_view();
    let plain = |from: i64, upto: i64, max_bytes: usize| {
        let spec = ReadSpec {
            upto: Offset(upto),
            gaps: false,
            ..crate::support::spec(from, max_bytes)
        };
        view.read(&spec).expect("read")
    };
    let bases = |got: &ReadBatches| {
        let mut rest = got.bytes.clone();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let batch = Batch::parse_one(&rest).expect("whole batches");
            batch.check_crc().expect("crc");
            found.push((batch.header().base_offset.0, batch.header().record_count));
            rest = rest.slice(batch.len()..);
        }
        found
    };
    // Reads that take them have been there before: what they checked does not make them go out.
    crate::support::read_all(&log, 0, 1000);
    let found = crate::stretches::compare(&view, |_| None);
    assert!(found > 0);
    let mut seen = Vec::new();
    let mut next = Offset(0);
    while next < Offset(11) {
        let got = plain(next.0, 11, 10_000);
        seen.extend(bases(&got));
        next = got.next;
    }
    assert_eq!(seen, [(2, 1), (5, 1), (6, 1), (7, 1), (8, 1), (10, 1)]);
    for from in 0..=2 {
        assert_eq!(bases(&plain(from, 11, 1)), [(2, 1)], "from {from}");
    }
    assert_eq!(bases(&plain(3, 11, 1)), [(5, 1)]);
    assert_eq!(bases(&plain(9, 11, 1000)), [(10, 1)]);
    assert_eq!(
        bases(&plain(9, 10, 1000)),
        [(9, 0)],
        "nothing else is there"
    );
    assert_eq!(plain(9, 10, 1000).next, Offset(10));
    assert_eq!(bases(&plain(0, 2, 1000)), [(0, 0)]);
    assert_eq!(bases(&plain(11, 11, 1000)), []);
}

#[test]
fn what_was_dropped_meanwhile_is_not_swapped_in() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    for _ in 0..3 {
        append(&mut log, &[keyed(&[("a", Some("1"))])]);
        roll(&mut log);
    }
    checkpoint(&mut log).expect("checkpoint");
    let view = log.read_view();
    let dirty = view.dirty(Offset(0), &rules(), Timestamp(HOUR), Offset(3));
    let dirty = dirty.expect("dirty").expect("all of it");
    let task = CompactionTask {
        dirty,
        rules: rules(),
        keep: log.remembered_batches().into_iter().collect(),
        now: Timestamp(HOUR),
    };
    let begun = Compaction::begin(&view, task, &mut Unhurried);
    let mut pass = begun.expect("keys").expect("dirty");
    let run = pass.next_run(&mut Unhurried).expect("run").expect("one");
    let plan = log.trim_plan(Offset(2)).expect("plan");
    plan.run().expect("manifest");
    log.trim_done(&plan);
    let dropped = log.drop_below_start();
    assert_eq!(dropped.garbage.len(), 2);
    let stale = log.splice(run).err();
    stale.expect("its first segments are gone").discard();
    logs(&disk);
}

/// A first run over all that is dirty, as far as the swap that is not driven yet.
fn spliced(log: &mut Log, disk: &SimDisk) -> Swap {
    checkpoint(log).expect("checkpoint");
    let (id, index) = topic();
    let view = log.read_view();
    let clean = read_progress(disk, Path::new(DIR), id, index);
    let upto = log.snapshot_offset(Offset(0));
    let dirty = view.dirty(clean, &rules(), Timestamp(HOUR), upto);
    let task = CompactionTask {
        dirty: dirty.expect("dirty").expect("all of it"),
        rules: rules(),
        keep: log.remembered_batches().into_iter().collect(),
        now: Timestamp(HOUR),
    };
    let begun = Compaction::begin(&view, task, &mut Unhurried);
    let mut pass = begun.expect("keys").expect("dirty");
    let run = pass.next_run(&mut Unhurried).expect("run").expect("one");
    log.splice(run).expect("nobody else works here")
}

#[test]
fn what_a_crash_has_left_is_tidied_up_without_touching_a_new_file() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    for turn in 0..3 {
        append(
            &mut log,
            &[
                keyed(&[("a", Some("x"))]),
                keyed(&[(&format!("{turn}"), Some("x"))]),
            ],
        );
        roll(&mut log);
    }
    checkpoint(&mut log).expect("checkpoint");
    let left = [".tmp-compact-0".to_owned()];
    for name in left
        .into_iter()
        .chain((0..300).map(|n| format!(".tmp-{n}")))
    {
        disk.put(&Path::new(DIR).join(name), b"left");
    }
    let mut log = setup.open(Stop::Unclean);
    let before = all_rows(&log);
    let mut swap = spliced(&mut log, &disk);
    append(&mut log, &[keyed(&[("z", Some("x"))])]);
    drive(&mut log, &mut swap).expect("the new file is there");
    let after = all_rows(&log);
    assert!(after.len() <= before.len(), "{after:?}");
    assert_eq!(after.last().map(|row| row.0), Some(6));
    logs(&disk);
}

#[test]
fn a_start_after_compaction_scans_no_more_than_before_it() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    for turn in 0..20 {
        append(
            &mut log,
            &[keyed(&[("a", Some("x")), (&format!("{turn}"), Some("x"))])],
        );
        roll(&mut log);
    }
    checkpoint(&mut log).expect("checkpoint");
    let all = log.read_view().size_bytes().expect("sizes");
    let stats = compact(&mut log, &disk, &rules(), HOUR).expect("compaction");
    assert_eq!(stats.records_removed, 19);
    append(&mut log, &[keyed(&[("z", Some("x"))])]);
    crate::support::flush(&mut log);
    disk.restart(Crash::LoseAll);
    let log = setup.open(Stop::Unclean);
    let scanned = log.recovery().scanned_bytes;
    assert!(scanned < all / 4, "{scanned} of {all} bytes");
}

#[test]
fn min_compaction_lag_and_the_ratio_decide_when() {
    let (setup, _) = setup();
    let mut log = setup.open(Stop::Clean);
    for _ in 0..4 {
        append(&mut log, &[keyed(&[("a", Some("1"))])]);
        roll(&mut log);
    }
    let view = log.read_view();
    let dirty = |clean: i64, rules: &CompactionRules, now: i64| {
        let found = view.dirty(Offset(clean), rules, Timestamp(now), Offset(3));
        found
            .expect("sizes")
            .map(|d| (d.from.0, d.upto.0, d.is_due))
    };
    let half = CompactionRules {
        dirty_ratio_min: 0.5,
        ..rules()
    };
    assert_eq!(dirty(0, &half, HOUR), Some((0, 3, true)));
    assert_eq!(
        dirty(2, &half, HOUR),
        Some((2, 3, false)),
        "a third is dirty"
    );
    assert_eq!(dirty(3, &half, HOUR), None);
    let overdue = CompactionRules {
        lag_max_ms: 1000,
        ..half
    };
    assert_eq!(dirty(2, &overdue, HOUR + 1000), Some((2, 3, false)));
    assert_eq!(dirty(2, &overdue, HOUR + 1001), Some((2, 3, true)));
    // The test's appends happen at 2,000,000, before the records' own time.
    let young = CompactionRules {
        lag_min_ms: 1000,
        ..rules()
    };
    assert_eq!(dirty(0, &young, 2_000_999), None);
    assert_eq!(dirty(0, &young, 2_001_000), Some((0, 3, true)));
}

#[test]
fn epochs_that_readers_know_stay_known() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    for _ in 0..3 {
        append(
            &mut log,
            &[keyed(&[("a", Some("1"))]), keyed(&[("a", Some("2"))])],
        );
        close(&log);
        log = setup.open(Stop::Clean);
    }
    append(&mut log, &[keyed(&[("a", Some("3"))])]);
    roll(&mut log);
    compact(&mut log, &disk, &rules(), HOUR).expect("compaction");
    let check = |log: &Log| {
        let view = log.read_view();
        for epoch in 0..3 {
            let end = view.end_offset_for_epoch(LeaderEpoch(epoch));
            let next = i64::from(epoch) * 2 + 2;
            assert_eq!(end, Some((LeaderEpoch(epoch), Offset(next))));
        }
    };
    check(&log);
    check(&setup.open(Stop::Unclean));
}
