//! Reads the broker's `/metrics` page and checks the tripwires of the hot path.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::wait::SOON;

/// The page at `/metrics` of the admin listener.
///
/// # Panics
/// When the listener does not answer with status 200.
#[must_use]
pub fn scrape(admin: SocketAddr) -> String {
    let answer = get(admin, "/metrics", "*/*")
        .unwrap_or_else(|error| panic!("admin listener {admin}: {error}"));
    assert_eq!(answer.status, 200, "/metrics answered {}", answer.body);
    answer.body
}

/// What the admin listener answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// `Content-Type`
    pub content_type: String,
    /// The page.
    pub body: String,
}

/// Asks the admin listener for a page.
///
/// # Errors
/// It does not answer.
pub fn get(admin: SocketAddr, path: &str, accept: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&admin, SOON)?;
    stream.set_read_timeout(Some(SOON))?;
    let ask = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(ask.as_bytes())?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    let broken = || io::Error::new(io::ErrorKind::InvalidData, page.clone());
    let (head, body) = page.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Type: "));
    Ok(Answer {
        status: status.ok_or_else(broken)?,
        content_type: kind.unwrap_or_default().to_owned(),
        body: body.to_owned(),
    })
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
