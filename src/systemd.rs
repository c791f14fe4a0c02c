//! Words to the service manager.
//!
//! Owns:     how they are sent: one datagram each to `NOTIFY_SOCKET`, or nothing where there is none.
//! Does not: decide when: `heart` and `main` do.

use std::time::Duration;

use sd_notify::NotifyState;

/// The partitions are open and clients are served.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// What people see in `systemctl status`.
pub fn status(status: &str) {
    send(&[NotifyState::Status(status)]);
}

/// Start or stop need more time from now on.
pub fn extend(by: Duration, status: &str) {
    let usec = u32::try_from(by.as_micros()).unwrap_or(u32::MAX);
    send(&[
        NotifyState::ExtendTimeoutUsec(usec),
        NotifyState::Status(status),
    ]);
}

/// The event loops go round.
pub fn watchdog() {
    send(&[NotifyState::Watchdog]);
}

/// The configuration is being read again; [`ready`] must follow.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => log::warn!("the service manager hears of no reload: {error}"),
    }
}

/// The stop begins.
pub fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// How long the watchdog waits for [`watchdog`], if there is one.
pub fn watchdog_timeout() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

fn send(words: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(words) {
        log::warn!("the service manager cannot be told: {error}");
    }
}
