//! What each listener asks of its clients: encryption, certificates, logins.
//!
//! Owns:     which keys count for which listener, and what cannot be meant.
//! Does not: read the files that keys and certificates stand in.
use super::error::{Fault, Problem};
use super::listeners::{self, Listener};
use super::settings::{Settings, broker_key};
use super::spec::Value;
use std::path::PathBuf;

/// A security protocol, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Neither encryption nor a login.
    Plaintext,
    /// TLS.
    Ssl,
    /// A login without encryption.
    SaslPlaintext,
    /// A login inside TLS.
    SaslSsl,
}

impl Protocol {
    pub(crate) fn of_name(name: &str) -> Option<Protocol> {
        Some(match name {
            "PLAINTEXT" => Protocol::Plaintext,
            "SSL" => Protocol::Ssl,
            "SASL_PLAINTEXT" => Protocol::SaslPlaintext,
            "SASL_SSL" => Protocol::SaslSsl,
            _ => return None,
        })
    }

    /// Whether it is encrypted.
    pub(crate) fn has_tls(self) -> bool {
        matches!(self, Protocol::Ssl | Protocol::SaslSsl)
    }

    /// Whether clients log in by SASL.
    pub(crate) fn has_sasl(self) -> bool {
        matches!(self, Protocol::SaslPlaintext | Protocol::SaslSsl)
    }
}

/// What one listener asks of its clients.
#[derive(Debug, Clone)]
pub(crate) struct ListenerSecurity {
    /// Encryption; `None` without.
    pub(crate) tls: Option<Tls>,
    /// Logins; `None` without.
    pub(crate) sasl: Option<Sasl>,
}

/// PEM text, by the file that holds it or by itself.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Pem {
    /// In this file.
    File(PathBuf),
    /// This.
    Inline(String),
}

/// A secret may stand in it.
impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pem::File(path) => write!(f, "File({})", path.display()),
            Pem::Inline(_) => f.write_str("Inline(..)"),
        }
    }
}

/// Encryption of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The listener, for messages.
    pub(crate) listener: String,
    /// Key and certificate chain.
    pub(crate) key: Pem,
    /// Who issues clients' certificates; given wherever they are asked for.
    pub(crate) trusted: Option<Pem>,
    /// ssl.client.auth
    pub(crate) client_auth: ClientAuth,
    /// ssl.enabled.protocols
    pub(crate) versions: Vec<TlsVersion>,
    /// ssl.principal.mapping.rules
    pub(crate) mapping_rules: String,
}

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    /// They are not asked.
    None,
    /// They may.
    Requested,
    /// They must.
    Required,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsVersion {
    /// TLSv1.2
    V12,
    /// TLSv1.3
    V13,
}

/// Logins of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sasl {
    /// sasl.enabled.mechanisms, and for each how long a login by it holds: 0 is for ever.
    pub(crate) mechanisms: Vec<(Mechanism, u64)>,
    /// Where tokens may be shown.
    pub(crate) oauth: Option<Oauth>,
}

/// A way to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// RFC 4616
    Plain,
    /// RFC 7677
    ScramSha256,
    /// RFC 7677, with the longer hash
    ScramSha512,
    /// RFC 7628
    OauthBearer,
}

impl Mechanism {
    pub(crate) const ALL: [Mechanism; 4] = [
        Mechanism::Plain,
        Mechanism::ScramSha256,
        Mechanism::ScramSha512,
        Mechanism::OauthBearer,
    ];

    /// Its name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
            Mechanism::OauthBearer => "OAUTHBEARER",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// How tokens are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Oauth {
    /// The JWKS file.
    pub(crate) keys: PathBuf,
    /// `iss`
    pub(crate) issuer: Option<String>,
    /// `aud`; empty: any
    pub(crate) audience: Vec<String>,
    /// Seconds that clocks may differ.
    pub(crate) clock_skew_s: u64,
    /// The claim with the user's name.
    pub(crate) subject_claim: String,
}

/// What each listener asks of its clients, index by index.
pub(crate) fn listeners(
    settings: &Settings,
    all: &[Listener],
) -> Result<Vec<ListenerSecurity>, Vec<Problem>> {
    let (mut ready, mut problems) = (Vec::new(), Vec::new());
    for listener in all {
        let of = OfListener {
            settings,
            name: &listener.name,
        };
        match of.security() {
            Ok(security) => ready.push(security),
            Err(problem) => problems.push(*problem),
        }
    }
    if problems.is_empty() {
        Ok(ready)
    } else {
        Err(problems)
    }
}

/// The settings as one listener sees them.
struct OfListener<'a> {
    settings: &'a Settings,
    name: &'a str,
}

impl OfListener<'_> {
    fn security(&self) -> Result<ListenerSecurity, Box<Problem>> {
        let protocol = listeners::protocol(self.settings, self.name);
        let tls = protocol.has_tls().then(|| self.tls(protocol));
        let sasl = protocol.has_sasl().then(|| self.sasl());
        Ok(ListenerSecurity {
            tls: tls.transpose()?,
            sasl: sasl.transpose()?,
        })
    }

    fn value(&self, key: &'static str) -> Value {
        match self.settings.explicit_of_listener(self.name, key) {
            Some(set) => set.value.clone(),
            None => broker_key(key).map_or(Value::Null, |spec| self.settings.effective(spec)),
        }
    }

    fn text(&self, key: &'static str) -> Option<String> {
        self.value(key).to_wire().filter(|text| !text.is_empty())
    }

    fn list(&self, key: &'static str) -> Vec<String> {
        match self.value(key) {
            Value::List(list) => list,
            _ => Vec::new(),
        }
    }

    /// What is wrong, at the line where the key was set. A secret is never `value`.
    fn refused(&self, key: &'static str, value: &str, why: &'static str) -> Box<Problem> {
        let own = self.settings.explicit_of_listener(self.name, key);
        let set = own.or_else(|| self.settings.explicit(key));
        Box::new(Problem {
            origin: set.map(|set| set.origin.clone()),
            fault: Fault::Refused {
                key,
                value: value.to_owned(),
                why,
            },
        })
    }

    fn tls(&self, protocol: Protocol) -> Result<Tls, Box<Problem>> {
        self.check_types()?;
        let client_auth = self.client_auth(protocol);
        let trusted = self.trusted()?;
        if client_auth != ClientAuth::None && trusted.is_none() {
            let why = "clients' certificates cannot be checked without ssl.truststore.location or \
                       ssl.truststore.certificates";
            let asked = self.text("ssl.client.auth").unwrap_or_default();
            return Err(self.refused("ssl.client.auth", &asked, why));
        }
        let versions = self.list("ssl.enabled.protocols");
        let versions: Vec<TlsVersion> = versions
            .iter()
            .map(|name| match name.as_str() {
                "TLSv1.2" => TlsVersion::V12,
                _ => TlsVersion::V13,
            })
            .collect();
        if versions.is_empty() {
            return Err(self.refused("ssl.enabled.protocols", "", "name at least one version"));
        }
        Ok(Tls {
            listener: self.name.to_owned(),
            key: self.key()?,
            trusted,
            client_auth,
            versions,
            mapping_rules: self.text("ssl.principal.mapping.rules").unwrap_or_default(),
        })
    }

    fn check_types(&self) -> Result<(), Box<Problem>> {
        for (key, why) in [
            (
                "ssl.keystore.type",
                "only PEM is read. From JKS: keytool -importkeystore -srckeystore OLD.jks -destkeystore NEW.p12 \
                 -deststoretype PKCS12; from PKCS12: openssl pkcs12 -in NEW.p12 -nodes -out NEW.pem; then \
                 ssl.keystore.location=NEW.pem",
            ),
            (
                "ssl.truststore.type",
                "only PEM is read. From JKS or PKCS12: keytool -list -rfc -keystore OLD > NEW.pem; then \
                 ssl.truststore.location=NEW.pem",
            ),
        ] {
            let kind = self.text(key).unwrap_or_default();
            if !kind.eq_ignore_ascii_case("PEM") {
                return Err(self.refused(key, &kind, why));
            }
        }
        Ok(())
    }

    fn key(&self) -> Result<Pem, Box<Problem>> {
        let inline = self.text("ssl.keystore.key");
        let chain = self.text("ssl.keystore.certificate.chain");
        match (self.text("ssl.keystore.location"), inline, chain) {
            (Some(path), None, None) => Ok(Pem::File(path.into())),
            (None, Some(key), Some(chain)) => Ok(Pem::Inline(format!("{key}\n{chain}\n"))),
            (Some(path), _, _) => Err(self.refused(
                "ssl.keystore.location",
                &path,
                "ssl.keystore.key or ssl.keystore.certificate.chain is set as well; give one of them",
            )),
            (None, None, None) => Err(self.refused(
                "ssl.keystore.location",
                "",
                "a listener with TLS needs a key and a certificate: name a PEM file that holds both",
            )),
            (None, _, _) => Err(self.refused(
                "ssl.keystore.key",
                "",
                "ssl.keystore.key and ssl.keystore.certificate.chain belong together",
            )),
        }
    }

    fn trusted(&self) -> Result<Option<Pem>, Box<Problem>> {
        let inline = self.text("ssl.truststore.certificates");
        match (self.text("ssl.truststore.location"), inline) {
            (Some(path), Some(_)) => Err(self.refused(
                "ssl.truststore.location",
                &path,
                "ssl.truststore.certificates is set as well; give one of them",
            )),
            (Some(path), None) => Ok(Some(Pem::File(path.into()))),
            (None, inline) => Ok(inline.map(Pem::Inline)),
        }
    }

    /// KIP-684: a SASL_SSL listener asks for certificates only if its own key says so.
    fn client_auth(&self, protocol: Protocol) -> ClientAuth {
        let key = "ssl.client.auth";
        let own = self.settings.explicit_of_listener(self.name, key);
        if protocol == Protocol::SaslSsl && own.is_none() {
            return ClientAuth::None;
        }
        match self.text(key).as_deref() {
            Some("required") => ClientAuth::Required,
            Some("requested") => ClientAuth::Requested,
            _ => ClientAuth::None,
        }
    }

    fn sasl(&self) -> Result<Sasl, Box<Problem>> {
        let key = "sasl.enabled.mechanisms";
        let mut mechanisms = Vec::new();
        for name in self.list(key) {
            let Some(mechanism) = Mechanism::of_name(&name) else {
                let why = "there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER";
                return Err(self.refused(key, &name, why));
            };
            mechanisms.push((mechanism, self.session_max_ms(mechanism)));
        }
        if mechanisms.is_empty() {
            return Err(self.refused(key, "", "a listener with SASL needs at least one mechanism"));
        }
        let with_tokens = mechanisms
            .iter()
            .any(|(one, _)| *one == Mechanism::OauthBearer);
        let oauth = with_tokens.then(|| self.oauth()).transpose()?;
        Ok(Sasl { mechanisms, oauth })
    }

    fn session_max_ms(&self, mechanism: Mechanism) -> u64 {
        let key = "connections.max.reauth.ms";
        let of = format!("{}.{}", self.name, mechanism.name());
        let value = match self.settings.explicit_of_listener(&of, key) {
            Some(set) => set.value.clone(),
            None => self.value(key),
        };
        whole(&value)
    }

    fn oauth(&self) -> Result<Oauth, Box<Problem>> {
        let key = "sasl.oauthbearer.jwks.endpoint.url";
        let url = self.text(key).unwrap_or_default();
        let why = "OAUTHBEARER needs the keys of those who sign tokens, as file:///path of a JWKS file on this machine";
        let path = url.strip_prefix("file://");
        let path = path.filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(|| self.refused(key, &url, why))?;
        Ok(Oauth {
            keys: path.into(),
            issuer: self.text("sasl.oauthbearer.expected.issuer"),
            audience: self.list("sasl.oauthbearer.expected.audience"),
            clock_skew_s: whole(&self.value("sasl.oauthbearer.clock.skew.seconds")),
            subject_claim: self
                .text("sasl.oauthbearer.sub.claim.name")
                .unwrap_or_default(),
        })
    }
}

fn whole(value: &Value) -> u64 {
    match value {
        Value::Whole(n) => u64::try_from(*n).unwrap_or(0),
        _ => 0,
    }
}
