//! What is in a directory already.
//!
//! Owns:     whether it is Kafka's, whether a broker has it, whose it is.
//! Does not: change anything, or take a lock.
use super::finding::Finding;
use crate::cluster::root;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FOREIGN: &str = "it holds Apache Kafka's own data (meta.properties)";

/// The user of the packaged service.
const SERVICE_USER: &str = "seawall";

/// Whether there is a broker on `dir`, on this machine or where locks reach. `None`: it cannot be told.
fn is_locked(dir: &Path) -> Option<bool> {
    let file = File::open(dir.join(root::LOCK)).ok()?;
    let mut whole = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).ok()?,
        l_whence: i16::try_from(libc::SEEK_SET).ok()?,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut whole)).ok()?;
    Some(i32::from(whole.l_type) != libc::F_UNLCK)
}

/// The number of a user in a passwd(5) file.
fn user_id(passwd: &str, name: &str) -> Option<u32> {
    let mut lines = passwd.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

/// Whether it is Kafka's, which is never touched.
pub(super) fn is_foreign(dir: &Path) -> bool {
    dir.join(root::KAFKA_META).exists()
}

/// Why nothing may be written there beside what is there, if so.
pub(super) fn taken(dir: &Path) -> Option<&'static str> {
    if is_foreign(dir) {
        Some(FOREIGN)
    } else if is_locked(dir) == Some(true) {
        Some("a broker is running on it; stop it first")
    } else {
        None
    }
}

/// Looks without changing anything.
pub(super) fn contents(dir: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    if is_foreign(dir) {
        found.push(
            Finding::refusal("contents", FOREIGN)
                .advice("Take an empty directory; Kafka's data is never touched"),
        );
    }
    if is_locked(dir) == Some(true) {
        found.push(Finding::note(
            "inUse",
            "a broker is running on it; what was measured includes its load",
        ));
    }
    found.extend(owner(dir));
    found
}

/// The packaged service does not run as root and cannot make a directory its own.
fn owner(dir: &Path) -> Option<Finding> {
    let wanted = user_id(&fs::read_to_string("/etc/passwd").ok()?, SERVICE_USER)?;
    let owner = fs::metadata(dir).ok()?.uid();
    (owner != wanted).then(|| {
        Finding::note(
            "owner",
            format!("it belongs to user {owner}; the service runs as {SERVICE_USER} ({wanted})"),
        )
        .advice(format!("chown {SERVICE_USER}: {}", dir.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nseawall2:x:7:7::/:\nseawall:x:991:990::/var/lib/seawall:/usr/sbin/nologin\n";
        assert_eq!(user_id(passwd, "seawall"), Some(991));
        assert_eq!(user_id(passwd, "sea"), None);
    }

    #[test]
    fn the_data_of_kafka_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |dir: &Path| contents(dir).iter().any(|f| f.check == "contents");
        assert!(!refused(dir.path()));
        fs::write(dir.path().join("meta.properties"), "version=1\n").unwrap();
        assert!(refused(dir.path()));
    }

    #[test]
    fn a_lock_of_somebody_else_is_seen_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(is_locked(dir.path()), None);
        let file = File::create_new(dir.path().join(root::LOCK)).unwrap();
        assert_eq!(is_locked(dir.path()), Some(false));
        crate::cluster::try_lock(&file).unwrap();
        assert_eq!(is_locked(dir.path()), Some(true));
    }
}
