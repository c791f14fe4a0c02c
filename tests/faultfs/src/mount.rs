//! The mount as a test holds it.
//!
//! Owns:     mounting and unmounting, whatever becomes of the test.
//! Does not: serve calls.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, PoisonError};

use fuser::{BackgroundSession, Config, MountOption, SessionACL, spawn_mount};
use tempfile::TempDir;

use crate::orders::{Call, Errno, Fault, Standing};
use crate::serve::{Serve, Shared};

/// A mounted file system, empty at first. Dropping it ends calls that hang and unmounts, also while a test panics.
pub struct FaultFs {
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    dir: TempDir,
}

impl FaultFs {
    /// Mounts one; power cuts are decided by `seed`.
    ///
    /// # Panics
    /// When this machine can not mount FUSE.
    #[must_use]
    pub fn mount(seed: u64) -> Self {
        if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
            panic!(
                "these tests need FUSE, and /dev/fuse can not be opened ({error}): load the module `fuse`, run as root, \
                 and in a container pass --device /dev/fuse --cap-add SYS_ADMIN"
            );
        }
        let dir = tempfile::Builder::new()
            .prefix("seawall-faultfs-")
            .tempdir()
            .expect("a temporary directory");
        let shared = Arc::new(Shared::new(seed));
        let mut config = Config::default();
        // Should the test process be killed, fusermount3 unmounts for it.
        config.mount_options = vec![
            MountOption::FSName("faultfs".into()),
            MountOption::AutoUnmount,
        ];
        config.acl = SessionACL::All;
        let session =
            spawn_mount(Serve(Arc::clone(&shared)), dir.path(), &config).unwrap_or_else(|error| {
                panic!(
                    "mount FUSE on {} (is Debian's package fuse3 installed?): {error}",
                    dir.path().display()
                )
            });
        Self {
            shared,
            session: Some(session),
            dir,
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// A path below the root.
    #[must_use]
    pub fn path(&self, below: &str) -> PathBuf {
        self.root().join(below)
    }

    /// Gives an order about all calls on paths that start with `prefix`, which has no leading slash; directories end in
    /// one (`topic/0/`), and the empty prefix means everything.
    pub fn order(&self, call: Call, prefix: &str, fault: Fault) -> Standing {
        self.order_times(call, prefix, fault, u64::MAX)
    }

    /// As `order`, for the next `times` calls only.
    pub fn order_times(&self, call: Call, prefix: &str, fault: Fault, times: u64) -> Standing {
        self.shared.orders.give(call, prefix, fault, times)
    }

    /// Sets how many bytes all files together may have, and what a write beyond that is answered.
    pub fn set_capacity(&self, bytes: Option<usize>, when_full: Errno) {
        *self
            .shared
            .when_full
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = when_full;
        self.shared.tree().capacity = bytes;
    }

    /// How many bytes all files together have.
    #[must_use]
    pub fn used(&self) -> usize {
        self.shared.tree().used
    }

    /// Cuts the power: what was not synced is forgotten, or any part of it stays, down to single sectors and single
    /// names. The process that uses the mount must have been killed.
    pub fn power_cut(&self) {
        self.shared.tree().cut_power();
    }

    /// Clean pages leave the page cache: bytes below `prefix` whose fsync failed now read as the device has them.
    pub fn evict(&self, prefix: &str) {
        self.shared.tree().evict(prefix);
    }
}

impl Drop for FaultFs {
    fn drop(&mut self) {
        self.shared.orders.close();
        // Lazily, since a process that a failed test left behind may still have files open.
        let unmounted = Command::new("fusermount3")
            .args(["-u", "-z", "-q"])
            .arg(self.dir.path())
            .stdin(Stdio::null())
            .status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be unmounted", self.dir.path().display());
        }
        drop(self.session.take());
    }
}
