//! Reads the text format of java.util.Properties, as Kafka's configuration files are written.
//!
//! Owns:     comments, continued lines, escapes, and the line number of every key.
//! Does not: know any key. A key that stands twice is returned twice (in Kafka the last one counts).
//!
//! Source of the rules: the documentation of `java.util.Properties.load(Reader)`.
use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

/// One key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Unescaped.
    pub(crate) key: String,
    /// Unescaped; white space at its end is kept, as in Java.
    pub(crate) value: String,
    /// Where it begins, counted from 1.
    pub(crate) line: usize,
}

/// A text that Java would refuse, too. The file's fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadEscape {
    /// Where, counted from 1.
    pub(crate) line: usize,
}

impl fmt::Display for BadEscape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a \\u escape must be followed by four hexadecimal digits"
        )
    }
}

impl std::error::Error for BadEscape {}

/// The text of a file: UTF-8, or else Latin-1 as Java reads it.
pub(crate) fn decode(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// All keys of a file, in order.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, BadEscape> {
    let text = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    let mut entries = Vec::new();
    let mut lines = text.split('\n').enumerate();
    while let Some((at, first)) = lines.next() {
        let first = first.trim_start_matches(is_space);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = first.to_owned();
        while ends_in_odd_backslashes(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, more)) => logical.push_str(more.trim_start_matches(is_space)),
                None => break,
            }
        }
        entries.push(parse_line(&logical, at + 1)?);
    }
    Ok(entries)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

fn ends_in_odd_backslashes(line: &str) -> bool {
    line.chars().rev().take_while(|&c| c == '\\').count() % 2 == 1
}

fn parse_line(logical: &str, line: usize) -> Result<Entry, BadEscape> {
    let (key, value) = split_key(logical);
    let unescaped = |text| unescape(text).ok_or(BadEscape { line });
    Ok(Entry {
        key: unescaped(key)?,
        value: unescaped(value)?,
        line,
    })
}

/// The key ends at the first `=`, `:` or white space that is not escaped; one `=` or `:` after it is not the value's.
fn split_key(logical: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = logical
        .find(|c: char| {
            let ends = !escaped && (is_space(c) || c == '=' || c == ':');
            escaped = !escaped && c == '\\';
            ends
        })
        .unwrap_or(logical.len());
    let (key, rest) = logical.split_at(end);
    let rest = rest.trim_start_matches(is_space);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, value.trim_start_matches(is_space))
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            None => {}
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\u{c}'),
            Some('u') => out.push(unicode(&mut chars)?),
            Some(other) => out.push(other),
        }
    }
    Some(out)
}

/// The character of a `\uXXXX`, or of two that are a surrogate pair; half a pair becomes U+FFFD.
fn unicode(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    let first = four_digits(chars)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    let mut ahead = chars.clone();
    if ahead.next() == Some('\\') && ahead.next() == Some('u') {
        let second = four_digits(&mut ahead)?;
        if (0xdc00..0xe000).contains(&second) {
            *chars = ahead;
            return char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
        }
    }
    Some(char::REPLACEMENT_CHARACTER)
}

fn four_digits(chars: &mut Peekable<Chars<'_>>) -> Option<u32> {
    (0..4).try_fold(0, |value, _| Some(value * 16 + chars.next()?.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str, usize)]) {
        let got = parse(text).unwrap();
        let got: Vec<_> = got
            .iter()
            .map(|e| (e.key.as_str(), e.value.as_str(), e.line))
            .collect();
        assert_eq!(got, expected, "{text:?}");
    }

    #[test]
    fn a_file_means_what_java_reads_in_it() {
        check(
            "a=b\nc: d\n  e f\n",
            &[("a", "b", 1), ("c", "d", 2), ("e", "f", 3)],
        );
        check("# no\n! no\n\n \t\n a = # yes ", &[("a", "# yes ", 5)]);
        check("a=b\\\n   c\\\\\nd", &[("a", "bc\\", 1), ("d", "", 3)]);
        check("a=1\\\n# not a comment", &[("a", "1# not a comment", 1)]);
        check("a\\ b\\=c\\:d==x=y", &[("a b=c:d", "=x=y", 1)]);
        check("a=C:\\\\t\\temp", &[("a", "C:\\t\temp", 1)]);
        check("a=\\u0041\\uD83D\\uDE00\\q", &[("a", "A😀q", 1)]);
        check("a=\\ud83dx", &[("a", "\u{fffd}x", 1)]);
        check(
            "a=1\r\nb=2\rc=3",
            &[("a", "1", 1), ("b", "2", 2), ("c", "3", 3)],
        );
        check("\u{feff}a=1\na=2", &[("a", "1", 1), ("a", "2", 2)]);
        check("a", &[("a", "", 1)]);
        check("a=x\\", &[("a", "x", 1)]);
        check("", &[]);
    }

    #[test]
    fn a_broken_unicode_escape_is_named_by_its_line() {
        assert_eq!(parse("a=1\nb=\\u12g4"), Err(BadEscape { line: 2 }));
        assert_eq!(parse("b=\\u12"), Err(BadEscape { line: 1 }));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_read_as_latin1() {
        assert_eq!(decode(b"# caf\xe9"), "# café");
        assert_eq!(decode("# café".as_bytes()), "# café");
    }
}
