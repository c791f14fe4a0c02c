//! Messages of logins, read before anybody has shown who they are.

use std::num::NonZeroU32;

use crate::security::sasl::plain::PlainMessage;
use crate::security::sasl::scram::{ClientFirst, Credential, Exchange, Hash};

/// Stands in an input for the nonce of the exchange, which is another one each time.
const NONCE: &str = "NONCE";

/// The first byte says which message it is, the others are the message.
pub(crate) fn sasl(input: &[u8]) {
    let Some((kind, message)) = input.split_first() else {
        return;
    };
    match kind % 3 {
        0 => plain_message(message),
        1 => client_first(message),
        _ => client_final(message),
    }
}

fn plain_message(message: &[u8]) {
    if let Ok(said) = PlainMessage::parse(message) {
        assert!(!said.user.is_empty() && !said.password.is_empty());
    }
}

fn client_first(message: &[u8]) {
    if let Ok(first) = ClientFirst::parse(message) {
        assert!(!first.user.is_empty());
        begun(&first);
    }
}

/// Nobody guesses a proof.
fn client_final(message: &[u8]) {
    let first = ClientFirst::parse(b"n,,n=user,r=abc").expect("a good message");
    let (exchange, server) = begun(&first);
    let server = String::from_utf8(server).expect("text");
    let nonce = server.split(',').next().and_then(|r| r.strip_prefix("r="));
    let nonce = nonce.expect("a nonce");
    let message = match std::str::from_utf8(message) {
        Ok(text) => text.replace(NONCE, nonce).into_bytes(),
        Err(_) => message.to_vec(),
    };
    assert!(exchange.finish(&message).is_err());
}

fn begun(first: &ClientFirst) -> (Exchange, Vec<u8>) {
    let rounds = NonZeroU32::new(4096).expect("not 0");
    let credential = Credential::of_salted(Hash::Sha256, &[7; 32], vec![1; 16], rounds);
    Exchange::begin(Hash::Sha256, first, credential).expect("the system has random bytes")
}
