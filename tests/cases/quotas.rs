//! Limits of clients over real sockets: told, kept exactly, and nobody else's business.

use std::time::{Duration, Instant};

use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::{
    AlterClientQuotasRequest, ApiVersionsRequest, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, DescribeClientQuotasRequest, FetchRequest, ListGroupsRequest,
    MetadataRequest, OffsetDeleteRequest, ProduceRequest, alter_client_quotas_request,
    describe_client_quotas_request,
};
use seawall_testkit::requests;
use seawall_testkit::{BatchBuilder, Broker, Bytes, Raw, Setup, metrics, wait};

use super::codes;
use crate::setup;

const THROTTLING_QUOTA_EXCEEDED: i16 = 89;

type Part<'a> = (&'a str, Option<&'a str>);

fn alter(raw: &mut Raw, entity: &[Part<'_>], ops: &[(&str, Option<f64>)]) -> i16 {
    let mut entry = alter_client_quotas_request::EntryData::default();
    let parts = entity.iter().map(|(kind, name)| {
        let mut part = alter_client_quotas_request::EntityData::default();
        part.entity_type = (*kind).into();
        part.entity_name = name.map(Into::into);
        part
    });
    entry.entity = parts.collect();
    let changes = ops.iter().map(|(key, value)| {
        let mut op = alter_client_quotas_request::OpData::default();
        op.key = (*key).into();
        op.value = value.unwrap_or(0.0);
        op.remove = value.is_none();
        op
    });
    entry.ops = changes.collect();
    let mut request = AlterClientQuotasRequest::default();
    request.entries = vec![entry];
    let answer = raw.call::<AlterClientQuotasRequest>(1, &request);
    answer.entries[0].error_code
}

fn described(raw: &mut Raw, version: i16, parts: &[(&str, i8, Option<&str>)]) -> Vec<String> {
    let mut request = DescribeClientQuotasRequest::default();
    let parts = parts.iter().map(|(kind, how, name)| {
        let mut part = describe_client_quotas_request::ComponentData::default();
        part.entity_type = (*kind).into();
        part.match_type = *how;
        part.match_ = name.map(Into::into);
        part
    });
    request.components = parts.collect();
    let answer = raw.call::<DescribeClientQuotasRequest>(version, &request);
    assert_eq!(answer.error_code, codes::NONE);
    let rows = answer.entries.expect("entries").into_iter().map(|row| {
        let parts = row.entity.iter().map(|part| {
            let name = part
                .entity_name
                .as_ref()
                .map_or("<default>", |name| name.as_str());
            format!("{}={name}", part.entity_type.as_str())
        });
        let values = row.values.iter();
        let values = values.map(|value| format!("{}={}", value.key.as_str(), value.value));
        let all: Vec<String> = parts.chain(values).collect();
        all.join(" ")
    });
    rows.collect()
}

/// Samples of one second, so that tests are short.
fn quick() -> Setup {
    setup()
        .set("quota.window.num", "2")
        .set("controller.quota.window.num", "2")
}

fn record_of(bytes: usize) -> Bytes {
    BatchBuilder::of(&["x".repeat(bytes).as_str()]).build()
}

fn other(broker: &Broker) -> Raw {
    broker.connect().as_client("other")
}

/// Sends a Metadata request and says when its answer came.
fn answered_at(raw: &mut Raw) -> Instant {
    raw.call::<MetadataRequest>(9, &requests::metadata(9, &[]));
    Instant::now()
}

#[test]
fn limits_are_described_as_they_were_set_and_survive_a_kill() {
    let mut broker = quick().start();
    let mut raw = broker.connect();
    let rate = ("producer_byte_rate", Some(1024.0));
    assert_eq!(
        alter(&mut raw, &[("user", Some("alice"))], &[rate]),
        codes::NONE
    );
    let both = [("user", Some("alice")), ("client-id", None)];
    let percent = ("request_percentage", Some(50.0));
    assert_eq!(alter(&mut raw, &both, &[rate, percent]), codes::NONE);
    let ip = [("ip", Some("10.0.0.1"))];
    let creation = ("connection_creation_rate", Some(7.0));
    assert_eq!(alter(&mut raw, &ip, &[creation]), codes::NONE);
    for round in 0..2 {
        for version in 0..=1 {
            assert_eq!(described(&mut raw, version, &[]).len(), 3, "{round}");
            assert_eq!(
                described(&mut raw, version, &[("client-id", 1, None)]),
                ["user=alice client-id=<default> producer_byte_rate=1024 request_percentage=50"]
            );
            assert_eq!(
                described(&mut raw, version, &[("ip", 0, Some("10.0.0.1"))]),
                ["ip=10.0.0.1 connection_creation_rate=7"]
            );
            assert_eq!(described(&mut raw, version, &[("user", 2, None)]).len(), 2);
        }
        if round == 0 {
            broker.crash_and_restart();
            raw = broker.connect();
        }
    }
    assert_eq!(
        alter(&mut raw, &ip, &[("connection_creation_rate", None)]),
        codes::NONE
    );
    assert_eq!(described(&mut raw, 1, &[]).len(), 2);
}

#[test]
fn what_no_limit_can_be_is_refused() {
    let broker = quick().start();
    let mut raw = broker.connect();
    let rate = ("producer_byte_rate", Some(1.0));
    let (user, ip) = (("user", Some("u")), ("ip", Some("10.0.0.1")));
    for (entity, op) in [
        (vec![], rate),
        (vec![("group", Some("g"))], rate),
        (vec![user, ("ip", Some("10.0.0.1"))], rate),
        (
            vec![("ip", Some("../../x"))],
            ("connection_creation_rate", Some(1.0)),
        ),
        (vec![("ip", Some("10.0.0.1"))], rate),
        (vec![user], ("connection_creation_rate", Some(1.0))),
        (vec![user], ("made_up", Some(1.0))),
        (vec![user], ("producer_byte_rate", Some(0.0))),
        (vec![user], ("producer_byte_rate", Some(-1.0))),
        (vec![user], ("producer_byte_rate", Some(f64::NAN))),
        (vec![user], ("producer_byte_rate", Some(f64::INFINITY))),
        (vec![user], ("producer_byte_rate", Some(0.5))),
        (vec![user], ("consumer_byte_rate", Some(1e19))),
        (vec![ip], ("connection_creation_rate", Some(1.5))),
        (vec![ip], ("connection_creation_rate", Some(3e9))),
    ] {
        assert_eq!(
            alter(&mut raw, &entity, &[op]),
            codes::INVALID_REQUEST,
            "{entity:?} {op:?}"
        );
    }
    assert_eq!(described(&mut raw, 1, &[]).len(), 0);
}

#[test]
fn an_address_is_the_same_in_whatever_form_it_is_written() {
    let broker = quick().start();
    let mut raw = broker.connect();
    let limit = |rate| [("connection_creation_rate", rate)];
    let entity = |form| [("ip", Some(form))];
    for (form, short) in [("0:0::0:1", "::1"), ("::ffff:10.0.0.1", "10.0.0.1")] {
        assert_eq!(
            alter(&mut raw, &entity(form), &limit(Some(7.0))),
            codes::NONE
        );
        let expected = [format!("ip={short} connection_creation_rate=7")];
        for asked in [form, short] {
            assert_eq!(described(&mut raw, 1, &[("ip", 0, Some(asked))]), expected);
        }
        assert_eq!(alter(&mut raw, &entity(short), &limit(None)), codes::NONE);
        assert!(described(&mut raw, 1, &[]).is_empty());
    }
}

#[test]
fn a_producer_above_its_rate_is_told_how_long_and_muted_for_exactly_that() {
    let broker = quick().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "fed", 1, &[]);
    let rate = [("producer_byte_rate", Some(10_000.0))];
    assert_eq!(
        alter(&mut raw, &[("client-id", Some("test"))], &rate),
        codes::NONE
    );
    for version in [calls::PRODUCE, 13] {
        let request = requests::produce(version, &topic, -1, vec![(0, Some(record_of(20_000)))]);
        let answer = raw.call::<ProduceRequest>(version, &request);
        let told = Instant::now();
        assert_eq!(
            answer.responses[0].partition_responses[0].error_code,
            codes::NONE
        );
        assert!(answer.throttle_time_ms > 500, "{}", answer.throttle_time_ms);
        // Others are served meanwhile, and the one that has to wait is served then.
        assert!(answered_at(&mut other(&broker)) < told + throttle(answer.throttle_time_ms));
        let behind = answered_at(&mut raw);
        // Our clock starts when the answer has come; the broker's when it left.
        let slack = Duration::from_millis(20);
        assert!(behind + slack >= told + throttle(answer.throttle_time_ms));
    }
    let page = metrics::scrape(broker.admin());
    assert!(page.contains("seawall_quota_throttles_total{quota=\"producer_byte_rate\"} 2"));
    let answer = calls::produce(&mut other(&broker), &topic, 0, -1, record_of(50_000));
    assert_eq!(answer.error_code, codes::NONE);
}

fn throttle(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).expect("not negative"))
}

#[test]
fn a_silent_producer_is_held_up_as_well() {
    let broker = quick().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "silent", 1, &[]);
    let rate = [("producer_byte_rate", Some(10_000.0))];
    assert_eq!(alter(&mut raw, &[("user", None)], &rate), codes::NONE);
    let request = requests::produce(
        calls::PRODUCE,
        &topic,
        0,
        vec![(0, Some(record_of(20_000)))],
    );
    let sent = Instant::now();
    raw.send::<ProduceRequest>(calls::PRODUCE, &request);
    let behind = answered_at(&mut raw);
    assert!(
        behind > sent + Duration::from_millis(500),
        "{:?}",
        behind - sent
    );
}

#[test]
fn a_consumer_gets_no_more_at_once_than_its_window_and_waits_for_the_rest() {
    let broker = quick().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "eaten", 1, &[]);
    for _ in 0..10 {
        calls::append(&mut raw, &topic, 0, record_of(5_000));
    }
    let rate = [("consumer_byte_rate", Some(12_000.0))];
    assert_eq!(
        alter(&mut raw, &[("client-id", Some("test"))], &rate),
        codes::NONE
    );
    let (mut offset, mut told_ms) = (0, 0);
    let started = Instant::now();
    while offset < 10 {
        let from = [requests::FetchFrom::new(0, offset)];
        let request = requests::fetch(calls::FETCH, &topic, requests::AT_ONCE, &from);
        let answer = raw.call::<FetchRequest>(calls::FETCH, &request);
        let data = &answer.responses[0].partitions[0];
        let batches = calls::whole_batches(data);
        assert!(!batches.is_empty(), "a reader always gets on");
        assert!(data.records.as_ref().map_or(0, Bytes::len) < 13_000);
        offset += i64::try_from(batches.len()).expect("few");
        told_ms += answer.throttle_time_ms;
    }
    answered_at(&mut raw);
    assert!(told_ms > 1_000, "{told_ms}");
    assert!(started.elapsed() + Duration::from_millis(50) >= throttle(told_ms));
    let all = calls::read_from(&mut other(&broker), &topic, 0, 0);
    assert_eq!(all.len(), 10, "nobody else is held up");
}

#[test]
fn topics_beyond_the_rate_of_changes_are_refused_to_new_clients_and_late_for_old_ones() {
    let broker = quick().start();
    let mut raw = broker.connect();
    let rate = [("controller_mutation_rate", Some(1.0))];
    assert_eq!(
        alter(&mut raw, &[("user", Some("ANONYMOUS"))], &rate),
        codes::NONE
    );
    // Two are there at first, and they may be overdrawn once.
    let topics = ["m1", "m2", "m3"].map(|name| requests::topic(name, 4, &[]));
    let request = requests::create_topics(topics.to_vec());
    let answer = raw.call::<CreateTopicsRequest>(7, &request);
    let found: Vec<i16> = answer.topics.iter().map(|topic| topic.error_code).collect();
    let refused = THROTTLING_QUOTA_EXCEEDED;
    assert_eq!(found, [codes::NONE, refused, refused]);
    assert!(
        (1_000..=2_000).contains(&answer.throttle_time_ms),
        "{}",
        answer.throttle_time_ms
    );
    let behind = raw.call::<CreateTopicsRequest>(
        5,
        &requests::create_topics(vec![requests::topic("m4", 3, &[])]),
    );
    assert_eq!(
        behind.topics[0].error_code,
        codes::NONE,
        "an old client gets it"
    );
    assert!(
        behind.throttle_time_ms >= 2_000,
        "{}",
        behind.throttle_time_ms
    );
    // Another connection is not muted, and its user has used up the rate.
    let mut second = broker.connect();
    let request = requests::delete_topics(6, &["m1"]);
    let answer = second.call::<DeleteTopicsRequest>(6, &request);
    assert_eq!(answer.responses[0].error_code, refused);
    let mut third = broker.connect();
    let request = requests::create_partitions("m1", 9);
    let answer = third.call::<CreatePartitionsRequest>(3, &request);
    assert_eq!(answer.results[0].error_code, refused);
}

#[test]
fn what_creates_nothing_costs_nothing_and_nobody_waits_where_nothing_was_refused() {
    let broker = quick().start();
    let mut raw = broker.connect();
    create_topic(&mut raw, "there", 1, &[]);
    let rate = [("controller_mutation_rate", Some(1.0))];
    assert_eq!(
        alter(&mut raw, &[("user", Some("ANONYMOUS"))], &rate),
        codes::NONE
    );
    let mut create = |topic| {
        let request = requests::create_topics(vec![topic]);
        let answer = raw.call::<CreateTopicsRequest>(7, &request);
        (answer.topics[0].error_code, answer.throttle_time_ms)
    };
    // Each of these alone would use up the rate.
    let exists = create(requests::topic("there", 500, &[]));
    assert_eq!(exists, (codes::TOPIC_ALREADY_EXISTS, 0));
    let unnamed = create(requests::topic("no/name", 500, &[]));
    assert_eq!(unnamed, (codes::INVALID_TOPIC, 0));
    let wrong = create(requests::topic("wrong", 500, &[("no.such.key", "1")]));
    assert_eq!(wrong, (codes::INVALID_CONFIG, 0));
    // The rate may be overdrawn once: that is not refused, and so held up only later.
    assert_eq!(create(requests::topic("new", 500, &[])), (codes::NONE, 0));
    let (code, told) = create(requests::topic("newer", 1, &[]));
    assert_eq!(code, THROTTLING_QUOTA_EXCEEDED);
    assert!(told > 400_000, "{told}");
    // What exists is still said to exist.
    let mut second = broker.connect();
    let request = requests::create_topics(vec![requests::topic("there", 1, &[])]);
    let answer = second.call::<CreateTopicsRequest>(7, &request);
    assert_eq!(answer.topics[0].error_code, codes::TOPIC_ALREADY_EXISTS);
}

#[test]
fn topics_that_are_made_by_asking_for_them_count_as_well() {
    let broker = quick().set("num.partitions", "500").start();
    let mut raw = broker.connect();
    let rate = [("controller_mutation_rate", Some(1.0))];
    assert_eq!(
        alter(&mut raw, &[("user", Some("ANONYMOUS"))], &rate),
        codes::NONE
    );
    let mut ask = |name| {
        let mut request = requests::metadata(9, &[name]);
        request.allow_auto_topic_creation = true;
        raw.call::<MetadataRequest>(9, &request).topics[0].error_code
    };
    assert_eq!(ask("first"), codes::NONE);
    assert_eq!(ask("second"), codes::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(ask("first"), codes::NONE);
}

#[test]
fn an_answer_that_cannot_tell_a_throttle_time_is_followed_by_the_same_silence() {
    let broker = quick().start();
    let mut raw = broker.connect();
    let percent = [("request_percentage", Some(0.000_1))];
    assert_eq!(
        alter(&mut raw, &[("client-id", Some("busy"))], &percent),
        codes::NONE
    );
    // One that has taken too much, and is over its first silence.
    let used_up = || {
        let mut busy = broker.connect().as_client("busy");
        answered_at(&mut busy);
        answered_at(&mut busy);
        busy
    };
    let silence = Duration::from_millis(500);
    for old in [true, false] {
        let mut busy = used_up();
        let told = if old {
            busy.call::<ListGroupsRequest>(0, &ListGroupsRequest::default());
            None
        } else {
            let mut request = OffsetDeleteRequest::default();
            request.group_id = "nobody's".into();
            Some(
                busy.call::<OffsetDeleteRequest>(0, &request)
                    .throttle_time_ms,
            )
        };
        let answered = Instant::now();
        let behind = answered_at(&mut busy) - answered;
        assert!(behind > silence, "{told:?}: {behind:?}");
        assert!(told.is_none_or(|ms| ms > 500), "{told:?}");
    }
    let mut busy = used_up();
    let versions = busy.call::<ApiVersionsRequest>(2, &ApiVersionsRequest::default());
    assert!(
        versions.throttle_time_ms > 500,
        "{}",
        versions.throttle_time_ms
    );
}

#[test]
fn a_client_that_takes_too_much_time_is_held_up() {
    let broker = quick().start();
    let mut raw = broker.connect();
    let percent = [("request_percentage", Some(0.000_1))];
    assert_eq!(
        alter(&mut raw, &[("client-id", Some("busy"))], &percent),
        codes::NONE
    );
    let mut busy = broker.connect().as_client("busy");
    busy.call::<MetadataRequest>(9, &requests::metadata(9, &[]));
    let answer = busy.call::<MetadataRequest>(9, &requests::metadata(9, &[]));
    let told = Instant::now();
    // One sample at most.
    assert!(
        (1..=1_000).contains(&answer.throttle_time_ms),
        "{}",
        answer.throttle_time_ms
    );
    let behind = answered_at(&mut busy) + Duration::from_millis(20);
    assert!(behind >= told + throttle(answer.throttle_time_ms));
    let free = raw.call::<MetadataRequest>(9, &requests::metadata(9, &[]));
    assert_eq!(free.throttle_time_ms, 0);
}

#[test]
fn an_address_that_connects_too_often_is_turned_away_and_others_come_in() {
    let broker = quick().start();
    let mut raw = broker.connect();
    let rate = [("connection_creation_rate", Some(3.0))];
    assert_eq!(
        alter(&mut raw, &[("ip", Some("127.0.0.3"))], &rate),
        codes::NONE
    );
    let from = "127.0.0.3".parse().expect("an address");
    let mut all: Vec<Raw> = (0..6)
        .map(|_| Raw::connect_from(from, broker.addr()))
        .collect();
    let served = all.iter_mut().take(3);
    for one in served {
        answered_at(one);
    }
    for one in all.iter_mut().skip(3) {
        one.send::<MetadataRequest>(9, &requests::metadata(9, &[]));
        one.expect_closed("an address that connects too often");
    }
    answered_at(&mut broker.connect());
    let page = metrics::scrape(broker.admin());
    assert_eq!(
        metrics::value(&page, "seawall_connections_turned_away_total"),
        Some(3.0)
    );
    drop(all);
    wait::until("the address may connect again", wait::SOON, || {
        let mut again = Raw::connect_from(from, broker.addr());
        let request = requests::metadata(9, &[]);
        again.send::<MetadataRequest>(9, &request);
        again.read_frame().is_some()
    });
}

#[test]
fn some_addresses_may_hold_fewer_connections() {
    let broker = setup()
        .set("max.connections.per.ip.overrides", "127.0.0.4:1,[::1]:9")
        .start();
    let from = "127.0.0.4".parse().expect("an address");
    let mut first = Raw::connect_from(from, broker.addr());
    answered_at(&mut first);
    let mut second = Raw::connect_from(from, broker.addr());
    second.send::<MetadataRequest>(9, &requests::metadata(9, &[]));
    second.expect_closed("the second connection of that address");
    answered_at(&mut broker.connect());
}
