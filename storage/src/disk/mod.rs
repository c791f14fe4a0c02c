//! What this crate asks of a file system, as two traits; everything that touches a disk goes through them.
//!
//! Owns:     the traits and their contract.
//! Does not: know what the bytes are.
//! Called from any thread; implementations answer concurrent calls.
//!
//! Contract: a call that returns an error may have done any part of its work. A name is durable only after
//! `sync_dir` of its directory (D6), data only after `sync_data` of its file.

mod real;
mod sim;

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use crate::types::Timestamp;
use seawall_planted::planted;

pub use real::RealDisk;
pub use sim::{Crash, Fault, FaultAt, SimDisk, SimOp};

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name; names that are not UTF-8 are none of ours and are not listed.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// What the page cache still holds of a file after it was asked to drop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// Nothing: the next read comes from the device.
    Dropped,
    /// Something stays, or the system cannot tell.
    MayStay,
}

/// A file system, or a simulation of one.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Creates a file that must not exist and opens it for reading and writing.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// As `create_new`, and nobody but the owner may read it, where there are owners.
    fn create_private(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.create_new(path)
    }

    /// Opens an existing file for reading.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens an existing file for reading and writing.
    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames within one directory; an existing target is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Creates one directory; its parent exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, in any order.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// The length of a file.
    fn file_len(&self, path: &Path) -> io::Result<u64>;
    /// When a file was last written, by the file system's clock.
    fn modified(&self, path: &Path) -> io::Result<Timestamp>;
}

/// An open file.
pub trait DiskFile: Send + Sync + fmt::Debug + 'static {
    /// `pwritev`: writes at a position and returns how many bytes were written, maybe fewer than given.
    fn write_vectored_at(&self, bufs: &[io::IoSlice<'_>], at: u64) -> io::Result<usize>;
    /// `pread`: reads at a position; 0 means the end of the file.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// `splice`: puts references to the file's cached pages into a pipe, from a position on and as many as it takes,
    /// waiting for the device where they are not cached; returns how many bytes that are. What is not a file of the
    /// kernel cannot.
    fn splice_at(&self, at: u64, len: usize, pipe: BorrowedFd<'_>) -> io::Result<usize> {
        let _ = (at, len, pipe);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes all data written so far durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Sets the time of the last write, for a file that takes the place of an older one.
    fn set_modified(&self, time: Timestamp) -> io::Result<()>;
    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The length of the file.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Drops clean pages from `at` (rounded down to a page) to the end, and says whether that worked: a page
    /// whose write-back failed looks clean, and what recovery accepts must come from the device (D9).
    fn drop_cache_from(&self, at: u64) -> io::Result<CacheState>;
}

/// Reads until the buffer is full or the file ends; returns how many bytes were read.
pub fn read_full(file: &dyn DiskFile, buf: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(
            &mut buf[done..],
            at.saturating_add(crate::types::wide(done)),
        ) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Writes all bytes at a position, continuing after short writes; the error says how much was written before it.
pub fn write_all_at(
    file: &dyn DiskFile,
    bufs: &mut [io::IoSlice<'_>],
    at: u64,
) -> Result<(), WriteEnded> {
    let mut rest = bufs;
    let mut written = 0;
    while !rest.is_empty() {
        match file.write_vectored_at(rest, at.saturating_add(written)) {
            Ok(0) => {
                return Err(WriteEnded {
                    written,
                    error: io::ErrorKind::WriteZero.into(),
                });
            }
            Ok(n) => {
                written = written.saturating_add(crate::types::wide(n));
                io::IoSlice::advance_slices(&mut rest, n);
                if planted("short-write-is-full") {
                    break;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(WriteEnded { written, error }),
        }
    }
    Ok(())
}

/// A write that ended early: `written` bytes are in the file, maybe followed by a part of the rest.
#[derive(Debug)]
pub struct WriteEnded {
    /// Bytes known to be written.
    pub written: u64,
    /// Why it ended.
    pub error: io::Error,
}

/// Whether an error means that there is no space (ENOSPC, EDQUOT, EFBIG), which passes by itself.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
