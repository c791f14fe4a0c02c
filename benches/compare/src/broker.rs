//! Broker processes: set up a data directory, start, watch, stop, kill.
//!
//! Owns:     the child process, which never outlives its `Running`.
//! Does not: send load.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::ClientConfig;

use crate::admin::Admin;
use crate::error::{Doing, Error, Result};
use crate::identity::Identity;
use crate::link::{Door, Link};
use crate::wait;

const START_MAX: Duration = Duration::from_secs(300);
const STOP_MAX: Duration = Duration::from_secs(120);
/// The unit of the times in /proc/pid/stat: USER_HZ, 100 on every Linux (proc(5), time(7)).
const TICK: Duration = Duration::from_millis(10);
const CLUSTER_ID: &str = "c2Vhd2FsbC1jb21wYXJlMQ";
const KAFKA: &str = "kafka";
/// What Kafka's own start script passes unless told otherwise.
const JVM_OPTIONS: [&str; 8] = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];

/// Which broker, and where its program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Our binary, with further `--set` pairs.
    Seawall { binary: PathBuf, set: Vec<String> },
    /// A directory of Kafka's jars.
    Kafka { libs: PathBuf },
}

impl Program {
    /// The name in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Program::Seawall { .. } => "seawall",
            Program::Kafka { .. } => KAFKA,
        }
    }
}

/// A broker's data directory and address; it may be started many times.
#[derive(Debug)]
pub(crate) struct Install {
    program: Program,
    home: PathBuf,
    addr: SocketAddr,
    sealed: Option<Sealed>,
}

/// A second listener, with TLS.
#[derive(Debug)]
struct Sealed {
    addr: SocketAddr,
    /// Key and certificate.
    pem: PathBuf,
    client: Arc<ClientConfig>,
}

impl Install {
    /// A fresh installation in `work/label`, formatted where the broker wants that.
    pub(crate) fn fresh(program: &Program, work: &Path, label: &str) -> Result<Self> {
        Self::make(program, work, label, None)
    }

    /// The same with a second listener, on which the broker shows this identity.
    pub(crate) fn with_tls(
        program: &Program,
        work: &Path,
        label: &str,
        identity: &Identity,
    ) -> Result<Self> {
        let sealed = Sealed {
            addr: free_address()?,
            pem: identity.file.clone(),
            client: Arc::clone(&identity.client),
        };
        Self::make(program, work, label, Some(sealed))
    }

    fn make(program: &Program, work: &Path, label: &str, sealed: Option<Sealed>) -> Result<Self> {
        let home = work.join(format!("{label}-{}", program.name()));
        if home.exists() {
            remove(&home)?;
        }
        fs::create_dir_all(&home).map_err(|source| path_error("create", &home, source))?;
        let addr = free_address()?;
        let install = Self {
            program: program.clone(),
            home,
            addr,
            sealed,
        };
        install.format()?;
        Ok(install)
    }

    /// Starts the broker; it may not answer yet.
    pub(crate) fn start(&self) -> Result<Running> {
        let log_path = self.home.join("output.log");
        let mut command = self.command();
        let started = Instant::now();
        let child = spawn(&mut command, &log_path)?;
        Ok(Running {
            child,
            name: self.program.name(),
            addr: self.addr,
            sealed: self.sealed.as_ref().map(|sealed| Door {
                addr: sealed.addr,
                tls: Some(Arc::clone(&sealed.client)),
            }),
            started,
            log_path,
        })
    }

    /// The same data and address under another program; the broker must be stopped.
    pub(crate) fn run_by(self, program: &Program) -> Self {
        let program = program.clone();
        Self { program, ..self }
    }

    /// Removes everything; the broker must be stopped.
    pub(crate) fn remove(self) -> Result<()> {
        remove(&self.home)
    }

    fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    fn properties(&self) -> PathBuf {
        self.home.join("server.properties")
    }

    fn command(&self) -> Command {
        match &self.program {
            Program::Seawall { binary, set } => {
                let mut command = Command::new(binary);
                command.arg("--data-dir").arg(self.data());
                match &self.sealed {
                    None => drop(command.arg("--listen").arg(self.addr.to_string())),
                    Some(sealed) => {
                        for (key, value) in self.tls_properties(sealed, "") {
                            command.arg("--set").arg(format!("{key}={value}"));
                        }
                    }
                }
                for pair in set {
                    command.arg("--set").arg(pair);
                }
                command
            }
            Program::Kafka { libs } => {
                let mut command = java(libs, &JVM_OPTIONS);
                command.arg("kafka.Kafka").arg(self.properties());
                command
            }
        }
    }

    fn format(&self) -> Result<()> {
        let Program::Kafka { libs } = &self.program else {
            return Ok(());
        };
        let path = self.properties();
        fs::write(&path, self.kafka_properties()?)
            .map_err(|source| path_error("write", &path, source))?;
        let mut command = java(libs, &["-Xmx256M"]);
        command.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]);
        command.arg(path);
        let log_path = self.home.join("format.log");
        let status = spawn(&mut command, &log_path)?
            .wait()
            .doing("wait for Kafka's storage tool")?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Exited {
            name: "Kafka's storage tool",
            log: log_path,
        })
    }

    /// Listeners of both kinds; `more` are Kafka's own.
    fn tls_properties(&self, sealed: &Sealed, more: &str) -> [(&'static str, String); 5] {
        let listeners = format!("PLAINTEXT://{},SSL://{}", self.addr, sealed.addr);
        [
            ("listeners", format!("{listeners}{more}")),
            ("advertised.listeners", listeners),
            ("ssl.keystore.type", "PEM".to_owned()),
            ("ssl.keystore.location", sealed.pem.display().to_string()),
            ("ssl.enabled.protocols", "TLSv1.3".to_owned()),
        ]
    }

    /// One KRaft node, defaults wherever they work.
    fn kafka_properties(&self) -> Result<String> {
        let controller = free_address()?;
        // Of a key that is given twice, the last one counts.
        let tls = self.sealed.as_ref().map_or_else(String::new, |sealed| {
            let rows = self.tls_properties(sealed, &format!(",CONTROLLER://{controller}"));
            rows.map(|(key, value)| format!("{key}={value}\n")).concat()
        });
        Ok(format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listeners=PLAINTEXT://{broker},CONTROLLER://{controller}\n\
             advertised.listeners=PLAINTEXT://{broker}\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT\n\
             log.dirs={data}\n\
             offsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             auto.create.topics.enable=false\n\
             {tls}",
            broker = self.addr,
            data = self.data().display(),
        ))
    }
}

/// A started broker; killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    name: &'static str,
    addr: SocketAddr,
    sealed: Option<Door>,
    started: Instant,
    log_path: PathBuf,
}

impl Running {
    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens with TLS; waits until it does, for Kafka opens one listener after the other.
    pub(crate) fn sealed(&self) -> Result<Door> {
        let none = Error::Usage("a broker without a listener for TLS");
        let door = self.sealed.clone().ok_or(none)?;
        wait::until("a listener for TLS", START_MAX, || {
            Ok(Link::connect(&door, true).ok())
        })?;
        Ok(door)
    }

    /// Waits until `serves` says yes on a connection; returns the time since the start of the process.
    pub(crate) fn ready(
        &mut self,
        mut serves: impl FnMut(&mut Admin) -> Result<bool>,
    ) -> Result<Duration> {
        let (started, addr) = (self.started, self.addr);
        wait::until("a broker to serve", START_MAX, || {
            if self.child.try_wait().doing("watch a broker")?.is_some() {
                return Err(Error::Exited {
                    name: self.name,
                    log: self.log_path.clone(),
                });
            }
            // While it starts, refusals and error codes are what a client gets.
            let served = Admin::connect(addr).and_then(|mut admin| serves(&mut admin));
            Ok(matches!(served, Ok(true)).then(|| started.elapsed()))
        })
    }

    /// CPU time used so far, user and system.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu_of(&self.proc("stat")?)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        let kib = field(&self.proc("status")?, "VmRSS:").ok_or(Error::Malformed {
            what: "/proc/pid/status",
        })?;
        Ok(kib * 1024)
    }

    /// Bytes that live objects of a Java program take, after a full collection; `None` for other programs and
    /// where there is no `jcmd`.
    pub(crate) fn live_heap(&self) -> Option<u64> {
        if self.name != KAFKA {
            return None; // jcmd begins with a signal that ends other programs.
        }
        let id = self.child.id().to_string();
        let told = Command::new("jcmd")
            .args([&id, "GC.class_histogram"])
            .output();
        let text = String::from_utf8(told.ok()?.stdout).ok()?;
        let total = text.lines().rev().find(|line| line.starts_with("Total"))?;
        total.split_whitespace().nth(2)?.parse().ok()
    }

    /// Bytes read by system calls so far, wherever they came from.
    pub(crate) fn bytes_read(&self) -> Result<u64> {
        field(&self.proc("io")?, "rchar:").ok_or(Error::Malformed {
            what: "/proc/pid/io",
        })
    }

    /// SIGTERM, and the time until the process is gone.
    pub(crate) fn stop(mut self) -> Result<Duration> {
        let asked = Instant::now();
        kill(self.pid()?, Signal::SIGTERM).doing("stop a broker")?;
        wait::until("a broker to stop", STOP_MAX, || {
            let gone = self.child.try_wait().doing("watch a broker")?;
            Ok(gone.map(|_| asked.elapsed()))
        })
    }

    /// SIGKILL.
    pub(crate) fn crash(mut self) -> Result<()> {
        self.child.kill().doing("kill a broker")?;
        self.child.wait().doing("wait for a killed broker")?;
        Ok(())
    }

    fn pid(&self) -> Result<Pid> {
        let id = i32::try_from(self.child.id()).map_err(|_| Error::Malformed { what: "pid" })?;
        Ok(Pid::from_raw(id))
    }

    fn proc(&self, file: &str) -> Result<String> {
        let path = PathBuf::from(format!("/proc/{}/{file}", self.child.id()));
        fs::read_to_string(&path).map_err(|source| path_error("read", &path, source))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time that this program itself has used so far.
pub(crate) fn own_cpu() -> Result<Duration> {
    cpu_of(&fs::read_to_string("/proc/self/stat").doing("read /proc/self/stat")?)
}

fn cpu_of(stat: &str) -> Result<Duration> {
    // The second field is a name in parentheses that may hold anything; utime and stime are fields 14 and 15.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let mut times = after_name.split_whitespace().skip(11);
    let mut next = || times.next()?.parse::<u32>().ok();
    match (next(), next()) {
        (Some(user), Some(system)) => Ok(TICK * (user + system)),
        _ => Err(Error::Malformed {
            what: "/proc/pid/stat",
        }),
    }
}

/// The number behind `name` in a file of /proc that has one name per line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn java(libs: &Path, options: &[&str]) -> Command {
    let mut command = Command::new("java");
    command.args(options).arg("-cp").arg(libs.join("*"));
    command
}

fn spawn(command: &mut Command, log_path: &Path) -> Result<Child> {
    let log = File::create(log_path).map_err(|source| path_error("create", log_path, source))?;
    let errors = log.try_clone().doing("duplicate a descriptor")?;
    command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|source| path_error("start", Path::new(command.get_program()), source))
}

fn free_address() -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .doing("find a free port")
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_dir_all(path).map_err(|source| path_error("remove", path, source))
}

fn path_error(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Path {
        doing,
        path: path.to_path_buf(),
        source,
    }
}
