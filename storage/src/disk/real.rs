//! The disk of this machine.
//!
//! Owns:     the system calls.
//! Does not: retry, cache or interpret anything.
//! Called from any thread.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::Advice;
use rustix::io::ReadWriteFlags;
use rustix::pipe::{SpliceFlags, splice};

use super::{CacheState, DirEntry, Disk, DiskFile};
use crate::types::Timestamp;

/// The smallest unit of the page cache; probing at a finer grain than the system's pages does no harm.
const PAGE_BYTES: u64 = 4096;

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(File);

fn open(path: &Path, options: &OpenOptions) -> io::Result<Arc<dyn DiskFile>> {
    Ok(Arc::new(RealFile(options.open(path)?)))
}

impl Disk for RealDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        open(
            path,
            OpenOptions::new().read(true).write(true).create_new(true),
        )
    }

    fn create_private(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        open(path, &options)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        open(path, OpenOptions::new().read(true))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        open(path, OpenOptions::new().read(true).write(true))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(DirEntry {
                    name,
                    is_dir: entry.file_type()?.is_dir(),
                });
            }
        }
        Ok(entries)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        Ok(std::fs::metadata(path)?.len())
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        let modified = std::fs::metadata(path)?.modified()?;
        let since = modified.duration_since(std::time::UNIX_EPOCH);
        let ms = since.map_or(0, |d| d.as_millis());
        Ok(Timestamp(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
}

impl DiskFile for RealFile {
    fn write_vectored_at(&self, bufs: &[io::IoSlice<'_>], at: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.0, bufs, at)?)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buf, at)
    }

    fn splice_at(&self, at: u64, len: usize, pipe: BorrowedFd<'_>) -> io::Result<usize> {
        let mut from = at;
        // A pipe that is full refuses instead of waiting for its reader.
        let flags = SpliceFlags::NONBLOCK;
        Ok(splice(&self.0, Some(&mut from), pipe, None, len, flags)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_modified(&self, time: Timestamp) -> io::Result<()> {
        let since = std::time::Duration::from_millis(time.0.max(0).unsigned_abs());
        self.0.set_modified(std::time::UNIX_EPOCH + since)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn drop_cache_from(&self, at: u64) -> io::Result<CacheState> {
        let from = at - at % PAGE_BYTES;
        let Some(len) = NonZeroU64::new(self.len()?.saturating_sub(from)) else {
            return Ok(CacheState::Dropped);
        };
        rustix::fs::fadvise(&self.0, from, Some(len), Advice::DontNeed)?;
        // Without this, the first probe would start a read-ahead and the next would find its pages.
        rustix::fs::fadvise(&self.0, from, Some(len), Advice::Random)?;
        let state = self.probe(from, from.saturating_add(len.get()));
        rustix::fs::fadvise(&self.0, from, Some(len), Advice::Normal)?;
        state
    }
}

impl RealFile {
    /// Asks page by page for bytes that need no device: `preadv2` with `RWF_NOWAIT` refuses where there are none.
    /// (The same question as `mincore`, without a mapping. File systems that do not know the flag cannot tell.)
    fn probe(&self, from: u64, end: u64) -> io::Result<CacheState> {
        let mut at = from;
        let mut byte = [0_u8; 1];
        while at < end {
            let bufs = &mut [io::IoSliceMut::new(&mut byte)];
            match rustix::io::preadv2(&self.0, bufs, at, ReadWriteFlags::NOWAIT) {
                Err(rustix::io::Errno::AGAIN) => at = at.saturating_add(PAGE_BYTES),
                Ok(_) | Err(rustix::io::Errno::OPNOTSUPP) => return Ok(CacheState::MayStay),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(CacheState::Dropped)
    }
}
