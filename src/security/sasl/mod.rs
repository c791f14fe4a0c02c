//! Logins by SASL.
//!
//! Owns:     the state of one connection's login; what each mechanism makes of a token.
//! Does not: know requests, sockets or files.
//!
//! # Invariants
//! L1. A connection is open only after an exchange was completed, and a failed one ends it.
//! L2. A later login is by the same mechanism and as the same user (KIP-368).
//! L3. Nobody is told whether it was the user or the password that was wrong.
//!
//! Threads: the net thread of the connection begins an exchange, `login-*` takes its steps (a password costs
//! milliseconds of computing); they never do so at once, since the protocol waits for each answer.

pub(crate) mod oauth;
pub(crate) mod plain;
pub(crate) mod scram;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seawall_planted::planted;

use super::credentials::Credentials;
use super::session::Principal;
use crate::config::{Mechanism, Sasl};
use crate::timer::Deadline;
use oauth::Tokens;
use plain::PlainMessage;
use scram::{ClientFirst, Exchange, Hash, ScramError};

/// A client may log in again only so often, as in Kafka.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// No end.
const NEVER: u64 = u64::MAX;

/// Logins since the start of the process.
pub(crate) static LOGINS: AtomicU64 = AtomicU64::new(0);
/// Logins refused since the start of the process.
pub(crate) static LOGINS_FAILED: AtomicU64 = AtomicU64::new(0);
/// Connections closed because their login had run out.
pub(crate) static LOGINS_EXPIRED: AtomicU64 = AtomicU64::new(0);

/// How clients of a listener may log in.
pub(crate) struct SaslListener {
    /// The settings.
    pub(crate) settings: Sasl,
    /// Who checks tokens.
    pub(crate) tokens: Option<Tokens>,
}

impl SaslListener {
    /// The mechanisms by their names on the wire.
    pub(crate) fn mechanisms(&self) -> impl Iterator<Item = &'static str> {
        self.settings.mechanisms.iter().map(|(one, _)| one.name())
    }

    fn session_max_ms(&self, mechanism: Mechanism) -> u64 {
        let all = self.settings.mechanisms.iter();
        all.filter(|(one, _)| *one == mechanism)
            .map(|(_, max)| *max)
            .next()
            .unwrap_or(0)
    }
}

/// The login of one connection.
pub(crate) struct Login {
    listener: Arc<SaslListener>,
    state: Mutex<State>,
    /// Somebody is logged in.
    open: AtomicBool,
    /// ... and the connection's session does not know it yet.
    fresh: AtomicBool,
    /// An exchange is under way.
    midway: AtomicBool,
    began: Instant,
    /// When the login runs out, in milliseconds from `began`.
    expires_ms: AtomicU64,
}

#[derive(Default)]
struct State {
    step: Step,
    /// As whom and how the connection logged in.
    owner: Option<(Principal, Mechanism)>,
    /// When the last exchange began, after the first.
    again_at: Option<Instant>,
    /// The answer to a failed login, while it is held back.
    held_back: Option<Deadline>,
}

/// What the next token is.
#[derive(Default)]
enum Step {
    /// None is expected.
    #[default]
    Idle,
    /// The first of this mechanism.
    First(Mechanism),
    /// The proof of a SCRAM exchange.
    Proof(Mechanism, Box<Exchange>, String),
    /// The acknowledgement of a refused token (RFC 7628, 3.2.3).
    Refused,
    /// A login by another mechanism than before: whatever comes is refused.
    OtherMechanism(Mechanism),
}

/// What a handshake led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// The exchange has begun.
    Begun,
    /// The mechanism is not enabled; the connection ends.
    Unsupported,
    /// Not now; the connection ends.
    Illegal,
    /// Not now; the connection stays as it is.
    Ignored,
}

/// What a token led to.
pub(crate) enum Outcome {
    /// The exchange goes on with this.
    Continue(Vec<u8>),
    /// Logged in; the last message of the exchange, and how long the login holds (0: for ever).
    Done(Vec<u8>, u64),
    /// Refused, in words for the client; the connection ends.
    Failed(String),
}

/// Why a token is refused: words for the client, which tell nothing (L3).
type Refusal = String;

impl Login {
    /// Nobody yet.
    pub(crate) fn new(listener: &Arc<SaslListener>) -> Arc<Self> {
        Arc::new(Self {
            listener: Arc::clone(listener),
            state: Mutex::new(State::default()),
            open: AtomicBool::new(false),
            fresh: AtomicBool::new(false),
            midway: AtomicBool::new(false),
            began: Instant::now(),
            expires_ms: AtomicU64::new(NEVER),
        })
    }

    /// The listener's mechanisms by their names on the wire.
    pub(crate) fn mechanisms(&self) -> impl Iterator<Item = &'static str> {
        self.listener.mechanisms()
    }

    /// Whether somebody is logged in (L1).
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether only a token may come now.
    pub(crate) fn is_midway(&self) -> bool {
        self.midway.load(Ordering::Acquire)
    }

    /// Whether the login has run out.
    pub(crate) fn has_expired(&self) -> bool {
        let expires = self.expires_ms.load(Ordering::Acquire);
        let ends = expires != NEVER && !planted("login-never-expires");
        ends && self.began.elapsed() >= Duration::from_millis(expires)
    }

    /// Who logged in since the last call.
    pub(crate) fn take_fresh(&self) -> Option<Principal> {
        if !self.fresh.load(Ordering::Acquire) || !self.fresh.swap(false, Ordering::AcqRel) {
            return None;
        }
        let state = self.state.lock();
        state.owner.as_ref().map(|(owner, _)| owner.clone())
    }

    /// A client names its mechanism.
    pub(crate) fn handshake(&self, mechanism: &str, now: Instant) -> Handshake {
        let mut state = self.state.lock();
        if !matches!(state.step, Step::Idle) {
            return Handshake::Illegal;
        }
        if self.is_open() && !self.may_repeat(&state, now) {
            return Handshake::Ignored;
        }
        let known = Mechanism::of_name(mechanism);
        let enabled = known.filter(|one| self.mechanisms().any(|name| name == one.name()));
        let Some(mechanism) = enabled else {
            return Handshake::Unsupported;
        };
        if self.is_open() {
            state.again_at = Some(now);
        }
        let before = state.owner.as_ref().map(|(_, before)| *before);
        state.step = match before {
            Some(before) if before != mechanism => Step::OtherMechanism(mechanism), // L2
            _ => Step::First(mechanism),
        };
        self.midway.store(true, Ordering::Release);
        Handshake::Begun
    }

    /// KIP-368: only a login that runs out is repeated, and not all the time.
    fn may_repeat(&self, state: &State, now: Instant) -> bool {
        let runs_out = self.expires_ms.load(Ordering::Acquire) != NEVER;
        let long_ago = |at| now.saturating_duration_since(at) >= AGAIN_AFTER;
        runs_out && state.again_at.is_none_or(long_ago)
    }

    /// Takes a token. Slow: not for a net thread.
    pub(crate) fn token(&self, token: &[u8], credentials: &Credentials) -> Outcome {
        let step = std::mem::take(&mut self.state.lock().step);
        let outcome = match step {
            Step::Idle => Err("SaslAuthenticate request received without SaslHandshake".to_owned()),
            Step::Refused => Err("Authentication failed: the token was refused".to_owned()),
            Step::OtherMechanism(mechanism) => Err(self.other_mechanism(mechanism)),
            Step::First(Mechanism::Plain) => plain(token, credentials)
                .and_then(|user| self.done(&user, Mechanism::Plain, Vec::new(), None)),
            Step::First(Mechanism::OauthBearer) => self.bearer(token),
            Step::First(mechanism) => self.scram(mechanism, token, credentials),
            Step::Proof(mechanism, exchange, user) => exchange
                .finish(token)
                .map_err(|error| self.scram_refusal(mechanism, error))
                .and_then(|last| self.done(&user, mechanism, last, None)),
        };
        outcome.unwrap_or_else(|refusal| {
            self.open.store(false, Ordering::Release); // L1
            LOGINS_FAILED.fetch_add(1, Ordering::Relaxed);
            Outcome::Failed(refusal)
        })
    }

    /// Keeps the answer to a failed login until its time, or until the connection is gone.
    pub(crate) fn hold_back(&self, answer: Deadline) {
        self.state.lock().held_back = Some(answer);
    }

    fn scram(
        &self,
        mechanism: Mechanism,
        token: &[u8],
        credentials: &Credentials,
    ) -> Result<Outcome, Refusal> {
        let hash = match mechanism {
            Mechanism::ScramSha512 => Hash::Sha512,
            _ => Hash::Sha256,
        };
        let begun = ClientFirst::parse(token).and_then(|first| {
            let credential = credentials.load().scram(hash, &first.user);
            let (exchange, message) = Exchange::begin(hash, &first, credential)?;
            Ok((exchange, message, first.user))
        });
        let begun = begun.map_err(|error| self.scram_refusal(mechanism, error));
        let (exchange, message, user) = begun?;
        self.state.lock().step = Step::Proof(mechanism, Box::new(exchange), user);
        Ok(Outcome::Continue(message))
    }

    /// In Kafka's words, and the same for every fault of the client.
    fn scram_refusal(&self, mechanism: Mechanism, error: ScramError) -> Refusal {
        let during = if self.is_open() {
            "re-authentication"
        } else {
            "authentication"
        };
        match error {
            ScramError::Random => "Authentication failed".to_owned(),
            ScramError::Malformed | ScramError::OtherAuthorization | ScramError::WrongProof => {
                format!(
                    "Authentication failed during {during} due to invalid credentials with SASL mechanism {}",
                    mechanism.name()
                )
            }
        }
    }

    fn bearer(&self, token: &[u8]) -> Result<Outcome, Refusal> {
        let tokens = self.listener.tokens.as_ref();
        let bearer = tokens.and_then(|tokens| tokens.check(token));
        let Some(bearer) = bearer else {
            self.state.lock().step = Step::Refused;
            return Ok(Outcome::Continue(br#"{"status":"invalid_token"}"#.to_vec()));
        };
        self.done(
            &bearer.user,
            Mechanism::OauthBearer,
            Vec::new(),
            Some(bearer.lifetime_ms),
        )
    }

    /// The client has shown who it is. `token_ms`: how long its token holds.
    fn done(
        &self,
        user: &str,
        mechanism: Mechanism,
        last: Vec<u8>,
        token_ms: Option<u64>,
    ) -> Result<Outcome, Refusal> {
        let principal = Principal::user(user);
        let mut state = self.state.lock();
        if let Some((before, _)) = &state.owner
            && *before != principal
        {
            let (from, to) = (before.name(), principal.name()); // L2
            return Err(format!(
                "Cannot change principals during re-authentication from User.{from}: User.{to}"
            ));
        }
        let max_ms = Some(self.listener.session_max_ms(mechanism)).filter(|max| *max > 0);
        let lifetime_ms = token_ms.into_iter().chain(max_ms).min();
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(NEVER);
        let expires = lifetime_ms.map_or(NEVER, |lifetime| now_ms.saturating_add(lifetime));
        self.expires_ms.store(expires, Ordering::Release);
        state.owner = Some((principal, mechanism));
        drop(state);
        LOGINS.fetch_add(1, Ordering::Relaxed);
        self.midway.store(false, Ordering::Release);
        self.fresh.store(true, Ordering::Release);
        self.open.store(true, Ordering::Release);
        Ok(Outcome::Done(last, lifetime_ms.unwrap_or(0)))
    }

    fn other_mechanism(&self, asked: Mechanism) -> Refusal {
        let state = self.state.lock();
        let before = state.owner.as_ref().map_or("", |(_, before)| before.name());
        format!(
            "SASL mechanism '{}' requested by client is not supported for re-authentication of mechanism '{before}'",
            asked.name()
        )
    }
}

fn plain(token: &[u8], credentials: &Credentials) -> Result<String, Refusal> {
    let message = PlainMessage::parse(token)?;
    if credentials
        .load()
        .has_password(message.user, message.password)
    {
        Ok(message.user.to_owned())
    } else {
        Err("Authentication failed: Invalid username or password".to_owned()) // L3
    }
}
