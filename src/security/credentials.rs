//! Users and what is kept of their passwords: `credentials.json`.
//!
//! Owns:     the file, and who has which credential.
//! Does not: speak SASL.
//!
//! # Invariants
//! U1. Salted keys only: no password, and nothing that a client could log in with, is kept or written.
//! U2. What a change says is on stable storage before anybody may log in by it.
//! U3. An unknown user resembles a known one until the proof: a salt that stays the same, and as much work. Whoever
//!     asks often enough and measures may still tell them apart; nobody is told.
//! U4. No file is written that the next start would not read.
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
use seawall_planted::planted;
use seawall_storage::disk::Disk;
use serde::{Deserialize, Serialize};

use super::lookalike::Lookalikes;
use super::sasl::scram::{Credential, Hash, random};
use crate::cluster::DirClaim;
use crate::cluster::state_file::{self, StateError, StateFault};

/// The file's name in the cluster's directory.
pub(crate) const FILE: &str = "credentials.json";
/// A user has less than a kilobyte, with a name of a usual length.
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
    lookalikes: Lookalikes,
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
            Self::TooMany => write!(
                f,
                "more than {USERS_MAX} users, or {FILE_BYTES_MAX} bytes of them, are not kept"
            ),
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

/// Reads the users of a file, if there is one.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Users>, CredentialsError> {
    let file = state_file::load::<UsersFile>(disk, path, FILE_BYTES_MAX);
    let users = file.map_err(CredentialsError::State)?.map(Users::of_file);
    users
        .map(|users| users.ok_or_else(|| damaged(path)))
        .transpose()
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
        let users = match read(&*disk, &path)? {
            Some(users) => users,
            None => {
                let secret = random(SECRET_BYTES).map_err(CredentialsError::Random)?;
                Users::new(secret, BTreeMap::new())
            }
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
        let mut users = before.users.clone();
        let result = change(&mut users);
        if users == before.users {
            return Ok(result);
        }
        if users.len() > USERS_MAX {
            return Err(CredentialsError::TooMany);
        }
        let after = Users::new(before.secret.clone(), users);
        let file = after.to_file();
        if file.bytes() > FILE_BYTES_MAX {
            return Err(CredentialsError::TooMany); // U4
        }
        if !self.claim.is_fresh() {
            return Err(CredentialsError::NotFresh);
        }
        let stored = state_file::store_private(&*self.disk, &self.path, &file);
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

impl UsersFile {
    /// How long it will be at most; without end if it cannot be written.
    fn bytes(&self) -> u64 {
        /// For the fields that every state file has.
        const AROUND_BYTES: usize = 256;
        let bytes = serde_json::to_vec(self).map_or(usize::MAX, |bytes| bytes.len());
        u64::try_from(bytes.saturating_add(AROUND_BYTES)).unwrap_or(u64::MAX)
    }
}

impl Users {
    fn new(secret: Vec<u8>, users: BTreeMap<String, UserKeys>) -> Self {
        let lookalikes = Lookalikes::of(&secret, &users);
        Self {
            secret,
            users,
            lookalikes,
        }
    }

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
        // Made for known ones as well, so that it takes as long.
        let nobody = self.lookalikes.scram(hash, name);
        let known = self.users.get(name).and_then(|keys| keys.get(&hash));
        known.cloned().unwrap_or(nobody)
    }

    /// Whether the user has this password. Slow, and as slow for a user that does not exist (U3).
    pub(crate) fn has_password(&self, name: &str, password: &str) -> bool {
        let known = self.users.get(name).and_then(BTreeMap::first_key_value);
        let (hash, credential) = match known {
            Some((hash, credential)) => (*hash, credential.clone()),
            None => self.lookalikes.plain(name),
        };
        let right = credential.has_password(hash, password.as_bytes());
        (right || planted("login-any-password")) && known.is_some()
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
        (secret.len() == SECRET_BYTES).then(|| Self::new(secret, users))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::state_file::real_disk;

    #[test]
    fn the_most_users_with_the_longest_names_are_more_than_a_file_may_hold() {
        let keys = || {
            let salt = vec![7; SALT_BYTES];
            let key = Credential::of_salted(Hash::Sha512, &[7; 64], salt, NonZeroU32::MIN);
            UserKeys::from([(Hash::Sha512, key)])
        };
        let users = |count: usize| {
            // Each of these characters is six bytes in the file.
            let name = |n| format!("{}{n:05}", "\u{1}".repeat(NAME_BYTES_MAX - 5));
            let all = (0..count).map(|n| (name(n), keys())).collect();
            Users::new(vec![7; SECRET_BYTES], all).to_file()
        };
        assert!(users(USERS_MAX).bytes() > FILE_BYTES_MAX);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        for count in [0, 1, 300] {
            let file = users(count);
            state_file::store_private(&*real_disk(), &path, &file).unwrap();
            let written = std::fs::metadata(&path).unwrap().len();
            assert!((written..written + 256).contains(&file.bytes()), "{count}");
        }
    }
}
