//! Space that a log dir keeps back, so that a full disk can be started from.
//!
//! Owns:     the file `.reserve` and whether it is there.
//! Does not: decide that it is needed; the claim on the dir and deletions give
//!           it up when their own few bytes find no space.
//!
//! While it is not there the dir takes no appends: what space there is serves
//! deletion and state files first.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use seawall_storage::disk::{Disk, DiskFile};

use crate::cluster::root;

/// What is kept back: a few thousand small files' worth.
const RESERVE_BYTES: u64 = 4 << 20;
/// Written at once.
const CHUNK_BYTES: u64 = 64 << 10;

/// The reserve of one log dir.
pub struct Reserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    held: AtomicBool,
    restoring: AtomicBool,
}

impl Reserve {
    /// The reserve of `dir`, which is looked for and not made yet.
    pub fn new(disk: &Arc<dyn Disk>, dir: &Path) -> Self {
        Self {
            disk: Arc::clone(disk),
            path: dir.join(root::RESERVE),
            held: AtomicBool::new(false),
            restoring: AtomicBool::new(false),
        }
    }

    /// Whether it is there; lock-free.
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Lets go of the space for something that frees more.
    pub fn give_up(&self) {
        self.held.store(false, Ordering::Release);
        self.remove();
    }

    /// Whether the caller shall call [`Reserve::restore`], and nobody else.
    pub fn claim_restoring(&self) -> bool {
        !self.is_held() && !self.restoring.swap(true, Ordering::AcqRel)
    }

    /// Makes it if it is not there whole. Blocks on the disk.
    ///
    /// # Errors
    /// It is not there, and nothing of it is left but what cannot be removed.
    pub fn restore(&self) -> io::Result<()> {
        let there = self.is_whole() || self.write().inspect_err(|_| self.remove()).is_ok();
        self.held.store(there, Ordering::Release);
        self.restoring.store(false, Ordering::Release);
        there.then_some(()).ok_or(io::ErrorKind::StorageFull.into())
    }

    fn is_whole(&self) -> bool {
        let file = self.disk.open_read(&self.path);
        file.and_then(|file| file.len()).ok() == Some(RESERVE_BYTES)
    }

    fn write(&self) -> io::Result<()> {
        self.remove();
        let file = self.disk.create_new(&self.path)?;
        let mut noise = Noise::new();
        let mut at = 0;
        while at < RESERVE_BYTES {
            let chunk = noise.chunk();
            write_all(&*file, &chunk, at)?;
            at += CHUNK_BYTES;
        }
        file.sync_data()
    }

    fn remove(&self) {
        // What cannot be removed is found, and tried again, by the next try.
        drop(self.disk.remove_file(&self.path));
    }
}

fn write_all(file: &dyn DiskFile, bytes: &[u8], at: u64) -> io::Result<()> {
    let mut done = 0_usize;
    while done < bytes.len() {
        let slices = [IoSlice::new(&bytes[done..])];
        match file.write_vectored_at(&slices, at + done as u64)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => done += written,
        }
    }
    Ok(())
}

/// Bytes that no filer compresses away (xorshift64*; Vigna, 2016).
struct Noise(u64);

impl Noise {
    fn new() -> Self {
        Self(uuid::Uuid::new_v4().as_u64_pair().0 | 1)
    }

    fn chunk(&mut self) -> Vec<u8> {
        let words = CHUNK_BYTES / 8;
        let bytes = (0..words).flat_map(|_| {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes()
        });
        bytes.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_storage::disk::SimDisk;

    fn reserve(sim: &SimDisk) -> Reserve {
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        Reserve::new(&disk, Path::new("/"))
    }

    #[test]
    fn it_is_made_once_and_found_again() {
        let sim = SimDisk::new();
        assert!(!reserve(&sim).is_held());
        let made = reserve(&sim);
        made.restore().unwrap();
        assert!(made.is_held());
        let path = Path::new("/").join(root::RESERVE);
        let before = sim.content(&path).unwrap();
        assert_eq!(before.len() as u64, RESERVE_BYTES);
        reserve(&sim).restore().unwrap();
        assert_eq!(sim.content(&path).unwrap(), before);
    }

    #[test]
    fn without_space_there_is_none_and_nothing_is_left_behind() {
        let sim = SimDisk::new();
        sim.set_capacity(Some(RESERVE_BYTES / 2));
        let reserve = reserve(&sim);
        assert!(reserve.claim_restoring());
        assert!(!reserve.claim_restoring(), "one at a time");
        assert!(reserve.restore().is_err());
        assert!(!reserve.is_held());
        assert_eq!(sim.content(&Path::new("/").join(root::RESERVE)), None);
        sim.set_capacity(None);
        assert!(reserve.claim_restoring());
        reserve.restore().unwrap();
        assert!(reserve.is_held());
    }
}
