//! Small inputs that must work, each named after its line in the table of cases, against the whole broker by a socket.
//!
//! The values expected here stand in those tables, or are what Apache Kafka 4.4.0 answers to the same bytes. Run against
//! Kafka itself with `SEAWALL_TEST_KAFKA=<directory with its jars> cargo test --test cases`.

mod cases {
    mod access;
    mod access_under_way;
    mod access_users;
    mod access_walk;
    mod admin;
    mod alter;
    pub(crate) mod codes;
    mod compaction;
    mod consumer_group_life;
    mod consumer_groups;
    mod deletion;
    mod doctor;
    mod fetch;
    mod fetch_sessions;
    mod group_members;
    mod group_offsets;
    mod group_retention;
    mod groups;
    mod hostile;
    pub(crate) mod hostile_load;
    mod hostile_login;
    mod idempotence;
    mod listener_limits;
    mod log_dirs;
    pub(crate) mod logins;
    mod oauth;
    mod produce;
    mod protocol;
    mod quotas;
    mod retention;
    pub(crate) mod sasl;
    mod storage;
    mod threads;
    mod tls;
    mod tools;
    mod topics;
    mod transactions;
    mod txn_admin;
    mod txn_crashes;
    mod users;
}

use std::env;

use seawall_testkit::{Broker, Setup};

/// How a broker of these tests is started; settings may be added.
fn setup() -> Setup {
    Setup::new(env!("CARGO_BIN_EXE_seawall"))
}

/// A broker with its defaults.
fn broker() -> Broker {
    setup().start()
}

/// A number of repetitions: `bounded` in everyday runs, `full` with `tests/run --all`.
fn times(bounded: usize, full: usize) -> usize {
    if env::var_os("SEAWALL_TEST_FULL").is_some() {
        full
    } else {
        bounded
    }
}

/// Whether the test is about something that only our broker promises, and so has nothing to say about Kafka.
fn not_for_kafka(broker: &Broker) -> bool {
    if broker.is_kafka() {
        eprintln!("left out: promised by Seawall only");
    }
    broker.is_kafka()
}
