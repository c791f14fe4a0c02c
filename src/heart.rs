//! The heart: feels the pulse of the event loops, and tells the service manager and the terminal how it goes.
//!
//! Owns:     the thread `heart`.
//! Does not: do I/O on any volume, or wait for anybody who does: a sick disk takes partitions down, never the process.
//!
//! # Invariants
//! H1. The watchdog is fed only when every event loop has gone round since it was fed last.
//! H2. A start gets more time only while it gets on: one that hangs ends at the manager's limit.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use crate::logdir::LogDir;
use crate::running::Running;
use crate::startup::{Phase, Recovery};
use crate::systemd;

/// Between two beats, if the watchdog asks for none that are faster.
const BEAT: Duration = Duration::from_secs(1);
/// ... and this is as fast as it gets.
const BEAT_MIN: Duration = Duration::from_millis(10);
/// What a start that gets on is given from each beat: two looks at the slowest of disks.
const MORE_TIME: Duration = Duration::from_secs(60);
/// The wait for the last owner of a dir on a shared file system gets on without any sign, for this long at most.
const CLAIM_MAX: Duration = Duration::from_secs(120);

/// The running thread.
pub struct Heart {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Heart {
    /// Starts the thread.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(running: &Arc<Running>) -> io::Result<Self> {
        let running = Arc::clone(running);
        let fed = systemd::watchdog_timeout();
        // Four beats: one may be late, and one is needed to ask and one to see.
        let beat = fed.map_or(BEAT, |fed| (fed / 4).clamp(BEAT_MIN, BEAT));
        let (stop, stopped) = bounded::<()>(0);
        let thread = std::thread::Builder::new()
            .name("heart".into())
            .spawn(move || {
                let mut beats = Beats::new(running, fed.is_some());
                while stopped.recv_timeout(beat) == Err(RecvTimeoutError::Timeout) {
                    beats.beat();
                }
                beats.clear();
            })?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread.
    pub fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            log::error!("the heart thread had panicked");
        }
    }
}

/// What the thread remembers from one beat to the next.
struct Beats {
    running: Arc<Running>,
    watched: bool,
    is_terminal: bool,
    shown: bool,
    seen: Option<(Phase, Recovery)>,
    status: String,
}

impl Beats {
    fn new(running: Arc<Running>, watched: bool) -> Self {
        Self {
            running,
            watched,
            is_terminal: io::stderr().is_terminal(),
            shown: false,
            seen: None,
            status: String::new(),
        }
    }

    fn beat(&mut self) {
        let phase = self.running.startup.phase();
        match phase {
            Phase::Claiming | Phase::Opening => self.start_goes_on(phase),
            Phase::Serving | Phase::Stopping => self.clear(),
        }
        let all_go_round = self.running.feel_pulse();
        if self.watched && all_go_round {
            systemd::watchdog();
        }
        if phase == Phase::Serving {
            self.tell_status();
        }
    }

    fn start_goes_on(&mut self, phase: Phase) {
        let recovery = self.running.startup.recovery();
        let text = match phase {
            Phase::Claiming => "taking the log dirs into use".to_owned(),
            _ => format!("recovery: {recovery}"),
        };
        let now = Some((phase, recovery));
        let waits = phase == Phase::Claiming && self.running.uptime() < CLAIM_MAX;
        if self.seen != now || waits {
            systemd::extend(MORE_TIME, &text);
        }
        self.seen = now;
        if self.is_terminal {
            self.shown = true;
            // What cannot be shown is not missed.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
        }
    }

    /// Takes the line away before others follow.
    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn tell_status(&mut self) {
        let status = status_line(&self.running);
        if status != self.status {
            systemd::status(&status);
            self.status = status;
        }
    }
}

/// One line on how a broker is that serves.
pub fn status_line(running: &Running) -> String {
    let Some(broker) = running.broker() else {
        return String::new();
    };
    let map = broker.topics.load();
    let slots = map
        .iter()
        .map(|topic| topic.partitions.len())
        .sum::<usize>() as u64;
    let online = if broker.sum_dirs(LogDir::unwell) == 0 {
        // Nobody is asked one by one, for with thousands of partitions that is most of what an idle broker does.
        let open = map.iter().map(|topic| topic.open_partitions().count());
        open.sum::<usize>() as u64
    } else {
        broker.sum_partitions(|partition| u64::from(partition.is_online()))
    };
    let topics = map.len();
    match slots.saturating_sub(online) {
        0 => format!("serving {topics} topics with {slots} partitions"),
        unwell => format!("serving {topics} topics; {unwell} of {slots} partitions are not online"),
    }
}
