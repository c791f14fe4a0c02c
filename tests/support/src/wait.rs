//! Waiting for a condition with a deadline, the only way a test waits.

use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for something that should happen at once: generous, since two cores are shared by many tests.
pub const SOON: Duration = Duration::from_secs(30);

/// How long a park between two looks at a condition lasts.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Waits until `condition` gives a value, or panics with `what` at the deadline.
///
/// # Panics
/// When the deadline passes.
pub fn until_some<T>(what: &str, within: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        thread::park_timeout(LOOK_AGAIN);
    }
}

/// Waits until `condition` holds.
///
/// # Panics
/// When the deadline passes.
pub fn until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    until_some(what, within, || condition().then_some(()));
}
