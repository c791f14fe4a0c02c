//! Whether a thread looks for work for a while before it sleeps.
//!
//! Owns:     what the last sleeps tell about the next one.
//! Does not: look or sleep.
//!
//! To be woken on another core takes tens of microseconds in a virtual machine, longer than an append. A client with one
//! request in flight pays that at every step; a thread that has not gone to sleep yet does not. Looking is for short waits
//! only: it costs the core that somebody else may need, so a few long ones end it.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// How long to look: what a client with one request in flight takes to come again while everybody has to be woken.
const SPIN: Duration = Duration::from_micros(100);
/// So many short sleeps in a row begin it.
const BEGINS_AT: u8 = 16;
/// A look that found nothing counts as so many of them.
const IN_VAIN: u8 = 4;

/// See the file comment.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    /// Never, on a single core.
    never: bool,
    looking: bool,
    score: u8,
}

impl Spin {
    /// For a thread that begins.
    #[must_use]
    pub fn for_this_machine() -> Self {
        Self::on(available_parallelism().map_or(1, NonZeroUsize::get))
    }

    fn on(cores: usize) -> Self {
        Self {
            never: cores < 2,
            looking: false,
            score: 0,
        }
    }

    /// Whether to look before the next sleep.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.looking
    }

    /// Looks until something is found, if the last sleeps say that it is worth it, and not for long.
    pub fn look<T>(&mut self, mut find: impl FnMut() -> Option<T>) -> Option<T> {
        if !self.looking {
            return None;
        }
        let until = Instant::now() + SPIN;
        let found = loop {
            let found = find();
            if found.is_some() || Instant::now() >= until {
                break found;
            }
            std::hint::spin_loop();
        };
        self.looked(found.is_some());
        found
    }

    /// The thread slept for so long.
    pub fn slept(&mut self, time: Duration) {
        if time >= SPIN {
            self.score = 0;
        } else if !self.never && !self.looking {
            self.score += 1;
            self.looking = self.score >= BEGINS_AT;
        }
    }

    /// The thread looked, and found work or not.
    fn looked(&mut self, found: bool) {
        self.score = match found {
            true => BEGINS_AT,
            false => self.score.saturating_sub(IN_VAIN),
        };
        self.looking = self.score > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(20);

    fn looking() -> Spin {
        let mut spin = Spin::on(2);
        (0..BEGINS_AT).for_each(|_| spin.slept(SHORT));
        spin
    }

    #[test]
    fn looking_begins_after_short_sleeps_in_a_row_and_ends_when_it_is_in_vain() {
        let mut spin = Spin::on(2);
        for _ in 1..BEGINS_AT {
            spin.slept(SHORT);
        }
        spin.slept(SPIN);
        assert!(!spin.is_on(), "not in a row");
        let mut spin = looking();
        assert!(spin.is_on());
        for _ in 0..BEGINS_AT / IN_VAIN {
            assert!(spin.is_on());
            spin.looked(false);
        }
        assert!(!spin.is_on());
    }

    #[test]
    fn what_is_found_outweighs_what_was_in_vain_and_one_core_is_never_kept_busy() {
        let mut spin = looking();
        for _ in 0..100 {
            spin.looked(false);
            spin.looked(true);
            assert!(spin.is_on());
        }
        let mut spin = Spin::on(1);
        (0..u8::MAX).for_each(|_| spin.slept(SHORT));
        assert!(!spin.is_on());
    }
}
