//! What a path stands on, as the kernel tells in /proc/self/mountinfo (proc(5)).
//!
//! Owns:     the form of that file, and which line is about a path.
//! Does not: judge.
use crate::tools::report::lossy;
use serde::Serialize;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mount {
    /// Where it is mounted.
    #[serde(serialize_with = "lossy")]
    pub(super) point: PathBuf,
    /// The type of the file system: `ext4`, `nfs4`, `fuse.s3fs`.
    pub(super) fs: String,
    /// A device, or `server:/path`.
    pub(super) source: String,
    /// Options of the mount, then of the file system.
    pub(super) options: Vec<String>,
}

impl Mount {
    /// Whether an option stands there.
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|given| given == option)
    }

    /// The value of an option written as `name=value`.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.options
            .iter()
            .find_map(|given| given.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether a server keeps the bytes.
    pub(super) fn is_nfs(&self) -> bool {
        self.fs == "nfs" || self.fs == "nfs4"
    }
}

/// The mount that a path is on. Only the directories above the mount point are touched if `path` is absolute and free of
/// links, so that this answers for a mount whose server does not.
pub(super) fn mount_of(path: &Path) -> io::Result<Option<Mount>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(find(&table, path))
}

/// The last of the longest: a later mount on the same point covers an earlier one.
fn find(table: &[u8], path: &Path) -> Option<Mount> {
    let mounts = table.split(|byte| *byte == b'\n').filter_map(parse);
    mounts
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

/// `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/sda rw`, with any number of fields before the dash.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let point = fields.nth(4)?;
    let of_mount = fields.next()?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let (fs, source, of_fs) = (rest.next()?, rest.next()?, rest.next().unwrap_or_default());
    let options = of_mount
        .split(|b| *b == b',')
        .chain(of_fs.split(|b| *b == b','));
    Some(Mount {
        point: PathBuf::from(OsString::from_vec(unescape(point))),
        fs: text(fs),
        source: text(&unescape(source)),
        options: options.filter(|o| !o.is_empty()).map(text).collect(),
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Blanks, tabs, newlines and backslashes stand there as `\ooo`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'\\').then(|| after.get(..3)).flatten();
        let byte =
            code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    out
}

/// A mount point above `path` that /etc/fstab promises and that is not mounted.
pub(super) fn promised_and_missing(path: &Path) -> Option<PathBuf> {
    let fstab = std::fs::read("/etc/fstab").ok()?;
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    missing(&fstab, &table, path)
}

fn missing(fstab: &[u8], table: &[u8], path: &Path) -> Option<PathBuf> {
    let promised = fstab.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line
            .split(u8::is_ascii_whitespace)
            .filter(|f| !f.is_empty());
        let source = fields.next().filter(|source| !source.starts_with(b"#"))?;
        let point = unescape(fields.next()?);
        (!source.is_empty() && point.starts_with(b"/"))
            .then(|| PathBuf::from(OsString::from_vec(point)))
    });
    let mounted: Vec<PathBuf> = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| Some(parse(line)?.point))
        .collect();
    let mut absent = promised.filter(|point| path.starts_with(point) && !mounted.contains(point));
    absent.find(|point| point.as_os_str().as_bytes() != b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 27 0:29 / /mnt rw,relatime - tmpfs none rw,size=1k
35 27 0:32 / /mnt/a\\040filer rw,relatime shared:24 master:3 - nfs4 filer:/x rw,vers=4.2,hard,acregmax=120
36 27 0:33 / /data rw - ext4 /dev/vdb rw
37 27 0:34 / /data ro - xfs /dev/vdc rw,noquota
";

    #[test]
    fn the_deepest_and_latest_mount_is_the_one() {
        for (path, point, fs) in [
            ("/", "/", "ext4"),
            ("/mntx", "/", "ext4"),
            ("/mnt/b", "/mnt", "tmpfs"),
            ("/mnt/a filer/x/y", "/mnt/a filer", "nfs4"),
            ("/data/x", "/data", "xfs"),
        ] {
            let mount = find(TABLE, Path::new(path)).unwrap();
            assert_eq!(
                (mount.point.to_str().unwrap(), mount.fs.as_str()),
                (point, fs)
            );
        }
    }

    #[test]
    fn options_of_both_kinds_are_found() {
        let mount = find(TABLE, Path::new("/mnt/a filer")).unwrap();
        assert!(mount.has("hard") && mount.has("relatime") && !mount.has("vers"));
        assert_eq!(mount.value("acregmax"), Some("120"));
        assert_eq!(mount.value("vers"), Some("4.2"));
        assert_eq!(mount.source, "filer:/x");
    }

    #[test]
    fn what_fstab_promises_and_is_not_there_is_noticed() {
        let fstab = b"# comment\n/dev/vda / ext4 defaults 0 1\nfiler:/y /srv/data nfs4 hard,nofail 0 0\n/dev/vdb\t/data ext4\nnone none swap\n";
        let look = |path| missing(fstab, TABLE, Path::new(path));
        assert_eq!(look("/srv/data/seawall"), Some("/srv/data".into()));
        assert_eq!(look("/data/seawall"), None);
        assert_eq!(look("/srv/databank"), None);
    }
}
