//! Values that stand elsewhere: `${provider:path:key}`, as Kafka's config providers write it.
//!
//! Owns:     the three providers Kafka comes with, the names that a configuration gives them, and how a reference inside
//!           a value is replaced.
//! Does not: know keys. Reads files, and so may block; only before a start, at a reload, and in tools.
//!
//! `env`, `file` and `directory` are there under these names without `config.providers`; in Kafka they must be declared.
//! Kafka leaves a reference that leads nowhere as it is written, and uses that text as the value. A broker refuses it,
//! and tools, which seldom need a secret, do as Kafka does.
//!
//! # Invariants
//! P1. What a file held is never shown: `RawSetting::hidden` goes with it.
use super::error::{Fault, Origin, Problem};
use super::properties;
use super::settings::{RawSetting, read_bounded};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The key that declares providers.
const PROVIDERS: &str = "config.providers";
const PACKAGE: &str = "org.apache.kafka.common.config.provider.";

/// What happens to a reference that leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// It is a problem.
    Refused,
    /// It stays as it is written.
    Left,
}

/// Where values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provider {
    /// `${env:NAME}`
    Env,
    /// `${file:/path/of.properties:key}`
    File,
    /// `${directory:/path:name of a file in it}`
    Directory,
}

impl Provider {
    const ALL: [(&'static str, &'static str, Provider); 3] = [
        ("env", "EnvVarConfigProvider", Provider::Env),
        ("file", "FileConfigProvider", Provider::File),
        ("directory", "DirectoryConfigProvider", Provider::Directory),
    ];

    fn of_class(class: &str) -> Option<Provider> {
        let name = class.trim().strip_prefix(PACKAGE)?;
        let found = Provider::ALL.iter().find(|row| row.1 == name);
        found.map(|row| row.2)
    }
}

/// Why a reference leads nowhere. The operator's fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReferenceError {
    /// Nobody provides under that name.
    Provider(String),
    /// The environment has no such variable, or one that is no text.
    Variable(String),
    /// The file cannot be read.
    File(PathBuf, io::ErrorKind),
    /// The file is larger than a value can be, or no properties file.
    Unreadable(PathBuf),
    /// There is no such key in the file.
    Key(PathBuf, String),
    /// Neither a path and a key, nor the name of a variable.
    Form,
}

impl ReferenceError {
    /// What to do about it.
    pub(super) fn way_out(&self) -> &'static str {
        match self {
            Self::Provider(_) => {
                "write ${env:NAME}, ${file:PATH:KEY} or ${directory:PATH:FILE}, or declare it in config.providers"
            }
            Self::Variable(name) if name == CREDENTIALS => {
                "systemd sets it for a unit with LoadCredential=; in a shell, write \
                 CREDENTIALS_DIRECTORY=/run/credentials/seawall.service before the command"
            }
            Self::Variable(_) => {
                "set it where the broker is started, e.g. by Environment= in the unit"
            }
            Self::File(path, _) if path.starts_with("/run/credentials") => {
                "add LoadCredential=NAME:/path/of/the/file to the unit (systemctl edit seawall), and restart it"
            }
            Self::File(..) => "correct the path, or let the user of the broker read it",
            Self::Unreadable(_) => "name a properties file, or one of at most 4 MiB",
            Self::Key(..) => "correct the key, or add it to that file",
            Self::Form => "write ${env:NAME}, ${file:PATH:KEY} or ${directory:PATH:FILE}",
        }
    }
}

/// Where systemd puts a unit's credentials (systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

impl fmt::Display for ReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(name) => write!(f, "there is no config provider '{name}'"),
            Self::Variable(name) => write!(f, "the environment variable {name} is not set"),
            Self::File(path, kind) => write!(f, "{} cannot be read: {kind}", path.display()),
            Self::Unreadable(path) => write!(f, "{} cannot be used", path.display()),
            Self::Key(path, key) => write!(f, "there is no key '{key}' in {}", path.display()),
            Self::Form => f.write_str("it is no reference to a value"),
        }
    }
}

/// Settings whose references are replaced, and what was wrong with the others.
pub(super) fn resolve(
    mut raw: Vec<RawSetting>,
    unresolved: Unresolved,
) -> (Vec<RawSetting>, Vec<Problem>) {
    let (providers, mut problems) = Providers::declared(&raw);
    raw.retain(|one| class_key(&one.key).is_none());
    for one in &mut raw {
        match providers.replace(&one.value) {
            Ok(Some(found)) => (one.value, one.hidden) = (found.text, found.hidden),
            Ok(None) => {}
            Err(_) if unresolved == Unresolved::Left => {}
            Err((reference, error)) => problems.push(Problem {
                origin: Some(one.origin.clone()),
                fault: Fault::Reference {
                    key: one.key.clone(),
                    reference,
                    error,
                },
            }),
        }
    }
    if unresolved == Unresolved::Refused {
        // It has its own problem already, and the text of a reference would only make another.
        let wrong: Vec<Option<Origin>> = problems.iter().map(|p| p.origin.clone()).collect();
        let is_wrong = |one: &RawSetting| {
            one.value.contains("${") && wrong.contains(&Some(one.origin.clone()))
        };
        raw.retain(|one| !is_wrong(one));
    }
    (raw, problems)
}

/// The provider that a key `config.providers.<name>.class` is about.
fn class_key(key: &str) -> Option<&str> {
    let name = key.strip_prefix(PROVIDERS)?.strip_prefix('.')?;
    name.strip_suffix(".class")
}

/// A value with its references replaced.
struct Replaced {
    text: String,
    hidden: bool,
}

/// The providers there are, by name.
struct Providers(BTreeMap<String, Provider>);

impl Providers {
    fn declared(raw: &[RawSetting]) -> (Providers, Vec<Problem>) {
        let own = Provider::ALL.iter();
        let mut all: BTreeMap<String, Provider> =
            own.map(|row| (row.0.to_owned(), row.2)).collect();
        let mut problems = Vec::new();
        let last = |key: &str| raw.iter().rfind(|one| one.key == key);
        let list = last(PROVIDERS);
        let names = list.map_or("", |one| one.value.as_str()).split(',');
        for name in names.map(str::trim).filter(|name| !name.is_empty()) {
            let class = last(&format!("{PROVIDERS}.{name}.class"));
            match class.and_then(|one| Provider::of_class(&one.value)) {
                Some(provider) => _ = all.insert(name.to_owned(), provider),
                None => problems.push(Problem {
                    origin: class.or(list).map(|one| one.origin.clone()),
                    fault: Fault::Refused {
                        key: PROVIDERS,
                        value: name.to_owned(),
                        why: "config.providers.<name>.class must be Kafka's EnvVarConfigProvider, FileConfigProvider or \
                              DirectoryConfigProvider, in org.apache.kafka.common.config.provider",
                    },
                }),
            }
        }
        (Providers(all), problems)
    }

    /// `None` for a value without a reference.
    fn replace(&self, value: &str) -> Result<Option<Replaced>, (String, ReferenceError)> {
        let (mut text, mut hidden, mut rest, mut found) = (String::new(), false, value, false);
        while let Some((before, inside, after)) = next_reference(rest) {
            let fetched = self.fetch(inside);
            let (provider, what) = fetched.map_err(|error| (format!("${{{inside}}}"), error))?;
            text.push_str(before);
            text.push_str(&what);
            hidden |= provider != Provider::Env; // P1
            (rest, found) = (after, true);
        }
        text.push_str(rest);
        Ok(found.then_some(Replaced { text, hidden }))
    }

    fn fetch(&self, inside: &str) -> Result<(Provider, String), ReferenceError> {
        let (name, rest) = inside.split_once(':').ok_or(ReferenceError::Form)?;
        let unknown = || ReferenceError::Provider(name.to_owned());
        let provider = *self.0.get(name).ok_or_else(unknown)?;
        let place = rest.split_once(':');
        let value = match (provider, place) {
            (Provider::Env, None) => variable(rest),
            (Provider::File, Some((path, key))) => key_of_file(Path::new(path), key),
            (Provider::Directory, Some((path, name))) => file_of(Path::new(path), name),
            _ => Err(ReferenceError::Form),
        };
        Ok((provider, value?))
    }
}

/// What stands before, inside and behind the first `${provider:...}`; one without a colon is no reference.
fn next_reference(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find("${") {
        let (start, inside) = (from + at, text.get(from + at + 2..)?);
        let (inside, after) = inside.split_once('}')?;
        if inside.contains(':') {
            return Some((text.get(..start)?, inside, after));
        }
        from = start + 2;
    }
    None
}

fn variable(name: &str) -> Result<String, ReferenceError> {
    let text = std::env::var_os(name).map(OsString::into_string);
    let text = text.and_then(Result::ok);
    text.ok_or_else(|| ReferenceError::Variable(name.to_owned()))
}

fn key_of_file(path: &Path, key: &str) -> Result<String, ReferenceError> {
    let unreadable = || ReferenceError::Unreadable(path.to_owned());
    let entries = properties::parse(&text_of(path)?).map_err(|_| unreadable())?;
    let found = entries.into_iter().rfind(|entry| entry.key == key);
    let found = found.map(|entry| entry.value);
    found.ok_or_else(|| ReferenceError::Key(path.to_owned(), key.to_owned()))
}

/// A file directly in the directory; a name that leads out of it is none, as in Kafka.
fn file_of(dir: &Path, name: &str) -> Result<String, ReferenceError> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(ReferenceError::Key(dir.to_owned(), name.to_owned()));
    }
    text_of(&dir.join(name))
}

fn text_of(path: &Path) -> Result<String, ReferenceError> {
    let failed = |error: io::Error| ReferenceError::File(path.to_owned(), error.kind());
    let bytes = read_bounded(path).map_err(failed)?;
    let bytes = bytes.ok_or_else(|| ReferenceError::Unreadable(path.to_owned()))?;
    Ok(properties::decode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn raw(pairs: &[(&str, &str)]) -> Vec<RawSetting> {
        let one = |&(key, value): &(&str, &str)| RawSetting {
            key: key.to_owned(),
            value: value.to_owned(),
            hidden: false,
            origin: Origin::CommandLine("--set"),
        };
        pairs.iter().map(one).collect()
    }

    /// What becomes of the value of one key, or what is told.
    #[track_caller]
    fn check(others: &[(&str, &str)], value: &str, expected: Result<(&str, bool), &str>) {
        let mut all = raw(others);
        all.extend(raw(&[("k", value)]));
        let (settings, problems) = resolve(all, Unresolved::Refused);
        let got = match problems.first() {
            Some(problem) => Err(problem.fault.to_string()),
            None => {
                let k = settings.iter().rfind(|one| one.key == "k").unwrap();
                Ok((k.value.clone(), k.hidden))
            }
        };
        let expected = expected.map(|(text, hidden)| (text.to_owned(), hidden));
        assert_eq!(got, expected.map_err(str::to_owned), "{value}");
    }

    #[test]
    fn references_are_replaced_wherever_they_stand_in_a_value() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "s3cret\n").unwrap();
        fs::write(dir.path().join("all.properties"), "a=1\nb:c=two\na=3\n").unwrap();
        let at = |text: &str| text.replace("DIR", &dir.path().display().to_string());
        let name = env!("CARGO_PKG_NAME");
        check(&[], "plain ${x} $1", Ok(("plain ${x} $1", false)));
        check(
            &[],
            "${env:CARGO_PKG_NAME}/x",
            Ok((&format!("{name}/x"), false)),
        );
        check(
            &[],
            "${x}${env:CARGO_PKG_NAME}",
            Ok((&format!("${{x}}{name}"), false)),
        );
        check(&[], &at("${directory:DIR:secret}"), Ok(("s3cret\n", true)));
        check(
            &[],
            &at("<${file:DIR/all.properties:a}>"),
            Ok(("<3>", true)),
        );
        check(
            &[],
            &at("${file:DIR/all.properties:b}"),
            Ok(("c=two", true)),
        );
    }

    #[test]
    fn a_provider_has_the_name_that_the_configuration_gives_it() {
        let class = "org.apache.kafka.common.config.provider.EnvVarConfigProvider";
        let declared = [
            ("config.providers", "one, mine"),
            ("config.providers.one.class", class),
            ("config.providers.mine.class", class),
        ];
        let name = env!("CARGO_PKG_NAME");
        check(&declared, "${mine:CARGO_PKG_NAME}", Ok((name, false)));
        check(
            &[],
            "${mine:X}",
            Err("k=${mine:X}: there is no config provider 'mine'"),
        );
        let (_, problems) = resolve(
            raw(&[
                ("config.providers", "vault"),
                ("config.providers.vault.class", "x.Y"),
            ]),
            Unresolved::Left,
        );
        assert!(
            problems[0]
                .fault
                .to_string()
                .starts_with("config.providers=vault: ")
        );
    }

    #[test]
    fn a_reference_that_leads_nowhere_is_named_and_its_value_is_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("all.properties"), "password=hunter2\n").unwrap();
        let path = dir.path().display().to_string();
        for (value, why) in [
            (
                "${env:SEAWALL_NOT_SET}".to_owned(),
                "the environment variable SEAWALL_NOT_SET is not set".to_owned(),
            ),
            (
                format!("${{directory:{path}:absent}}"),
                format!("{path}/absent cannot be read: entity not found"),
            ),
            (
                format!("${{directory:{path}:../x}}"),
                format!("there is no key '../x' in {path}"),
            ),
            (
                format!("${{file:{path}/all.properties:x}}"),
                format!("there is no key 'x' in {path}/all.properties"),
            ),
            (
                format!("${{file:{path}}}"),
                "it is no reference to a value".to_owned(),
            ),
        ] {
            check(&[], &value, Err(&format!("k={value}: {why}")));
            let (left, problems) = resolve(raw(&[("k", &value)]), Unresolved::Left);
            assert!(problems.is_empty() && left[0].value == value, "{value}");
        }
    }
}
