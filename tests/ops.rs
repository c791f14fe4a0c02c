//! The broker as its administrator meets it: metrics, health, systemd, reload, the log, the command line, and what is
//! packaged for dashboards and alerts.
//!
//! `SEAWALL_PROMTOOL` names Prometheus' own promtool; `tests/run ops` brings it.

mod ops {
    mod command_line;
    mod credentials;
    mod logs;
    mod metrics;
    mod notify;
    mod packaged;
    mod reload;
}

use seawall_testkit::{Broker, Setup};

fn setup() -> Setup {
    Setup::new(env!("CARGO_BIN_EXE_seawall"))
}

/// The value of a sample in `/metrics`, or the sum over its labels; 0 where there is none.
fn metric(broker: &Broker, name: &str) -> f64 {
    let page = seawall_testkit::metrics::scrape(broker.admin());
    seawall_testkit::metrics::value(&page, name).unwrap_or(0.0)
}

/// A file of this tree.
fn tree(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
