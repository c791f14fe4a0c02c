//! What `/metrics` tells, from one table.
//!
//! Owns:     names, kinds, units, labels and help texts (`table`), the two text formats (`text`), the list for people
//!           (`listing`).
//! Does not: count anything: the parts count in plain numbers, and here they are read.
//!
//! A scrape runs on the thread `admin-http` and takes no lock that I/O can hold: it reads atomics, published views, and
//! queues whose locks are leaves.

mod listing;
mod seen;
mod table;
mod text;

pub use listing::listing;
pub use text::Format;

use crate::running::Running;
use seen::Seen;
use text::Samples;

/// How a number behaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often something fell into which range.
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One row of the table.
struct Metric {
    name: &'static str,
    kind: Kind,
    /// "seconds", "bytes", or nothing for a number of things; the name ends with it.
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    source: fn(&Seen<'_>, &mut Samples<'_>),
}

/// Every metric in the wanted format.
pub fn render(running: &Running, format: Format) -> String {
    let seen = Seen::new(running);
    let mut out = String::new();
    for metric in table::TABLE {
        text::family(&mut out, format, metric, &seen);
    }
    text::end(&mut out, format);
    out
}
