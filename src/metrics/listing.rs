//! The table for people: `packaging/metrics.md` and `seawall config metrics`.

use std::fmt::Write;

use super::table::TABLE;

const HEAD: &str = "\
# Metrics

What `http://127.0.0.1:9192/metrics` tells, in the text format of Prometheus or, if the scraper asks for it, of
OpenMetrics. Printed by `seawall config metrics`. With more partitions, or committed offsets, than
`metrics.series.max`, those that are well are left out one by one, and `seawall_series_left_out` tells how many.

| name | kind | labels | meaning |
|---|---|---|---|
";

/// The text of the file.
pub fn listing() -> String {
    let mut text = HEAD.to_owned();
    for metric in TABLE {
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            metric.name,
            metric.kind.name(),
            labels.join(", "),
            metric.help
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_packaged_list_is_what_the_table_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/metrics.md");
        if std::env::var_os("SEAWALL_UPDATE_FILES").is_some() {
            std::fs::write(&path, listing()).unwrap();
        }
        let packaged = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            packaged == listing(),
            "run this test with SEAWALL_UPDATE_FILES=1 and commit {}",
            path.display()
        );
    }
}
