//! The HTTP side door: metrics and health, on its own thread.
//!
//! Owns:     the thread `admin-http` and its listener.
//! Does not: take any lock that I/O can hold; it reads snapshots.
//!
//! One connection at a time, one request each: a scrape takes milliseconds,
//! and a client that dawdles is cut after two seconds.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::metrics;
use crate::running::Running;

/// How long a client may take for its request or for reading the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request that is read; a scraper sends a few hundred bytes.
const REQUEST_BYTES_MAX: u64 = 8 * 1024;

/// The running side door.
pub struct AdminHttp {
    addr: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// A side door that is bound and does not serve yet: who asks meanwhile waits.
pub struct BoundAdmin(TcpListener);

impl BoundAdmin {
    /// Binds.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(addr).map(Self)
    }

    /// Starts serving.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn serve(self, running: Arc<Running>) -> io::Result<AdminHttp> {
        let listener = self.0;
        let addr = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let thread = std::thread::Builder::new()
            .name("admin-http".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    if let Err(error) = stream.and_then(|s| serve(s, &running)) {
                        log::debug!("admin-http: {error}");
                    }
                }
            })?;
        Ok(AdminHttp {
            addr,
            stopping,
            thread,
        })
    }
}

impl AdminHttp {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends the thread.
    pub fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        // The accept loop sees the flag at its next connection: ours.
        let woken = TcpStream::connect_timeout(&self.addr, PATIENCE).is_ok();
        if woken && self.thread.join().is_err() {
            log::error!("the admin-http thread had panicked");
        }
    }
}

fn serve(stream: TcpStream, running: &Running) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?.take(REQUEST_BYTES_MAX));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut header = String::new();
    // Read the headers out, so that closing does not reset the answer away.
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    respond(stream, &line, running)
}

fn respond(mut stream: TcpStream, request_line: &str, running: &Running) -> io::Result<()> {
    let mut words = request_line.split_ascii_whitespace();
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => {
            ("200 OK", metrics::CONTENT_TYPE, metrics::render(running))
        }
        (Some("GET"), Some("/healthz")) => {
            ("200 OK", "application/json", running.broker.health_json())
        }
        (Some("GET"), _) => (
            "404 Not Found",
            "text/plain",
            "/metrics or /healthz\n".into(),
        ),
        _ => ("405 Method Not Allowed", "text/plain", "GET only\n".into()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body.as_bytes())
}
