//! PLAIN by RFC 4616: one message with everything in it.

use std::fmt;

/// What the message says.
pub(crate) struct PlainMessage<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
}

/// The password never shows.
impl fmt::Debug for PlainMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainMessage")
    }
}

/// Why a message cannot be used, in Kafka's words for the client.
pub(crate) type Refusal = &'static str;

impl<'a> PlainMessage<'a> {
    /// `authorization id NUL user NUL password`
    pub(crate) fn parse(message: &'a [u8]) -> Result<Self, Refusal> {
        const TOKENS: Refusal = "Invalid SASL/PLAIN response: expected 3 tokens";
        let text = std::str::from_utf8(message).map_err(|_| TOKENS)?;
        let mut tokens = text.split('\0');
        let (Some(acts_for), Some(user), Some(password), None) =
            (tokens.next(), tokens.next(), tokens.next(), tokens.next())
        else {
            return Err(TOKENS);
        };
        if user.is_empty() {
            return Err("Authentication failed: username not specified");
        }
        if password.is_empty() {
            return Err("Authentication failed: password not specified");
        }
        if !acts_for.is_empty() && acts_for != user {
            return Err(
                "Authentication failed: Client requested an authorization id that is different from username",
            );
        }
        Ok(Self { user, password })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_three_tokens_and_one_user() {
        let user = |message: &str| {
            let parsed = PlainMessage::parse(message.as_bytes());
            parsed.map(|parsed| (parsed.user.to_owned(), parsed.password.to_owned()))
        };
        assert_eq!(user("\0u\0p"), Ok(("u".to_owned(), "p".to_owned())));
        assert_eq!(user("u\0u\0p"), Ok(("u".to_owned(), "p".to_owned())));
        for bad in ["", "u\0p", "\0\0p", "\0u\0", "v\0u\0p", "\0u\0p\0x"] {
            assert!(user(bad).is_err(), "{bad:?}");
        }
    }
}
