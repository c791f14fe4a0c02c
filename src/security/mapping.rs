//! From a client's certificate to the name of a user.
//!
//! Owns:     the form of distinguished names (RFC 2253, as Java writes them), `ssl.principal.mapping.rules`.
//! Does not: check certificates; TLS has done that.

use std::fmt;
use std::fmt::Write;

use regex::{Captures, Regex};
use x509_parser::der_parser::asn1_rs::{Any, Tag, ToDer};
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Attributes that have a name of their own in RFC 2253; all others are written by number.
const KEYWORDS: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];
/// What stands behind a backslash wherever it occurs in a value.
const ESCAPED: &str = ",=+<>#;\"\\";

/// The distinguished name of a certificate's subject; `None` if it is no certificate.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let mut rdns: Vec<String> = Vec::new();
    for rdn in certificate.subject().iter_rdn() {
        let parts = rdn.iter();
        let parts: Vec<String> = parts
            .map(|part| attribute(part.attr_type(), part.attr_value()))
            .collect();
        rdns.push(parts.join("+"));
    }
    rdns.reverse();
    Some(rdns.join(","))
}

fn attribute(kind: &Oid<'_>, value: &Any<'_>) -> String {
    let number = kind.to_id_string();
    let keyword = KEYWORDS.iter().find(|(oid, _)| *oid == number);
    match (keyword, text_of(value)) {
        (Some((_, name)), Some(text)) => format!("{name}={}", escaped(&text)),
        (keyword, _) => {
            let name = keyword.map_or(number.as_str(), |(_, name)| name);
            let mut hex = String::new();
            for byte in value.to_der_vec().unwrap_or_default() {
                // Writing to a String cannot fail.
                let _ = write!(hex, "{byte:02x}");
            }
            format!("{name}=#{hex}")
        }
    }
}

fn text_of(value: &Any<'_>) -> Option<String> {
    match value.tag() {
        Tag::BmpString => {
            let units = value.data.chunks_exact(2);
            let units: Vec<u16> = units
                .map(|two| u16::from_be_bytes([two[0], two[1]]))
                .collect();
            String::from_utf16(&units).ok()
        }
        Tag::T61String => Some(value.data.iter().map(|&byte| char::from(byte)).collect()),
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::GeneralString => {
            std::str::from_utf8(value.data).ok().map(str::to_owned)
        }
        _ => None,
    }
}

fn escaped(text: &str) -> String {
    let inner = text.trim_matches(' ');
    let leading = text.len() - text.trim_start_matches(' ').len();
    let mut out = "\\ ".repeat(leading);
    for letter in inner.chars() {
        if letter == '\0' {
            out.push_str("\\00");
            continue;
        }
        if ESCAPED.contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    let trailing = text.len() - leading - inner.len();
    out + &"\\ ".repeat(trailing)
}

/// The rules of a listener.
#[derive(Debug, Clone)]
pub(crate) struct MappingRules(Vec<Rule>);

#[derive(Debug, Clone)]
enum Rule {
    /// The distinguished name itself.
    Default,
    Replace {
        whole: Regex,
        part: Regex,
        replacement: String,
        case: Case,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Case {
    Kept,
    Lower,
    Upper,
}

/// A text that is no list of rules. The operator's fault.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadRule(String);

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is no rule: they are DEFAULT and RULE:pattern/replacement/ with L or U behind for lower or upper \
             case, separated by commas",
            self.0
        )
    }
}

impl MappingRules {
    /// Reads `RULE:pattern/replacement/[LU], ..., DEFAULT`.
    pub(crate) fn parse(text: &str) -> Result<Self, BadRule> {
        let mut rules = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (rule, behind) = Rule::take(rest).ok_or_else(|| BadRule(rest.to_owned()))?;
            rules.push(rule);
            let behind = behind.trim_start();
            rest = match behind.strip_prefix(',') {
                Some(next) => next.trim_start(),
                None if behind.is_empty() => behind,
                None => return Err(BadRule(rest.to_owned())),
            };
        }
        if rules.is_empty() {
            rules.push(Rule::Default);
        }
        Ok(Self(rules))
    }

    /// The name by the first rule that matches; `None` if none does: such a client is not let in.
    pub(crate) fn apply(&self, name: &str) -> Option<String> {
        self.0.iter().find_map(|rule| rule.apply(name))
    }
}

impl Rule {
    /// The rule that a text begins with, and what is behind it.
    fn take(text: &str) -> Option<(Self, &str)> {
        if let Some(behind) = text.strip_prefix("DEFAULT") {
            return Some((Self::Default, behind));
        }
        let (pattern, behind) = up_to_slash(text.strip_prefix("RULE:")?)?;
        let (replacement, behind) = up_to_slash(behind)?;
        let (case, behind) = match behind.chars().next() {
            Some('L') => (Case::Lower, &behind[1..]),
            Some('U') => (Case::Upper, &behind[1..]),
            _ => (Case::Kept, behind),
        };
        let rule = Self::Replace {
            whole: Regex::new(&format!("^(?:{pattern})$")).ok()?,
            part: Regex::new(pattern).ok()?,
            replacement: replacement.to_owned(),
            case,
        };
        Some((rule, behind))
    }

    fn apply(&self, name: &str) -> Option<String> {
        let Self::Replace {
            whole,
            part,
            replacement,
            case,
        } = self
        else {
            return Some(name.to_owned());
        };
        if !whole.is_match(name) {
            return None;
        }
        let replaced = part.replace_all(name, |found: &Captures<'_>| filled_in(replacement, found));
        Some(match case {
            Case::Kept => replaced.into_owned(),
            Case::Lower => replaced.to_lowercase(),
            Case::Upper => replaced.to_uppercase(),
        })
    }
}

/// What stands before the first slash without a backslash, and what behind it.
fn up_to_slash(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let at = text.find(|letter| {
        let ends = letter == '/' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    })?;
    Some((&text[..at], &text[at + 1..]))
}

/// Java's replacement: `$1` is a group (itself where there is none), a backslash takes the next character as it is.
fn filled_in(replacement: &str, found: &Captures<'_>) -> String {
    let mut out = String::new();
    let mut letters = replacement.chars().peekable();
    while let Some(letter) = letters.next() {
        let digit = letters.peek().and_then(|next| next.to_digit(10));
        match (letter, digit) {
            ('\\', _) => out.extend(letters.next()),
            ('$', Some(group)) => {
                letters.next();
                match usize::try_from(group) {
                    Ok(group) if group < found.len() => {
                        out.push_str(found.get(group).map_or("", |text| text.as_str()));
                    }
                    _ => {
                        let _ = write!(out, "${group}");
                    }
                }
            }
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
