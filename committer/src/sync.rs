//! Locks, condition variables, atomics and threads: the real ones, or those of
//! the model checker.
//!
//! Owns:     the choice, and the shape in which the rest of the crate knows
//!           them, which is `parking_lot`'s.
//! Does not: anything else. The feature `shuttle` is for `tests/model.rs` alone.

#[cfg(not(feature = "shuttle"))]
mod real {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use std::thread::{Builder, JoinHandle};

    /// Lets go of threads that have ended.
    pub(crate) fn forget_finished(threads: &mut Vec<JoinHandle<()>>) {
        threads.retain(|thread| !thread.is_finished());
    }
}

#[cfg(not(feature = "shuttle"))]
pub(crate) use real::*;

#[cfg(feature = "shuttle")]
mod model {
    use std::ops::{Deref, DerefMut};
    use std::time::Instant;

    use shuttle::rand::Rng;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use shuttle::thread::{Builder, JoinHandle};

    /// The model checker does not tell; they are joined at the end.
    pub(crate) fn forget_finished(_: &mut Vec<JoinHandle<()>>) {}

    /// One wait of so many that could time out does.
    const TIMEOUT_ONE_IN: u32 = 4;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// The guard is `None` only inside of a wait.
    pub(crate) struct MutexGuard<'a, T>(&'a Mutex<T>, Option<shuttle::sync::MutexGuard<'a, T>>);

    #[derive(Debug)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    pub(crate) struct WaitTimeoutResult(bool);

    const HELD: &str = "the guard holds its lock outside of a wait";

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            let locked = self.0.lock();
            let guard = locked.unwrap_or_else(std::sync::PoisonError::into_inner);
            MutexGuard(self, Some(guard))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.1.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.1.as_mut().expect(HELD)
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(shuttle::sync::Condvar::new())
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        /// There is no clock in the model: at any wait the time may be over at
        /// once, or never.
        pub(crate) fn wait_until<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            _deadline: Instant,
        ) -> WaitTimeoutResult {
            let held = guard.1.take().expect(HELD);
            let timed_out = shuttle::rand::thread_rng().gen_ratio(1, TIMEOUT_ONE_IN);
            if timed_out {
                drop(held);
                shuttle::thread::yield_now();
                *guard = guard.0.lock();
            } else {
                let woken = self.0.wait(held);
                guard.1 = Some(woken.unwrap_or_else(std::sync::PoisonError::into_inner));
            }
            WaitTimeoutResult(timed_out)
        }
    }

    impl WaitTimeoutResult {
        pub(crate) fn timed_out(&self) -> bool {
            self.0
        }
    }
}

#[cfg(feature = "shuttle")]
pub(crate) use model::*;
