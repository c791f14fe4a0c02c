//! Who may come in, and what they may do.
//!
//! Owns:     what each listener asks of its clients, the users and their keys, certificates and when they are read
//!           again, rules and quotas with their files in `__cluster`.
//! Does not: know sockets or requests; `src/api` asks.

pub(crate) mod acl;
mod authorizer;
pub(crate) mod credentials;
pub(crate) mod exposure;
mod files;
mod lookalike;
mod mapping;
pub(crate) mod quota;
pub(crate) mod sasl;
mod session;
mod tls;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seawall_net::TlsSlot;

pub(crate) use authorizer::Authorizer;
pub(crate) use credentials::{
    Credentials, CredentialsError, NAME_BYTES_MAX, SALT_BYTES, UserKeys, mechanism_name,
};
pub(crate) use session::{Principal, Session};

use crate::config::{Config, Oauth};
use crate::workers::Workers;
use files::Print;
use sasl::SaslListener;
use sasl::oauth::{KeysError, Tokens};
use tls::{TlsError, TlsListener};

/// How often it is looked whether files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Why listeners cannot be served. The operator's fault; nothing was started.
#[derive(Debug)]
pub(crate) enum SecurityError {
    /// A listener's certificates.
    Tls(String, TlsError),
    /// A listener's JWKS file cannot be read.
    ReadKeys(PathBuf, io::Error),
    /// A listener's JWKS file cannot be used.
    Keys(PathBuf, KeysError),
}

impl SecurityError {
    /// What to do about it.
    pub(crate) fn way_out(&self) -> &'static str {
        let path = match self {
            Self::Tls(_, TlsError::Read(path, _)) | Self::ReadKeys(path, _) => path,
            Self::Tls(..) | Self::Keys(..) => {
                return "replace the file, or correct the key that names it";
            }
        };
        if path.starts_with("/run/credentials") {
            "add LoadCredential=NAME:/path/of/the/file to the unit (systemctl edit seawall), and restart it"
        } else {
            "correct the path, or let the user of the broker read the file"
        }
    }
}

impl fmt::Display for SecurityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(listener, error) => write!(f, "listener {listener}: {error}"),
            Self::ReadKeys(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
            Self::Keys(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

/// What one listener asks of its clients.
pub(crate) struct Door {
    /// Encryption; `None` without.
    pub(crate) tls: Option<TlsListener>,
    /// Logins; `None` without.
    pub(crate) sasl: Option<Arc<SaslListener>>,
    keys_print: Mutex<Print>,
}

/// All listeners, by their index in the configuration.
pub(crate) struct Doors {
    doors: Vec<Door>,
    /// Read everything again.
    reload: AtomicBool,
    looked_at: Mutex<Instant>,
    looking: AtomicBool,
}

impl Doors {
    /// Reads what the configuration names.
    pub(crate) fn open(config: &Config) -> Result<Arc<Self>, SecurityError> {
        let mut doors = Vec::new();
        for (listener, security) in config.listeners.iter().zip(&config.security) {
            let oauth = security.sasl.as_ref().and_then(|sasl| sasl.oauth.as_ref());
            // Before it is read: what changes meanwhile is read again.
            let keys_print = Mutex::new(oauth.map_or_else(Print::new, keys_print));
            let tls = security.tls.as_ref().map(TlsListener::open);
            let failed = |error| SecurityError::Tls(listener.name.clone(), error);
            let sasl = security.sasl.as_ref().map(|settings| {
                let tokens = settings.oauth.as_ref().map(open_tokens).transpose()?;
                let settings = settings.clone();
                Ok(Arc::new(SaslListener { settings, tokens }))
            });
            doors.push(Door {
                tls: tls.transpose().map_err(failed)?,
                sasl: sasl.transpose()?,
                keys_print,
            });
        }
        let doors = Self {
            doors,
            reload: AtomicBool::new(false),
            looked_at: Mutex::new(Instant::now()),
            looking: AtomicBool::new(false),
        };
        doors.warn_of_ends();
        Ok(Arc::new(doors))
    }

    /// Has every file read again at the next sweep.
    pub(crate) fn read_again(&self) {
        self.reload.store(true, Ordering::Release);
    }

    /// One listener.
    pub(crate) fn get(&self, listener: usize) -> Option<&Door> {
        self.doors.get(listener)
    }

    /// What the connections of a listener are encrypted with.
    pub(crate) fn tls_slot(&self, listener: usize) -> Option<Arc<TlsSlot>> {
        let tls = self.get(listener)?.tls.as_ref()?;
        Some(Arc::clone(&tls.slot))
    }

    /// When the first of our certificates ends, in seconds since 1970; 0 without TLS.
    pub(crate) fn first_end_s(&self) -> u64 {
        let tls = self.doors.iter().filter_map(|door| door.tls.as_ref());
        let first = tls.map(TlsListener::not_after_s).min().unwrap_or(0);
        u64::try_from(first).unwrap_or(0)
    }

    /// Has files that changed read again, now and then or after a signal.
    pub(crate) fn sweep(self: &Arc<Self>, pool: &Workers) {
        let asked = self.reload.swap(false, Ordering::AcqRel);
        let mut looked_at = self.looked_at.lock();
        if !asked && looked_at.elapsed() < LOOK_EVERY {
            return;
        }
        *looked_at = Instant::now();
        drop(looked_at);
        if self.looking.swap(true, Ordering::AcqRel) {
            // A disk that hangs; what was asked for is asked again.
            self.reload.fetch_or(asked, Ordering::AcqRel);
            return;
        }
        let looking = Looking(Arc::clone(self));
        pool.submit(move || looking.0.refresh(asked));
    }

    fn refresh(&self, anyway: bool) {
        for door in &self.doors {
            if let Some(tls) = &door.tls {
                tls.refresh(anyway);
            }
            door.refresh_keys(anyway);
        }
        self.warn_of_ends();
    }

    fn warn_of_ends(&self) {
        let tls = self.doors.iter().filter_map(|door| door.tls.as_ref());
        tls.for_each(TlsListener::warn_of_end);
    }
}

/// Somebody looks whether files have changed, until this is dropped: also by a panic, or by a pool that has stopped.
struct Looking(Arc<Doors>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.looking.store(false, Ordering::Release);
    }
}

impl Door {
    fn refresh_keys(&self, anyway: bool) {
        let Some(sasl) = &self.sasl else { return };
        let (Some(tokens), Some(oauth)) = (&sasl.tokens, &sasl.settings.oauth) else {
            return;
        };
        let now = keys_print(oauth);
        let changed = std::mem::replace(&mut *self.keys_print.lock(), now.clone()) != now;
        if !changed && !anyway {
            return;
        }
        let path = oauth.keys.display();
        let read = files::read(&oauth.keys).map_err(|error| error.to_string());
        let replaced = read.and_then(|text| tokens.replace(&text).map_err(|e| e.to_string()));
        match replaced {
            Ok(()) => log::info!("{path}: tokens are checked with the keys read just now"),
            Err(error) => log::error!("{path}: the keys of before stay: {error}"),
        }
    }
}

fn keys_print(oauth: &Oauth) -> Print {
    files::print(&[oauth.keys.as_path()])
}

fn open_tokens(oauth: &Oauth) -> Result<Tokens, SecurityError> {
    let path = &oauth.keys;
    let text = files::read(path).map_err(|error| SecurityError::ReadKeys(path.clone(), error))?;
    Tokens::new(oauth, &text).map_err(|error| SecurityError::Keys(path.clone(), error))
}
