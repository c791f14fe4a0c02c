//! A running broker: sockets in front, the side door beside.
//!
//! Owns:     the order of start and stop.
//! Does not: serve; the broker and its APIs do.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use seawall_net::{
    BoundServer, ConnectionLimits, Limits, Listener, ListenerLimits, NetConfig, Server, StartError,
};

use crate::admin::{AdminHttp, BoundAdmin};
use crate::api::KafkaService;
use crate::broker::{Broker, OpenError};
use crate::cluster::StopSignal;
use crate::config::{self, Config};
use crate::heart::{Heart, status_line};
use crate::running::Running;
use crate::security::{Doors, SecurityError, exposure};
use crate::startup::Phase;
use crate::systemd;
use crate::tools;

/// How often partitions are looked through for what is due by the clock.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// And how often at most, where something is asked for more often.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// How long requests in flight may take at a stop before they are cut.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the rest of a stop may take before it counts as unclean.
const STOP: Duration = Duration::from_secs(60);

/// The keys of the addresses.
const LISTENERS: &str = "listeners";
const ADMIN_LISTENER: &str = "admin.listener";

/// Why the broker did not start. Nothing is left running.
#[derive(Debug)]
pub enum ServeError {
    /// Operator: an address cannot be had; with the place of the key.
    Listen(StartError, String),
    /// Operator: a listener's name has no address; with the place of the key.
    Resolve(String, io::Error, String),
    /// Operator: the side door's address cannot be had; with the place of the key.
    Admin(SocketAddr, io::Error, String),
    /// Operator: certificates or keys cannot be used.
    Security(SecurityError),
    /// The data cannot be served; with the place of the key.
    Open(OpenError, String),
    /// The system refused a thread.
    System(io::Error),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listen(error @ StartError::Bind { error: why, .. }, place) => {
                write!(f, "{error} ({place}). {}", address_way_out(why))
            }
            Self::Listen(error, place) => write!(f, "{error} ({place})"),
            Self::Resolve(host, error, place) => write!(
                f,
                "the host {host:?} has no address: {error} ({place}). Correct the name, or write an address"
            ),
            Self::Admin(addr, error, place) => write!(
                f,
                "cannot listen on {addr} for HTTP: {error} ({place}). {}",
                address_way_out(error)
            ),
            Self::Open(error, place) => write!(f, "{error} ({place})"),
            Self::Security(error) => error.fmt(f),
            Self::System(error) => error.fmt(f),
        }
    }
}

/// See the module.
pub struct Serving {
    running: Arc<Running>,
    broker: Arc<Broker>,
    server: Server,
    aside: Aside,
    maintenance: Maintenance,
}

/// What tells others how it goes, from before the data is opened until after it is closed.
struct Aside {
    admin: Option<AdminHttp>,
    heart: Heart,
}

impl Aside {
    fn start(config: &Config, running: &Arc<Running>) -> Result<Self, ServeError> {
        let bound = match &config.admin_listener {
            Some(listener) => {
                let addr = first_addr(config, listener, ADMIN_LISTENER)?;
                let failed =
                    |error| ServeError::Admin(addr, error, config.settings.place(ADMIN_LISTENER));
                Some(BoundAdmin::bind(addr).map_err(failed)?)
            }
            None => None,
        };
        let admin = bound.map(|bound| bound.serve(Arc::clone(running)));
        let admin = admin.transpose().map_err(ServeError::System)?;
        let heart = Heart::start(running).map_err(ServeError::System)?;
        Ok(Self { admin, heart })
    }

    fn stop(self) {
        self.heart.stop();
        if let Some(admin) = self.admin {
            admin.stop();
        }
    }
}

impl Serving {
    /// Binds, opens the data, then accepts. `stop` ends a wait for another
    /// broker's directory.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(config: Config, stop: Arc<StopSignal>) -> Result<Self, ServeError> {
        let doors = Doors::open(&config).map_err(ServeError::Security)?;
        if let Some(warning) = exposure::warning(&config) {
            log::warn!("{warning}");
        }
        // Bound first: an address in use is found before any dir is claimed.
        let place = config.settings.place(LISTENERS);
        let bound = Server::bind(net_config(&config, &doors)?);
        let bound = bound.map_err(|error| ServeError::Listen(error, place))?;
        let running = Arc::new(Running::new());
        let aside = Aside::start(&config, &running)?;
        // After all that tells how it goes, and beside the start: a dead mount hangs whoever asks about it.
        tools::warn_at_start(&config).map_err(ServeError::System)?;
        let opened = Self::open(config, doors, stop, bound, &running);
        match opened {
            Ok((broker, server, maintenance)) => {
                running.listening(server.watch());
                systemd::ready(&status_line(&running));
                Ok(Self {
                    running,
                    broker,
                    server,
                    aside,
                    maintenance,
                })
            }
            Err(error) => {
                running.startup.enter(Phase::Stopping);
                aside.stop();
                Err(error)
            }
        }
    }

    fn open(
        config: Config,
        doors: Arc<Doors>,
        stop: Arc<StopSignal>,
        bound: BoundServer,
        running: &Running,
    ) -> Result<(Arc<Broker>, Server, Maintenance), ServeError> {
        let data = data_place(&config);
        let listeners = config.settings.place(LISTENERS);
        let endpoints = endpoints(&config, &bound);
        let broker = Broker::open(config, endpoints, doors, stop, &running.startup);
        let broker = broker.map_err(|error| ServeError::Open(error, data))?;
        running.opened(&broker);
        let service = Arc::new(KafkaService::new(Arc::clone(&broker)));
        let server = bound.start(service);
        let server = server.map_err(|error| ServeError::Listen(error, listeners))?;
        let maintenance = Maintenance::start(&broker).map_err(ServeError::System)?;
        Ok((broker, server, maintenance))
    }

    /// Where clients connect.
    pub fn addrs(&self) -> &[SocketAddr] {
        self.server.local_addrs()
    }

    /// Where metrics are.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.aside.admin.as_ref().map(AdminHttp::addr)
    }

    /// One line on how the broker is.
    pub fn status_line(&self) -> String {
        status_line(&self.running)
    }

    /// The configuration was read again: each part that can change while it
    /// runs takes what is its own here, and nothing may fail any more.
    pub fn take_over(&self, config: &Config) {
        self.broker.doors.read_again();
        self.server.limit_connections(&connection_limits(config));
        let restart = self.broker.take_settings(config);
        if !restart.is_empty() {
            log::warn!("changed, and waits for a restart: {}", restart.join(", "));
        }
        self.running.reloads.add(1);
        log::info!("the configuration was read again");
    }

    /// The configuration was read again and is wrong: the old one holds.
    pub fn refused_reload(&self) {
        self.broker.doors.read_again();
        self.running.reloads_refused.add(1);
    }

    /// Drains, flushes, closes. Says whether the next start has nothing to scan.
    pub fn stop(self) -> bool {
        self.running.startup.enter(Phase::Stopping);
        self.maintenance.stop();
        let drained = self.server.drain(DRAIN);
        if drained.connections_cut > 0 {
            log::warn!("{} connections were cut", drained.connections_cut);
        }
        let stopped = self.broker.stop(Instant::now() + STOP);
        self.aside.stop();
        stopped && drained.threads_stuck == 0
    }
}

/// The thread `maintenance`: what is due by the clock.
struct Maintenance {
    stop: crossbeam_channel::Sender<()>,
    thread: JoinHandle<()>,
}

impl Maintenance {
    fn start(broker: &Arc<Broker>) -> io::Result<Self> {
        let broker = Arc::clone(broker);
        let config = &broker.config;
        let asked = config.retention_check_interval_ms;
        let asked = Duration::from_millis(asked.min(config.cleaner_backoff_ms));
        let interval = asked.clamp(SWEEP_INTERVAL_MIN, SWEEP_INTERVAL);
        let (stop, stopped) = crossbeam_channel::bounded::<()>(1);
        let thread = std::thread::Builder::new()
            .name("maint".into())
            .spawn(move || {
                let timeout = crossbeam_channel::RecvTimeoutError::Timeout;
                while stopped.recv_timeout(interval) == Err(timeout) {
                    broker.sweep();
                }
            })?;
        Ok(Self { stop, thread })
    }

    fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            log::error!("the maintenance thread had panicked");
        }
    }
}

/// The key that says where the data is.
fn data_place(config: &Config) -> String {
    let dirs = config.settings.explicit("log.dirs");
    config
        .settings
        .place(dirs.map_or("log.dir", |_| "log.dirs"))
}

/// What to do about an address that cannot be had.
fn address_way_out(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::AddrInUse => {
            "Stop who listens there (`ss -ltnp` tells), or set another address"
        }
        io::ErrorKind::AddrNotAvailable => {
            "This machine has no such address (`ip address` lists them): set one that it has"
        }
        io::ErrorKind::PermissionDenied => {
            "Set a port above 1023, or give the broker CAP_NET_BIND_SERVICE"
        }
        _ => "Set another address",
    }
}

fn net_config(config: &Config, doors: &Doors) -> Result<NetConfig, ServeError> {
    let mut listeners = Vec::with_capacity(config.listeners.len());
    for (index, listener) in config.listeners.iter().enumerate() {
        listeners.push(Listener {
            tls: doors.tls_slot(index),
            name: listener.name.clone(),
            addr: first_addr(config, listener, LISTENERS)?,
        });
    }
    let defaults = Limits::default();
    let idle = Duration::from_millis(config.connections_idle_max_ms);
    let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let connections = connection_limits(config);
    Ok(NetConfig {
        threads: config.network_threads,
        listeners,
        limits: Limits {
            frame_bytes_max_before_login: count(config.request_before_login_bytes_max),
            frame_bytes_max: count(config.request_bytes_max),
            frames_in_flight_bytes_max: bytes(config.queued_request_bytes_max),
            frames_in_flight_bytes_max_before_login: bytes(config.queued_request_bytes_max / 8),
            connections_max: connections.total,
            connections_per_address_max: connections.per_address,
            connections_by_address: config
                .access
                .connections_by_ip
                .iter()
                .map(|(ip, max)| (*ip, count(*max)))
                .collect(),
            connections_per_second_max: connections.per_second,
            by_listener: config
                .listeners
                .iter()
                .map(|listener| listener_limits(config, &listener.name))
                .collect(),
            idle_deadline: idle,
            frame_deadline: defaults.frame_deadline.min(idle),
            handshake_deadline: defaults.handshake_deadline.min(idle),
            ..defaults
        },
    })
}

fn listener_limits(config: &Config, listener: &str) -> ListenerLimits {
    let own = |key| config::own_number(&config.settings, listener, key);
    ListenerLimits {
        connections_max: own("max.connections").and_then(|max| usize::try_from(max).ok()),
        connections_per_second_max: own("max.connection.creation.rate"),
    }
}

fn connection_limits(config: &Config) -> ConnectionLimits {
    let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    ConnectionLimits {
        total: count(config.connections_max),
        per_address: count(config.connections_per_ip_max),
        per_second: config.connection_rate_max,
    }
}

fn first_addr(
    config: &Config,
    listener: &crate::config::Listener,
    key: &str,
) -> Result<SocketAddr, ServeError> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let addrs = listener.addrs();
    addrs
        .and_then(|addrs| addrs.first().copied().ok_or_else(none))
        .map_err(|error| {
            ServeError::Resolve(listener.host.clone(), error, config.settings.place(key))
        })
}

/// What clients are told, by listener: the advertised port, or the bound one.
fn endpoints(config: &Config, bound: &BoundServer) -> Vec<(String, u16)> {
    let advertised = config.advertised.iter().zip(bound.local_addrs());
    advertised
        .map(|(advertised, addr)| {
            let port = advertised.port.unwrap_or(addr.port());
            (advertised.host.clone(), port)
        })
        .collect()
}
