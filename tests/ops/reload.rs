//! SIGHUP: what can change while the broker runs changes, and nothing else.

use std::fs;
use std::net::TcpStream;

use seawall_testkit::calls::{create_topic, produce};
use seawall_testkit::kafka_wire::DescribeConfigsRequest;
use seawall_testkit::kafka_wire::describe_configs_request::DescribeConfigsResource;
use seawall_testkit::nix::sys::signal::Signal;
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw, tempfile};

use crate::{metric, setup};

struct Configured {
    broker: Broker,
    file: tempfile::NamedTempFile,
}

fn configured(text: &str) -> Configured {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), text).expect("write the configuration");
    let broker = setup().config(file.path()).start();
    Configured { broker, file }
}

impl Configured {
    /// Sends SIGHUP and waits until a counter has moved.
    fn reload(&self, text: &str, counter: &str) {
        fs::write(self.file.path(), text).expect("write the configuration");
        let before = metric(&self.broker, counter);
        self.broker.signal(Signal::SIGHUP);
        wait::until(counter, SOON, || metric(&self.broker, counter) > before);
    }
}

const TAKEN: &str = "seawall_config_reloads_total";
const REFUSED: &str = "seawall_config_reloads_refused_total";

/// What DescribeConfigs tells of a broker's (type 4) or a topic's (type 2) key.
fn described(raw: &mut Raw, kind: i8, name: &str, key: &str) -> String {
    let mut resource = DescribeConfigsResource::default();
    resource.resource_type = kind;
    resource.resource_name = name.into();
    resource.configuration_keys = None;
    let mut request = DescribeConfigsRequest::default();
    request.resources = vec![resource];
    let answer = raw.call::<DescribeConfigsRequest>(4, &request);
    let configs = &answer.results[0].configs;
    let row = configs.iter().find(|row| row.name.as_str() == key);
    let value = row.and_then(|row| row.value.clone());
    value.expect("a value").as_str().to_owned()
}

#[test]
fn defaults_of_topics_are_taken_over_and_acted_on() {
    let configured = configured("message.max.bytes=500\nlog.retention.bytes=7\n");
    let broker = &configured.broker;
    let mut raw = broker.connect();
    let plain = create_topic(&mut raw, "plain", 1, &[]);
    let own = create_topic(&mut raw, "own", 1, &[("max.message.bytes", "600")]);
    let long = BatchBuilder::of(&["x".repeat(1000).as_str()]).build();
    let refused = |raw: &mut Raw, topic| produce(raw, topic, 0, -1, long.clone()).error_code;
    assert_eq!(refused(&mut raw, &plain), 10);
    configured.reload("message.max.bytes=5000\n", TAKEN);
    assert_eq!(refused(&mut raw, &plain), 0, "the new default");
    assert_eq!(refused(&mut raw, &own), 10, "the topic's own value stays");
    let later = create_topic(&mut raw, "later", 1, &[]);
    assert_eq!(refused(&mut raw, &later), 0);
    assert_eq!(described(&mut raw, 4, "1", "message.max.bytes"), "5000");
    assert_eq!(described(&mut raw, 2, "plain", "max.message.bytes"), "5000");
    assert_eq!(described(&mut raw, 2, "plain", "retention.bytes"), "-1");
    let log = broker.log();
    assert!(
        log.contains("taken over: message.max.bytes, log.retention.bytes"),
        "{log}"
    );
}

#[test]
fn what_needs_a_restart_is_told_and_does_not_change() {
    let configured = configured("num.partitions=2\n");
    configured.reload("num.partitions=3\n", TAKEN);
    let mut raw = configured.broker.connect();
    assert_eq!(described(&mut raw, 4, "1", "num.partitions"), "2");
    let log = configured.broker.log();
    assert!(log.contains("waits for a restart: num.partitions"), "{log}");
}

#[test]
fn a_wrong_file_changes_nothing_and_is_told_with_its_line() {
    let configured = configured("message.max.bytes=500\n");
    configured.reload("message.max.bytes=5000\nnum.partitons=1\n", REFUSED);
    let mut raw = configured.broker.connect();
    assert_eq!(described(&mut raw, 4, "1", "message.max.bytes"), "500");
    let log = configured.broker.log();
    let file = configured.file.path().display();
    let line = format!("not reloaded: {file}:2: unknown key 'num.partitons'");
    assert!(log.contains(&line), "{log}");
    configured.reload("message.max.bytes=5000\n", TAKEN);
    assert_eq!(described(&mut raw, 4, "1", "message.max.bytes"), "5000");
}

#[test]
fn the_level_of_the_log_changes() {
    let configured = configured("logging.level=warn\n");
    assert!(!configured.broker.log().contains("INFO"));
    configured.reload("logging.level=debug\n", TAKEN);
    drop(configured.broker.connect());
    wait::until("a closed connection is told at debug", SOON, || {
        configured.broker.log().contains("DEBUG seawall_net")
    });
}

#[test]
fn limits_of_connections_change_for_those_who_come_later() {
    let configured = configured("max.connections=20\n");
    let broker = &configured.broker;
    let held = [broker.connect(), broker.connect(), broker.connect()];
    configured.reload(
        "max.connections=3\nmax.connection.creation.rate=500\n",
        TAKEN,
    );
    let refused = || metric(broker, "seawall_connections_refused_total");
    let before = refused();
    let _fourth = TcpStream::connect(broker.addr()).expect("the kernel takes it");
    wait::until("the fourth is refused", SOON, || refused() > before);
    for mut raw in held {
        create_topic_again(&mut raw);
    }
    configured.reload("max.connections=20\n", TAKEN);
    create_topic_again(&mut broker.connect());
    let log = broker.log();
    assert!(!log.contains("waits for a restart"), "{log}");
}

/// Any request that is answered.
fn create_topic_again(raw: &mut Raw) {
    assert_eq!(described(raw, 4, "1", "num.partitions"), "1");
}

#[test]
fn producers_are_forgotten_by_the_new_time() {
    let configured = configured("producer.id.expiration.ms=600000\n");
    let broker = &configured.broker;
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "remembers", 1, &[]);
    let batch = |sequence| {
        let one = BatchBuilder::of(&["x"]).producer(7_000, 0, sequence);
        one.build()
    };
    let told = |raw: &mut Raw, sequence| produce(raw, &topic, 0, -1, batch(sequence)).error_code;
    assert_eq!(told(&mut raw, 0), 0);
    assert_eq!(
        told(&mut raw, 5),
        45,
        "a gap in the sequence of one who is known"
    );
    configured.reload("producer.id.expiration.ms=1\n", TAKEN);
    wait::until("who is not known any more may begin anywhere", SOON, || {
        told(&mut raw, 5) != 45
    });
    assert_eq!(
        described(&mut raw, 4, "1", "producer.id.expiration.ms"),
        "1"
    );
}
