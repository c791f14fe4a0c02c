//! What Ctrl-C and its like leave in a directory that was looked at: nothing.
//!
//! Owns:     the thread `signals` of the doctor, and the list of what it removes.
//! Does not: stop the probes; they fail in a directory that is gone, and wait for the end of the process.
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
/// Somebody writes there meanwhile.
const TRIES: usize = 100;

static MADE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// Set by the first signal; there once signals are watched.
static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on a signal that ends the process removes `path` first. A second one ends it at once: the removal hangs
/// where the file system does.
pub(super) fn remove_at_signals(path: &Path) -> io::Result<()> {
    made().push(path.to_owned());
    let asked = Arc::new(AtomicBool::new(false));
    if ASKED.set(Arc::clone(&asked)).is_err() {
        return Ok(());
    }
    for signal in ENDING {
        // In this order: the first finds the flag unset.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&asked))?;
        signal_hook::flag::register(signal, Arc::clone(&asked))?;
    }
    let mut signals = Signals::new(ENDING)?;
    let thread = std::thread::Builder::new().name("signals".into());
    thread
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                made().iter().for_each(|path| remove(path));
                // The caller sees what ended the process. It cannot fail for these signals.
                let _ = emulate_default_handler(signal);
            }
        })
        .map(drop)
}

/// Keeps a thread whose directory is being removed from telling what it finds now.
pub(super) fn wait_if_ending() {
    while ASKED
        .get()
        .is_some_and(|asked| asked.load(Ordering::Acquire))
    {
        std::thread::park();
    }
}

fn made() -> MutexGuard<'static, Vec<PathBuf>> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(path: &Path) {
    for _ in 0..TRIES {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
    }
}
