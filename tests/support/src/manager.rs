//! A service manager: a real datagram socket at `NOTIFY_SOCKET`.

use std::os::unix::net::UnixDatagram;
use std::time::Instant;

use tempfile::TempDir;

use crate::broker::Setup;
use crate::wait::SOON;

/// What the manager hears.
pub struct Manager {
    socket: UnixDatagram,
    dir: TempDir,
}

impl Manager {
    /// One that listens in a directory of its own.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(dir.path().join("notify")).expect("bind");
        Self { socket, dir }
    }

    /// The manager of a broker that is started so.
    #[must_use]
    pub fn of(&self, setup: Setup) -> Setup {
        let path = self.dir.path().join("notify");
        setup.env("NOTIFY_SOCKET", &path.to_string_lossy())
    }

    /// The lines of the first message that has a line which begins with `line`, and the lines of those before it.
    ///
    /// # Panics
    /// When none comes.
    pub fn hears(&self, line: &str) -> (Vec<String>, Vec<String>) {
        let deadline = Instant::now() + SOON;
        let mut before = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {line}; heard: {before:#?}");
            self.socket.set_read_timeout(Some(left)).expect("timeout");
            let Ok(length) = self.socket.recv(&mut buffer) else {
                continue;
            };
            let text = String::from_utf8_lossy(&buffer[..length]);
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if lines.iter().any(|there| there.starts_with(line)) {
                return (lines, before);
            }
            before.extend(lines);
        }
    }
}

impl Default for Manager {
    fn default() -> Self {
        Self::new()
    }
}
