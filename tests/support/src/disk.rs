//! What a test looks at and damages in a data directory while no broker runs.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The files of a directory whose names end in `suffix`, in the order of their names. Segment names start with the
/// leader epoch and the base offset in fixed width, so the last one is the newest.
#[must_use]
pub fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .map(|entries| {
            entries
                .map(|entry| entry.expect("list a directory").path())
                .collect()
        })
        .unwrap_or_default();
    found.retain(|path| path.to_string_lossy().ends_with(suffix));
    found.sort();
    found
}

/// Every file below a directory with its bytes, to see whether anything was touched.
///
/// # Panics
/// When a file can not be read.
#[must_use]
pub fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).expect("list a directory") {
            let path = entry.expect("list a directory").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let bytes = fs::read(&path).expect("read a file");
                all.push((path, bytes));
            }
        }
    }
    all.sort();
    all
}

/// Flips one bit.
///
/// # Panics
/// When the file does not reach that far.
pub fn flip_bit(path: &Path, at: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("open a file to damage");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)
        .expect("read the byte to damage");
    byte[0] ^= 0x10;
    file.write_all_at(&byte, at)
        .expect("write the damaged byte");
}

/// Writes bytes over what is there, or behind it.
///
/// # Panics
/// When the file can not be written.
pub fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .expect("open a file to damage");
    file.write_all_at(bytes, at).expect("damage a file");
}

/// The length of a file.
///
/// # Panics
/// When there is no such file.
#[must_use]
pub fn len(path: &Path) -> u64 {
    fs::metadata(path).expect("look at a file").len()
}

/// Cuts a file to `len` bytes, or fills it with zeros up to there.
///
/// # Panics
/// When the file can not be written.
pub fn set_len(path: &Path, len: u64) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .expect("open a file to cut")
        .set_len(len)
        .expect("cut a file");
}
