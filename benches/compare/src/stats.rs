//! Small numbers about many: spread over rounds, percentiles over requests.

use std::time::Duration;

/// Smallest, middle and largest of a few rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        } else {
            sorted[middle]
        };
        Some(Self { min, median, max })
    }
}

/// The p50, p99 and p99.9 of the latencies of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Percentiles {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) p999: Duration,
}

impl Percentiles {
    /// Sorts what it is given; `None` of nothing.
    pub(crate) fn of(mut latencies: Vec<Duration>) -> Option<Self> {
        latencies.sort_unstable();
        let at = |per_mille: usize| {
            let index = (latencies.len() * per_mille).div_ceil(1000).max(1) - 1;
            latencies.get(index).copied()
        };
        Some(Self {
            p50: at(500)?,
            p99: at(990)?,
            p999: at(999)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_smallest_value_that_covers_the_share() {
        let values = (1..=1000).rev().map(Duration::from_micros).collect();
        let p = Percentiles::of(values).unwrap();
        assert_eq!(p.p50, Duration::from_micros(500));
        assert_eq!(p.p99, Duration::from_micros(990));
        assert_eq!(p.p999, Duration::from_micros(999));
        assert_eq!(Percentiles::of(Vec::new()), None);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0, f64::NAN]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
    }
}
