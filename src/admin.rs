//! The HTTP side door: metrics, health and readiness, on its own thread, from before the data is opened to the end.
//!
//! Owns:     the thread `admin-http` and its listener.
//! Does not: take any lock that I/O can hold; it reads snapshots.
//!
//! One connection at a time, one request each: a scrape takes milliseconds, and a client that dawdles is cut, however
//! it spreads its bytes: two seconds after it came if it has not asked by then, three seconds later if it has not read.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::health;
use crate::metrics::{self, Format};
use crate::running::Running;

/// How long a client may take for its whole request.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take then to read the whole answer, which may have some megabytes.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
/// Longest request that is read; a scraper sends a few hundred bytes.
const REQUEST_BYTES_MAX: u64 = 8 * 1024;

/// The running side door.
pub struct AdminHttp {
    addr: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// A side door that is bound and does not serve yet.
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

/// A connection that ends at `until`, however often a byte comes or goes.
struct Bounded {
    stream: TcpStream,
    until: Instant,
}

impl Bounded {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        let until = Instant::now() + patience;
        Self { stream, until }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for Bounded {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buf)
    }
}

impl Write for Bounded {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn serve(stream: TcpStream, running: &Running) -> io::Result<()> {
    let request = Bounded::new(stream.try_clone()?, PATIENCE);
    let mut reader = BufReader::new(request.take(REQUEST_BYTES_MAX));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut header = String::new();
    let mut format = Format::Prometheus;
    // All are read, so that closing does not reset the answer away.
    while reader.read_line(&mut header)? > 2 {
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("accept")
        {
            format = Format::accepted_by(value.trim());
        }
        header.clear();
    }
    let answer = Bounded::new(stream, ANSWER_PATIENCE);
    respond(answer, &line, format, running)
}

fn respond(
    mut stream: Bounded,
    request_line: &str,
    format: Format,
    running: &Running,
) -> io::Result<()> {
    let mut words = request_line.split_ascii_whitespace();
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, kind, body) = match (method, path) {
        (Some("GET"), "/metrics") => {
            let page = metrics::render(running, format);
            ("200 OK", format.content_type(), page)
        }
        (Some("GET"), "/healthz") => ("200 OK", "application/json", health::page(running)),
        (Some("GET"), "/readyz") => match running.not_ready() {
            None => ("200 OK", "text/plain", "ready\n".into()),
            Some(why) => ("503 Service Unavailable", "text/plain", why + "\n"),
        },
        (Some("GET"), _) => (
            "404 Not Found",
            "text/plain",
            "/metrics, /healthz or /readyz\n".into(),
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
