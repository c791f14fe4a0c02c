//! A broker as those see it who tell others how it is: the side door and the heart.
//!
//! Owns:     one view of the process from its start to its end, whether it serves yet or not.
//! Does not: start or stop anything; `server` does.
//!
//! All of it is atomic or was published once, so that no reader waits for anybody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use seawall_net::{NetStats, Watch};

use crate::broker::Broker;
use crate::counts::Count;
use crate::startup::{Phase, Startup};

/// How long the event loops may be silent before the broker counts as not ready: well above a
/// pause of the machine, below what a client waits.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// See the module.
pub struct Running {
    /// How far start or stop have come.
    pub startup: Arc<Startup>,
    /// Configurations that were read again and taken over.
    pub reloads: Count,
    /// Configurations that were read again and refused.
    pub reloads_refused: Count,
    broker: OnceLock<Arc<Broker>>,
    net: OnceLock<Watch>,
    since: Instant,
    /// When all event loops were last seen going round, in ms after `since`.
    beaten_ms: AtomicU64,
}

impl Running {
    /// Nothing runs yet.
    pub fn new() -> Self {
        Self {
            startup: Arc::default(),
            reloads: Count::default(),
            reloads_refused: Count::default(),
            broker: OnceLock::new(),
            net: OnceLock::new(),
            since: Instant::now(),
            beaten_ms: AtomicU64::new(0),
        }
    }

    /// The partitions are open.
    pub fn opened(&self, broker: &Arc<Broker>) {
        // The first one stays; there is one start.
        let _ = self.broker.set(Arc::clone(broker));
    }

    /// Connections are taken.
    pub fn listening(&self, net: Watch) {
        self.beaten();
        let _ = self.net.set(net);
        self.startup.enter(Phase::Serving);
    }

    /// The broker, once its partitions are open.
    pub fn broker(&self) -> Option<&Arc<Broker>> {
        self.broker.get()
    }

    /// Counters of the sockets; zeros before there are any.
    pub fn net_stats(&self) -> NetStats {
        self.net.get().map(Watch::stats).unwrap_or_default()
    }

    /// How long the process runs.
    pub fn uptime(&self) -> Duration {
        self.since.elapsed()
    }

    /// One look at the event loops: whether all have gone round since the last look. If so they
    /// are asked again. Loops that are not started yet, or have ended at the stop, are no reason.
    pub fn feel_pulse(&self) -> bool {
        let Some(net) = self.net.get() else {
            return true;
        };
        if self.startup.phase() == Phase::Stopping {
            return true;
        }
        let all = net.silent() == 0;
        if all {
            self.beaten();
            net.ask_for_beats();
        }
        all
    }

    fn beaten(&self) {
        let ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beaten_ms.store(ms, Ordering::Relaxed);
    }

    /// How long ago all event loops were last seen going round.
    pub fn silence(&self) -> Duration {
        let beaten = Duration::from_millis(self.beaten_ms.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(beaten)
    }

    /// Why nobody should be sent here, if so. Takes the pulse itself: the heart may wait for a
    /// service manager that does not listen.
    pub fn not_ready(&self) -> Option<String> {
        self.feel_pulse();
        match self.startup.phase() {
            Phase::Claiming => Some("starting: the log dirs are being taken into use".into()),
            Phase::Opening => Some(format!("starting: {}", self.startup.recovery())),
            Phase::Stopping => Some("stopping".into()),
            Phase::Serving if self.silence() > SILENCE_MAX => Some(format!(
                "the event loops have been silent for {} s",
                self.silence().as_secs()
            )),
            Phase::Serving => None,
        }
    }
}
