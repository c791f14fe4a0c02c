//! What is known about kinds of file systems and their options: which keep what they have synced, and which do not.
//!
//! Owns:     the rules.
//! Does not: touch the file system; it judges what `mounts` read.
use super::finding::{Finding, Level};
use super::mounts::Mount;

/// An attribute cache that lives longer than this may hide another broker's claim. It is the kernel's own default, in seconds.
const ATTRIBUTE_CACHE_MAX: u64 = 60;
/// The smallest write that a mount should send at once, in bytes.
const WSIZE_MIN: u64 = 64 << 10;

const LOCAL: &[&str] = &["ext4", "ext3", "xfs", "btrfs", "zfs", "f2fs", "bcachefs"];
const MEMORY: &[&str] = &["tmpfs", "ramfs", "devtmpfs", "rootfs"];
const SMB: &[&str] = &["cifs", "smb3", "smbfs"];
/// They keep objects, whole; an fsync means little and a rename is a copy.
const OBJECT_STORES: &[&str] = &[
    "s3fs",
    "goofys",
    "gcsfuse",
    "rclone",
    "mountpoint-s3",
    "blobfuse",
    "blobfuse2",
    "yas3fs",
    "geesefs",
    "s3ql",
    "ossfs",
    "cosfs",
    "sshfs",
];
const WEAK: &[&str] = &[
    "vfat", "exfat", "msdos", "fuseblk", "ntfs", "ntfs3", "hfsplus",
];

/// Everything there is to say about a mount.
pub(super) fn judge(mount: &Mount) -> Vec<Finding> {
    let mut found = vec![kind(mount)];
    if mount.is_nfs() {
        found.extend(nfs(mount));
    }
    if mount.has("ro") {
        found.push(Finding::refusal("mount", "it is mounted read-only"));
    }
    if ["nobarrier", "barrier=0"]
        .iter()
        .any(|option| mount.has(option))
    {
        let what = "write barriers are off: an fsync does not reach beyond the disk's cache";
        found.push(Finding::refusal("barriers", what).advice("Remount with barrier=1"));
    }
    found
}

fn kind(mount: &Mount) -> Finding {
    let what = format!(
        "{} from {} at {}",
        mount.fs,
        mount.source,
        mount.point.display()
    );
    if LOCAL.contains(&mount.fs.as_str()) {
        return Finding::fine("fileSystem", what);
    }
    if mount.is_nfs() {
        let version = mount.value("vers").unwrap_or("?");
        return Finding::fine("fileSystem", format!("{what}, version {version}"));
    }
    let (level, why, advice) = known_bad(&mount.fs).unwrap_or_else(|| unproven(&mount.fs));
    Finding::new(level, "fileSystem", format!("{what}: {why}")).advice(advice)
}

/// A level, a reason, and what to do.
type Judgement = (Level, &'static str, &'static str);

fn known_bad(fs: &str) -> Option<Judgement> {
    const BETTER: &str = "Use a disk or NFS";
    let (why, advice) = if MEMORY.contains(&fs) {
        ("memory, gone at the next reboot", BETTER)
    } else if SMB.contains(&fs) {
        (
            "SMB has neither the locks nor the fsync of POSIX",
            "Use NFS for the same share, or a block device (iSCSI)",
        )
    } else if OBJECT_STORES.contains(&fs.strip_prefix("fuse.").unwrap_or(fs)) {
        (
            "an object store or a remote copy behind FUSE; what it has acknowledged may not be stored",
            BETTER,
        )
    } else if WEAK.contains(&fs) {
        (
            "it has no journal, or no atomic rename, that could be relied on",
            BETTER,
        )
    } else {
        return None;
    };
    Some((Level::Refusal, why, advice))
}

fn unproven(fs: &str) -> Judgement {
    let why = match fs {
        "overlay" => {
            "a container's layer; the data goes with the container, so mount a volume there"
        }
        "9p" | "virtiofs" => "a folder of the host, whose fsync is as good as the host's settings",
        "autofs" => "an automount point that has not been mounted yet",
        _ if fs.starts_with("fuse") => "FUSE: an fsync is as good as the program behind it",
        _ => "nothing is known here about this kind of file system",
    };
    let advice = "Prove it with --crash-test and a real power cut before you trust it";
    (Level::Warning, why, advice)
}

fn nfs(mount: &Mount) -> Vec<Finding> {
    let mut found = vec![recovery(mount)];
    found.extend(version(mount));
    found.extend(locks(mount));
    found.extend(caches(mount));
    found.extend(manner(mount));
    found
}

fn recovery(mount: &Mount) -> Finding {
    if ["soft", "softerr"].iter().any(|option| mount.has(option)) {
        let what = "a soft mount: when the server is slow, writes fail that it may have done, and reads of good data fail";
        return Finding::refusal("nfsHard", what).advice("Mount with hard (the default)");
    }
    Finding::fine("nfsHard", "a hard mount: calls wait for the server")
}

fn version(mount: &Mount) -> Option<Finding> {
    let version = mount.value("vers")?;
    match version {
        "2" => Some(
            Finding::refusal("nfsVersion", "NFSv2 cannot hold files above 2 GiB")
                .advice("Mount with vers=4.2"),
        ),
        "3" => Some(
            Finding::note(
                "nfsVersion",
                "NFSv3: locks are a second service, and are not taken over when the server moves",
            )
            .advice("vers=4.1 or 4.2 is better where the server has it"),
        ),
        "4" | "4.0" => Some(
            Finding::note("nfsVersion", "NFSv4.0: a retried call may be done twice")
                .advice("vers=4.1 or 4.2 has sessions against that"),
        ),
        _ => None,
    }
}

fn locks(mount: &Mount) -> Option<Finding> {
    let local = matches!(mount.value("local_lock"), Some("all" | "posix"));
    if !mount.has("nolock") && !local {
        return None;
    }
    let what = "locks are not sent to the server, so that only owner files keep a second machine's broker out";
    Some(
        Finding::warning("nfsLocks", what)
            .advice("Mount without nolock and local_lock=; for NFSv3, rpc.statd must run"),
    )
}

fn caches(mount: &Mount) -> Vec<Finding> {
    let mut found = Vec::new();
    let longest = ["actimeo", "acregmax", "acdirmax"]
        .iter()
        .filter_map(|name| mount.value(name)?.parse::<u64>().ok())
        .max();
    if let Some(seconds) = longest.filter(|seconds| *seconds > ATTRIBUTE_CACHE_MAX) {
        let what = format!(
            "attributes are cached for up to {seconds} s: too long if another machine may take over this directory"
        );
        found.push(
            Finding::warning("nfsCache", what)
                .advice("Mount without actimeo=, acregmax= and acdirmax="),
        );
    }
    if mount.has("nocto") {
        let what = "nocto: a file is opened as this machine remembers it, so that another broker's claim is not seen";
        found.push(Finding::warning("nfsCache", what).advice("Mount without nocto"));
    }
    found
}

fn manner(mount: &Mount) -> Vec<Finding> {
    let mut found = Vec::new();
    if mount
        .value("proto")
        .is_some_and(|proto| proto.starts_with("udp"))
    {
        found.push(
            Finding::refusal(
                "nfsTransport",
                "UDP: its short checksums and reused fragment numbers let wrong bytes through",
            )
            .advice("Mount with proto=tcp"),
        );
    }
    let wsize = mount
        .value("wsize")
        .and_then(|size| size.parse::<u64>().ok());
    if let Some(size) = wsize.filter(|size| *size < WSIZE_MIN) {
        found.push(Finding::note(
            "nfsSize",
            format!("wsize={size}: large batches are cut into many calls"),
        ));
    }
    if mount.has("sync") || mount.has("noac") {
        found.push(Finding::note(
            "nfsSync",
            "every write waits for the server (sync or noac), which group commit makes needless",
        ));
    }
    found.push(
        Finding::note(
            "nfsExport",
            "whether the server itself syncs cannot be seen from here",
        )
        .advice("Its export must say sync, not async (exportfs -v)"),
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(fs: &str, options: &str) -> Mount {
        Mount {
            point: "/m".into(),
            fs: fs.into(),
            source: "s".into(),
            options: options.split(',').map(str::to_owned).collect(),
        }
    }

    #[test]
    fn each_kind_of_mount_has_its_verdict() {
        use Level::{Fine, Note, Refusal, Warning};
        for (fs, options, worst, check) in [
            ("ext4", "rw,relatime", Fine, "fileSystem"),
            ("xfs", "rw,nobarrier", Refusal, "barriers"),
            ("ext4", "rw,barrier=0", Refusal, "barriers"),
            ("ext4", "ro", Refusal, "mount"),
            ("tmpfs", "rw", Refusal, "fileSystem"),
            ("overlay", "rw", Warning, "fileSystem"),
            ("cifs", "rw,vers=3.1.1", Refusal, "fileSystem"),
            ("fuse.s3fs", "rw", Refusal, "fileSystem"),
            ("fuse.rclone", "rw", Refusal, "fileSystem"),
            ("fuse.glusterfs", "rw", Warning, "fileSystem"),
            ("fuse", "rw", Warning, "fileSystem"),
            ("vfat", "rw", Refusal, "fileSystem"),
            ("ceph", "rw", Warning, "fileSystem"),
            (
                "nfs4",
                "rw,vers=4.2,hard,proto=tcp,local_lock=none",
                Note,
                "nfsExport",
            ),
            (
                "nfs",
                "rw,vers=3,hard,proto=tcp,local_lock=none",
                Note,
                "nfsVersion",
            ),
            (
                "nfs",
                "rw,vers=3,hard,nolock,local_lock=all",
                Warning,
                "nfsLocks",
            ),
            ("nfs4", "rw,vers=4.1,soft,proto=tcp", Refusal, "nfsHard"),
            ("nfs4", "rw,vers=4.1,softerr,proto=tcp", Refusal, "nfsHard"),
            (
                "nfs4",
                "rw,vers=4.2,hard,acregmin=3,acregmax=600",
                Warning,
                "nfsCache",
            ),
            ("nfs4", "rw,vers=4.2,hard,nocto", Warning, "nfsCache"),
            ("nfs4", "rw,vers=4.2,hard,acdirmax=60", Note, "nfsExport"),
            ("nfs", "rw,vers=3,hard,proto=udp", Refusal, "nfsTransport"),
            ("nfs4", "rw,vers=4.0,hard", Note, "nfsVersion"),
        ] {
            let found = judge(&mount(fs, options));
            let level = found.iter().map(|f| f.level).max().unwrap();
            assert_eq!(level, worst, "{fs} {options}: {found:?}");
            let hit = found.iter().any(|f| f.level == worst && f.check == check);
            assert!(hit, "{fs} {options}: no {check} in {found:?}");
        }
    }
}
