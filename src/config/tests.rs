use super::broker_keys::BROKER_KEYS;
use super::spec::KeySpec;
use super::topic_keys::TOPIC_KEYS;
use super::*;
use std::io::Write;

fn load(file: &str, set: &[&str]) -> Result<Config, ConfigError> {
    let mut written = tempfile::NamedTempFile::new().unwrap();
    written.write_all(file.as_bytes()).unwrap();
    let set = set.iter().map(|&text| text.to_owned()).collect();
    Config::load(&CommandLine {
        file: Some(written.path().to_owned()),
        set,
        ..CommandLine::default()
    })
}

#[test]
fn seawall_alone_listens_on_localhost_and_stores_in_data() {
    let config = Config::load(&CommandLine::default()).unwrap();
    assert_eq!(
        config.listeners[0].addrs().unwrap(),
        ["127.0.0.1:9092".parse().unwrap()]
    );
    assert_eq!(config.log_dirs, [PathBuf::from("./data")]);
    assert_eq!(config.cluster_dir, None);
    assert_eq!(config.node_id.get(), 1);
    assert_eq!(config.flush_stall_timeout_ms, 20_000);
    assert_eq!(
        (
            config.request_bytes_max,
            config.request_before_login_bytes_max
        ),
        (100 << 20, 512 << 10)
    );
    assert!(
        config.connections_max < u32::MAX && config.queued_request_bytes_max < u64::MAX,
        "every limit is finite"
    );
    assert!(config.warning().is_none());
}

#[test]
fn options_beat_the_file_and_set_beats_options() {
    let file = "node.id=7\nlog.dirs=/a,/b\nlisteners=PLAINTEXT://:1\nnum.partitions=4\n";
    let mut written = tempfile::NamedTempFile::new().unwrap();
    written.write_all(file.as_bytes()).unwrap();
    let config = Config::load(&CommandLine {
        file: Some(written.path().to_owned()),
        data_dir: Some("/c".into()),
        listen: Some("[::1]:0".to_owned()),
        set: vec!["num.partitions=9".to_owned(), "log.dirs=/d".to_owned()],
    })
    .unwrap();
    assert_eq!(config.node_id.get(), 7);
    assert_eq!(config.log_dirs, [PathBuf::from("/d")]);
    assert_eq!(
        (config.listeners[0].host.as_str(), config.listeners[0].port),
        ("::1", 0)
    );
    assert_eq!(config.num_partitions, 9);
}

#[test]
fn a_file_of_a_kafka_broker_and_controller_works_and_gives_one_warning() {
    let config = load(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n\
         listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n\
         advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n\
         num.network.threads=3\nnum.io.threads=8\nsocket.send.buffer.bytes=102400\n\
         log.dirs=/tmp/kraft-combined-logs\nnum.partitions=1\noffsets.topic.replication.factor=1\n\
         log.retention.hours=168\nlog.segment.bytes=1073741824\nrlmm.config.x=y\nconfluent.metrics=1\n",
        &[],
    )
    .unwrap();
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(
        config.advertised[0],
        Advertised {
            host: "localhost".to_owned(),
            port: Some(9092)
        }
    );
    let warning = config.warning().unwrap();
    for key in [
        "process.roles",
        "num.io.threads",
        "rlmm.config.x",
        "offsets.topic.replication.factor",
    ] {
        assert!(warning.contains(key), "{warning}");
    }
    assert!(!warning.contains("log.segment.bytes"));
}

#[test]
fn what_is_wrong_is_told_with_file_and_line() {
    let text = load(
        "# x\nnum.partitons=3\n\nnum.network.threads=0\n",
        &["log.roll.ms=x"],
    )
    .unwrap_err()
    .to_string();
    assert!(
        text.contains(":2: unknown key 'num.partitons'; did you mean 'num.partitions'?"),
        "{text}"
    );
    assert!(
        text.contains(":4: num.network.threads=0: it must be from 1 to 256"),
        "{text}"
    );
    assert!(
        text.contains("--set: log.roll.ms=x: it must be a whole number of 64 bits"),
        "{text}"
    );
    assert!(
        load("a=\\u1", &[])
            .unwrap_err()
            .to_string()
            .contains(":1: ")
    );
    assert!(
        load("", &["num.partitions"])
            .unwrap_err()
            .to_string()
            .contains("key=value")
    );
}

#[test]
fn the_older_name_of_the_node_id_works_alone_or_in_agreement() {
    let id = |file| load(file, &[]).map(|config| config.node_id.get());
    assert_eq!(id("broker.id=5").unwrap(), 5);
    assert_eq!(id("broker.id=0").unwrap(), 0);
    assert_eq!(id("broker.id=-1").unwrap(), 1);
    assert_eq!(id("broker.id=5\nnode.id=5").unwrap(), 5);
    assert!(id("broker.id=5\nnode.id=6").is_err());
    assert!(id("node.id=-1").is_err());
}

#[test]
fn log_dirs_are_listed_once_and_have_names() {
    let dirs = |file| load(file, &[]).map(|config| config.log_dirs);
    assert_eq!(dirs("log.dir=/a").unwrap(), [PathBuf::from("/a")]);
    assert_eq!(
        dirs("log.dir=/a\nlog.dirs=/b , /c").unwrap(),
        [PathBuf::from("/b"), PathBuf::from("/c")]
    );
    assert!(
        dirs("log.dirs=/a,/b/../a/.").is_ok(),
        "only the file system knows whether .. leads back"
    );
    assert!(dirs("log.dirs=/a,/a/").is_err());
    assert!(dirs("log.dirs=./b,b").is_err(), "./b and b are the same");
    assert!(dirs("log.dirs=/a,,/b").is_err());
}

#[test]
fn no_limit_for_queued_bytes_is_the_default_limit() {
    assert_eq!(
        load("queued.max.request.bytes=-1", &[])
            .unwrap()
            .queued_request_bytes_max,
        256 << 20
    );
    assert_eq!(
        load("queued.max.request.bytes=99", &[])
            .unwrap()
            .queued_request_bytes_max,
        99
    );
}

#[test]
fn every_row_is_named_once_documented_and_has_a_default_that_it_accepts() {
    for table in [BROKER_KEYS, TOPIC_KEYS] {
        let mut names: Vec<&str> = table.iter().map(|spec| spec.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "no key twice");
        table.iter().for_each(check_row);
    }
    assert!(TOPIC_KEYS.is_sorted_by_key(|spec| spec.name));
}

#[track_caller]
fn check_row(spec: &KeySpec) {
    assert!(spec.doc.ends_with('.'), "{}", spec.name);
    for text in spec.default.iter().chain(spec.packaged.iter()) {
        assert!(spec.parse(text).is_ok(), "{}={text}", spec.name);
    }
    for synonym in spec.synonyms {
        let behind = broker_key(synonym.name);
        let known = behind.is_some() || foreign_keys::is_foreign(synonym.name);
        assert!(known, "{} behind {}", synonym.name, spec.name);
    }
}

#[test]
fn topic_defaults_agree_with_the_broker_keys_behind_them() {
    for spec in TOPIC_KEYS {
        let behind = spec
            .synonyms
            .iter()
            .filter_map(|s| Some(s.scale.apply(&broker_key(s.name)?.default_value())));
        for default in behind.filter(|value| *value != Value::Null) {
            assert_eq!(spec.default_value(), default, "{}", spec.name);
        }
    }
}
