//! Byte opacity, made visible.
//!
//! Owns:     which thread is on the hot path right now, and how many records
//!           were decoded there. Both must stay 0 for ever.
//! Does not: decode; storage's one decoder counts by thread, this compares.

use std::sync::atomic::{AtomicU64, Ordering};

fn decoded_on_this_thread() -> u64 { 0 }

/// Records decoded on one hot path.
pub struct Tripwire(AtomicU64);

/// While a produce is gated or appended.
pub static PRODUCE: Tripwire = Tripwire(AtomicU64::new(0));
/// While a fetch is read.
pub static FETCH: Tripwire = Tripwire(AtomicU64::new(0));

impl Tripwire {
    /// Runs a step of the hot path and counts what it decoded.
    pub fn around<T>(&self, step: impl FnOnce() -> T) -> T {
        let before = decoded_on_this_thread();
        let result = step();
        let decoded = decoded_on_this_thread() - before;
        if decoded > 0 {
            self.0.fetch_add(decoded, Ordering::Relaxed);
        }
        result
    }

    /// Records decoded so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_decodes_trips_the_wire() {
        static WIRE: Tripwire = Tripwire(AtomicU64::new(0));
        WIRE.around(|| {});
        assert_eq!(WIRE.count(), 0);
        WIRE.around(seawall_storage::records::count_one_decoded_record);
        assert_eq!(WIRE.count(), 1);
    }
}
