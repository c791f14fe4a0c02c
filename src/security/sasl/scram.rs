//! SCRAM by RFC 5802 and RFC 7677: keys of passwords, and the server's side of an exchange.
//!
//! Owns:     every byte of the messages, the comparison of proofs.
//! Does not: know users; the credential of whoever logs in is handed in.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq;

/// The fewest rounds that Kafka accepts.
pub(crate) const ITERATIONS_MIN: u32 = 4096;
/// The most rounds that Kafka accepts.
pub(crate) const ITERATIONS_MAX: u32 = 16_384;
/// Bytes of a nonce of ours before they are text.
const NONCE_BYTES: usize = 24;
/// Longest nonce of a client; those of clients have some thirty characters.
const NONCE_CHARS_MAX: usize = 512;

/// The hash that a SCRAM mechanism is built on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Hash {
    /// SCRAM-SHA-256
    Sha256,
    /// SCRAM-SHA-512
    Sha512,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    /// Bytes of a key.
    pub(crate) fn len(self) -> usize {
        match self {
            Hash::Sha256 => digest::SHA256_OUTPUT_LEN,
            Hash::Sha512 => digest::SHA512_OUTPUT_LEN,
        }
    }

    fn mac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        let key = hmac::Key::new(self.hmac(), key);
        hmac::sign(&key, message).as_ref().to_vec()
    }

    /// `Hi` of RFC 5802: the slow step.
    pub(crate) fn salted_password(
        self,
        password: &[u8],
        salt: &[u8],
        rounds: NonZeroU32,
    ) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut salted = vec![0; self.len()];
        pbkdf2::derive(algorithm, rounds, salt, password, &mut salted);
        salted
    }
}

/// What is kept of a password: nobody can log in with it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: NonZeroU32,
    pub(crate) stored_key: Vec<u8>,
    pub(crate) server_key: Vec<u8>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({} iterations)", self.iterations)
    }
}

impl Credential {
    /// Of a salted password, as kafka-configs sends it.
    pub(crate) fn of_salted(
        hash: Hash,
        salted: &[u8],
        salt: Vec<u8>,
        iterations: NonZeroU32,
    ) -> Self {
        let client_key = hash.mac(salted, b"Client Key");
        Self {
            salt,
            iterations,
            stored_key: hash.digest(&client_key),
            server_key: hash.mac(salted, b"Server Key"),
        }
    }

    /// Of a password. Slow, by intent.
    pub(crate) fn of_password(
        hash: Hash,
        password: &[u8],
        salt: Vec<u8>,
        iterations: NonZeroU32,
    ) -> Self {
        let salted = hash.salted_password(password, &salt, iterations);
        Self::of_salted(hash, &salted, salt, iterations)
    }

    /// Whether it is the one of this password. Slow, and as slow for a wrong one.
    pub(crate) fn has_password(&self, hash: Hash, password: &[u8]) -> bool {
        let salted = hash.salted_password(password, &self.salt, self.iterations);
        let stored = hash.digest(&hash.mac(&salted, b"Client Key"));
        stored.ct_eq(&self.stored_key).into()
    }
}

/// Bytes that nobody can guess.
///
/// # Errors
/// The system has none.
pub(crate) fn random(bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut random = vec![0; bytes];
    let filled = SystemRandom::new().fill(&mut random);
    filled.map_err(|_| std::io::Error::other("the system gives no random bytes"))?;
    Ok(random)
}

/// Why an exchange ended. The client's fault, but for `Random`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScramError {
    /// A message that is not of the form.
    Malformed,
    /// It wants to act for another user.
    OtherAuthorization,
    /// No such user, or another password: nobody is told which.
    WrongProof,
    /// The system gives no random bytes.
    Random,
}

/// What a client's first message says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientFirst {
    pub(crate) user: String,
    nonce: String,
    gs2_header: String,
    /// The message behind that header: the proof covers it.
    bare: String,
}

impl ClientFirst {
    /// `n,,n=user,r=nonce` with more fields behind.
    pub(crate) fn parse(message: &[u8]) -> Result<Self, ScramError> {
        let text = std::str::from_utf8(message).map_err(|_| ScramError::Malformed)?;
        let mut parts = text.splitn(3, ',');
        let (flag, authzid, bare) = (parts.next(), parts.next(), parts.next());
        let (Some("n" | "y"), Some(authzid), Some(bare)) = (flag, authzid, bare) else {
            return Err(ScramError::Malformed);
        };
        let mut fields = bare.split(',');
        let user = fields.next().and_then(|field| field.strip_prefix("n="));
        let nonce = fields.next().and_then(|field| field.strip_prefix("r="));
        let user = user.and_then(user_name).ok_or(ScramError::Malformed)?;
        let nonce = nonce
            .filter(|nonce| is_nonce(nonce))
            .ok_or(ScramError::Malformed)?;
        if !authzid.is_empty() {
            let named = authzid.strip_prefix("a=").and_then(user_name);
            let named = named.ok_or(ScramError::Malformed)?;
            if named != user {
                return Err(ScramError::OtherAuthorization);
            }
        }
        Ok(Self {
            nonce: nonce.to_owned(),
            gs2_header: text[..text.len() - bare.len()].to_owned(),
            bare: bare.to_owned(),
            user,
        })
    }
}

/// `=2C` and `=3D` stand for ',' and '='; no other '=' may stand in a name.
fn user_name(text: &str) -> Option<String> {
    let name = text.replace("=2C", ",").replace("=3D", "\u{0}");
    let known = !name.contains('=') && !name.is_empty() && !text.contains('\u{0}');
    known.then(|| name.replace('\u{0}', "="))
}

fn is_nonce(text: &str) -> bool {
    (1..=NONCE_CHARS_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// An exchange that waits for the client's proof.
pub(crate) struct Exchange {
    hash: Hash,
    credential: Credential,
    nonce: String,
    gs2_header: String,
    /// Both first messages, as the proof covers them.
    messages: String,
}

impl Exchange {
    /// Begins; gives the server's first message.
    pub(crate) fn begin(
        hash: Hash,
        first: &ClientFirst,
        credential: Credential,
    ) -> Result<(Self, Vec<u8>), ScramError> {
        let ours = random(NONCE_BYTES).map_err(|_| ScramError::Random)?;
        Ok(Self::begin_with(
            hash,
            first,
            credential,
            &BASE64.encode(ours),
        ))
    }

    fn begin_with(
        hash: Hash,
        first: &ClientFirst,
        credential: Credential,
        ours: &str,
    ) -> (Self, Vec<u8>) {
        let nonce = format!("{}{ours}", first.nonce);
        let salt = BASE64.encode(&credential.salt);
        let message = format!("r={nonce},s={salt},i={}", credential.iterations);
        let exchange = Self {
            hash,
            credential,
            nonce,
            gs2_header: first.gs2_header.clone(),
            messages: format!("{},{message}", first.bare),
        };
        (exchange, message.into_bytes())
    }

    /// Checks the client's proof; gives ours.
    pub(crate) fn finish(self, message: &[u8]) -> Result<Vec<u8>, ScramError> {
        let text = std::str::from_utf8(message).map_err(|_| ScramError::Malformed)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let proof = BASE64.decode(proof).map_err(|_| ScramError::Malformed)?;
        let mut fields = without_proof.split(',');
        let binding = fields.next().and_then(|field| field.strip_prefix("c="));
        let nonce = fields.next().and_then(|field| field.strip_prefix("r="));
        let binding = binding.and_then(|text| BASE64.decode(text).ok());
        if binding.as_deref() != Some(self.gs2_header.as_bytes())
            || nonce != Some(self.nonce.as_str())
        {
            return Err(ScramError::Malformed);
        }
        let covered = format!("{},{without_proof}", self.messages);
        let signature = self
            .hash
            .mac(&self.credential.stored_key, covered.as_bytes());
        if proof.len() != signature.len() {
            return Err(ScramError::WrongProof);
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let stored = self.hash.digest(&client_key);
        if !bool::from(stored.ct_eq(&self.credential.stored_key)) {
            return Err(ScramError::WrongProof);
        }
        let ours = self
            .hash
            .mac(&self.credential.server_key, covered.as_bytes());
        Ok(format!("v={}", BASE64.encode(ours)).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_exchange_of_rfc_7677_comes_out_as_it_stands_there() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let rounds = NonZeroU32::new(4096).unwrap();
        let credential = Credential::of_password(Hash::Sha256, b"pencil", salt, rounds);
        let first = ClientFirst::parse(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
        let ours = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let (exchange, message) = Exchange::begin_with(Hash::Sha256, &first, credential, ours);
        assert_eq!(
            message,
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = exchange.finish(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
              p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        );
        assert_eq!(
            last.unwrap(),
            b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
    }

    #[test]
    fn another_password_nonce_or_binding_is_refused() {
        let rounds = NonZeroU32::new(4096).unwrap();
        let credential = Credential::of_password(Hash::Sha512, b"right", vec![1; 16], rounds);
        assert!(credential.has_password(Hash::Sha512, b"right"));
        assert!(!credential.has_password(Hash::Sha512, b"wrong"));
        let first = ClientFirst::parse(b"n,a=u,n=u,r=abc").unwrap();
        let finish = |message: &[u8]| {
            let (exchange, _) =
                Exchange::begin_with(Hash::Sha512, &first, credential.clone(), "xyz");
            exchange.finish(message).map(drop)
        };
        let zeros = BASE64.encode([0; 64]);
        let binding = BASE64.encode("n,a=u,");
        let with = |c: &str, r: &str, p: &str| format!("c={c},r={r},p={p}").into_bytes();
        assert_eq!(
            finish(&with(&binding, "abcxyz", &zeros)),
            Err(ScramError::WrongProof)
        );
        assert_eq!(
            finish(&with(&binding, "abcxyz", "AAAA")),
            Err(ScramError::WrongProof)
        );
        assert_eq!(
            finish(&with(&binding, "abc", &zeros)),
            Err(ScramError::Malformed)
        );
        assert_eq!(
            finish(&with("biws", "abcxyz", &zeros)),
            Err(ScramError::Malformed)
        );
        assert_eq!(finish(b"e=no"), Err(ScramError::Malformed));
    }

    #[test]
    fn first_messages_name_one_user_without_channel_binding() {
        let user = |message: &str| ClientFirst::parse(message.as_bytes()).map(|first| first.user);
        assert_eq!(user("n,,n=a=2Cb=3Dc,r=x"), Ok("a,b=c".to_owned()));
        assert_eq!(user("n,,n=u,r=x,tokenauth=true"), Ok("u".to_owned()));
        assert_eq!(user("n,a=v,n=u,r=x"), Err(ScramError::OtherAuthorization));
        for bad in [
            "",
            "n,,n=u",
            "n,,n=,r=x",
            "p=tls-unique,,n=u,r=x",
            "n,,n=a=b,r=x",
            "n,,r=x,n=u",
        ] {
            assert_eq!(user(bad), Err(ScramError::Malformed), "{bad}");
        }
    }
}
