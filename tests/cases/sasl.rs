//! Logins by SASL: what may come when, and what a refusal tells.

use std::collections::HashSet;
use std::time::Duration;

use seawall_testkit::kafka_wire::*;
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Bytes, Raw};

use super::codes;
use super::logins::{
    ALICE, BOB, Guarded, Scram, handshake, may_ask_for_metadata, plain, server_fields, token,
};
use super::protocol::{advertised, probe_key};

const BEFORE_LOGIN: [i16; 3] = [17, 18, 36];

pub(crate) fn log_in(
    raw: &mut Raw,
    mechanism: &str,
    who: (&str, &str),
) -> SaslAuthenticateResponse {
    assert_eq!(handshake(raw, mechanism).error_code, codes::NONE);
    if mechanism == "PLAIN" {
        return token(raw, &plain(who));
    }
    let scram = Scram::new(mechanism, who);
    let first = token(raw, &scram.first());
    assert_eq!(first.error_code, codes::NONE, "{first:?}");
    let (last, expected) = scram.last(&first.auth_bytes);
    let done = token(raw, &last);
    if done.error_code == codes::NONE {
        assert_eq!(
            done.auth_bytes, expected,
            "the broker proves that it knows the keys"
        );
    }
    done
}

const SHA_256: i8 = 1;
const SHA_512: i8 = 2;

/// Adds a user whose password nobody has.
fn add_user(guarded: &Guarded, name: &str, mechanism: i8, rounds: i32) {
    let mut one = alter_user_scram_credentials_request::ScramCredentialUpsertion::default();
    one.name = name.into();
    one.mechanism = mechanism;
    one.iterations = rounds;
    one.salt = Bytes::from_static(b"a1b2c3d4e5f6g7h8i9j0k1l2");
    let bytes = if mechanism == SHA_256 { 32 } else { 64 };
    one.salted_password = Bytes::from(vec![7; bytes]);
    let mut request = AlterUserScramCredentialsRequest::default();
    request.upsertions = vec![one];
    let mut raw = guarded.broker.connect();
    let answer = raw.call::<AlterUserScramCredentialsRequest>(0, &request);
    assert_eq!(answer.results[0].error_code, codes::NONE);
}

fn must_fail(raw: &mut Raw, answer: &SaslAuthenticateResponse, words: &str) {
    assert_eq!(answer.error_code, codes::SASL_AUTHENTICATION_FAILED);
    assert!(answer.auth_bytes.is_empty());
    let message = answer.error_message.as_ref().expect("a message").as_str();
    assert!(message.contains(words), "{message}");
    raw.expect_closed(words);
}

#[test]
fn nothing_but_versions_and_logins_is_answered_before_a_login() {
    let guarded = Guarded::start(&[]);
    let keys = advertised(&mut guarded.connect());
    assert!(keys.len() > 40);
    for (key, min, max) in keys {
        let version = if key == 0 { max } else { min };
        let answer = probe_key(&mut guarded.connect(), key, version);
        assert_eq!(
            answer.is_some(),
            BEFORE_LOGIN.contains(&key),
            "key {key}: {answer:?}"
        );
    }
}

#[test]
fn each_mechanism_logs_in_and_a_wrong_password_or_user_is_refused_alike() {
    let guarded = Guarded::start(&[]);
    for (mechanism, words) in [
        (
            "PLAIN",
            "Authentication failed: Invalid username or password",
        ),
        (
            "SCRAM-SHA-256",
            "invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
        (
            "SCRAM-SHA-512",
            "invalid credentials with SASL mechanism SCRAM-SHA-512",
        ),
    ] {
        let mut raw = guarded.connect();
        let done = log_in(&mut raw, mechanism, ALICE);
        assert_eq!(done.error_code, codes::NONE, "{mechanism}: {done:?}");
        assert_eq!(done.session_lifetime_ms, 0, "without an end");
        assert!(may_ask_for_metadata(&mut raw), "{mechanism}");
        for who in [("alice", BOB.1), ("nobody", "x"), ("alice", ""), ("", "x")] {
            if mechanism != "PLAIN" && who.0.is_empty() {
                continue;
            }
            let mut raw = guarded.connect();
            let answer = log_in(&mut raw, mechanism, who);
            let words = if who.0.is_empty() || (mechanism == "PLAIN" && who.1.is_empty()) {
                "not specified"
            } else {
                words
            };
            must_fail(&mut raw, &answer, words);
        }
    }
    let secrets = [ALICE.1, BOB.1];
    let log = guarded.broker.log();
    assert!(secrets.iter().all(|secret| !log.contains(secret)), "{log}");
}

#[test]
fn an_unknown_user_looks_like_a_known_one_until_the_proof() {
    let guarded = Guarded::start(&[]);
    // As kafka-configs adds one: a salt of text, and more rounds than the others have.
    add_user(&guarded, "carol", SHA_256, 8192);
    let first = |mechanism: &str, user: &str| {
        let mut raw = guarded.begun(mechanism);
        let scram = Scram::new(mechanism, (user, "x"));
        let answer = token(&mut raw, &scram.first());
        assert_eq!(answer.error_code, codes::NONE, "{user}");
        server_fields(&answer.auth_bytes)
    };
    let form = |(_, salt, rounds): &(String, Vec<u8>, u32)| {
        let as_text = salt.iter().all(u8::is_ascii_alphanumeric);
        (salt.len(), as_text, *rounds)
    };
    let known = ["alice", "carol"].map(|user| form(&first("SCRAM-SHA-256", user)));
    assert_eq!(known, [(16, false, 4096), (24, true, 8192)]);
    let mut seen = HashSet::new();
    for n in 0..200 {
        let name = format!("nobody-{n}");
        let unknown = first("SCRAM-SHA-256", &name);
        let again = first("SCRAM-SHA-256", &name);
        assert_eq!(
            (&unknown.1, unknown.2),
            (&again.1, again.2),
            "stays the same"
        );
        assert_ne!(unknown.0, again.0, "another nonce each time");
        assert!(known.contains(&form(&unknown)), "resembles a known one");
        let other = first("SCRAM-SHA-512", &name).1;
        assert_ne!(
            other[..8],
            unknown.1[..8],
            "each mechanism has salts of its own"
        );
        seen.insert(form(&unknown));
    }
    assert_eq!(seen.len(), 2, "not all resemble the same one");
    let salt = |user| first("SCRAM-SHA-256", user).1[..8].to_vec();
    assert_ne!(
        salt("nobody"),
        salt("somebody"),
        "each name has a salt of its own"
    );
}

#[test]
fn tokens_of_strangers_hold_up_nobody_else_and_do_not_pile_up() {
    const STRANGERS: usize = 1_000;
    let guarded = Guarded::start(&[("connection.failed.authentication.delay.ms", "0")]);
    // Each of these tokens costs as much as there is to ask for.
    add_user(&guarded, "slow", SHA_512, 16_384);
    let mut strangers: Vec<Raw> = (0..STRANGERS).map(|_| guarded.begun("PLAIN")).collect();
    let mut other = guarded.broker.connect();
    let mut request = SaslAuthenticateRequest::default();
    request.auth_bytes = plain(("slow", "wrong")).into();
    for raw in &mut strangers {
        raw.send(2, &request);
    }
    // A join is answered by the pool of joins while tokens wait.
    let joined = other.call::<JoinGroupRequest>(5, &JoinGroupRequest::default());
    assert_eq!(joined.error_code, codes::INVALID_GROUP_ID);
    let waits = |raw: &mut Raw| {
        raw.patience(Duration::from_millis(1));
        let peeked = raw.stream().peek(&mut [0]);
        raw.patience(SOON);
        peeked.is_err()
    };
    let waiting = strangers
        .iter_mut()
        .map(waits)
        .filter(|waits| *waits)
        .count();
    assert!(waiting > 0, "all strangers were answered before");
    let mut answers = strangers.iter_mut().map(Raw::read_frame);
    let answered = answers.by_ref().filter(Option::is_some).count();
    assert!(
        answered >= 512,
        "{answered} were answered: as many may wait"
    );
    assert!(
        answered < STRANGERS,
        "the rest was closed without an answer"
    );
    let mut raw = guarded.connect();
    assert_eq!(log_in(&mut raw, "PLAIN", ALICE).error_code, codes::NONE);
}

#[test]
fn no_limit_of_clients_is_about_those_who_have_not_logged_in() {
    let guarded = Guarded::start(&[("quota.window.num", "2")]);
    let mut entry = alter_client_quotas_request::EntryData::default();
    let mut part = alter_client_quotas_request::EntityData::default();
    part.entity_type = "client-id".into();
    part.entity_name = None; // the default of all
    entry.entity = vec![part];
    let mut op = alter_client_quotas_request::OpData::default();
    op.key = "request_percentage".into();
    op.value = 0.000_1;
    entry.ops = vec![op];
    let mut request = AlterClientQuotasRequest::default();
    request.entries = vec![entry];
    let altered = guarded
        .broker
        .connect()
        .call::<AlterClientQuotasRequest>(1, &request);
    assert_eq!(altered.entries[0].error_code, codes::NONE);
    let throttled = |raw: &mut Raw| {
        let mut ask = || raw.call::<ApiVersionsRequest>(3, &ApiVersionsRequest::default());
        (0..5).map(|_| ask().throttle_time_ms).sum::<i32>()
    };
    let mut raw = guarded.connect();
    assert_eq!(throttled(&mut raw), 0, "nobody's");
    assert_eq!(log_in(&mut raw, "PLAIN", ALICE).error_code, codes::NONE);
    assert!(throttled(&mut raw) > 0, "alice's");
}

#[test]
fn an_unknown_mechanism_is_told_the_known_ones_and_closed() {
    let guarded = Guarded::start(&[]);
    for mechanism in ["GSSAPI", "OAUTHBEARER", "plain", ""] {
        let mut raw = guarded.connect();
        let answer = handshake(&mut raw, mechanism);
        assert_eq!(answer.error_code, codes::UNSUPPORTED_SASL_MECHANISM);
        let names: Vec<&str> = answer.mechanisms.iter().map(|name| name.as_str()).collect();
        assert_eq!(names, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]);
        raw.expect_closed(mechanism);
    }
}

#[test]
fn what_comes_out_of_turn_ends_the_connection() {
    let guarded = Guarded::start(&[]);
    let mut raw = guarded.begun("PLAIN");
    assert_eq!(
        handshake(&mut raw, "PLAIN").error_code,
        codes::ILLEGAL_SASL_STATE
    );
    raw.expect_closed("a second handshake");

    let mut raw = guarded.connect();
    assert_eq!(
        token(&mut raw, &plain(ALICE)).error_code,
        codes::ILLEGAL_SASL_STATE
    );
    raw.expect_closed("a token before the handshake");

    let mut raw = guarded.begun("SCRAM-SHA-256");
    assert!(!may_ask_for_metadata(&mut raw), "a request within a login");

    for message in [
        b"".as_slice(),
        b"\0\0\0\0",
        b"n,,n=alice",
        &[0xff; 100],
        b"p=x,,n=a,r=b",
    ] {
        for mechanism in ["PLAIN", "SCRAM-SHA-256"] {
            let mut raw = guarded.begun(mechanism);
            let answer = token(&mut raw, message);
            assert_eq!(
                answer.error_code,
                codes::SASL_AUTHENTICATION_FAILED,
                "{message:?}"
            );
            raw.expect_closed(mechanism);
        }
    }
}

#[test]
fn where_no_login_is_asked_for_none_is_taken_and_the_connection_stays() {
    let guarded = Guarded::start(&[]);
    let mut raw = guarded.broker.connect();
    assert_eq!(
        handshake(&mut raw, "PLAIN").error_code,
        codes::ILLEGAL_SASL_STATE
    );
    assert_eq!(
        token(&mut raw, &plain(ALICE)).error_code,
        codes::ILLEGAL_SASL_STATE
    );
    assert!(may_ask_for_metadata(&mut raw));
    // Nor a second login where one never ends.
    let mut raw = guarded.connect();
    assert_eq!(log_in(&mut raw, "PLAIN", ALICE).error_code, codes::NONE);
    assert_eq!(
        handshake(&mut raw, "PLAIN").error_code,
        codes::ILLEGAL_SASL_STATE
    );
    assert!(may_ask_for_metadata(&mut raw));
}

#[test]
fn tokens_without_headers_follow_version_0_of_the_handshake() {
    let guarded = Guarded::start(&[]);
    let begun = |mechanism: &str| {
        let mut raw = guarded.connect();
        let mut request = SaslHandshakeRequest::default();
        request.mechanism = mechanism.into();
        let answer = raw.call::<SaslHandshakeRequest>(0, &request);
        assert_eq!(answer.error_code, codes::NONE);
        raw
    };
    let mut raw = begun("PLAIN");
    raw.send_frame(&plain(ALICE));
    assert_eq!(raw.read_frame().as_deref(), Some(&[][..]), "an empty frame");
    assert!(may_ask_for_metadata(&mut raw));

    let mut raw = begun("SCRAM-SHA-512");
    let scram = Scram::new("SCRAM-SHA-512", BOB);
    raw.send_frame(&scram.first());
    let (last, expected) = scram.last(&raw.read_frame().expect("the broker's first message"));
    raw.send_frame(&last);
    assert_eq!(raw.read_frame().as_deref(), Some(&expected[..]));
    assert!(may_ask_for_metadata(&mut raw));

    for bad in [plain(("alice", "wrong")), Vec::new(), vec![1]] {
        let mut raw = begun("PLAIN");
        raw.send_frame(&bad);
        raw.expect_closed("a bad token without a header");
    }
}

#[test]
fn a_login_that_ends_is_repeated_by_the_same_user_or_the_connection_ends() {
    let guarded = Guarded::start(&[("connections.max.reauth.ms", "3600000")]);
    let mut raw = guarded.connect();
    let done = log_in(&mut raw, "PLAIN", ALICE);
    assert_eq!(done.session_lifetime_ms, 3_600_000);
    assert!(may_ask_for_metadata(&mut raw));
    assert_eq!(
        log_in(&mut raw, "PLAIN", ALICE).error_code,
        codes::NONE,
        "once more"
    );
    assert!(may_ask_for_metadata(&mut raw));
    let at_once = handshake(&mut raw, "PLAIN");
    assert_eq!(
        at_once.error_code,
        codes::ILLEGAL_SASL_STATE,
        "not all the time"
    );
    assert!(may_ask_for_metadata(&mut raw));

    let mut raw = guarded.connect();
    log_in(&mut raw, "PLAIN", ALICE);
    let answer = log_in(&mut raw, "PLAIN", BOB);
    must_fail(&mut raw, &answer, "Cannot change principals");

    let mut raw = guarded.connect();
    log_in(&mut raw, "PLAIN", ALICE);
    assert_eq!(handshake(&mut raw, "SCRAM-SHA-256").error_code, codes::NONE);
    let answer = token(&mut raw, b"n,,n=alice,r=x");
    must_fail(
        &mut raw,
        &answer,
        "not supported for re-authentication of mechanism 'PLAIN'",
    );

    let mut raw = guarded.connect();
    log_in(&mut raw, "PLAIN", ALICE);
    handshake(&mut raw, "PLAIN");
    assert!(
        !may_ask_for_metadata(&mut raw),
        "a request within a second login"
    );
}

#[test]
fn a_login_that_ran_out_closes_the_connection_at_its_next_request() {
    let guarded = Guarded::start(&[
        ("connections.max.reauth.ms", "3600000"),
        (
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms",
            "300",
        ),
    ]);
    let mut short = guarded.connect();
    assert_eq!(log_in(&mut short, "PLAIN", ALICE).session_lifetime_ms, 300);
    let mut long = guarded.connect();
    let lifetime = log_in(&mut long, "SCRAM-SHA-256", ALICE).session_lifetime_ms;
    assert_eq!(
        lifetime, 3_600_000,
        "a mechanism may have a time of its own"
    );
    wait::until("the login runs out", SOON, || {
        !may_ask_for_metadata(&mut short)
    });
    assert!(may_ask_for_metadata(&mut long));
}

#[test]
fn an_answer_that_is_held_back_holds_nobody_else() {
    let guarded = Guarded::start(&[("connection.failed.authentication.delay.ms", "60000")]);
    let mut held: Vec<Raw> = (0..40)
        .map(|_| {
            let mut raw = guarded.begun("PLAIN");
            let mut request = SaslAuthenticateRequest::default();
            request.auth_bytes = plain(("alice", "wrong")).into();
            raw.send(2, &request);
            raw
        })
        .collect();
    let mut raw = guarded.connect();
    assert_eq!(log_in(&mut raw, "PLAIN", ALICE).error_code, codes::NONE);
    assert!(may_ask_for_metadata(&mut raw));
    let first = held.first_mut().expect("one");
    first
        .stream()
        .set_read_timeout(Some(Duration::from_millis(1)))
        .expect("a timeout");
    let mut one = [0];
    let early = std::io::Read::read(&mut first.stream(), &mut one);
    assert!(early.is_err(), "the answer is held back: {early:?}");
    // Those who will not wait are gone before the broker stops.
    drop(held);
}

#[test]
fn a_stranger_may_not_send_much() {
    let guarded = Guarded::start(&[("sasl.server.max.receive.size", "2000")]);
    let mut raw = guarded.begun("PLAIN");
    raw.send_bytes(&2001_i32.to_be_bytes());
    raw.expect_closed("a frame above the limit before login");
    let mut raw = guarded.connect();
    assert_eq!(log_in(&mut raw, "PLAIN", ALICE).error_code, codes::NONE);
    let topics = vec!["a-topic-with-a-long-name"; 200];
    raw.send(9, &seawall_testkit::requests::metadata(9, &topics));
    assert!(raw.read_frame().is_some(), "after login it may");
}
