//! What an unknown user looks like from outside.
//!
//! Owns:     whose credential an unknown name's resembles, and the bytes of its salt.
//! Does not: know users' keys, or check a password.
//!
//! # Invariants
//! K1. What is shown for a name depends on the secret, the name, the hash, and one of the credentials there are; it
//!     changes only when that one does, or a new one comes nearer.
//! K2. As many names resemble a credential as chance gives it, so that an unusual form tells nothing.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ring::hmac;

use super::credentials::{SALT_BYTES, UserKeys};
use super::sasl::scram::{Credential, Hash, ITERATIONS_MIN};

/// Places of each user on a circle: with one only, some would have next to no names of their own.
const PLACES: usize = 4;

/// What shows of a credential before a proof.
#[derive(Clone, Copy)]
struct Shape {
    hash: Hash,
    salt_bytes: usize,
    /// kafka-configs makes salts of digits and letters.
    as_text: bool,
    iterations: NonZeroU32,
}

/// Shapes on a circle, by what the secret makes of their users' names: a name resembles the one behind its own
/// place (K1, K2).
#[derive(Clone)]
struct Circle(Vec<(u64, Shape)>);

/// See the file comment.
#[derive(Clone)]
pub(super) struct Lookalikes {
    key: hmac::Key,
    sha256: Circle,
    sha512: Circle,
    /// What a password is checked with, of each user.
    plain: Circle,
}

impl Lookalikes {
    /// For these users.
    pub(super) fn of(secret: &[u8], users: &BTreeMap<String, UserKeys>) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA512, secret);
        let circle = |shape: &dyn Fn(&UserKeys) -> Option<Shape>| {
            let shapes = users.iter().flat_map(|(name, keys)| {
                let shape = shape(keys);
                let of_user = |shape| places(&key, name).map(|place| (place, shape));
                shape.into_iter().flat_map(of_user)
            });
            let mut shapes: Vec<_> = shapes.collect();
            shapes.sort_unstable_by_key(|(place, _)| *place);
            Circle(shapes)
        };
        let with = |hash: Hash| {
            circle(&move |keys: &UserKeys| keys.get(&hash).map(|one| Shape::of(hash, one)))
        };
        let first = |keys: &UserKeys| {
            keys.first_key_value()
                .map(|(hash, one)| Shape::of(*hash, one))
        };
        Self {
            sha256: with(Hash::Sha256),
            sha512: with(Hash::Sha512),
            plain: circle(&first),
            key,
        }
    }

    /// A credential for SCRAM that no password opens.
    pub(super) fn scram(&self, hash: Hash, name: &str) -> Credential {
        let circle = match hash {
            Hash::Sha256 => &self.sha256,
            Hash::Sha512 => &self.sha512,
        };
        self.credential(
            self.nearest(circle, name).unwrap_or(Shape::usual(hash)),
            name,
        )
    }

    /// A credential to check a password with, that none opens.
    pub(super) fn plain(&self, name: &str) -> (Hash, Credential) {
        let nearest = self.nearest(&self.plain, name);
        let shape = nearest.unwrap_or(Shape::usual(Hash::Sha256));
        (shape.hash, self.credential(shape, name))
    }

    fn nearest(&self, circle: &Circle, name: &str) -> Option<Shape> {
        let [own, ..] = places(&self.key, name);
        let behind = circle.0.partition_point(|(place, _)| *place < own);
        let found = circle.0.get(behind).or(circle.0.first());
        found.map(|(_, shape)| *shape)
    }

    fn credential(&self, shape: Shape, name: &str) -> Credential {
        let hash = shape.hash;
        let [salt, server_key] = match hash {
            Hash::Sha256 => ["salt SHA-256", "server key SHA-256"],
            Hash::Sha512 => ["salt SHA-512", "server key SHA-512"],
        };
        let seed = labelled(&self.key, salt, name);
        let bytes = seed.as_ref().iter().cycle().take(shape.salt_bytes).copied();
        Credential {
            salt: if shape.as_text {
                bytes.map(in_base_36).collect()
            } else {
                bytes.collect()
            },
            iterations: shape.iterations,
            stored_key: vec![0; hash.len()],
            server_key: labelled(&self.key, server_key, name).as_ref()[..hash.len()].to_vec(),
        }
    }
}

impl Shape {
    fn of(hash: Hash, credential: &Credential) -> Self {
        Self {
            hash,
            salt_bytes: credential.salt.len(),
            as_text: credential.salt.iter().all(u8::is_ascii_alphanumeric),
            iterations: credential.iterations,
        }
    }

    /// Where there is no credential to resemble: with the rounds that kafka-configs asks for by default.
    fn usual(hash: Hash) -> Self {
        Self {
            hash,
            salt_bytes: SALT_BYTES,
            as_text: false,
            iterations: NonZeroU32::new(ITERATIONS_MIN).unwrap_or(NonZeroU32::MIN),
        }
    }
}

/// Bytes of their own for each purpose.
fn labelled(key: &hmac::Key, label: &str, name: &str) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(label.as_bytes());
    context.update(&[0]);
    context.update(name.as_bytes());
    context.sign()
}

fn places(key: &hmac::Key, name: &str) -> [u64; PLACES] {
    let tag = labelled(key, "place", name);
    let mut parts = tag.as_ref().chunks_exact(8);
    let mut next = || parts.next().and_then(|part| part.try_into().ok());
    std::array::from_fn(|_| u64::from_be_bytes(next().unwrap_or_default()))
}

fn in_base_36(byte: u8) -> u8 {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    DIGITS[usize::from(byte) % DIGITS.len()]
}
