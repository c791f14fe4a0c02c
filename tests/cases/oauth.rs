//! OAUTHBEARER: which tokens open the door, and that keys are read again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use seawall_testkit::Raw;
use seawall_testkit::kafka_wire::SaslAuthenticateResponse;
use seawall_testkit::wait::{self, SOON};

use super::codes;
use super::logins::{Guarded, handshake, may_ask_for_metadata, token};

/// Somebody who issues tokens.
struct Issuer {
    id: &'static str,
    key: Ed25519KeyPair,
}

impl Issuer {
    fn new(id: &'static str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let key = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key");
        Self { id, key }
    }

    fn jwk(&self) -> String {
        let x = BASE64URL.encode(self.key.public_key());
        let id = self.id;
        format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"{id}","use":"sig","x":"{x}"}}"#)
    }

    fn token(&self, claims: &str) -> String {
        let id = self.id;
        let header = format!(r#"{{"alg":"EdDSA","kid":"{id}"}}"#);
        let signed = unsigned(&header, claims);
        let signature = BASE64URL.encode(self.key.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

fn unsigned(header: &str, claims: &str) -> String {
    format!("{}.{}", BASE64URL.encode(header), BASE64URL.encode(claims))
}

fn write_keys(path: &Path, issuers: &[&Issuer]) {
    let keys: Vec<String> = issuers.iter().map(|issuer| issuer.jwk()).collect();
    let unknown = r#"{"kty":"future","kid":"new"}"#;
    let text = format!(r#"{{"keys":[{unknown},{}]}}"#, keys.join(","));
    let temp = path.with_extension("new");
    fs::write(&temp, text).expect("write the keys");
    fs::rename(&temp, path).expect("put the keys in place");
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

struct Place {
    guarded: Guarded,
    keys: PathBuf,
    _dir: tempfile::TempDir,
}

fn place(issuers: &[&Issuer]) -> Place {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = dir.path().join("jwks.json");
    write_keys(&keys, issuers);
    let guarded = Guarded::start(&[
        ("sasl.enabled.mechanisms", "OAUTHBEARER"),
        (
            "sasl.oauthbearer.jwks.endpoint.url",
            &format!("file://{}", keys.display()),
        ),
        ("sasl.oauthbearer.expected.issuer", "https://issuer"),
        ("sasl.oauthbearer.expected.audience", "kafka,other"),
        ("sasl.oauthbearer.clock.skew.seconds", "5"),
    ]);
    Place {
        guarded,
        keys,
        _dir: dir,
    }
}

fn show(place: &Place, jwt: &str) -> (Raw, SaslAuthenticateResponse) {
    let mut raw = place.guarded.connect();
    assert_eq!(handshake(&mut raw, "OAUTHBEARER").error_code, codes::NONE);
    let answer = token(
        &mut raw,
        format!("n,,\u{1}auth=Bearer {jwt}\u{1}\u{1}").as_bytes(),
    );
    (raw, answer)
}

/// RFC 7628: the refusal is a message of the exchange; the client acknowledges it and is told again.
#[track_caller]
fn must_refuse(place: &Place, what: &str, jwt: &str) {
    let (mut raw, answer) = show(place, jwt);
    assert_eq!(answer.error_code, codes::NONE, "{what}");
    assert_eq!(
        &answer.auth_bytes[..],
        br#"{"status":"invalid_token"}"#,
        "{what}"
    );
    let last = token(&mut raw, &[1]);
    assert_eq!(last.error_code, codes::SASL_AUTHENTICATION_FAILED, "{what}");
    raw.expect_closed(what);
}

fn good_claims(sub: &str, expires_s: u64) -> String {
    let now = now_s();
    format!(
        r#"{{"sub":"{sub}","iss":"https://issuer","aud":["kafka"],"iat":{now},"exp":{expires_s}}}"#
    )
}

#[test]
fn a_good_token_logs_in_for_as_long_as_it_holds() {
    let issuer = Issuer::new("one");
    let place = place(&[&issuer]);
    let (mut raw, answer) = show(&place, &issuer.token(&good_claims("alice", now_s() + 600)));
    assert_eq!(answer.error_code, codes::NONE);
    assert!(answer.auth_bytes.is_empty(), "{answer:?}");
    let lifetime = answer.session_lifetime_ms;
    assert!((500_000..=600_000).contains(&lifetime), "{lifetime}");
    assert!(may_ask_for_metadata(&mut raw));
}

#[test]
fn a_token_that_is_forged_expired_or_meant_for_others_is_refused() {
    let (issuer, stranger) = (Issuer::new("one"), Issuer::new("one"));
    let place = place(&[&issuer]);
    let later = now_s() + 600;
    let good = good_claims("alice", later);
    let without = |key: &str| {
        let mut fields: Vec<&str> = good.trim_matches(['{', '}']).split(",\"").collect();
        fields.retain(|field| !field.trim_start_matches('"').starts_with(key));
        format!("{{{}}}", fields.join(",\""))
    };
    must_refuse(&place, "another key", &stranger.token(&good));
    must_refuse(
        &place,
        "expired",
        &issuer.token(&good_claims("alice", now_s() - 60)),
    );
    must_refuse(&place, "without an end", &issuer.token(&without("exp")));
    must_refuse(&place, "without an issuer", &issuer.token(&without("iss")));
    must_refuse(
        &place,
        "without an audience",
        &issuer.token(&without("aud")),
    );
    must_refuse(
        &place,
        "another issuer",
        &issuer.token(&good.replace("https://issuer", "https://x")),
    );
    must_refuse(
        &place,
        "another audience",
        &issuer.token(&good.replace("kafka", "x")),
    );
    must_refuse(&place, "nobody", &issuer.token(&good_claims("", later)));
    let none = format!("{}.", unsigned(r#"{"alg":"none"}"#, &good));
    must_refuse(&place, "no signature", &none);
    let signed = unsigned(r#"{"alg":"HS256","kid":"one"}"#, &good);
    let key = hmac::Key::new(hmac::HMAC_SHA256, issuer.key.public_key().as_ref());
    let tag = BASE64URL.encode(hmac::sign(&key, signed.as_bytes()));
    must_refuse(
        &place,
        "the public key as a secret",
        &format!("{signed}.{tag}"),
    );
    let mut changed = issuer.token(&good);
    let at = changed.len() - 10;
    let other = if &changed[at..=at] == "A" { "B" } else { "A" };
    changed.replace_range(at..=at, other);
    must_refuse(&place, "another signature", &changed);
    must_refuse(&place, "garbage", "a.b.c");
    let mut raw = place.guarded.connect();
    assert_eq!(handshake(&mut raw, "OAUTHBEARER").error_code, codes::NONE);
    let jwt = issuer.token(&good);
    let for_bob = format!("n,a=bob,\u{1}auth=Bearer {jwt}\u{1}\u{1}");
    let answer = token(&mut raw, for_bob.as_bytes());
    assert!(!answer.auth_bytes.is_empty(), "it acts for another user");
}

#[test]
fn keys_are_read_again_and_bad_ones_do_not_replace_good_ones() {
    let (old, new) = (Issuer::new("old"), Issuer::new("new"));
    let place = place(&[&old]);
    let hang_up = || {
        let pid = i32::try_from(place.guarded.broker.pid()).expect("a pid");
        kill(Pid::from_raw(pid), Signal::SIGHUP).expect("send SIGHUP");
    };
    let opens = |issuer: &Issuer| {
        let (_, answer) = show(&place, &issuer.token(&good_claims("alice", now_s() + 600)));
        answer.auth_bytes.is_empty()
    };
    assert!(opens(&old) && !opens(&new));
    write_keys(&place.keys, &[&new]);
    hang_up();
    wait::until("the new key is known", SOON, || opens(&new));
    assert!(!opens(&old), "the old one is gone");
    fs::write(&place.keys, "{}").expect("write");
    hang_up();
    wait::until("it says so", SOON, || {
        place
            .guarded
            .broker
            .log()
            .contains("the keys of before stay")
    });
    assert!(opens(&new));
}
