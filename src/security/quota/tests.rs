use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entity::{Entity, Name, QuotaKind};
use super::meter::{Meter, Tokens, Window};
use super::quotas::{Client, Quotas};
use super::store::{Alteration, QuotaStore};
use super::table::{Match, Wanted};
use crate::cluster::state_file::real_disk;

const WINDOW: Window = Window {
    samples: 11,
    sample: Duration::from_secs(1),
};

fn entity(user: Option<&str>, client_id: Option<&str>) -> Entity {
    let name = |name: &str| match name {
        "<default>" => Name::Default,
        name => Name::Of(name.to_owned()),
    };
    Entity {
        user: user.map(name),
        client_id: client_id.map(name),
        ip: None,
    }
}

fn set(entity: Entity, kind: QuotaKind, limit: f64) -> Alteration {
    Alteration {
        entity,
        limits: vec![(kind, Some(limit))],
    }
}

fn quotas(dir: &std::path::Path) -> Quotas {
    let store = QuotaStore::open(real_disk(), dir, None).unwrap();
    Quotas::new(store, WINDOW, WINDOW)
}

#[test]
fn the_most_special_limit_counts_and_its_meter_is_shared_as_in_kafka() {
    let dir = tempfile::tempdir().unwrap();
    let quotas = quotas(dir.path());
    assert!(!quotas.has_limits());
    let kind = QuotaKind::ProducerByteRate;
    // From the most general to the most special, each beats all before it.
    let order = [
        (None, Some("<default>"), (false, true)),
        (None, Some("c"), (false, true)),
        (Some("<default>"), None, (true, false)),
        (Some("<default>"), Some("<default>"), (true, true)),
        (Some("<default>"), Some("c"), (true, true)),
        (Some("u"), None, (true, false)),
        (Some("u"), Some("<default>"), (true, true)),
        (Some("u"), Some("c"), (true, true)),
    ];
    let mut limit = 0.0;
    for (user, client, shared) in order {
        limit += 1.0;
        quotas
            .alter(&[set(entity(user, client), kind, limit)])
            .unwrap();
        let found = quotas.store().load().of_client("u", "c", kind).unwrap();
        assert_eq!(found.limit, limit, "{user:?} {client:?}");
        assert_eq!((found.by_user, found.by_client), shared);
        let other = quotas
            .store()
            .load()
            .of_client("u", "c", QuotaKind::ConsumerByteRate);
        assert_eq!(other, None, "kinds are looked up one by one");
    }
    assert!(quotas.has_limits());
    let again = self::quotas(dir.path());
    let found = again.store().load().of_client("v", "d", kind).unwrap();
    assert_eq!(found.limit, 4.0, "after a start");
}

#[test]
fn a_rate_above_its_limit_waits_until_the_average_is_the_limit() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut meter = Meter::default();
    // Within the first second ten full samples count as covered: 10,000 may come at once.
    meter.record(WINDOW, at(0), 10_000.0);
    assert_eq!(meter.throttle(WINDOW, at(0), 1_000.0), Duration::ZERO);
    meter.record(WINDOW, at(10), 1_000.0);
    let wait = meter.throttle(WINDOW, at(10), 1_000.0);
    assert_eq!(wait.as_millis(), 990, "11,000 in 10.01 s");
    // A steady sender at twice the rate is held to the rate.
    let (mut meter, mut now_ms, mut sent) = (Meter::default(), 0_u64, 0.0);
    while now_ms < 120_000 {
        meter.record(WINDOW, at(now_ms), 200.0);
        sent += 200.0;
        let wait = meter.throttle(WINDOW, at(now_ms), 1_000.0);
        now_ms += 100 + u64::try_from(wait.as_millis()).unwrap();
    }
    let rate = sent / 120.0;
    assert!((950.0..1_100.0).contains(&rate), "{rate}");
    // What is over is over.
    assert!(meter.is_idle(WINDOW, at(200_000)));
}

#[test]
fn mutations_have_a_burst_and_may_overdraw_once() {
    let start = Instant::now();
    let mut tokens = Tokens::default();
    assert!(tokens.has_some(WINDOW, start, 2.0));
    tokens.take(WINDOW, start, (32.0, 2.0));
    assert!(!tokens.has_some(WINDOW, start, 2.0), "22 were there");
    assert_eq!(tokens.throttle(WINDOW, start, 2.0).as_secs(), 5);
    let later = start + Duration::from_secs(5);
    assert!(tokens.has_some(WINDOW, later, 2.0));
    assert_eq!(tokens.throttle(WINDOW, later, 2.0), Duration::ZERO);
}

#[test]
fn strangers_cannot_fill_the_memory_with_names() {
    let dir = tempfile::tempdir().unwrap();
    let quotas = quotas(dir.path());
    let kind = QuotaKind::ProducerByteRate;
    let everybody = entity(None, Some("<default>"));
    quotas.alter(&[set(everybody, kind, 1.0)]).unwrap();
    let user: Arc<str> = "u".into();
    let mut held_up = 0;
    for number in 0..60_000 {
        let client = Client {
            user: Arc::clone(&user),
            id: number.to_string().into(),
        };
        held_up += usize::from(!quotas.bytes(&client, kind, 1).is_zero());
    }
    assert!(quotas.meters_len() <= 50_001, "{}", quotas.meters_len());
    assert!(
        held_up > 9_000,
        "newcomers beyond the limit share one meter: {held_up}"
    );
}

#[test]
fn entities_are_found_by_parts_and_strictly_by_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let quotas = quotas(dir.path());
    let kind = QuotaKind::RequestPercentage;
    for one in [
        entity(Some("u"), None),
        entity(Some("u"), Some("c")),
        entity(Some("<default>"), None),
        entity(None, Some("c")),
    ] {
        quotas.alter(&[set(one, kind, 10.0)]).unwrap();
    }
    let count = |wanted: &[(&str, Match)], strict| {
        let wanted: Vec<Wanted> = wanted
            .iter()
            .map(|(kind, name)| Wanted {
                kind: (*kind).to_owned(),
                name: name.clone(),
            })
            .collect();
        quotas.store().load().matching(&wanted, strict).len()
    };
    let exactly = |name: &str| Match::Exactly(name.to_owned());
    assert_eq!(count(&[], false), 4);
    assert_eq!(count(&[("user", exactly("u"))], false), 2);
    assert_eq!(count(&[("user", exactly("u"))], true), 1);
    assert_eq!(count(&[("user", Match::Default)], true), 1);
    assert_eq!(count(&[("user", Match::Any)], false), 3);
    assert_eq!(
        count(&[("user", Match::Any), ("client-id", Match::Any)], true),
        1
    );
    assert_eq!(count(&[("ip", Match::Any)], false), 0);
    let gone = Alteration {
        entity: entity(Some("u"), None),
        limits: vec![(kind, None)],
    };
    quotas.alter(&[gone]).unwrap();
    assert_eq!(count(&[("user", exactly("u"))], true), 0);
}

#[test]
fn parts_that_do_not_go_together_and_limits_of_others_are_refused() {
    let mut ip = Entity::default();
    ip.put("ip", Some("10.0.0.1")).unwrap();
    assert!(ip.check().is_ok() && ip.kind_of("connection_creation_rate").is_ok());
    assert!(ip.kind_of("producer_byte_rate").is_err());
    ip.put("user", None).unwrap();
    assert!(ip.check().is_err());
    let mut host = Entity::default();
    host.put("ip", Some("../../etc/passwd")).unwrap();
    assert!(host.check().is_err());
    assert!(Entity::default().check().is_err());
    let mut user = Entity::default();
    assert!(user.put("group", Some("g")).is_err());
    assert!(user.put("user", Some("")).is_err());
    user.put("user", Some("u")).unwrap();
    assert!(user.put("user", Some("v")).is_err());
    assert!(user.kind_of("connection_creation_rate").is_err());
}

#[test]
fn an_address_is_held_up_for_one_sample_at_most_however_small_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let quotas = quotas(dir.path());
    let mut address = Entity::default();
    address.put("ip", Some("10.0.0.1")).unwrap();
    let kind = QuotaKind::ConnectionCreationRate;
    for limit in [1e-3, 1e-300, f64::MIN_POSITIVE] {
        quotas.alter(&[set(address.clone(), kind, limit)]).unwrap();
        let wait = quotas.connect("10.0.0.1".parse().unwrap());
        assert_eq!(wait, WINDOW.sample, "{limit}");
    }
}
