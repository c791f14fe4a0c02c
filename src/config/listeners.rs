//! Where clients connect and what they are told about it.
//!
//! Owns:     the texts `listeners`, `advertised.listeners`, `listener.security.protocol.map`.
//! Does not: bind; ask the network anything but the name of this machine and the addresses of a host name.
use super::error::{Fault, Problem};
use super::security::Protocol;
use super::settings::{Settings, broker_key};
use super::spec::Value;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// One address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Its name, upper case.
    pub(crate) name: String,
    /// Name or address, IPv6 without brackets; empty for every address.
    pub(crate) host: String,
    /// 0: the kernel chooses.
    pub(crate) port: u16,
}

/// What clients are told about the listener of the same index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advertised {
    /// Name or address, IPv6 without brackets. Never a wildcard.
    pub(crate) host: String,
    /// `None`: the port that was bound.
    pub(crate) port: Option<u16>,
}

impl Listener {
    /// The addresses to try to bind, first come first: a wildcard is both families, or IPv4 where there is no IPv6.
    pub(crate) fn addrs(&self) -> io::Result<Vec<SocketAddr>> {
        if self.host.is_empty() {
            let v6 = (Ipv6Addr::UNSPECIFIED, self.port).into();
            return Ok(vec![v6, (Ipv4Addr::UNSPECIFIED, self.port).into()]);
        }
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }

    fn is_wildcard(&self) -> bool {
        self.host.is_empty() || is_wildcard(&self.host)
    }
}

/// The broker's listeners and, index by index, what is advertised for them.
pub(crate) fn listeners(
    settings: &Settings,
) -> Result<(Vec<Listener>, Vec<Advertised>), Vec<Problem>> {
    let mut problems = Vec::new();
    let mut kept = Vec::new();
    let controllers = upper_list(settings, "controller.listener.names");
    for text in list(settings, "listeners") {
        match parse_listener("listeners", &text) {
            Err(fault) => problems.push(at(settings, "listeners", fault)),
            Ok(listener) if is_controller(&listener.name, &controllers) => {}
            Ok(listener) => match check_new(settings, &kept, &listener) {
                Err(fault) => problems.push(at(settings, "listeners", fault)),
                Ok(()) => kept.push(listener),
            },
        }
    }
    if kept.is_empty() && problems.is_empty() {
        let value = list(settings, "listeners").join(",");
        let why =
            "only controllers are listed, and this is a broker: give it one like PLAINTEXT://:9092";
        problems.push(at(
            settings,
            "listeners",
            Fault::Refused {
                key: "listeners",
                value,
                why,
            },
        ));
    }
    let advertised = advertised(settings, &kept, &controllers).unwrap_or_else(|more| {
        problems.extend(more);
        Vec::new()
    });
    if problems.is_empty() {
        Ok((kept, advertised))
    } else {
        Err(problems)
    }
}

/// host:port of the HTTP server; `None` where it is switched off.
pub(crate) fn admin_listener(settings: &Settings) -> Result<Option<Listener>, Vec<Problem>> {
    let text = settings
        .effective(row("admin.listener"))
        .to_wire()
        .unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = split_host_port("admin.listener", &text, &text);
    match parsed {
        Ok((host, port)) => Ok(Some(Listener {
            name: "HTTP".to_owned(),
            host,
            port,
        })),
        Err(fault) => Err(vec![at(settings, "admin.listener", fault)]),
    }
}

fn is_controller(name: &str, controllers: &[String]) -> bool {
    name == "CONTROLLER" || controllers.iter().any(|c| c == name)
}

fn check_new(settings: &Settings, kept: &[Listener], listener: &Listener) -> Result<(), Fault> {
    let refuse = |why| {
        Err(Fault::Refused {
            key: "listeners",
            value: listener.name.clone(),
            why,
        })
    };
    if kept.iter().any(|other| other.name == listener.name) {
        return refuse("two listeners have this name");
    }
    match protocol_of(settings, &listener.name)?.as_deref() {
        Some(protocol) if Protocol::of_name(protocol).is_some() => Ok(()),
        Some(_) => refuse("its protocol is none of PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL"),
        None => refuse(
            "listener.security.protocol.map does not say which protocol this name stands for",
        ),
    }
}

/// What a listener that was accepted speaks.
pub(super) fn protocol(settings: &Settings, name: &str) -> Protocol {
    let found = protocol_of(settings, name).ok().flatten();
    found
        .and_then(|protocol| Protocol::of_name(&protocol))
        .unwrap_or(Protocol::Plaintext)
}

fn protocol_of(settings: &Settings, name: &str) -> Result<Option<String>, Fault> {
    let key = "listener.security.protocol.map";
    let mut found = None;
    for pair in list(settings, key) {
        let Some((left, right)) = pair.split_once(':') else {
            return Err(Fault::Refused {
                key,
                value: pair,
                why: "each entry is NAME:PROTOCOL",
            });
        };
        if left.trim().eq_ignore_ascii_case(name) {
            found = Some(right.trim().to_ascii_uppercase());
        }
    }
    Ok(found)
}

fn advertised(
    settings: &Settings,
    kept: &[Listener],
    controllers: &[String],
) -> Result<Vec<Advertised>, Vec<Problem>> {
    let key = "advertised.listeners";
    let mut given: Vec<Listener> = Vec::new();
    for text in list(settings, key) {
        let one = parse_listener(key, &text).map_err(|fault| vec![at(settings, key, fault)])?;
        let refuse = |why| {
            Err(vec![at(
                settings,
                key,
                Fault::Refused {
                    key,
                    value: text.clone(),
                    why,
                },
            )])
        };
        if is_controller(&one.name, controllers) {
            continue;
        }
        if one.is_wildcard() {
            return refuse("clients cannot connect to a wildcard address: name this machine");
        }
        if !kept.iter().any(|listener| listener.name == one.name) {
            return refuse("there is no listener of this name");
        }
        given.push(one);
    }
    Ok(kept
        .iter()
        .map(|listener| advertise(listener, &given))
        .collect())
}

fn advertise(listener: &Listener, given: &[Listener]) -> Advertised {
    let source = given
        .iter()
        .find(|one| one.name == listener.name)
        .unwrap_or(listener);
    let host = if source.is_wildcard() {
        host_name()
    } else {
        source.host.clone()
    };
    Advertised {
        host,
        port: (source.port != 0).then_some(source.port),
    }
}

fn host_name() -> String {
    let name = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok());
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

fn is_wildcard(host: &str) -> bool {
    host.parse::<std::net::IpAddr>()
        .is_ok_and(|ip| ip.is_unspecified())
}

fn parse_listener(key: &'static str, text: &str) -> Result<Listener, Fault> {
    let refuse = |why| Fault::Refused {
        key,
        value: text.to_owned(),
        why,
    };
    let (name, rest) = text
        .split_once("://")
        .ok_or_else(|| refuse("it must be of the form NAME://host:port"))?;
    if name.is_empty()
        || !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    {
        return Err(refuse(
            "the name before :// has letters, digits, '_', '-' and '.' only",
        ));
    }
    let (host, port) = split_host_port(key, text, rest)?;
    Ok(Listener {
        name: name.to_ascii_uppercase(),
        host,
        port,
    })
}

fn split_host_port(key: &'static str, whole: &str, text: &str) -> Result<(String, u16), Fault> {
    let refuse = |why| Fault::Refused {
        key,
        value: whole.to_owned(),
        why,
    };
    let (host, port) = text
        .rsplit_once(':')
        .ok_or_else(|| refuse("the port is missing"))?;
    let port = port
        .parse()
        .map_err(|_| refuse("the port is not a number from 0 to 65535"))?;
    let inner = host.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
    match inner {
        Some(Some(address)) if address.parse::<Ipv6Addr>().is_ok() => {
            Ok((address.to_owned(), port))
        }
        Some(_) => Err(refuse("what stands in brackets is not an IPv6 address")),
        None if host.contains(':') => Err(refuse("an IPv6 address must stand in brackets")),
        None if host.contains(|c: char| c.is_whitespace() || c == '/') => {
            Err(refuse("that is no host name"))
        }
        None => Ok((host.to_owned(), port)),
    }
}

fn list(settings: &Settings, key: &'static str) -> Vec<String> {
    let value = match key {
        // The only text that is a list of pairs.
        "listener.security.protocol.map" => {
            settings.effective(row(key)).to_wire().unwrap_or_default()
        }
        _ => match settings.effective(row(key)) {
            Value::List(list) => return list.into_iter().filter(|item| !item.is_empty()).collect(),
            _ => String::new(),
        },
    };
    value
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

fn upper_list(settings: &Settings, key: &'static str) -> Vec<String> {
    list(settings, key)
        .iter()
        .map(|name| name.to_ascii_uppercase())
        .collect()
}

fn row(key: &'static str) -> &'static super::spec::KeySpec {
    broker_key(key).expect("a row of the table of broker keys")
}

fn at(settings: &Settings, key: &'static str, fault: Fault) -> Problem {
    Problem {
        origin: settings.explicit(key).map(|set| set.origin.clone()),
        fault,
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::Origin;
    use super::super::settings::RawSetting;
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let one = |&(key, value): &(&str, &str)| RawSetting {
            key: key.to_owned(),
            value: value.to_owned(),
            hidden: false,
            origin: Origin::CommandLine("--set"),
        };
        Settings::from_raw(pairs.iter().map(one).collect()).unwrap()
    }

    #[track_caller]
    fn check(pairs: &[(&str, &str)], expected: &[(&str, &str, u16, &str, Option<u16>)]) {
        let (listeners, advertised) = listeners(&settings(pairs)).unwrap();
        let got: Vec<_> = listeners
            .iter()
            .zip(&advertised)
            .map(|(l, a)| {
                (
                    l.name.as_str(),
                    l.host.as_str(),
                    l.port,
                    a.host.as_str(),
                    a.port,
                )
            })
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn p12_listeners_are_bound_as_written_and_advertised_without_brackets_or_wildcards() {
        let here = host_name();
        check(
            &[],
            &[("PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", Some(9092))],
        );
        check(
            &[("listeners", "PLAINTEXT://[::1]:9094")],
            &[("PLAINTEXT", "::1", 9094, "::1", Some(9094))],
        );
        check(
            &[("listeners", "plaintext://:0")],
            &[("PLAINTEXT", "", 0, &here, None)],
        );
        check(
            &[
                ("listeners", "PLAINTEXT://0.0.0.0:9092, CONTROLLER://:9093"),
                (
                    "advertised.listeners",
                    "PLAINTEXT://kafka.example:19092,CONTROLLER://x:9093",
                ),
            ],
            &[("PLAINTEXT", "0.0.0.0", 9092, "kafka.example", Some(19092))],
        );
        check(
            &[
                ("listeners", "IN://:1,OUT://:2,CTRL://:3"),
                ("controller.listener.names", "CTRL"),
                (
                    "listener.security.protocol.map",
                    "IN:PLAINTEXT,OUT:PLAINTEXT,CTRL:SSL",
                ),
                ("advertised.listeners", "OUT://out:22"),
            ],
            &[
                ("IN", "", 1, &here, Some(1)),
                ("OUT", "", 2, "out", Some(22)),
            ],
        );
    }

    #[test]
    fn listeners_that_cannot_work_are_refused_with_the_reason() {
        for (key, value, word) in [
            ("listeners", "PLAINTEXT:9092", "NAME://host:port"),
            ("listeners", "PLAINTEXT://a:b", "port"),
            ("listeners", "PLAINTEXT://a", "port"),
            ("listeners", "PLAINTEXT://::1:9092", "brackets"),
            ("listeners", "PLAINTEXT://[::g]:9092", "brackets"),
            (
                "listener.security.protocol.map",
                "PLAINTEXT:SMTP",
                "none of PLAINTEXT",
            ),
            ("listeners", "FOO://:9092", "protocol.map"),
            ("listeners", "CONTROLLER://:9092", "only controllers"),
            (
                "listeners",
                "PLAINTEXT://:1,PLAINTEXT://:2",
                "two listeners",
            ),
            (
                "advertised.listeners",
                "PLAINTEXT://0.0.0.0:9092",
                "wildcard",
            ),
            ("advertised.listeners", "PLAINTEXT://[::]:9092", "wildcard"),
            ("advertised.listeners", "OTHER://x:9092", "no listener"),
        ] {
            let problems = listeners(&settings(&[(key, value)])).unwrap_err();
            let text = problems[0].to_string();
            assert!(text.contains(word), "{key}={value}: {text}");
        }
    }

    #[test]
    fn the_admin_listener_can_be_moved_and_switched_off() {
        let admin = |value| admin_listener(&settings(&[("admin.listener", value)]));
        assert_eq!(admin("").unwrap(), None);
        assert_eq!(
            admin("[::1]:80").unwrap().map(|l| (l.host, l.port)),
            Some(("::1".to_owned(), 80))
        );
        assert!(admin("nine").is_err());
    }
}
