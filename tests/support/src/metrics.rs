//! Reads the broker's `/metrics` page and checks the tripwires of the hot path.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::wait::SOON;

/// The page at `/metrics` of the admin listener.
///
/// # Panics
/// When the listener does not answer with status 200.
#[must_use]
pub fn scrape(admin: SocketAddr) -> String {
    let mut stream = TcpStream::connect_timeout(&admin, SOON)
        .unwrap_or_else(|error| panic!("admin listener {admin}: {error}"));
    stream.set_read_timeout(Some(SOON)).expect("read timeout");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("send the request for /metrics");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("read /metrics");
    assert!(page.starts_with("HTTP/1.1 200"), "/metrics answered {page}");
    page
}

/// The value of the sample whose name (with labels, if it has any) is `name`, or the sum over its labels.
#[must_use]
pub fn value(page: &str, name: &str) -> Option<f64> {
    let samples: Vec<f64> = samples(page)
        .filter(|(sample, _)| {
            sample
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        })
        .map(|(_, value)| value)
        .collect();
    (!samples.is_empty()).then(|| samples.iter().sum())
}

/// Checks that the broker counts tripwires (`seawall_tripwire_*_total`) and that all of them read zero.
///
/// # Panics
/// When there is none, or one is not zero: somebody decoded a record on the hot path.
pub fn assert_tripwires_are_zero(page: &str) {
    let tripwires: Vec<(&str, f64)> = samples(page)
        .filter(|(name, _)| name.starts_with("seawall_tripwire_"))
        .filter(|(name, _)| {
            name.split('{')
                .next()
                .is_some_and(|n| n.ends_with("_total"))
        })
        .collect();
    assert!(
        !tripwires.is_empty(),
        "no seawall_tripwire_*_total in /metrics:\n{page}"
    );
    for (name, value) in tripwires {
        assert!(value == 0.0, "tripwire {name} reads {value}");
    }
}

fn samples(page: &str) -> impl Iterator<Item = (&str, f64)> {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name.trim(), value.trim().parse().ok()?)))
}
