//! What strangers' bytes meet first, as functions of bytes: for cargo-fuzz (`fuzz/`) and for a bounded run on stable.
//!
//! Owns:     the targets, and how inputs are changed without coverage to guide it.
//! Does not: say what is right. A target ends, without a panic and without taking memory that its input does not
//!           account for; that is all.

#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the broker's own files, of which these targets need a part: it is a program without a library"
)]
mod broker_files;
mod log_dir;
pub mod mutate;
mod requests;
mod sasl;
mod state_file;
mod wire;

// Those files call each other by these names.
use broker_files::*;

pub use log_dir::template as log_dir_files;
pub use requests::{API_NAMES, seed as request_seed};
pub use state_file::{accepts as state_is_accepted, seeds as state_seeds};

/// One target.
pub struct Target {
    /// Its name, and that of its folder below `fuzz/corpus`.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
}

/// Every target.
pub static TARGETS: [Target; 8] = [
    Target {
        name: "frame",
        run: wire::frame,
    },
    Target {
        name: "header",
        run: wire::header,
    },
    Target {
        name: "request",
        run: requests::request,
    },
    Target {
        name: "subscription",
        run: wire::subscription,
    },
    Target {
        name: "batch",
        run: wire::batch,
    },
    Target {
        name: "log_dir",
        run: log_dir::log_dir,
    },
    Target {
        name: "sasl",
        run: sasl::sasl,
    },
    Target {
        name: "state_file",
        run: state_file::state_file,
    },
];

/// Runs the target of that name.
///
/// # Panics
/// There is none, or it found something.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("a target of that name").run)(input);
}
