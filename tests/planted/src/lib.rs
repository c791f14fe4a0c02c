//! Bugs that are planted to see whether a test finds them.
//!
//! Owns:     the question whether a bug is to be there. Without the feature `on`, which no build for users has, the answer
//!           is a constant, and nothing of a bug is compiled.
//! Does not: know the bugs; `bugs.txt` beside this crate lists each with the test that finds it, `run` tries them all.

/// Whether the bug of that name was planted (`SEAWALL_PLANTED`).
#[cfg(feature = "on")]
#[must_use]
pub fn planted(bug: &str) -> bool {
    static NAME: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let name = NAME.get_or_init(|| std::env::var("SEAWALL_PLANTED").ok());
    name.as_deref() == Some(bug)
}

/// No bug is ever planted in a build for users.
#[cfg(not(feature = "on"))]
#[must_use]
pub const fn planted(_bug: &str) -> bool {
    false
}
