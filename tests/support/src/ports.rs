//! Ports for brokers under test: below the ephemeral range, so that a port survives the broker's restart unclaimed.

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_000;
const COUNT: u32 = 18_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port of 127.0.0.1 that nobody listens on now and that this process gives out once.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = (process::id().wrapping_mul(61).wrapping_add(step)) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("the range fits a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}
