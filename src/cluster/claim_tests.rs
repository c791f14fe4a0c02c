use super::*;
use std::time::Instant;

fn options(host: &str, shared: bool) -> ClaimOptions {
    ClaimOptions {
        facts: HostFacts {
            host: host.to_owned(),
            boot_id: format!("boot-of-{host}"),
            pid: 42,
        },
        timing: OwnerTiming {
            beat: Duration::from_millis(20),
            stand_still: Duration::from_millis(300),
            fresh: Duration::from_millis(150),
            look: Duration::from_millis(10),
        },
        stop: Arc::new(StopSignal::default()),
        on_lost: Arc::new(|_| {}),
        always_shared: shared,
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let pause = StopSignal::default();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        pause.wait(Duration::from_millis(2));
    }
}

/// An owner that is gone without a word, as after a power cut: its file stays, its lock does not.
fn dead_owner(dir: &Path, n: u64, host: &str, change: impl Fn(&mut OwnerRecord)) {
    let mut record = OwnerRecord::new(&options(host, true).facts);
    change(&mut record);
    owner_file::write(&owner_file::create(dir, n).unwrap(), &record).unwrap();
}

fn tree(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entry = |e: std::fs::DirEntry| {
        (
            e.file_name().into_string().unwrap(),
            std::fs::read(e.path()).unwrap(),
        )
    };
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| entry(e.unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn d12_a_second_broker_is_refused_with_the_owners_name_and_changes_nothing() {
    for shared in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut slow = options("alpha", shared);
        slow.timing.beat = Duration::from_secs(60);
        let first = DirClaim::open(dir.path(), "0", &slow).unwrap();
        let before = tree(dir.path());
        let error = DirClaim::open(dir.path(), "0", &options("alpha", shared))
            .unwrap_err()
            .to_string();
        assert!(error.contains("process id 42 on host alpha"), "{error}");
        assert_eq!(tree(dir.path()), before);
        drop(first);
    }
}

#[test]
fn a_clean_stop_and_recovery_are_remembered_for_the_next_owner() {
    let dir = tempfile::tempdir().unwrap();
    let open = |host| DirClaim::open(dir.path(), "0", &options(host, false)).unwrap();
    let last = |claim: &DirClaim| {
        (
            claim.predecessor().stopped_cleanly,
            claim.predecessor().recovered_this_boot,
        )
    };
    let first = open("alpha");
    assert_eq!(
        last(&first),
        (false, false),
        "an empty directory had no owner that could vouch for it"
    );
    first.set_recovered(true).unwrap();
    drop(first);
    let second = open("alpha");
    assert_eq!(
        last(&second),
        (false, true),
        "killed, and the page cache is the same"
    );
    drop(second);
    let third = open("alpha");
    assert_eq!(
        last(&third),
        (false, false),
        "killed before recovery was through"
    );
    third.set_recovered(true).unwrap();
    third.release(Duration::from_secs(5)).unwrap();
    assert!(!third.is_fresh(), "given up");
    drop(third);
    assert_eq!(
        last(&open("beta")),
        (true, false),
        "another machine or another boot"
    );
}

#[test]
fn d11_a_directory_of_another_machine_is_taken_when_its_beat_has_stood_still() {
    let dir = tempfile::tempdir().unwrap();
    dead_owner(dir.path(), 4, "beta", |_| {});
    let started = Instant::now();
    let claim = DirClaim::open(dir.path(), "0", &options("alpha", true)).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert!(claim.is_fresh());
    assert!(owner_file::path_of(dir.path(), 5).exists());
}

#[test]
fn nobody_waits_for_an_owner_that_released_or_died_in_this_boot() {
    for (host, released) in [("beta", true), ("alpha", false)] {
        let dir = tempfile::tempdir().unwrap();
        dead_owner(dir.path(), 0, host, |record| record.released = released);
        let mut patient = options("alpha", true);
        patient.timing.stand_still = Duration::from_secs(3600);
        DirClaim::open(dir.path(), "0", &patient).unwrap();
    }
}

#[test]
fn d11_a_directory_whose_owner_beats_on_another_machine_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    // The lock of the other machine is not seen here, as on a mount without locks.
    dead_owner(dir.path(), 0, "beta", |_| {});
    let (path, stop) = (dir.path().to_owned(), Arc::new(StopSignal::default()));
    let their_stop = Arc::clone(&stop);
    let beating = std::thread::spawn(move || {
        let mut record = owner_file::read(&path, 0).unwrap().unwrap();
        let file = owner_file::reopen(&path, 0).unwrap();
        while !their_stop.wait(Duration::from_millis(30)) {
            record.beat += 1;
            owner_file::write(&file, &record).unwrap();
        }
    });
    let error = DirClaim::open(dir.path(), "0", &options("alpha", true)).unwrap_err();
    stop.raise();
    beating.join().unwrap();
    assert!(error.to_string().contains("on host beta"), "{error}");
    assert_eq!(
        owner_file::numbers(dir.path()).unwrap(),
        [0],
        "nothing was claimed"
    );
}

#[test]
fn waiting_for_another_owner_ends_when_told_to_stop() {
    let dir = tempfile::tempdir().unwrap();
    dead_owner(dir.path(), 0, "beta", |_| {});
    let mut patient = options("alpha", true);
    patient.timing.stand_still = Duration::from_secs(3600);
    patient.stop.raise();
    let error = DirClaim::open(dir.path(), "0", &patient).unwrap_err();
    assert!(matches!(error, ClaimError::Stopped { .. }));
}

#[test]
fn a_claim_stays_fresh_while_it_beats_and_grows_old_when_beats_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let claim = DirClaim::open(dir.path(), "0", &options("alpha", true)).unwrap();
    let beat = || {
        owner_file::read(dir.path(), 0)
            .unwrap()
            .map_or(0, |r| r.beat)
    };
    until("beats", || beat() >= 20);
    assert!(claim.is_fresh());
    // A beat that hangs: the file is locked out of its thread's reach.
    let hung = claim.shared.own.lock();
    until("grows old", || !claim.is_fresh());
    drop(hung);
    until("is ours again, as the next owner", || claim.is_fresh());
    assert!(owner_file::path_of(dir.path(), 1).exists(), "W1");
}

#[test]
fn a_claim_that_grew_old_and_was_taken_over_is_lost_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let told = Arc::new(AtomicBool::new(false));
    let mut options = options("alpha", true);
    let tell = Arc::clone(&told);
    options.on_lost = Arc::new(move |_| tell.store(true, Ordering::Release));
    let claim = DirClaim::open(dir.path(), "0", &options).unwrap();
    claim.set_recovered(true).unwrap();
    let hung = claim.shared.own.lock();
    until("grows old", || !claim.is_fresh());
    dead_owner(dir.path(), 1, "beta", |_| {});
    drop(hung);
    until("is told", || told.load(Ordering::Acquire));
    assert!(!claim.is_fresh(), "W2");
    assert!(
        claim.release(Duration::from_secs(5)).is_err(),
        "nothing is released that is not ours"
    );
    assert!(!owner_file::read(dir.path(), 0).unwrap().unwrap().released);
}
