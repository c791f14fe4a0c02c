//! What the packaged systemd unit has to be told about a directory elsewhere.
//!
//! Owns:     that text.
//! Does not: write it anywhere; people do, with `systemctl edit seawall`.
use std::path::Path;

/// Where the packaged unit may write without being told.
const PACKAGED: &str = "/var/lib/seawall";

/// The lines; empty for a directory that the unit knows.
pub(super) fn drop_in(dir: &Path) -> String {
    if dir.starts_with(PACKAGED) {
        return String::new();
    }
    let path = quoted(dir);
    format!("[Unit]\nRequiresMountsFor={path}\n\n[Service]\nReadWritePaths={path}\n")
}

/// By the quoting of systemd.syntax(7), with specifiers kept from being any (systemd.unit(5)).
fn quoted(dir: &Path) -> String {
    let text = dir.display().to_string().replace('%', "%%");
    if text.contains(|c: char| c.is_whitespace() || c == '"' || c == '\\' || c == '\'') {
        return format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_elsewhere_is_waited_for_and_may_be_written() {
        let lines = |path: &str| {
            format!("[Unit]\nRequiresMountsFor={path}\n\n[Service]\nReadWritePaths={path}\n")
        };
        for (dir, path) in [
            ("/mnt/nfs/seawall", "/mnt/nfs/seawall"),
            ("/mnt/my data/100%", "\"/mnt/my data/100%%\""),
            ("/a\"b\\c", "\"/a\\\"b\\\\c\""),
        ] {
            assert_eq!(drop_in(Path::new(dir)), lines(path));
        }
        assert_eq!(drop_in(Path::new("/var/lib/seawall/2")), "");
    }
}
