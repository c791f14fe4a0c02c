//! Who may reach a listener that has no lock on it.
//!
//! Owns:     the one warning about it, for the log and for `doctor`.
//! Does not: look at firewalls or ask the network.

use crate::config::{ClientAuth, Config, Listener, ListenerSecurity};

/// What is open to others than this machine; `None` where nothing is.
pub(crate) fn warning(config: &Config) -> Option<String> {
    let all = config.listeners.iter().zip(&config.security);
    let open: Vec<String> = all
        .filter(|(listener, _)| is_public(listener))
        .filter_map(|(listener, security)| exposed(listener, security))
        .collect();
    (!open.is_empty()).then(|| {
        format!(
            "OPEN TO THE NETWORK: {}. Whoever reaches such a port may read, change and delete what is behind it. Give \
             the listener TLS and a login (listener.security.protocol.map, SASL_SSL), or bind it to 127.0.0.1.",
            open.join("; ")
        )
    })
}

fn exposed(listener: &Listener, security: &ListenerSecurity) -> Option<String> {
    let certificates = security.tls.as_ref().map(|tls| tls.client_auth);
    let knows_clients = security.sasl.is_some() || certificates == Some(ClientAuth::Required);
    let what = match (security.tls.is_some(), knows_clients) {
        (true, true) => return None,
        (false, false) => "has neither encryption nor a login",
        (false, true) => "has no encryption, so that logins and data can be read on the way",
        (true, false) => "lets in everybody without a login",
    };
    let host = match listener.host.as_str() {
        "" => "every address",
        host => host,
    };
    Some(format!(
        "listener {} on {host}, port {}, {what}",
        listener.name, listener.port
    ))
}

/// Whether others than this machine can come to it. A name that cannot be resolved is taken for one that can.
fn is_public(listener: &Listener) -> bool {
    match listener.addrs() {
        Ok(addrs) => addrs
            .iter()
            .any(|addr| !addr.ip().to_canonical().is_loopback()),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CommandLine;

    fn of(set: &[&str]) -> Option<String> {
        let set = set.iter().map(|&text| text.to_owned()).collect();
        let line = CommandLine {
            set,
            ..CommandLine::default()
        };
        warning(&Config::load(&line).unwrap())
    }

    #[test]
    fn only_what_others_can_reach_without_encryption_or_login_is_named() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["listeners=PLAINTEXT://[::1]:1"]), None);
        let both = of(&["listeners=PLAINTEXT://:1"]).unwrap();
        assert!(
            both.contains("PLAINTEXT on every address") && both.contains("neither"),
            "{both}"
        );
        let login = of(&["listeners=SASL_PLAINTEXT://0.0.0.0:1"]).unwrap();
        assert!(login.contains("no encryption"), "{login}");
        let tls = ["listeners=SSL://0.0.0.0:1", "ssl.keystore.location=/k"];
        assert!(of(&tls).unwrap().contains("everybody"));
        assert_eq!(of(&["listeners=SASL_SSL://0.0.0.0:1", tls[1]]), None);
        let known = ["ssl.truststore.location=/t", "ssl.client.auth=required"];
        assert_eq!(of(&[tls[0], tls[1], known[0], known[1]]), None);
    }
}
