//! OAUTHBEARER by RFC 7628: a signed token (JWT) in place of a password.
//!
//! Owns:     the form of the message, which keys may check which token, what a token must say.
//! Does not: fetch anything: keys come from a JWKS file on this machine.
//!
//! # Invariants
//! O1. A key checks only algorithms of its own kind, and none is symmetric: a token can be signed neither with nothing
//!     nor with a public key.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

use crate::config::Oauth;

/// Longest token that is looked at; those of the large identity providers have some kilobytes.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// A key of a JWKS file.
struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// Why a JWKS file cannot be used. The operator's fault; the keys of before stay.
#[derive(Debug)]
pub(crate) enum KeysError {
    /// It is not JSON with a list `keys`.
    NotJwks,
    /// It has no public key of RSA, of an elliptic curve or of Ed25519.
    NoKeys,
}

impl std::fmt::Display for KeysError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotJwks => "it is no JWKS: a JSON object with a list \"keys\" (RFC 7517)",
            Self::NoKeys => "it has no public key of RSA, P-256, P-384 or Ed25519 for signatures",
        })
    }
}

/// Whose token it was, and until when it holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) user: String,
    /// Milliseconds from now.
    pub(crate) lifetime_ms: u64,
}

/// Checks tokens of one listener.
pub(crate) struct Tokens {
    settings: Oauth,
    keys: ArcSwap<Vec<Key>>,
}

impl Tokens {
    /// With the keys of a JWKS file's text.
    pub(crate) fn new(settings: &Oauth, jwks: &[u8]) -> Result<Self, KeysError> {
        Ok(Self {
            settings: settings.clone(),
            keys: ArcSwap::new(Arc::new(keys_of(jwks)?)),
        })
    }

    /// Takes the keys of a file that has changed.
    pub(crate) fn replace(&self, jwks: &[u8]) -> Result<(), KeysError> {
        self.keys.store(Arc::new(keys_of(jwks)?));
        Ok(())
    }

    /// Checks the client's message; `None` where it or its token is not good.
    pub(crate) fn check(&self, message: &[u8]) -> Option<Bearer> {
        let (acts_for, token) = token_of(message)?;
        let header = decode_header(token).ok()?;
        let keys = self.keys.load();
        let fitting = keys.iter().filter(|key| {
            let same_id = header.kid.is_none() || header.kid == key.id;
            same_id && key.algorithms.contains(&header.alg)
        });
        let validation = self.validation(header.alg);
        let claims = fitting
            .filter_map(|key| decode::<Map<String, Value>>(token, &key.key, &validation).ok())
            .next()?
            .claims;
        let bearer = self.bearer(&claims)?;
        let for_itself = acts_for.is_empty() || acts_for == bearer.user;
        for_itself.then_some(bearer)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let settings = &self.settings;
        let mut validation = Validation::new(algorithm);
        validation.leeway = settings.clock_skew_s;
        validation.validate_nbf = true;
        let mut required = vec!["exp"];
        if let Some(issuer) = &settings.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        if settings.audience.is_empty() {
            validation.validate_aud = false;
        } else {
            validation.set_audience(&settings.audience);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        validation
    }

    fn bearer(&self, claims: &Map<String, Value>) -> Option<Bearer> {
        let user = claims.get(&self.settings.subject_claim)?.as_str()?.trim();
        let expires_s = claims.get("exp")?.as_f64()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        // Within the clock skew it may have ended already.
        let left = Duration::try_from_secs_f64(expires_s - now.as_secs_f64()).unwrap_or_default();
        let lifetime_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        (!user.is_empty()).then(|| Bearer {
            user: user.to_owned(),
            lifetime_ms,
        })
    }
}

/// For whom it wants to act, if not for its own user, and the token:
/// `gs2-header \x01 key=value \x01 ... \x01`, where one key is `auth`.
fn token_of(message: &[u8]) -> Option<(&str, &str)> {
    if message.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(message).ok()?;
    let mut parts = text.split('\u{1}');
    let header = parts.next()?;
    let acts_for = header.strip_prefix("n,")?.strip_suffix(',')?;
    let acts_for = acts_for.strip_prefix("a=").unwrap_or(acts_for);
    let auth = parts.find_map(|part| part.strip_prefix("auth="))?;
    let (kind, token) = auth.split_once(' ')?;
    kind.eq_ignore_ascii_case("bearer")
        .then(|| (acts_for, token.trim()))
}

fn keys_of(jwks: &[u8]) -> Result<Vec<Key>, KeysError> {
    let parsed: Value = serde_json::from_slice(jwks).map_err(|_| KeysError::NotJwks)?;
    let list = parsed.get("keys").and_then(Value::as_array);
    let list = list.ok_or(KeysError::NotJwks)?;
    // A key of a kind that is not known is not for us.
    let keys: Vec<Key> = list.iter().filter_map(key_of).collect();
    if keys.is_empty() {
        return Err(KeysError::NoKeys);
    }
    Ok(keys)
}

fn key_of(value: &Value) -> Option<Key> {
    if value
        .get("use")
        .and_then(Value::as_str)
        .is_some_and(|of| of != "sig")
    {
        return None;
    }
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    let mut algorithms = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => vec![
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
            vec![Algorithm::ES256]
        }
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P384 => {
            vec![Algorithm::ES384]
        }
        AlgorithmParameters::OctetKeyPair(_) => vec![Algorithm::EdDSA],
        _ => return None, // O1
    };
    if let Some(only) = jwk.common.key_algorithm {
        algorithms.retain(|algorithm| is_same(*algorithm, only));
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    (!algorithms.is_empty()).then_some(Key {
        id: jwk.common.key_id,
        algorithms,
        key,
    })
}

fn is_same(algorithm: Algorithm, named: KeyAlgorithm) -> bool {
    format!("{algorithm:?}") == named.to_string()
}
