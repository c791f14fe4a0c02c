//! Waiting for something that another process does: try again until a deadline.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// Calls `done` until it yields a value; an error from it ends the wait.
pub(crate) fn until<T>(
    waiting_for: &'static str,
    limit: Duration,
    mut done: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = done()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(Error::Timeout { waiting_for });
        }
        thread::park_timeout(BETWEEN_TRIES);
    }
}

/// Leaves everything alone for `time`: idleness itself is what is measured afterwards.
pub(crate) fn idle(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}
