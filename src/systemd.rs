//! Words to the service manager.
//!
//! Owns:     how they are sent: one datagram each to `NOTIFY_SOCKET`, or nothing where there is none.
//! Does not: decide when: `heart` and `main` do.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;

/// How long a manager that does not listen is waited for; the crate's own way to send waits for ever.
const PATIENCE: Duration = Duration::from_secs(1);

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
    let Some(to) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let text: String = words.iter().map(|word| format!("{word}\n")).collect();
    if let Err(error) = send_to(&to, text.as_bytes()) {
        log::warn!("the service manager cannot be told: {error}");
    }
}

/// sd_notify(3): a name that begins with `@` is in the abstract namespace.
fn send_to(to: &OsStr, text: &[u8]) -> io::Result<()> {
    let to = match to.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(to)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(text, &to).map(drop)
}
