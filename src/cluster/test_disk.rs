//! For tests: the real disk, which dies after a number of steps, or fails one of them.
use seawall_storage::disk::{CacheState, DirEntry, Disk, DiskFile, RealDisk};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// When a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// This step and all later ones, as if the process had been killed before it.
    Killed,
    /// This step only.
    Once,
}

#[derive(Debug, Default)]
struct Steps {
    done: AtomicU64,
    fails_at: Mutex<Option<(u64, Fault)>>,
    log: Mutex<Vec<String>>,
}

/// A disk whose steps (changes and syncs) are counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestDisk(Arc<Steps>);

#[derive(Debug)]
struct TestFile {
    file: Arc<dyn DiskFile>,
    steps: Arc<Steps>,
}

impl TestDisk {
    /// Counts from 0 again; the step of this number fails.
    pub(crate) fn fail_at(&self, step: u64, fault: Fault) {
        self.0.done.store(0, Ordering::SeqCst);
        self.0.log.lock().unwrap().clear();
        *self.0.fails_at.lock().unwrap() = Some((step, fault));
    }

    /// Counts from 0 again; no step fails.
    pub(crate) fn heal(&self) {
        self.fail_at(u64::MAX, Fault::Once);
    }

    /// The steps since then.
    pub(crate) fn steps(&self) -> Vec<String> {
        self.0.log.lock().unwrap().clone()
    }

    /// How many of them were syncs.
    pub(crate) fn syncs(&self) -> usize {
        self.steps()
            .iter()
            .filter(|step| step.starts_with("sync"))
            .count()
    }

    /// Whether the step that was to fail has been reached.
    pub(crate) fn has_failed(&self) -> bool {
        let fails_at = *self.0.fails_at.lock().unwrap();
        fails_at.is_some_and(|(step, _)| self.0.done.load(Ordering::SeqCst) > step)
    }
}

impl Steps {
    fn step(&self, what: &str, path: &Path) -> io::Result<()> {
        let now = self.done.fetch_add(1, Ordering::SeqCst);
        let fails = match *self.fails_at.lock().unwrap() {
            Some((at, Fault::Killed)) => now >= at,
            Some((at, Fault::Once)) => now == at,
            None => false,
        };
        if fails {
            return Err(io::Error::other(format!(
                "{what} {} fails as planned",
                path.display()
            )));
        }
        self.log
            .lock()
            .unwrap()
            .push(format!("{what} {}", path.display()));
        Ok(())
    }
}

impl Disk for TestDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.step("create", path)?;
        Ok(Arc::new(TestFile {
            file: RealDisk.create_new(path)?,
            steps: Arc::clone(&self.0),
        }))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.open_read(path)
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.open_write(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.step("rename", to)?;
        RealDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.step("remove", path)?;
        RealDisk.remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.step("mkdir", path)?;
        RealDisk.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.step("rmdir", path)?;
        RealDisk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.step("sync", path)?;
        RealDisk.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        RealDisk.list(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        RealDisk.file_len(path)
    }

    fn modified(&self, path: &Path) -> io::Result<seawall_storage::Timestamp> {
        RealDisk.modified(path)
    }
}

impl DiskFile for TestFile {
    fn set_modified(&self, time: seawall_storage::Timestamp) -> io::Result<()> {
        self.file.set_modified(time)
    }

    fn write_vectored_at(&self, bufs: &[io::IoSlice<'_>], at: u64) -> io::Result<usize> {
        self.steps.step("write", Path::new(""))?;
        self.file.write_vectored_at(bufs, at)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.steps.step("sync", Path::new("file"))?;
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn drop_cache_from(&self, at: u64) -> io::Result<CacheState> {
        self.file.drop_cache_from(at)
    }
}
