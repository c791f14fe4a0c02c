//! The manual page of the configuration file, from the table, in the language of man(7).
//!
//! Owns:     that text.
//! Does not: write it anywhere.
use super::broker_keys::BROKER_KEYS;
use super::spec::{Effect, KeySpec};
use clap_mangen::roff::{Roff, bold, italic, roman};

const INTRODUCTION: &str = "\
The packaged service reads /etc/seawall/server.properties. It is a file in the format of Apache Kafka's \
server.properties: a line for each key=value, '#' begins a comment. Keys have Kafka's names where they mean the same, and an \
existing Kafka file works: keys that mean nothing here are listed in one warning when the broker starts. A key that \
neither knows is an error.";

/// Stands where a long value may go on in the next line, until it is written in the way of roff(7).
const BREAK: char = '\u{200b}';

/// seawall.properties(5).
pub(crate) fn manual() -> String {
    let mut page = Roff::new();
    let version = concat!("seawall ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["seawall.properties", "5", "", version, ""]);
    // Long values cannot be stretched to a margin, nor may names of keys be hyphenated.
    page.control("ad", ["l"]);
    page.control("nh", []);
    page.control("SH", ["NAME"]);
    page.text([roman(
        "seawall.properties - configuration of the Seawall broker",
    )]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(INTRODUCTION)]);
    page.control("SH", ["KEYS"]);
    for spec in BROKER_KEYS
        .iter()
        .filter(|spec| spec.effect == Effect::Acts)
    {
        key(&mut page, spec);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("seawall"),
        roman("(1), "),
        bold("systemd.exec"),
        roman("(5)"),
    ]);
    page.to_roff().replace(BREAK, "\\:")
}

fn key(page: &mut Roff, spec: &KeySpec) {
    page.control("TP", []);
    let default = spec.default.unwrap_or_default();
    let breakable = default.replace(',', &format!(",{BREAK}"));
    page.text([bold(spec.name), roman("="), italic(breakable)]);
    let mut doc = spec.doc.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(value) = spec.packaged.filter(|value| *value != default) {
        doc.push_str(&format!(" The packaged file says {value}."));
    }
    if spec.dynamic {
        doc.push_str(" It may be altered while the broker runs.");
    }
    if spec.ours {
        doc.push_str(" Kafka has no such key.");
    }
    page.text([roman(doc)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_acts_is_in_the_manual() {
        let page = manual();
        for spec in BROKER_KEYS
            .iter()
            .filter(|spec| spec.effect == Effect::Acts)
        {
            // man(7) reads a bare hyphen as one that may break a line.
            let name = spec.name.replace('-', "\\-");
            assert!(page.contains(&format!("\\fB{name}\\fR=")), "{name}");
        }
    }
}
