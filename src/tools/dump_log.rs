//! `seawall dump-log`: what stands in a file of batches, ours or Kafka's.
//!
//! Owns:     the walk over the named files, the form of the lines, the exit status.
//! Does not: parse batches or records (`seawall_storage` does), or look at any other file.
use super::escape::Escaped;
use super::report::Progress;
use super::{Verdict, not_written};
use clap::Args;
use seawall_storage::disk::{Disk, RealDisk};
use seawall_storage::inspect::{Bad, FileWalk, Next, Rules, Seen, SeenBatch};
use seawall_storage::records::{DecodeSite, Limits, Record, RecordError, Records};
use seawall_storage::{BatchHeader, Codec, Timestamp};
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// A larger batch is not decoded: no request of ours or Kafka's defaults carries one.
const DECODED_BYTES_MAX: u64 = 256 << 20;

/// The options of `seawall dump-log`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DumpArgs {
    /// Files of record batches: segments of this broker or of Apache Kafka.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the records as well.
    #[arg(long)]
    records: bool,
    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
    /// Stop in each file at the first batch that begins at this byte or later.
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
}

/// Prints every file and says whether all of it was good.
pub(crate) fn dump_log(args: &DumpArgs) -> Verdict {
    let mut dump = Dump {
        args,
        out: BufWriter::new(io::stdout().lock()),
        damage: false,
        // Lines that scroll by are progress enough.
        progress: (!io::stdout().is_terminal()).then(Progress::new),
    };
    let mut failed = false;
    for path in &args.files {
        let done = dump.file(path);
        dump.clear_progress();
        match done {
            Ok(()) => {}
            Err(DumpError::Out(error)) => return not_written(&error),
            Err(DumpError::In(error)) => {
                failed = true;
                eprintln!("seawall dump-log: {}: {error}", path.display());
            }
        }
    }
    if let Err(error) = dump.out.flush() {
        return not_written(&error);
    }
    match (failed, dump.damage) {
        (true, _) => Verdict::NotRun,
        (false, true) => Verdict::Damage,
        (false, false) => Verdict::Clean,
    }
}

enum DumpError {
    /// The file cannot be read.
    In(io::Error),
    /// The output cannot be written.
    Out(io::Error),
}

/// One line of the output. In JSON every line names its file.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum Line<'a> {
    Batch(BatchLine),
    Record(RecordLine<'a>),
    Marker(MarkerLine),
    Bad(BadLine),
    BadRecords(BadRecordsLine),
}

#[derive(Serialize)]
struct InFile<'a> {
    #[serde(serialize_with = "super::report::lossy")]
    file: &'a Path,
    #[serde(flatten)]
    line: Line<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BatchLine {
    base_offset: i64,
    last_offset: i64,
    count: i32,
    epoch: i32,
    position: u64,
    size: u64,
    crc: &'static str,
    codec: &'static str,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    last_sequence: i32,
    transactional: bool,
    control: bool,
    timestamp_type: &'static str,
    base_timestamp: i64,
    max_timestamp: i64,
}

#[derive(Serialize)]
struct RecordLine<'a> {
    offset: i64,
    timestamp: i64,
    key: Option<Escaped<'a>>,
    value: Option<Escaped<'a>>,
    headers: Vec<HeaderPair<'a>>,
}

#[derive(Serialize)]
struct HeaderPair<'a> {
    key: Escaped<'a>,
    value: Option<Escaped<'a>>,
}

/// The record of a control batch (KIP-98; KIP-595 and KIP-630 for Kafka's own metadata).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MarkerLine {
    offset: i64,
    timestamp: i64,
    marker: &'static str,
    coordinator_epoch: Option<i32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BadLine {
    position: u64,
    what: String,
    resumed_at: Option<u64>,
    bytes_left: Option<u64>,
    zeros: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BadRecordsLine {
    position: u64,
    base_offset: i64,
    what: String,
}

struct Dump<'a, W: Write> {
    args: &'a DumpArgs,
    out: W,
    damage: bool,
    progress: Option<Progress>,
}

impl<W: Write> Dump<'_, W> {
    fn file(&mut self, path: &Path) -> Result<(), DumpError> {
        // A pipe would be waited for, and a directory has no batches.
        let is_file = path.metadata().map_err(DumpError::In)?.is_file();
        if !is_file {
            return Err(DumpError::In(io::Error::other("not a regular file")));
        }
        let file = RealDisk.open_read(path).map_err(DumpError::In)?;
        let len = file.len().map_err(DumpError::In)?;
        if !self.args.json && self.args.files.len() > 1 {
            writeln!(self.out, "{}:", path.display()).map_err(DumpError::Out)?;
        }
        let mut walk = FileWalk::new(&*file, len, Rules::ANY);
        let most = self.args.max_bytes.unwrap_or(u64::MAX);
        let mut shown = walk.position().0;
        while walk.position().0 < most
            && let Some(seen) = walk.step().map_err(DumpError::In)?
        {
            match seen {
                Seen::Batch(batch) => {
                    self.print(path, Line::Batch(batch_line(&batch, "ok")))?;
                    if self.args.records {
                        self.records(path, &walk, &batch)?;
                    }
                }
                Seen::Bad(bad) => self.bad(path, &bad)?,
            }
            if let Some(progress) = &mut self.progress {
                progress.add(walk.position().0.saturating_sub(shown), path);
                shown = walk.position().0;
            }
        }
        Ok(())
    }

    fn clear_progress(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.clear();
        }
    }

    fn bad(&mut self, path: &Path, bad: &Bad) -> Result<(), DumpError> {
        self.damage = true;
        if let Some(header) = bad.header
            && let Some(total) = header.total_len()
            && header.magic == 2
            && !matches!(bad.next, Next::Unknown { .. })
        {
            let batch = SeenBatch {
                header,
                position: bad.position,
                end: bad.position.plus(total),
            };
            let crc = match bad.why {
                seawall_storage::BadBatch::Crc => "bad",
                _ => "unchecked",
            };
            self.print(path, Line::Batch(batch_line(&batch, crc)))?;
        }
        let (resumed_at, bytes_left, zeros) = match bad.next {
            Next::Batch(at) => (Some(at.0), None, false),
            Next::End => (None, None, false),
            Next::Unknown { bytes, zeros } => (None, Some(bytes), zeros),
        };
        self.print(
            path,
            Line::Bad(BadLine {
                position: bad.position.0,
                what: what_is_bad(bad),
                resumed_at,
                bytes_left,
                zeros,
            }),
        )
    }

    fn records(
        &mut self,
        path: &Path,
        walk: &FileWalk<'_>,
        seen: &SeenBatch,
    ) -> Result<(), DumpError> {
        let Some(batch) = walk.batch(seen, DECODED_BYTES_MAX).map_err(DumpError::In)? else {
            return self.bad_records(path, seen, RecordError::TooLarge);
        };
        let is_control = seen.header.attributes.is_control();
        let records = match Records::decode(&batch, &Limits::default(), DecodeSite::Tool) {
            Ok(records) => records,
            Err(error) => return self.bad_records(path, seen, error),
        };
        for record in records {
            match record {
                Ok(record) if is_control => self.print(path, Line::Marker(marker_line(&record)))?,
                Ok(record) => {
                    let headers: Vec<_> = record.headers.iter().collect();
                    self.print(path, Line::Record(record_line(&record, &headers)))?;
                }
                Err(error) => self.bad_records(path, seen, error)?,
            }
        }
        Ok(())
    }

    fn bad_records(
        &mut self,
        path: &Path,
        seen: &SeenBatch,
        error: RecordError,
    ) -> Result<(), DumpError> {
        self.damage = true;
        let line = BadRecordsLine {
            position: seen.position.0,
            base_offset: seen.header.base_offset.0,
            what: error.to_string(),
        };
        self.print(path, Line::BadRecords(line))
    }

    fn print(&mut self, file: &Path, line: Line<'_>) -> Result<(), DumpError> {
        let written = if self.args.json {
            serde_json::to_writer(&mut self.out, &InFile { file, line })
                .map_err(io::Error::from)
                .and_then(|()| writeln!(self.out))
        } else {
            writeln!(self.out, "{line}")
        };
        written.map_err(DumpError::Out)
    }
}

fn what_is_bad(bad: &Bad) -> String {
    let old = bad
        .header
        .map(|header| header.magic)
        .filter(|m| (0..2).contains(m));
    match (old, bad.next) {
        (_, Next::Unknown { zeros: true, .. }) => "nothing but zeros".to_owned(),
        (Some(magic), _) if bad.why == seawall_storage::BadBatch::Impossible => {
            format!("message format {magic} (before Kafka 0.11) or no batch")
        }
        _ => bad.why.to_string(),
    }
}

fn batch_line(batch: &SeenBatch, crc: &'static str) -> BatchLine {
    let header: &BatchHeader = &batch.header;
    let last_sequence = if header.base_sequence.0 < 0 {
        header.base_sequence
    } else {
        header.last_sequence()
    };
    BatchLine {
        base_offset: header.base_offset.0,
        last_offset: header.last_offset().0,
        count: header.record_count,
        epoch: header.leader_epoch.0,
        position: batch.position.0,
        size: batch.end.since(batch.position),
        crc,
        codec: codec_name(header.attributes.codec()),
        producer_id: header.producer_id.0,
        producer_epoch: header.producer_epoch.0,
        base_sequence: header.base_sequence.0,
        last_sequence: last_sequence.0,
        transactional: header.attributes.is_transactional(),
        control: header.attributes.is_control(),
        timestamp_type: if header.attributes.is_log_append_time() {
            "LogAppendTime"
        } else {
            "CreateTime"
        },
        base_timestamp: header.base_timestamp.0,
        max_timestamp: header.max_timestamp.0,
    }
}

fn codec_name(codec: Option<Codec>) -> &'static str {
    match codec {
        Some(Codec::None) => "none",
        Some(Codec::Gzip) => "gzip",
        Some(Codec::Snappy) => "snappy",
        Some(Codec::Lz4) => "lz4",
        Some(Codec::Zstd) => "zstd",
        None => "unknown",
    }
}

/// Key and value of a record header.
type Header = (bytes::Bytes, Option<bytes::Bytes>);

fn record_line<'a>(record: &'a Record, headers: &'a [Header]) -> RecordLine<'a> {
    let headers = headers.iter().map(|(key, value)| HeaderPair {
        key: Escaped(key),
        value: value.as_deref().map(Escaped),
    });
    RecordLine {
        offset: record.offset.0,
        timestamp: record.timestamp.0,
        key: record.key.as_deref().map(Escaped),
        value: record.value.as_deref().map(Escaped),
        headers: headers.collect(),
    }
}

/// The key of a control record: version and type, both i16. The value of a transaction's marker: version i16,
/// coordinator epoch i32.
fn marker_line(record: &Record) -> MarkerLine {
    let kind = record.key.as_deref().and_then(|key| key.first_chunk::<4>());
    let kind = kind.map(|[_, _, high, low]| i16::from_be_bytes([*high, *low]));
    let value = record
        .value
        .as_deref()
        .and_then(|value| value.first_chunk::<6>());
    let epoch = value.map(|[_, _, epoch @ ..]| i32::from_be_bytes(*epoch));
    let is_transaction = matches!(kind, Some(0 | 1));
    MarkerLine {
        offset: record.offset.0,
        timestamp: record.timestamp.0,
        marker: match kind {
            Some(0) => "abort",
            Some(1) => "commit",
            Some(2) => "leader change",
            Some(3) => "snapshot header",
            Some(4) => "snapshot footer",
            Some(5) => "kraft version",
            Some(6) => "kraft voters",
            _ => "unknown",
        },
        coordinator_epoch: epoch.filter(|_| is_transaction),
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Batch(line) => line.fmt(f),
            Line::Record(line) => line.fmt(f),
            Line::Marker(line) => line.fmt(f),
            Line::Bad(line) => line.fmt(f),
            Line::BadRecords(line) => write!(
                f,
                "BAD RECORDS in the batch at position {}, offset {}: {}",
                line.position, line.base_offset, line.what
            ),
        }
    }
}

impl fmt::Display for BatchLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "offsets {}-{} count {} epoch {} position {} size {} crc {} codec {}",
            self.base_offset,
            self.last_offset,
            self.count,
            self.epoch,
            self.position,
            self.size,
            self.crc,
            self.codec
        )?;
        if self.producer_id >= 0 {
            write!(
                f,
                " producer {} epoch {} sequence {}-{}",
                self.producer_id, self.producer_epoch, self.base_sequence, self.last_sequence
            )?;
        }
        if self.transactional {
            f.write_str(" transactional")?;
        }
        if self.control {
            f.write_str(" control")?;
        }
        write!(
            f,
            " {} {}-{}",
            self.timestamp_type, self.base_timestamp, self.max_timestamp
        )
    }
}

impl fmt::Display for RecordLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  offset {} timestamp {}",
            self.offset,
            Time(self.timestamp)
        )?;
        write!(f, " key {} value {}", Quoted(self.key), Quoted(self.value))?;
        for header in &self.headers {
            write!(f, " header {}={}", header.key, Quoted(header.value))?;
        }
        Ok(())
    }
}

impl fmt::Display for MarkerLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  offset {} timestamp {} marker {}",
            self.offset,
            Time(self.timestamp),
            self.marker
        )?;
        match self.coordinator_epoch {
            Some(epoch) => write!(f, " coordinator epoch {epoch}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BAD position {}: {}", self.position, self.what)?;
        match (self.resumed_at, self.bytes_left) {
            (Some(at), _) => write!(f, "; going on at position {at}"),
            (None, Some(bytes)) => write!(
                f,
                "; stopping {bytes} bytes before the end of the file, since it is not known where the next batch begins"
            ),
            (None, None) => Ok(()),
        }
    }
}

/// Milliseconds; -1 is none.
struct Time(i64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Timestamp::NONE.0 {
            f.write_str("none")
        } else {
            self.0.fmt(f)
        }
    }
}

/// Text in quotation marks, so that none differs from empty.
struct Quoted<'a>(Option<Escaped<'a>>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, "\"{text}\""),
            None => f.write_str("null"),
        }
    }
}
