//! The lock on a directory, and whether it is worth anything there.
//!
//! Owns:     the OFD lock on `.lock`, the list of file systems of one machine.
//! Does not: know owners beyond naming the one that holds the lock.
use super::claim::{ClaimError, io_at};
use super::names::root;
use super::owner_file;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::statfs::{self, FsType};
use std::fs::{File, OpenOptions};
use std::path::Path;

/// The lock on `.lock`. Where a shared file system has no locks, the owner file alone decides.
pub(super) fn take_lock(dir: &Path) -> Result<Lock, ClaimError> {
    let path = dir.join(root::LOCK);
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    let file = open.map_err(io_at(dir))?;
    match try_lock(&file) {
        Ok(()) => Ok(Lock { file, held: true }),
        Err(Errno::EAGAIN | Errno::EACCES) => {
            let owner = owner_file::numbers(dir)
                .ok()
                .and_then(|all| all.into_iter().max());
            let owner = owner.and_then(|n| owner_file::read(dir, n).ok().flatten());
            Err(ClaimError::Owned {
                dir: dir.to_owned(),
                owner,
            })
        }
        Err(Errno::ENOLCK | Errno::ENOSYS | Errno::EOPNOTSUPP) if !is_local(dir) => {
            Ok(Lock { file, held: false })
        }
        Err(errno) => Err(io_at(dir)(errno.into())),
    }
}

/// An open `.lock`.
pub(super) struct Lock {
    /// Open for as long as the lock is to be held.
    pub(super) file: File,
    /// Whether the file system has locks.
    pub(super) held: bool,
}

/// An OFD lock: it belongs to the open file, not to the process, so a second claim in one process is refused, too.
pub(crate) fn try_lock(file: &File) -> Result<(), Errno> {
    let whole = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).unwrap_or_default(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole)).map(drop)
}

/// File systems of one machine only: there the kernel's lock is the whole truth.
pub(super) fn is_local(dir: &Path) -> bool {
    const LOCAL: &[FsType] = &[
        statfs::EXT4_SUPER_MAGIC, // ext2 and ext3, too
        statfs::XFS_SUPER_MAGIC,
        statfs::BTRFS_SUPER_MAGIC,
        statfs::TMPFS_MAGIC,
        statfs::F2FS_SUPER_MAGIC,
        statfs::OVERLAYFS_SUPER_MAGIC,
        FsType(0x2fc1_2fc1), // ZFS
        FsType(0xca45_1a4e), // bcachefs
        FsType(0x8584_58f6), // ramfs
    ];
    statfs::statfs(dir).is_ok_and(|fs| LOCAL.contains(&fs.filesystem_type()))
}
