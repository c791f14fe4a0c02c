//! `seawall user`: the first user, before anybody can log in to make one.
//!
//! Owns:     what is asked on the command line and standard input, and what is printed.
//! Does not: work beside a running broker: it takes the claim on the directories, as a start does.
//!
//! # Invariants
//! S1. Whatever the last owner left, the next start finds out: what was not stopped cleanly is not called clean here.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{Verdict, not_written};
use crate::cluster::{Cluster, ClusterError, ClusterOptions, DirClaim, StopSignal, state_file};
use crate::config::{CommandLine, Config, ConfigError};
use crate::security::sasl::scram::{Credential, Hash, ITERATIONS_MAX, ITERATIONS_MIN, random};
use crate::security::{
    Credentials, CredentialsError, NAME_BYTES_MAX, SALT_BYTES, UserKeys, mechanism_name,
};

/// Longest password that is read.
const PASSWORD_BYTES_MAX: usize = 1024;
/// How long a claim may take to be given back.
const RELEASE: Duration = Duration::from_secs(5);

/// `seawall user ...`
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user, or give one another password.
    Add {
        /// The user's name.
        name: String,
        /// Read the password from the first line of standard input: a command line can be seen by others.
        #[arg(long, required = true)]
        password_stdin: bool,
        /// Rounds of hashing: more make a stolen file harder to use, and each PLAIN login slower.
        #[arg(long, value_name = "N", default_value_t = ITERATIONS_MIN)]
        iterations: u32,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Print the users and how they may log in.
    List {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Remove a user.
    Remove {
        /// The user's name.
        name: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
}

/// Where the broker's data is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PlaceArgs {
    /// The configuration file of the broker.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the data is, if not where the configuration says.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Why users were neither told nor changed.
enum UserError {
    Config(ConfigError),
    /// The directory belongs to another user of this machine: files of ours would be out of the broker's reach.
    OtherOwner(PathBuf, u32),
    Cluster(ClusterError),
    Credentials(CredentialsError),
    Name,
    Password,
    Iterations,
    Unknown(String),
    Io(io::Error),
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::OtherOwner(dir, uid) => write!(
                f,
                "{} belongs to the user with number {uid}: run this as that user (sudo -u '#{uid}' seawall user ...)",
                dir.display()
            ),
            Self::Cluster(error) => write!(
                f,
                "{error}\nWhile a broker runs, users are changed through it: kafka-configs --alter --entity-type users"
            ),
            Self::Credentials(error) => error.fmt(f),
            Self::Name => write!(f, "a user's name has from 1 to {NAME_BYTES_MAX} bytes"),
            Self::Password => write!(
                f,
                "the first line of standard input must hold the password, of at most {PASSWORD_BYTES_MAX} bytes in UTF-8"
            ),
            Self::Iterations => write!(
                f,
                "--iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            ),
            Self::Unknown(name) => write!(f, "there is no user {name:?}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

/// Does what was asked.
pub(crate) fn user(command: UserCommand) -> Verdict {
    match run(command) {
        Ok(said) => match io::stdout().write_all(said.as_bytes()) {
            Ok(()) => Verdict::Clean,
            Err(error) => not_written(&error),
        },
        Err(error) => {
            eprintln!("seawall: {error}");
            Verdict::NotRun
        }
    }
}

fn run(command: UserCommand) -> Result<String, UserError> {
    match command {
        UserCommand::List { place } => {
            Stopped::open(place)?.with(|credentials| Ok(listing(credentials)))
        }
        UserCommand::Remove { name, place } => Stopped::open(place)?.with(|credentials| {
            let removed = credentials.change(|users| users.remove(&name).is_some());
            match removed.map_err(UserError::Credentials)? {
                true => Ok(format!("removed {name}\n")),
                false => Err(UserError::Unknown(name)),
            }
        }),
        UserCommand::Add {
            name,
            iterations,
            place,
            ..
        } => {
            let keys = keys(&name, iterations)?;
            Stopped::open(place)?.with(|credentials| {
                let insert = |users: &mut BTreeMap<String, UserKeys>| {
                    users.insert(name.clone(), keys).is_some()
                };
                let known = credentials.change(insert).map_err(UserError::Credentials)?;
                let did = if known { "changed" } else { "added" };
                Ok(format!("{did} {name}\n"))
            })
        }
    }
}

fn keys(name: &str, iterations: u32) -> Result<UserKeys, UserError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(UserError::Name);
    }
    let allowed = (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations);
    let rounds = NonZeroU32::new(iterations).filter(|_| allowed);
    let rounds = rounds.ok_or(UserError::Iterations)?;
    let password = password()?;
    let mut keys = UserKeys::new();
    for hash in [Hash::Sha256, Hash::Sha512] {
        let salt = random(SALT_BYTES).map_err(UserError::Io)?;
        let key = Credential::of_password(hash, password.as_bytes(), salt, rounds);
        keys.insert(hash, key);
    }
    Ok(keys)
}

/// The first line of standard input.
fn password() -> Result<String, UserError> {
    let limit = u64::try_from(PASSWORD_BYTES_MAX + 2).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let mut input = io::stdin().lock().take(limit);
    input.read_to_end(&mut bytes).map_err(UserError::Io)?;
    let text = String::from_utf8(bytes).map_err(|_| UserError::Password)?;
    let line = text.lines().next().unwrap_or_default();
    let fits = !line.is_empty() && line.len() <= PASSWORD_BYTES_MAX;
    fits.then(|| line.to_owned()).ok_or(UserError::Password)
}

fn listing(credentials: &Credentials) -> String {
    let users = credentials.load();
    let line = |(name, keys): (&str, &UserKeys)| {
        let keys = keys.iter();
        let keys: Vec<String> = keys
            .map(|(hash, key)| format!("{} ({} iterations)", mechanism_name(*hash), key.iterations))
            .collect();
        format!("{}\t{}\n", name.escape_debug(), keys.join(", "))
    };
    users.iter().map(line).collect()
}

/// The directories of a broker that does not run.
struct Stopped {
    cluster: Cluster,
}

impl Stopped {
    fn open(place: PlaceArgs) -> Result<Self, UserError> {
        let line = CommandLine {
            file: place.config,
            data_dir: place.data_dir,
            ..CommandLine::default()
        };
        let config = Config::load_for_tool(&line).map_err(UserError::Config)?;
        for dir in config.log_dirs.iter().chain(&config.cluster_dir) {
            check_owner(dir)?;
        }
        let stop = Arc::new(StopSignal::default());
        let options = ClusterOptions::new(&config, stop, Arc::new(lost));
        let cluster = Cluster::open(&options).map_err(UserError::Cluster)?;
        Ok(Self { cluster })
    }

    /// Works on the users, then gives the directories back.
    fn with<R>(
        self,
        work: impl FnOnce(&Credentials) -> Result<R, UserError>,
    ) -> Result<R, UserError> {
        let claim = Arc::clone(&self.cluster.claim);
        let opened = Credentials::open(state_file::real_disk(), &self.cluster.dir, claim);
        let result = opened
            .map_err(UserError::Credentials)
            .and_then(|all| work(&all));
        self.give_back();
        result
    }

    fn give_back(self) {
        let of_dirs = self.cluster.log_dirs.present().map(|(_, dir)| &dir.claim);
        let mut claims: Vec<&Arc<DirClaim>> = of_dirs.collect();
        if !claims
            .iter()
            .any(|claim| Arc::ptr_eq(claim, &self.cluster.claim))
        {
            claims.push(&self.cluster.claim);
        }
        // S1: what is not given back counts as a crash, which is what it was.
        let clean = claims
            .into_iter()
            .filter(|claim| claim.predecessor().stopped_cleanly);
        for claim in clean {
            if let Err(error) = claim.release(RELEASE) {
                eprintln!("seawall: {}: not released: {error}", claim.dir().display());
            }
        }
    }
}

/// Another broker took the directory: nothing may be written any more.
fn lost(dir: &Path) {
    eprintln!("seawall: {} belongs to another broker now", dir.display());
    std::process::exit(i32::from(u8::MAX));
}

fn check_owner(dir: &Path) -> Result<(), UserError> {
    let ours = fs::metadata("/proc/self").map_err(UserError::Io)?.uid();
    match fs::metadata(dir) {
        Ok(of) if of.uid() != ours => Err(UserError::OtherOwner(dir.to_owned(), of.uid())),
        _ => Ok(()),
    }
}
