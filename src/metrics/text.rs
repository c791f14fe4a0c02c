//! The text formats of Prometheus and OpenMetrics.
//!
//! Owns:     how families, labels and numbers are written.
//! Does not: know which metrics there are.

use std::fmt::Write;
use std::time::Duration;

use super::{Kind, Metric, Seen};
use crate::histogram::Observed;

/// Which of the two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// Prometheus' own, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// What a scraper that sends this `Accept` header wants.
    pub fn accepted_by(header: &str) -> Self {
        let wants = header.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts.next() == Some("application/openmetrics-text");
            named && !parts.any(|part| matches!(part, "q=0" | "q=0.0"))
        });
        if wants {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// For the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A number of a sample.
pub(super) enum Value {
    /// A number of things or bytes.
    Whole(u64),
    /// An offset, which may be unknown (-1).
    Signed(i64),
    /// A time, told in seconds.
    Seconds(Duration),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Whole(number as u64)
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Self::Whole(yes.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Signed(number)
    }
}

impl From<Duration> for Value {
    fn from(time: Duration) -> Self {
        Self::Seconds(time)
    }
}

/// Where a source puts the samples of its metric.
pub(super) struct Samples<'a> {
    out: &'a mut String,
    metric: &'a Metric,
}

impl Samples<'_> {
    /// One sample; the label values in the order of the table's names.
    pub(super) fn put(&mut self, labels: &[&str], value: impl Into<Value>) {
        self.out.push_str(self.metric.name);
        self.labels(labels, None);
        self.number(&value.into());
    }

    /// One histogram.
    pub(super) fn histogram(&mut self, labels: &[&str], seen: &Observed) {
        let name = self.metric.name;
        let mut total = 0_u64;
        for (place, count) in seen.counts.iter().enumerate() {
            total += count;
            let bound = seen.bounds.get(place).map(|bound| self.in_unit(*bound));
            self.out.push_str(name);
            self.out.push_str("_bucket");
            self.labels(labels, Some(bound.as_deref().unwrap_or("+Inf")));
            self.number(&Value::Whole(total));
        }
        self.out.push_str(name);
        self.out.push_str("_sum");
        self.labels(labels, None);
        let sum = self.in_unit(seen.sum);
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, " {sum}");
        self.out.push_str(name);
        self.out.push_str("_count");
        self.labels(labels, None);
        self.number(&Value::Whole(total));
    }

    /// Times are observed in nanoseconds and told in seconds.
    fn in_unit(&self, number: u64) -> String {
        if self.metric.unit == "seconds" {
            seconds(Duration::from_nanos(number))
        } else {
            format!("{number}.0")
        }
    }

    fn labels(&mut self, values: &[&str], bound: Option<&str>) {
        debug_assert_eq!(values.len(), self.metric.labels.len());
        let names = self.metric.labels.iter().copied();
        let pairs = names.zip(values.iter().copied());
        let mut before = '{';
        for (name, value) in pairs.chain(bound.map(|bound| ("le", bound))) {
            self.out.push(before);
            self.out.push_str(name);
            self.out.push_str("=\"");
            escape(self.out, value);
            self.out.push('"');
            before = ',';
        }
        if before == ',' {
            self.out.push('}');
        }
    }

    fn number(&mut self, value: &Value) {
        // Writing to a String cannot fail.
        let _ = match value {
            Value::Whole(number) => writeln!(self.out, " {number}"),
            Value::Signed(number) => writeln!(self.out, " {number}"),
            Value::Seconds(time) => writeln!(self.out, " {}", seconds(*time)),
        };
    }
}

/// A time in seconds, always with a fraction.
fn seconds(time: Duration) -> String {
    let text = time.as_secs_f64().to_string();
    if text.contains('.') {
        text
    } else {
        text + ".0"
    }
}

fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

/// One metric with all its samples.
pub(super) fn family(out: &mut String, format: Format, metric: &Metric, seen: &Seen<'_>) {
    let (name, help, kind) = (metric.name, metric.help, metric.kind.name());
    let family = match (format, metric.kind) {
        (Format::OpenMetrics, Kind::Counter) => name.strip_suffix("_total").unwrap_or(name),
        _ => name,
    };
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP {family} {help}\n# TYPE {family} {kind}");
    if format == Format::OpenMetrics && !metric.unit.is_empty() {
        let _ = writeln!(out, "# UNIT {family} {}", metric.unit);
    }
    (metric.source)(seen, &mut Samples { out, metric });
}

/// What stands at the end of a page.
pub(super) fn end(out: &mut String, format: Format) {
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::running::Running;

    fn page(format: Format, metric: &Metric) -> String {
        let running = Running::new();
        let mut out = String::new();
        family(&mut out, format, metric, &Seen::new(&running));
        out
    }

    const COUNTER: Metric = Metric {
        name: "x_bytes_total",
        kind: Kind::Counter,
        unit: "bytes",
        labels: &["a", "b"],
        help: "Help.",
        source: |_, out| out.put(&["1\\\"\n", ""], 5_u64),
    };

    #[test]
    fn a_counter_is_written_in_both_formats_with_its_labels_escaped() {
        let sample = "x_bytes_total{a=\"1\\\\\\\"\\n\",b=\"\"} 5\n";
        assert_eq!(
            page(Format::Prometheus, &COUNTER),
            format!("# HELP x_bytes_total Help.\n# TYPE x_bytes_total counter\n{sample}")
        );
        assert_eq!(
            page(Format::OpenMetrics, &COUNTER),
            format!("# HELP x_bytes Help.\n# TYPE x_bytes counter\n# UNIT x_bytes bytes\n{sample}")
        );
    }

    #[test]
    fn a_histogram_tells_cumulative_counts_in_seconds() {
        let metric = Metric {
            name: "x_seconds",
            kind: Kind::Histogram,
            unit: "seconds",
            labels: &[],
            help: "Help.",
            source: |_, out| {
                let times = Histogram::of_times();
                times.took(Duration::from_micros(100));
                times.took(Duration::from_secs(1));
                times.took(Duration::from_secs(100));
                out.histogram(&[], &times.read());
            },
        };
        let page = page(Format::Prometheus, &metric);
        for line in [
            "x_seconds_bucket{le=\"0.00005\"} 0",
            "x_seconds_bucket{le=\"0.0001\"} 1",
            "x_seconds_bucket{le=\"1.0\"} 2",
            "x_seconds_bucket{le=\"+Inf\"} 3",
            "x_seconds_sum 101.0001",
            "x_seconds_count 3",
        ] {
            assert!(page.lines().any(|there| there == line), "{line}:\n{page}");
        }
    }

    #[test]
    fn openmetrics_goes_to_those_who_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1";
        assert_eq!(Format::accepted_by(prometheus), Format::OpenMetrics);
        for header in ["", "*/*", "text/plain", "application/openmetrics-text;q=0"] {
            assert_eq!(Format::accepted_by(header), Format::Prometheus, "{header}");
        }
    }
}
