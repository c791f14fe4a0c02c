//! A running broker: sockets in front, the side door beside.
//!
//! Owns:     the order of start and stop.
//! Does not: serve; the broker and its APIs do.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use seawall_net::{BoundServer, Limits, Listener, NetConfig, Server, StartError};

use crate::admin::{AdminHttp, BoundAdmin};
use crate::api::KafkaService;
use crate::broker::{Broker, OpenError};
use crate::cluster::StopSignal;
use crate::config::Config;
use crate::running::Running;

/// How often partitions are looked through for what is due by the clock.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// And how often at most, where something is asked for more often.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// How long requests in flight may take at a stop before they are cut.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the rest of a stop may take before it counts as unclean.
const STOP: Duration = Duration::from_secs(60);

/// Why the broker did not start. Nothing is left running.
#[derive(Debug)]
pub enum ServeError {
    /// Operator: an address cannot be had.
    Listen(StartError),
    /// Operator: a listener's name has no address.
    Resolve(String, io::Error),
    /// The data cannot be served.
    Open(OpenError),
    /// The system refused a thread or the side door's address.
    System(io::Error),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listen(error) => error.fmt(f),
            Self::Resolve(host, error) => write!(f, "listener host {host:?}: {error}"),
            Self::Open(error) => error.fmt(f),
            Self::System(error) => error.fmt(f),
        }
    }
}

/// See the module.
pub struct Serving {
    running: Arc<Running>,
    admin: Option<AdminHttp>,
    maintenance: Maintenance,
}

impl Serving {
    /// Binds, opens the data, then accepts. `stop` ends a wait for another
    /// broker's directory.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(config: Config, stop: Arc<StopSignal>) -> Result<Self, ServeError> {
        // Bound first: an address in use is found before any dir is claimed.
        let bound = Server::bind(net_config(&config)?).map_err(ServeError::Listen)?;
        let endpoints = endpoints(&config, &bound);
        let admin = match &config.admin_listener {
            Some(listener) => {
                let bound = BoundAdmin::bind(first_addr(listener)?);
                Some(bound.map_err(ServeError::System)?)
            }
            None => None,
        };
        let broker = Broker::open(config, endpoints, stop).map_err(ServeError::Open)?;
        let service = Arc::new(KafkaService::new(Arc::clone(&broker)));
        let server = bound.start(service).map_err(ServeError::Listen)?;
        let running = Arc::new(Running { broker, server });
        let admin = admin.map(|bound| bound.serve(Arc::clone(&running)));
        let admin = admin.transpose().map_err(ServeError::System)?;
        let maintenance = Maintenance::start(&running.broker).map_err(ServeError::System)?;
        Ok(Self {
            running,
            admin,
            maintenance,
        })
    }

    /// Where clients connect.
    pub fn addrs(&self) -> &[SocketAddr] {
        self.running.server.local_addrs()
    }

    /// Where metrics are.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminHttp::addr)
    }

    /// Drains, flushes, closes. Says whether the next start has nothing to scan.
    pub fn stop(self) -> bool {
        self.maintenance.stop();
        if let Some(admin) = self.admin {
            admin.stop();
        }
        let Some(running) = Arc::into_inner(self.running) else {
            log::error!("the side door did not end; the stop is unclean");
            return false;
        };
        let drained = running.server.drain(DRAIN);
        if drained.connections_cut > 0 {
            log::warn!("{} connections were cut", drained.connections_cut);
        }
        let stopped = running.broker.stop(Instant::now() + STOP);
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

fn net_config(config: &Config) -> Result<NetConfig, ServeError> {
    let mut listeners = Vec::with_capacity(config.listeners.len());
    for listener in &config.listeners {
        listeners.push(Listener {
            name: listener.name.clone(),
            addr: first_addr(listener)?,
        });
    }
    let defaults = Limits::default();
    let idle = Duration::from_millis(config.connections_idle_max_ms);
    let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    Ok(NetConfig {
        threads: config.network_threads,
        listeners,
        limits: Limits {
            frame_bytes_max_before_login: count(config.request_before_login_bytes_max),
            frame_bytes_max: count(config.request_bytes_max),
            frames_in_flight_bytes_max: bytes(config.queued_request_bytes_max),
            connections_max: count(config.connections_max),
            connections_per_address_max: count(config.connections_per_ip_max),
            connections_by_address: config
                .access
                .connections_by_ip
                .iter()
                .map(|(ip, max)| (*ip, count(*max)))
                .collect(),
            connections_per_second_max: config.connection_rate_max,
            idle_deadline: idle,
            frame_deadline: defaults.frame_deadline.min(idle),
            ..defaults
        },
    })
}

fn first_addr(listener: &crate::config::Listener) -> Result<SocketAddr, ServeError> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let addrs = listener.addrs();
    addrs
        .and_then(|addrs| addrs.first().copied().ok_or_else(none))
        .map_err(|error| ServeError::Resolve(listener.host.clone(), error))
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
