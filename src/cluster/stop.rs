//! A flag that ends waiting.
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Raised once, never taken back; threads that wait for time to pass wait here.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl StopSignal {
    /// Wakes all that wait.
    pub(crate) fn raise(&self) {
        *self.raised.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for this long or until the flag is raised; says whether it is.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let mut raised = self.raised.lock();
        while !*raised {
            if self.changed.wait_until(&mut raised, deadline).timed_out() {
                break;
            }
        }
        *raised
    }
}
