//! The packaged server.properties, printed from the table so that it cannot grow old.
use super::broker_keys::BROKER_KEYS;
use super::spec::{Effect, KeySpec};

const WIDTH: usize = 110;
const HEAD: &str = "\
# Settings of the Seawall broker. An existing Kafka server.properties works, too: keys have Kafka's names, and those
# that mean nothing here are listed in one warning at the start. Lines that begin with '#' show the defaults.
";

/// The text of the file: what the package sets, and every other key that has an effect as a comment.
pub(crate) fn default_file() -> String {
    let mut text = HEAD.to_owned();
    for spec in BROKER_KEYS
        .iter()
        .filter(|spec| spec.effect == Effect::Acts)
    {
        text.push('\n');
        comment(&mut text, spec);
        match spec.packaged {
            Some(value) => text.push_str(&format!("{}={value}\n", spec.name)),
            None => text.push_str(&format!(
                "#{}={}\n",
                spec.name,
                spec.default.unwrap_or_default()
            )),
        }
    }
    text
}

fn comment(text: &mut String, spec: &KeySpec) {
    let mut line = "#".to_owned();
    for word in spec.doc.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = "#".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    if spec.ours {
        line.push_str(" (not a Kafka key)");
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_packaged_file_is_what_the_table_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/server.properties");
        if std::env::var_os("SEAWALL_UPDATE_FILES").is_some() {
            std::fs::write(&path, default_file()).unwrap();
        }
        let packaged = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            packaged == default_file(),
            "run this test with SEAWALL_UPDATE_FILES=1 and commit {}",
            path.display()
        );
    }
}
