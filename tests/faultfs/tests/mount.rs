//! The file system through the kernel, as a broker sees it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use seawall_faultfs::{Call, Errno, Fault, FaultFs};

const SOON: Duration = Duration::from_secs(30);

fn sync_dir(fs: &FaultFs, below: &str) {
    File::open(fs.path(below))
        .expect("open a directory")
        .sync_all()
        .expect("sync a directory");
}

#[test]
fn what_was_synced_with_its_directories_survives_a_power_cut() {
    for seed in 0..20 {
        let fs = FaultFs::mount(seed);
        fs::create_dir(fs.path("dir")).expect("mkdir");
        sync_dir(&fs, "");
        let mut file = File::create_new(fs.path("dir/file")).expect("create");
        file.write_all(&[7; 10_000]).expect("write");
        file.sync_all().expect("fsync");
        sync_dir(&fs, "dir");
        file.write_all(&[8; 10_000]).expect("write");
        drop(file);
        fs.power_cut();
        let bytes = fs::read(fs.path("dir/file")).expect("the file is there");
        assert!(bytes.len() >= 10_000, "seed {seed}: {} bytes", bytes.len());
        assert!(bytes[..10_000].iter().all(|byte| *byte == 7), "seed {seed}");
    }
}

#[test]
fn a_hung_fsync_returns_when_its_order_is_lifted_and_nothing_else_waits() {
    let fs = FaultFs::mount(1);
    let file = File::create_new(fs.path("slow")).expect("create");
    file.write_all_at(b"bytes", 0).expect("write");
    let hang = fs.order(Call::Sync, "slow", Fault::Hang);
    let (done, returned) = mpsc::channel();
    thread::scope(|threads| {
        let file = &file;
        threads.spawn(move || done.send(file.sync_all().is_ok()).expect("tell"));
        hang.wait_for_hits(1, SOON);
        fs::write(fs.path("other"), b"x").expect("another file");
        File::open(fs.path("other"))
            .expect("open")
            .sync_all()
            .expect("another fsync");
        let mut read = [0; 5];
        file.read_exact_at(&mut read, 0)
            .expect("a read of the same file");
        assert_eq!(returned.try_recv(), Err(TryRecvError::Empty));
        hang.lift();
        assert_eq!(returned.recv_timeout(SOON), Ok(true));
    });
}

#[test]
fn calls_below_a_path_fail_as_ordered_and_others_do_not() {
    let fs = FaultFs::mount(1);
    let cases = [
        (Errno::NoSpace, ErrorKind::StorageFull),
        (Errno::Quota, ErrorKind::QuotaExceeded),
        (Errno::Stale, ErrorKind::StaleNetworkFileHandle),
    ];
    for (errno, kind) in cases {
        let file = File::create_new(fs.path("sick")).expect("create");
        let order = fs.order_times(Call::Sync, "sick", Fault::Fail(errno), 1);
        let refused = file.sync_all().expect_err("refused");
        assert_eq!(refused.kind(), kind);
        assert_eq!(order.hits(), 1);
        file.sync_all().expect("the next one");
        fs::remove_file(fs.path("sick")).expect("remove");
        let healthy = File::create(fs.path("healthy")).expect("another path");
        healthy.sync_all().expect("another path");
    }
}

#[test]
fn a_full_file_system_takes_part_of_a_write_and_then_none() {
    let fs = FaultFs::mount(1);
    fs.set_capacity(Some(1_000), Errno::Quota);
    let mut file = File::create_new(fs.path("file")).expect("create");
    assert_eq!(file.write(&[1; 1_500]).expect("a short write"), 1_000);
    let refused = file.write(&[1; 10]).expect_err("full");
    assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
    drop(file);
    fs::remove_file(fs.path("file")).expect("remove");
    // The kernel tells of the last close when it likes.
    let until = Instant::now() + SOON;
    while let Err(error) = fs::write(fs.path("next"), [1; 1_000]) {
        assert!(
            Instant::now() < until,
            "the space is not free again: {error}"
        );
    }
}

#[test]
fn a_mount_ends_with_its_owner_while_a_call_hangs() {
    let fs = FaultFs::mount(1);
    let root = fs.root().to_owned();
    let file = File::create_new(fs.path("file")).expect("create");
    let hang = fs.order(Call::Sync, "", Fault::Hang);
    thread::scope(|threads| {
        let waiting = threads.spawn(|| file.sync_all());
        hang.wait_for_hits(1, SOON);
        drop(fs);
        assert!(waiting.join().expect("joined").is_err());
    });
    assert!(!root.exists(), "the mount point is removed");
}
