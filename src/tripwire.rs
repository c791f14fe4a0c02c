//! Byte opacity, made visible.
//!
//! Owns:     which thread is on the hot path right now, and how many batches
//!           were decoded there. Both must stay 0 for ever.
//! Does not: decode; storage's one decoder counts by thread, this compares.

use std::sync::atomic::{AtomicU64, Ordering};

use seawall_storage::records::decoded_on_this_thread;

/// Batches decoded on one hot path.
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

    /// Batches decoded so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use seawall_storage::Batch;
    use seawall_storage::records::{DecodeSite, Limits, Records};

    /// An empty v2 batch is enough: to try to decode it counts.
    fn decode_something() {
        let mut bytes = vec![0; 61];
        bytes[11] = 49;
        bytes[16] = 2;
        let batch = Batch::parse_one(&Bytes::from(bytes)).unwrap();
        let _ = Records::decode(&batch, &Limits::default(), DecodeSite::Tool);
    }

    #[test]
    fn a_step_that_decodes_trips_the_wire() {
        static WIRE: Tripwire = Tripwire(AtomicU64::new(0));
        WIRE.around(|| {});
        assert_eq!(WIRE.count(), 0);
        WIRE.around(decode_something);
        assert_eq!(WIRE.count(), 1);
    }
}
