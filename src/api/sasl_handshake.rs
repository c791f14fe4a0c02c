//! SaslHandshake: a client names the mechanism it will log in by.
//!
//! After version 0 its tokens come without headers, as in Kafka.

use std::time::Instant;

use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::{SaslHandshakeRequest, SaslHandshakeResponse};

use super::codes::ErrorCode;
use super::sasl_authenticate::hold_back;
use super::service::Gate;
use super::{Call, MALFORMED, UNENCODABLE, reply, text};
use crate::security::sasl::Handshake;

/// Kafka's number of it.
pub(super) const KEY: i16 = 17;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<SaslHandshakeRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let Gate::Login(login) = &call.conn.gate else {
        reply(
            call.slot,
            &answer(ErrorCode::IllegalSaslState, &[]),
            version,
        );
        return Flow::Done;
    };
    let bare = version == 0;
    let begun = if bare && login.is_open() {
        Handshake::Ignored
    } else {
        login.handshake(request.mechanism.as_str(), Instant::now())
    };
    let mechanisms: Vec<&str> = login.mechanisms().collect();
    let refusal = match begun {
        Handshake::Begun => {
            call.conn.info.set_bare(bare);
            reply(call.slot, &answer(ErrorCode::None, &mechanisms), version);
            return Flow::Done;
        }
        Handshake::Ignored => {
            reply(
                call.slot,
                &answer(ErrorCode::IllegalSaslState, &[]),
                version,
            );
            return Flow::Done;
        }
        Handshake::Unsupported => answer(ErrorCode::UnsupportedSaslMechanism, &mechanisms),
        Handshake::Illegal => answer(ErrorCode::IllegalSaslState, &[]),
    };
    match wire::encode(&refusal, version) {
        Ok(body) => hold_back(call.broker, login, call.slot, Some(body)),
        Err(_) => call.slot.close(UNENCODABLE),
    }
    Flow::Done
}

fn answer(error: ErrorCode, mechanisms: &[&str]) -> SaslHandshakeResponse {
    let mut response = SaslHandshakeResponse::default();
    response.error_code = error.code();
    response.mechanisms = mechanisms.iter().map(|name| text(name)).collect();
    response
}
