//! Users and what is kept of their passwords: `credentials.json`.
//!
//! Owns:     the file, who has which credential, and what an unknown user looks like from outside.
//! Does not: speak SASL.
//!
//! # Invariants
//! U1. Salted keys only: no password, and nothing that a client could log in with, is kept or written.
//! U2. What a change says is on stable storage before anybody may log in by it.
//! U3. An unknown user gets a salt that stays the same, and costs what a known one costs.
//!
//! Threads: changes block on I/O, one at a time; reading takes no lock.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use parking_lot::Mutex;
use ring::hmac;
use seawall_storage::disk::Disk;
use serde::{Deserialize, Serialize};

use super::sasl::scram::{Credential, Hash, ITERATIONS_MIN, random};
use crate::cluster::DirClaim;
use crate::cluster::state_file::{self, StateError, StateFault};

/// The file's name in the cluster's directory.
pub(crate) const FILE: &str = "credentials.json";
/// A user has less than a kilobyte.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Users that there may be: the file is written as a whole at each change.
pub(crate) const USERS_MAX: usize = 20_000;
/// Longest name of a user.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Bytes of the secret that salts of unknown users come from.
const SECRET_BYTES: usize = 32;
/// Bytes of a salt of ours.
pub(crate) const SALT_BYTES: usize = 16;

/// `credentials.json`
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsersFile {
    secret: String,
    users: BTreeMap<String, BTreeMap<String, KeyFile>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyFile {
    salt: String,
    iterations: NonZeroU32,
    stored_key: String,
    server_key: String,
}

/// The credentials of one user, by hash.
pub(crate) type UserKeys = BTreeMap<Hash, Credential>;

/// All users at one time.
#[derive(Clone)]
pub(crate) struct Users {
    secret: Vec<u8>,
    users: BTreeMap<String, UserKeys>,
}

/// Why users were not changed.
#[derive(Debug)]
pub(crate) enum CredentialsError {
    /// The file cannot be read or written.
    State(StateError),
    /// Another broker may own the directory by now. Nothing was written.
    NotFresh,
    /// There are too many. Nothing was written.
    TooMany,
    /// The system gives no random bytes.
    Random(io::Error),
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(error) => error.fmt(f),
            Self::NotFresh => {
                f.write_str("this broker cannot be sure to own its directories at the moment")
            }
            Self::TooMany => write!(f, "there are {USERS_MAX} users, and more are not kept"),
            Self::Random(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CredentialsError {}

/// See the file comment.
pub(crate) struct Credentials {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    claim: Arc<DirClaim>,
    users: ArcSwap<Users>,
    /// Held over the write of a change.
    changing: Mutex<()>,
}

impl Credentials {
    /// Reads the file, if there is one.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        cluster_dir: &Path,
        claim: Arc<DirClaim>,
    ) -> Result<Self, CredentialsError> {
        let path = cluster_dir.join(FILE);
        // What a crash left of a write holds keys as well.
        let tidied = state_file::remove_temps(&*disk, cluster_dir);
        tidied.map_err(|error| CredentialsError::State(StateError::io(cluster_dir)(error)))?;
        let file = state_file::load::<UsersFile>(&*disk, &path, FILE_BYTES_MAX);
        let users = match file.map_err(CredentialsError::State)? {
            Some(file) => Users::of_file(file).ok_or_else(|| damaged(&path))?,
            None => Users {
                secret: random(SECRET_BYTES).map_err(CredentialsError::Random)?,
                users: BTreeMap::new(),
            },
        };
        Ok(Self {
            disk,
            path,
            claim,
            users: ArcSwap::new(Arc::new(users)),
            changing: Mutex::new(()),
        })
    }

    /// The users of now.
    pub(crate) fn load(&self) -> Arc<Users> {
        self.users.load_full()
    }

    /// Changes users; what `change` gives is returned. Nothing is written where nothing changed.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, UserKeys>) -> R,
    ) -> Result<R, CredentialsError> {
        let _one_at_a_time = self.changing.lock();
        let before = self.users.load_full();
        let mut after = Users::clone(&before);
        let result = change(&mut after.users);
        if after.users == before.users {
            return Ok(result);
        }
        if after.users.len() > USERS_MAX {
            return Err(CredentialsError::TooMany);
        }
        if !self.claim.is_fresh() {
            return Err(CredentialsError::NotFresh);
        }
        let stored = state_file::store_private(&*self.disk, &self.path, &after.to_file());
        stored.map_err(CredentialsError::State)?;
        self.users.store(Arc::new(after)); // U2
        Ok(result)
    }
}

fn damaged(path: &Path) -> CredentialsError {
    CredentialsError::State(StateError {
        path: path.to_owned(),
        fault: StateFault::Contradiction { key: "users" },
    })
}

impl Users {
    /// Every user, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &UserKeys)> {
        self.users.iter().map(|(name, keys)| (name.as_str(), keys))
    }

    /// The credentials of a user.
    pub(crate) fn get(&self, name: &str) -> Option<&UserKeys> {
        self.users.get(name)
    }

    /// What a SCRAM exchange goes on with: the user's, or one that nobody has the password of (U3).
    pub(crate) fn scram(&self, hash: Hash, name: &str) -> Credential {
        let known = self.users.get(name).and_then(|keys| keys.get(&hash));
        known.cloned().unwrap_or_else(|| self.nobody(hash, name))
    }

    /// Whether the user has this password. Slow, and as slow for a user that does not exist (U3).
    pub(crate) fn has_password(&self, name: &str, password: &str) -> bool {
        let known = self.users.get(name).and_then(BTreeMap::first_key_value);
        let (hash, credential) = match known {
            Some((hash, credential)) => (*hash, credential.clone()),
            None => {
                let usual = self.users.values().find_map(BTreeMap::first_key_value);
                let hash = usual.map_or(Hash::Sha256, |(hash, _)| *hash);
                (hash, self.nobody(hash, name))
            }
        };
        credential.has_password(hash, password.as_bytes()) && known.is_some()
    }

    /// A credential that looks like those of others and that no password opens.
    fn nobody(&self, hash: Hash, name: &str) -> Credential {
        let like = self.users.values().find_map(|keys| keys.get(&hash));
        let length = like.map_or(SALT_BYTES, |like| like.salt.len());
        let key = hmac::Key::new(hmac::HMAC_SHA512, &self.secret);
        let seed = hmac::sign(&key, name.as_bytes());
        let bytes = seed.as_ref().iter().cycle().take(length).copied();
        // kafka-configs makes salts of digits and letters.
        let as_text = like.is_some_and(|like| like.salt.iter().all(u8::is_ascii_alphanumeric));
        let salt = if as_text {
            bytes.map(in_base_36).collect()
        } else {
            bytes.collect()
        };
        Credential {
            salt,
            iterations: like.map_or(least(), |like| like.iterations),
            stored_key: vec![0; hash.len()],
            server_key: seed.as_ref()[..hash.len()].to_vec(),
        }
    }

    fn of_file(file: UsersFile) -> Option<Self> {
        let secret = BASE64.decode(&file.secret).ok()?;
        let mut users = BTreeMap::new();
        for (name, keys) in file.users {
            let mut of_user = BTreeMap::new();
            for (mechanism, key) in keys {
                let hash = hash_of_mechanism(&mechanism)?;
                let key = Credential {
                    salt: BASE64.decode(&key.salt).ok()?,
                    iterations: key.iterations,
                    stored_key: BASE64.decode(&key.stored_key).ok()?,
                    server_key: BASE64.decode(&key.server_key).ok()?,
                };
                if key.stored_key.len() != hash.len() || key.server_key.len() != hash.len() {
                    return None;
                }
                of_user.insert(hash, key);
            }
            users.insert(name, of_user);
        }
        (secret.len() == SECRET_BYTES).then_some(Self { secret, users })
    }

    fn to_file(&self) -> UsersFile {
        let key = |key: &Credential| KeyFile {
            salt: BASE64.encode(&key.salt),
            iterations: key.iterations,
            stored_key: BASE64.encode(&key.stored_key),
            server_key: BASE64.encode(&key.server_key),
        };
        let keys = |keys: &UserKeys| {
            let each = keys.iter();
            each.map(|(hash, one)| (mechanism_name(*hash).to_owned(), key(one)))
                .collect()
        };
        let users = self.users.iter();
        UsersFile {
            secret: BASE64.encode(&self.secret),
            users: users.map(|(name, own)| (name.clone(), keys(own))).collect(),
        }
    }
}

fn in_base_36(byte: u8) -> u8 {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    DIGITS[usize::from(byte) % DIGITS.len()]
}

/// The rounds that kafka-configs asks for by default.
fn least() -> NonZeroU32 {
    NonZeroU32::new(ITERATIONS_MIN).unwrap_or(NonZeroU32::MIN)
}

/// A hash's mechanism, by its name on the wire.
pub(crate) fn mechanism_name(hash: Hash) -> &'static str {
    match hash {
        Hash::Sha256 => "SCRAM-SHA-256",
        Hash::Sha512 => "SCRAM-SHA-512",
    }
}

fn hash_of_mechanism(name: &str) -> Option<Hash> {
    [Hash::Sha256, Hash::Sha512]
        .into_iter()
        .find(|hash| mechanism_name(*hash) == name)
}
