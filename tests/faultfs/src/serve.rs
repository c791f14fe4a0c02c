//! Answers the kernel.
//!
//! Owns:     the translation of FUSE calls to the tree, with orders asked first.
//! Does not: decide what is durable.
//! Called by the one thread that serves the mount; held calls are finished by whoever lifts their order.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno as Code, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::orders::{Call, Errno, Orders, Ruling};
use crate::tree::{Body, Ino, NameError, Tree};

/// F4.
const NOT_CACHED: Duration = Duration::ZERO;
const BLOCK: u32 = 4096;
/// What a mount without a capacity says it has.
const UNLIMITED: usize = 1 << 34;

pub(crate) struct Shared {
    tree: Mutex<Tree>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) when_full: Mutex<Errno>,
}

impl Shared {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            tree: Mutex::new(Tree::new(seed)),
            orders: Arc::default(),
            when_full: Mutex::new(Errno::NoSpace),
        }
    }

    pub(crate) fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn full(&self) -> Code {
        let errno = self
            .when_full
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        code(*errno)
    }

    /// Runs a call as the orders say. `done` gets the error, if it fails by one.
    fn run(
        self: &Arc<Self>,
        call: Call,
        path: &str,
        done: impl FnOnce(&Shared, Result<(), Refused>) + Send + 'static,
    ) {
        match self.orders.rule(call, path) {
            Ruling::Go => done(self, Ok(())),
            Ruling::Fail { errno, evict } => done(
                self,
                Err(Refused {
                    code: code(errno),
                    evict,
                    lie: false,
                }),
            ),
            Ruling::Lie => done(
                self,
                Err(Refused {
                    code: Code::EIO,
                    evict: false,
                    lie: true,
                }),
            ),
            Ruling::Hold(id, time) => {
                let shared = Arc::clone(self);
                let held = move |go: bool| {
                    let ended = Refused {
                        code: Code::EIO,
                        evict: false,
                        lie: false,
                    };
                    done(&shared, if go { Ok(()) } else { Err(ended) });
                };
                self.orders.hold(id, time, Box::new(held));
            }
        }
    }
}

/// A call that fails by an order.
struct Refused {
    code: Code,
    evict: bool,
    /// A sync says that it is done instead; any other call fails.
    lie: bool,
}

pub(crate) struct Serve(pub(crate) Arc<Shared>);

fn code(errno: Errno) -> Code {
    match errno {
        Errno::Io => Code::EIO,
        Errno::NoSpace => Code::ENOSPC,
        Errno::Quota => Code::EDQUOT,
        Errno::Stale => Code::ESTALE,
    }
}

fn name_code(error: NameError) -> Code {
    match error {
        NameError::NotFound => Code::ENOENT,
        NameError::Exists => Code::EEXIST,
        NameError::NotDir => Code::ENOTDIR,
        NameError::IsDir => Code::EISDIR,
        NameError::NotEmpty => Code::ENOTEMPTY,
    }
}

fn size(len: u64) -> usize {
    usize::try_from(len).expect("a file in memory")
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("a length fits 64 bits")
}

fn text(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

fn attr(tree: &Tree, ino: Ino) -> Result<FileAttr, Code> {
    let node = tree.node(ino).ok_or(Code::ESTALE)?;
    let (kind, len, perm) = match &node.body {
        Body::File(file) => (FileType::RegularFile, wide(file.len()), 0o644),
        Body::Dir { .. } => (FileType::Directory, 0, 0o755),
    };
    let epoch: SystemTime = UNIX_EPOCH;
    Ok(FileAttr {
        ino: INodeNo(ino),
        size: len,
        blocks: len.div_ceil(512),
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    })
}

fn entry(tree: &Tree, found: Result<Ino, NameError>, reply: ReplyEntry) {
    match found.map_err(name_code).and_then(|ino| attr(tree, ino)) {
        Ok(attr) => reply.entry(&NOT_CACHED, &attr, Generation(0)),
        Err(code) => reply.error(code),
    }
}

fn empty(done: Result<(), NameError>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(name_code(error)),
    }
}

fn child(tree: &Tree, dir: INodeNo, name: &str) -> String {
    format!("{}{name}", tree.path(dir.0))
}

impl Filesystem for Serve {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let tree = self.0.tree();
        entry(&tree, tree.lookup(parent.0, &text(name)), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match attr(&self.0.tree(), ino.0) {
            Ok(attr) => reply.attr(&NOT_CACHED, &attr),
            Err(code) => reply.error(code),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        len: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.0.tree();
        if let Some(len) = len {
            tree.set_len(ino.0, size(len));
        }
        match attr(&tree, ino.0) {
            Ok(attr) => reply.attr(&NOT_CACHED, &attr),
            Err(code) => reply.error(code),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let name = text(name);
        let path = child(&self.0.tree(), parent, &name);
        self.0
            .run(Call::Create, &path, move |shared, ruled| match ruled {
                Err(refused) => reply.error(refused.code),
                Ok(()) => {
                    let mut tree = shared.tree();
                    let made = tree.make(parent.0, &name, true);
                    entry(&tree, made, reply);
                }
            });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.0.tree().remove(parent.0, &text(name), false), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.0.tree().remove(parent.0, &text(name), true), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, to_name) = (text(name), text(to_name));
        let keep = flags.contains(RenameFlags::RENAME_NOREPLACE);
        let path = child(&self.0.tree(), parent, &name);
        self.0
            .run(Call::Rename, &path, move |shared, ruled| match ruled {
                Err(refused) => reply.error(refused.code),
                Ok(()) => {
                    let done =
                        shared
                            .tree()
                            .rename((parent.0, &name), (to_parent.0, &to_name), keep);
                    empty(done, reply);
                }
            });
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let name = text(name);
        let path = child(&self.0.tree(), parent, &name);
        self.0.run(Call::Create, &path, move |shared, ruled| {
            let mut tree = shared.tree();
            let made = match ruled {
                Err(refused) => Err(refused.code),
                Ok(()) => tree.make(parent.0, &name, false).map_err(name_code),
            };
            match made.and_then(|ino| Ok((ino, attr(&tree, ino)?))) {
                Err(code) => reply.error(code),
                Ok((ino, attr)) => {
                    tree.opened(ino);
                    let flags = FopenFlags::FOPEN_DIRECT_IO;
                    reply.created(&NOT_CACHED, &attr, Generation(0), FileHandle(0), flags);
                }
            }
        });
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut tree = self.0.tree();
        if tree.file(ino.0).is_none() {
            return reply.error(Code::ESTALE);
        }
        tree.opened(ino.0);
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.tree().released(ino.0);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        at: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let path = self.0.tree().path(ino.0);
        self.0.run(Call::Read, &path, move |shared, ruled| {
            let tree = shared.tree();
            match (ruled, tree.file(ino.0)) {
                (Err(refused), _) => reply.error(refused.code),
                (Ok(()), None) => reply.error(Code::ESTALE),
                (Ok(()), Some(file)) => reply.data(file.read(size(at), size(u64::from(len)))),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        at: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = data.to_vec();
        let path = self.0.tree().path(ino.0);
        self.0.run(Call::Write, &path, move |shared, ruled| {
            let mut tree = shared.tree();
            let fitting = tree.fitting(ino.0, size(at), data.len());
            match ruled {
                Err(refused) => reply.error(refused.code),
                Ok(()) if tree.file(ino.0).is_none() => reply.error(Code::ESTALE),
                Ok(()) if fitting == 0 && !data.is_empty() => reply.error(shared.full()),
                Ok(()) => {
                    tree.write(ino.0, size(at), &data[..fitting]);
                    reply.written(u32::try_from(fitting).expect("part of a request"));
                }
            }
        });
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let path = self.0.tree().path(ino.0);
        self.0.run(Call::Sync, &path, move |shared, ruled| {
            let mut tree = shared.tree();
            match (ruled, tree.file_mut(ino.0)) {
                (_, None) => reply.error(Code::ESTALE),
                (Ok(()), Some(file)) => {
                    file.sync();
                    reply.ok();
                }
                (Err(refused), Some(_)) if refused.lie => reply.ok(),
                (Err(refused), Some(file)) => {
                    file.sync_failed();
                    if refused.evict {
                        file.evict();
                    }
                    reply.error(refused.code);
                }
            }
        });
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let path = self.0.tree().path(ino.0);
        self.0
            .run(Call::SyncDir, &path, move |shared, ruled| match ruled {
                Err(refused) if refused.lie => reply.ok(),
                Err(refused) => reply.error(refused.code),
                Ok(()) => {
                    shared.tree().sync_dir(ino.0);
                    reply.ok();
                }
            });
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = self.0.tree();
        let Ok(names) = tree.names(ino.0) else {
            return reply.error(Code::ENOTDIR);
        };
        let dots = [".", ".."].map(|name| (name.to_owned(), ino.0));
        let all = dots
            .into_iter()
            .chain(names.iter().map(|(name, ino)| (name.clone(), *ino)));
        for (place, (name, ino)) in all.enumerate().skip(size(offset)) {
            let kind = if tree.file(ino).is_some() {
                FileType::RegularFile
            } else {
                FileType::Directory
            };
            if reply.add(INodeNo(ino), wide(place + 1), kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.0.run(Call::StatFs, "", |shared, ruled| match ruled {
            Err(refused) => reply.error(refused.code),
            Ok(()) => tell_space(&shared.tree(), reply),
        });
    }
}

fn tell_space(tree: &Tree, reply: ReplyStatfs) {
    let total = tree.capacity.unwrap_or(UNLIMITED);
    let free = wide(total.saturating_sub(tree.used) / size(u64::from(BLOCK)));
    let blocks = wide(total / size(u64::from(BLOCK)));
    reply.statfs(blocks, free, free, 1 << 20, 1 << 20, BLOCK, 255, BLOCK);
}
