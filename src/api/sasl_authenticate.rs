//! SaslAuthenticate: the tokens of a login, and the same without a header.
//!
//! A token may cost milliseconds of computing, so `login-*` takes it, and a token beyond the most that may wait ends its
//! connection. The answer to a failed login is held back for
//! `connection.failed.authentication.delay.ms`, by the timer and not by a thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_net::wire;
use seawall_net::wire::messages::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use seawall_net::{CloseReason, ConnInfo, Flow, ResponseBody};

use super::codes::ErrorCode;
use super::service::Gate;
use super::slot::Slot;
use super::{Call, MALFORMED, UNENCODABLE, reply, text};
use crate::broker::Broker;
use crate::security::sasl::{Login, Outcome};

/// Kafka's number of it.
pub(super) const KEY: i16 = 36;
const FAILED: CloseReason = CloseReason::Service("a failed login");
const TOO_MANY: CloseReason = CloseReason::Service("too many logins at a time");
/// Tokens that wait for a thread; each net thread may pass it by one. With the most rounds there are it is some seconds
/// of work, and clients wait for ten.
const QUEUED_MAX: usize = 512;
const NOT_BEGUN: &str = "SaslAuthenticate request received without SaslHandshake";
const NOT_NOW: &str = "SaslAuthenticate request received after successful authentication";

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<SaslAuthenticateRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    match &call.conn.gate {
        Gate::Login(login) if login.is_midway() => {
            // A copy, so that the frame is given back at once.
            let token = request.auth_bytes.to_vec();
            let exchange = Exchange::of(&call, login);
            submit(exchange, token, call.slot, Some(version));
        }
        Gate::Login(login) if !login.is_open() => {
            let refusal = refused(ErrorCode::IllegalSaslState, NOT_BEGUN);
            refuse(call.broker, login, call.slot, &refusal, version);
        }
        _ => reply(
            call.slot,
            &refused(ErrorCode::IllegalSaslState, NOT_NOW),
            version,
        ),
    }
    Flow::Done
}

/// A token that came without a header, after version 0 of SaslHandshake.
pub(super) fn handle_bare(call: Call<'_>) -> Flow {
    let Gate::Login(login) = &call.conn.gate else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let token = call.request.body.to_vec();
    let exchange = Exchange::of(&call, login);
    submit(exchange, token, call.slot, None);
    Flow::Done
}

/// What a token is taken with.
struct Exchange {
    broker: Arc<Broker>,
    login: Arc<Login>,
    info: ConnInfo,
}

impl Exchange {
    fn of(call: &Call<'_>, login: &Arc<Login>) -> Self {
        Self {
            broker: Arc::clone(call.broker),
            login: Arc::clone(login),
            info: call.conn.info.clone(),
        }
    }
}

/// Takes the token on a `login-*` thread. Without a version, the answer is the bare token.
fn submit(exchange: Exchange, token: Vec<u8>, slot: Slot, version: Option<i16>) {
    let workers = Arc::clone(exchange.broker.login_workers());
    if workers.queued() >= QUEUED_MAX {
        // Not a refusal: clients would not try again. Held back, so that they do not at once.
        let Exchange { broker, login, .. } = &exchange;
        return later(broker, login, move || slot.close(TOO_MANY));
    }
    workers.submit(move || {
        let outcome = exchange.login.token(&token, &exchange.broker.credentials);
        answer(&exchange, outcome, slot, version);
    });
}

fn answer(exchange: &Exchange, outcome: Outcome, slot: Slot, version: Option<i16>) {
    let (token, lifetime_ms) = match outcome {
        Outcome::Continue(token) => (token, 0),
        Outcome::Done(token, lifetime_ms) => {
            exchange.info.set_bare(false);
            exchange.info.set_logged_in(true);
            (token, lifetime_ms)
        }
        Outcome::Failed(message) => {
            let (broker, login) = (&exchange.broker, &exchange.login);
            return match version {
                Some(version) => {
                    let refusal = refused(ErrorCode::SaslAuthenticationFailed, &message);
                    refuse(broker, login, slot, &refusal, version);
                }
                None => hold_back(broker, login, slot, None::<ResponseBody>),
            };
        }
    };
    match version {
        Some(version) => reply(slot, &accepted(token, lifetime_ms), version),
        None => slot.reply(token),
    }
}

fn accepted(token: Vec<u8>, lifetime_ms: u64) -> SaslAuthenticateResponse {
    let mut response = SaslAuthenticateResponse::default();
    response.auth_bytes = token.into();
    response.session_lifetime_ms = i64::try_from(lifetime_ms).unwrap_or(i64::MAX);
    response
}

fn refused(error: ErrorCode, message: &str) -> SaslAuthenticateResponse {
    let mut response = SaslAuthenticateResponse::default();
    response.error_code = error.code();
    response.error_message = Some(text(message));
    response
}

fn refuse(
    broker: &Broker,
    login: &Login,
    slot: Slot,
    refusal: &SaslAuthenticateResponse,
    version: i16,
) {
    match wire::encode(refusal, version) {
        Ok(body) => hold_back(broker, login, slot, Some(body)),
        Err(_) => slot.close(UNENCODABLE),
    }
}

/// Answers a failed login and closes, after the delay; the connection starts nothing meanwhile. Without a body it is
/// closed without an answer.
pub(super) fn hold_back(
    broker: &Broker,
    login: &Login,
    slot: Slot,
    body: Option<impl Into<ResponseBody> + Send + 'static>,
) {
    later(broker, login, move || match body {
        Some(body) => slot.reply_and_close(body, FAILED),
        None => slot.close(FAILED),
    });
}

/// Answers after the delay of failed logins.
fn later(broker: &Broker, login: &Login, answer: impl FnOnce() + Send + 'static) {
    match broker.config.failed_login_delay_ms {
        0 => answer(),
        delay_ms => {
            let when = Instant::now() + Duration::from_millis(delay_ms);
            login.hold_back(broker.timer.at(when, answer));
        }
    }
}
