//! Bytes as text: readable, on one line, and without loss.
//!
//! Owns:     the form: printable characters as they are, `\\` for a backslash, `\n \r \t`, `\xNN` for any other byte.
use serde::{Serialize, Serializer};
use std::fmt::{self, Write};

/// Shows and serializes bytes piece by piece, so that large ones take no memory.
#[derive(Clone, Copy)]
pub(super) struct Escaped<'a>(pub(super) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    c if is_printable(c) => f.write_char(c)?,
                    c => write_bytes(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                }
            }
            write_bytes(f, chunk.invalid())?;
        }
        Ok(())
    }
}

/// Neither a control character nor one that changes how the rest of the line is shown.
fn is_printable(c: char) -> bool {
    let reorders =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !reorders
}

fn write_bytes(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

impl Serialize for Escaped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_on_one_line_and_without_loss() {
        for (bytes, text) in [
            (&b"plain"[..], "plain"),
            ("Gr\u{fc}\u{df}e".as_bytes(), "Gr\u{fc}\u{df}e"),
            (b"a\nb\r\t\\x41", "a\\nb\\r\\t\\\\x41"),
            (
                &[0, 0x1b, 0x7f, 0xff, b'a', 0xc3],
                "\\x00\\x1b\\x7f\\xffa\\xc3",
            ),
            ("\u{202e}".as_bytes(), "\\xe2\\x80\\xae"),
            (b"", ""),
        ] {
            assert_eq!(Escaped(bytes).to_string(), text);
        }
        let json = serde_json::to_string(&Escaped(b"\"\\\xff")).unwrap();
        assert_eq!(json, r#""\"\\\\\\xff""#);
    }
}
