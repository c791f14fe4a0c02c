//! SIGHUP: the configuration is read again.
//!
//! Owns:     the order of a reload, and what people are told about it.
//! Does not: know what each part does with it. Runs on the main thread.

use crate::config::{CommandLine, Config};
use crate::server::Serving;
use crate::{logging, systemd};

/// Reads the configuration again and has every part take what it can. One that is wrong changes nothing.
pub fn reload(line: &CommandLine, serving: &Serving) {
    systemd::reloading();
    match Config::load(line) {
        Ok(config) => {
            logging::set_level(config.log_level);
            serving.take_over(&config);
        }
        Err(error) => {
            serving.refused_reload();
            for problem in error.lines() {
                log::error!("not reloaded: {problem}");
            }
        }
    }
    systemd::ready(&serving.status_line());
}
