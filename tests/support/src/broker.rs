//! The broker under test as a process: start on a data directory, kill, stop, start again.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, process, thread};

use kafka_wire::ApiVersionsRequest;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::ports::free_port;
use crate::raw::Raw;
use crate::wait;
use crate::{kafka, metrics};

/// A start may have to recover a log.
const START_WITHIN: Duration = Duration::from_secs(60);

static NAMES: AtomicU32 = AtomicU32::new(0);

/// How to start a broker. `Setup::new(env!("CARGO_BIN_EXE_seawall")).set("num.partitions", "3").start()`.
#[derive(Clone, Debug)]
pub struct Setup {
    binary: PathBuf,
    settings: Vec<(String, String)>,
    config: Option<PathBuf>,
    env: Vec<(String, String)>,
    dir: Option<PathBuf>,
    prefix: Vec<String>,
    admin: bool,
    addr: Option<SocketAddr>,
}

impl Setup {
    /// The binary at `built`, or the one that `SEAWALL_BIN` names.
    #[must_use]
    pub fn new(built: &str) -> Self {
        let binary = env::var_os("SEAWALL_BIN").map_or_else(|| PathBuf::from(built), PathBuf::from);
        Self {
            binary,
            settings: Vec::new(),
            config: None,
            env: Vec::new(),
            dir: None,
            prefix: Vec::new(),
            admin: true,
            addr: None,
        }
    }

    /// Sets a configuration key.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Sets a variable of the broker's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Gives the broker a configuration file.
    #[must_use]
    pub fn config(mut self, file: &Path) -> Self {
        self.config = Some(file.to_owned());
        self
    }

    /// Where clients connect, for a broker whose listeners are set by the test.
    #[must_use]
    pub fn listening(mut self, addr: SocketAddr) -> Self {
        self.addr = Some(addr);
        self
    }

    /// Uses this data directory instead of a new one; the caller keeps and removes it.
    #[must_use]
    pub fn on(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// Runs the broker below another command (`prlimit`, `taskset`).
    #[must_use]
    pub fn below(mut self, command: &[&str]) -> Self {
        self.prefix = command.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Leaves the admin listener out; tripwires are then not read at the stop.
    #[must_use]
    pub fn without_admin(mut self) -> Self {
        self.admin = false;
        self
    }

    /// Starts the broker and waits until it answers.
    ///
    /// # Panics
    /// When it does not come up; its log is printed.
    #[must_use]
    pub fn start(&self) -> Broker {
        if self.settings.is_empty()
            && self.dir.is_none()
            && let Some(addr) = kafka::shared_node()
        {
            return Broker::attached(self, addr);
        }
        let mut broker = Broker::prepared(self);
        broker.start_again();
        broker
    }

    /// Starts the broker and does not wait for it: see [`Broker::wait_until_it_answers`].
    #[must_use]
    pub fn launch(&self) -> Broker {
        let mut broker = Broker::prepared(self);
        broker.launch_again();
        broker
    }

    /// As `start`, but a Kafka node that is shared is taken in spite of the settings: it was started with them.
    ///
    /// # Panics
    /// As `start`.
    #[must_use]
    pub fn start_or_share(&self) -> Broker {
        match kafka::shared_node() {
            Some(addr) => Broker::attached(self, addr),
            None => self.start(),
        }
    }

    /// Starts a broker that is expected to refuse: gives its exit status and what it wrote to stderr.
    ///
    /// # Panics
    /// When it is still running at the deadline.
    #[must_use]
    pub fn start_expecting_exit(&self) -> (ExitStatus, String) {
        let mut broker = Broker::prepared(self);
        let mut child = broker.spawn();
        let status = wait::until_some("the broker exits by itself", START_WITHIN, || {
            child.try_wait().expect("look at the child")
        });
        (status, broker.log())
    }
}

/// A running (or killed) broker. Dropping a running one stops it as `stop` does.
pub struct Broker {
    setup: Setup,
    child: Option<Child>,
    addr: SocketAddr,
    admin: SocketAddr,
    data: PathBuf,
    scratch: TempDir,
    attached: bool,
}

impl Broker {
    fn prepared(setup: &Setup) -> Self {
        let scratch = tempfile::Builder::new()
            .prefix("seawall-test-")
            .tempdir()
            .expect("a temporary directory");
        let data = setup
            .dir
            .clone()
            .unwrap_or_else(|| scratch.path().join("data"));
        Self {
            setup: setup.clone(),
            child: None,
            addr: setup
                .addr
                .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))),
            admin: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
            data,
            scratch,
            attached: false,
        }
    }

    fn attached(setup: &Setup, addr: SocketAddr) -> Self {
        let mut broker = Self::prepared(setup);
        broker.addr = addr;
        broker.attached = true;
        broker
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where `/metrics` is.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Whether this is Apache Kafka, so that a test can leave out what only our broker promises.
    #[must_use]
    pub fn is_kafka(&self) -> bool {
        kafka::jars().is_some()
    }

    /// The directory of a partition; it may not exist before the first append.
    #[must_use]
    pub fn partition_dir(&self, topic: &str, partition: i32) -> PathBuf {
        self.data.join(topic).join(partition.to_string())
    }

    /// A name that no other test uses.
    #[must_use]
    pub fn fresh(&self, stem: &str) -> String {
        format!(
            "{stem}-{}-{}",
            process::id(),
            NAMES.fetch_add(1, Ordering::Relaxed)
        )
    }

    /// A new connection.
    #[must_use]
    pub fn connect(&self) -> Raw {
        Raw::connect(self.addr)
    }

    /// What the broker has written to stderr since the first start.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The process id.
    ///
    /// # Panics
    /// When the broker does not run as a child of the test.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the broker runs").id()
    }

    /// A number from `/proc/<pid>/status`: `VmRSS` and `VmHWM` in KiB, `Threads`.
    ///
    /// # Panics
    /// When the broker does not run or has no such field.
    #[must_use]
    pub fn proc_status(&self, field: &str) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("read /proc status");
        status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or_else(|| panic!("no {field} in /proc status"))
    }

    /// Ends the process as a crash does.
    ///
    /// # Panics
    /// When the broker does not run.
    pub fn kill9(&mut self) {
        self.kill9_and(|| ());
    }

    /// The same for a process with a call that hangs in the kernel: `free` lets the call come back, when nothing of
    /// the process runs any more.
    ///
    /// # Panics
    /// When the broker does not run.
    pub fn kill9_and(&mut self, free: impl FnOnce()) {
        let mut child = self.child.take().expect("the broker runs");
        child.kill().expect("kill -9");
        free();
        child.wait().expect("collect the killed broker");
    }

    /// Starts the broker on its directory and ports, and waits until it answers.
    ///
    /// # Panics
    /// When it exits or does not answer in time.
    pub fn start_again(&mut self) {
        self.launch_again();
        self.wait_until_it_answers();
    }

    /// Starts the broker on its directory and ports, and does not wait for it.
    ///
    /// # Panics
    /// When it runs already.
    pub fn launch_again(&mut self) {
        assert!(self.child.is_none(), "the broker runs already");
        self.child = Some(self.spawn());
    }

    /// Waits until the broker answers clients.
    ///
    /// # Panics
    /// When it exits or does not answer in time.
    pub fn wait_until_it_answers(&mut self) {
        wait::until("the broker answers", START_WITHIN, || {
            self.assert_running();
            self.answers()
        });
    }

    /// kill -9 and start.
    pub fn crash_and_restart(&mut self) {
        self.kill9();
        self.start_again();
    }

    /// SIGTERM, expects exit status 0, and starts again.
    pub fn stop_and_restart(&mut self) {
        self.shut_down();
        self.start_again();
    }

    /// Checks the tripwires, sends SIGTERM and expects exit status 0.
    pub fn stop(mut self) {
        self.shut_down();
    }

    /// As `stop`, but the broker can be started again.
    ///
    /// # Panics
    /// When a tripwire is not zero, or the broker does not exit with status 0.
    pub fn shut_down(&mut self) {
        if self.attached {
            return;
        }
        if self.setup.admin && !self.is_kafka() {
            metrics::assert_tripwires_are_zero(&metrics::scrape(self.admin));
        }
        self.signal(Signal::SIGTERM);
        let mut child = self.child.take().expect("the broker runs");
        let status = wait::until_some("the broker stops", START_WITHIN, || {
            child.try_wait().expect("look at the child")
        });
        let clean = status.success() || (self.is_kafka() && status.code() == Some(143));
        assert!(
            clean,
            "the broker stopped with {status}; its log:\n{}",
            self.log()
        );
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the broker does not run.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).expect("a pid"));
        kill(pid, signal).expect("send a signal");
    }

    /// Whether it answers clients; `false` when it has ended instead, `None` when it did neither yet.
    ///
    /// # Panics
    /// When it was not started.
    pub fn answers_or_ended(&mut self) -> Option<bool> {
        let child = self.child.as_mut().expect("the broker was started");
        if child.try_wait().expect("look at the child").is_some() {
            self.child = None;
            return Some(false);
        }
        self.answers().then_some(true)
    }

    fn answers(&self) -> bool {
        if std::net::TcpStream::connect(self.addr).is_err() {
            return false;
        }
        let mut raw = self.connect();
        let correlation = raw.send(0, &ApiVersionsRequest::default());
        raw.read_frame()
            .is_some_and(|frame| frame.starts_with(&correlation.to_be_bytes()))
    }

    fn assert_running(&mut self) {
        let child = self.child.as_mut().expect("the broker was started");
        if let Some(status) = child.try_wait().expect("look at the child") {
            self.child = None;
            panic!("the broker exited with {status}; its log:\n{}", self.log());
        }
    }

    fn log_path(&self) -> PathBuf {
        self.scratch.path().join("stderr.log")
    }

    fn spawn(&mut self) -> Child {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("open the log file");
        let mut command = self.command();
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().expect("duplicate the log file"));
        command.stderr(log);
        command
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"))
    }

    fn command(&self) -> Command {
        if let Some(jars) = kafka::jars() {
            let node = kafka::Node {
                jars: &jars,
                addr: self.addr,
                controller: self.admin,
                data: &self.data,
            };
            return node.command(self.scratch.path(), &self.setup.settings);
        }
        let mut words = self.setup.prefix.iter();
        let mut command = match words.next() {
            Some(first) => Command::new(first),
            None => Command::new(&self.setup.binary),
        };
        if !self.setup.prefix.is_empty() {
            command.args(words).arg(&self.setup.binary);
        }
        command.envs(self.setup.env.iter().cloned());
        if let Some(config) = &self.setup.config {
            command.arg("--config").arg(config);
        }
        command.arg("--data-dir").arg(&self.data);
        if !self
            .setup
            .settings
            .iter()
            .any(|(key, _)| key == "listeners")
        {
            command.arg("--listen").arg(self.addr.to_string());
        }
        if self.setup.admin {
            command
                .arg("--set")
                .arg(format!("admin.listener={}", self.admin));
        }
        for (key, value) in &self.setup.settings {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if thread::panicking() {
            if let Some(mut child) = self.child.take() {
                child.kill().ok();
                child.wait().ok();
                eprintln!("--- log of the broker\n{}", self.log());
            }
        } else if self.child.is_some() {
            self.shut_down();
        }
    }
}
