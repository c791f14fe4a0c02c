//! What this machine can do without any broker: the limits that the brokers are held against.
//!
//! Owns:     its own sockets and scratch files, which it removes.
//! Does not: know Kafka.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Doing, Error, Result};

/// A Produce answer has about this many bytes.
const REPLY_BYTES: usize = 64;
const TOUCHED_PIECE: usize = 64 << 20;

/// R: the mean time of one request of `bytes` and its small reply between two threads over loopback TCP.
pub(crate) fn round_trip(bytes: usize, time: Duration) -> Result<Duration> {
    let (mut near, mut far) = socket_pair()?;
    let echo = thread::spawn(move || {
        let mut request = vec![0; bytes];
        while far.read_exact(&mut request).is_ok() {
            if far.write_all(&[0; REPLY_BYTES]).is_err() {
                break;
            }
        }
    });
    let request = vec![7; bytes];
    let mut reply = [0; REPLY_BYTES];
    let mean = mean_of(time, || {
        near.write_all(&request).doing("write to loopback")?;
        near.read_exact(&mut reply).doing("read from loopback")
    });
    drop(near);
    join(echo)?;
    mean
}

/// W: bytes per second of one loopback stream, from memory to memory, read in pieces of up to `bytes`.
pub(crate) fn stream(bytes: usize, time: Duration) -> Result<f64> {
    let (mut near, mut far) = socket_pair()?;
    let source = vec![7; bytes];
    let sender = thread::spawn(move || while far.write_all(&source).is_ok() {});
    let mut sink = vec![0; bytes];
    let started = Instant::now();
    let mut total = 0u64;
    while started.elapsed() < time {
        let n = near.read(&mut sink).doing("read from loopback")?;
        total += u64::try_from(n).unwrap_or_default();
    }
    let rate = total as f64 / started.elapsed().as_secs_f64();
    drop(near);
    join(sender)?;
    Ok(rate)
}

/// D(bytes): the mean time of one pwrite at the end of a growing file in `dir`, and its fdatasync.
pub(crate) fn sync(dir: &Path, bytes: usize, time: Duration) -> Result<Duration> {
    let scratch = Scratch::new(dir)?;
    let data = incompressible(bytes);
    let mut at = 0;
    mean_of(time, || {
        scratch
            .file
            .write_all_at(&data, at)
            .doing("write a scratch file")?;
        at += u64::try_from(bytes).unwrap_or_default();
        scratch.file.sync_data().doing("sync a scratch file")
    })
}

/// Writes per second of `bytes` each at the end of a growing file in `dir`, never synced; ends early at `writes_max`.
pub(crate) fn plain_write(
    dir: &Path,
    bytes: usize,
    time: Duration,
    writes_max: u64,
) -> Result<f64> {
    let scratch = Scratch::new(dir)?;
    let data = incompressible(bytes);
    let started = Instant::now();
    let (mut at, mut writes) = (0, 0u64);
    while writes < writes_max && started.elapsed() < time {
        scratch
            .file
            .write_all_at(&data, at)
            .doing("write a scratch file")?;
        at += u64::try_from(bytes).unwrap_or_default();
        writes += 1;
    }
    Ok(writes as f64 / started.elapsed().as_secs_f64())
}

/// Touches up to `gib` GiB of memory, at most half of what is available, and gives it back. A virtual machine's host
/// provides a page when it is touched for the first time; without this, whoever first grows the page cache pays for it.
pub(crate) fn touch_memory(gib: usize) -> Result<()> {
    let info = fs::read_to_string("/proc/meminfo").doing("read /proc/meminfo")?;
    let available_kib = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok())
        .unwrap_or_default();
    let pieces = (gib << 30).min(available_kib * 512) / TOUCHED_PIECE;
    let held: Vec<Vec<u8>> = (0..pieces).map(|_| vec![1; TOUCHED_PIECE]).collect();
    drop(black_box(held));
    Ok(())
}

/// Waits until nothing is left to be written back on the file system of `dir`, so that one load does not pay for the
/// one before it.
pub(crate) fn settle(dir: &Path) -> Result<()> {
    let dir = File::open(dir).doing("open the data directory")?;
    nix::unistd::syncfs(&dir).doing("sync the file system")
}

fn mean_of(time: Duration, mut step: impl FnMut() -> Result<()>) -> Result<Duration> {
    let started = Instant::now();
    let mut steps = 0u32;
    while started.elapsed() < time || steps == 0 {
        step()?;
        steps += 1;
    }
    Ok(started.elapsed() / steps)
}

fn socket_pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).doing("listen on loopback")?;
    let addr = listener.local_addr().doing("ask for a local address")?;
    let near = TcpStream::connect(addr).doing("connect over loopback")?;
    let (far, _) = listener.accept().doing("accept on loopback")?;
    near.set_nodelay(true).doing("set TCP_NODELAY")?;
    far.set_nodelay(true).doing("set TCP_NODELAY")?;
    Ok((near, far))
}

fn join(thread: thread::JoinHandle<()>) -> Result<()> {
    thread.join().map_err(|_| Error::Malformed {
        what: "end of a measuring thread",
    })
}

/// Bytes that no file system or disk compresses.
fn incompressible(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[4]
        })
        .collect()
}

/// A file that is removed in the end.
struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    fn new(dir: &Path) -> Result<Self> {
        let path = dir.join("machine.scratch");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(|source| Error::Path {
                doing: "create",
                path: path.clone(),
                source,
            })?;
        Ok(Self { file, path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A scratch file that stays is only in the way.
        let _ = fs::remove_file(&self.path);
    }
}
