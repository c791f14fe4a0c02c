//! Users: added, changed and removed, by the tool on a stopped broker and by Kafka's APIs on a running one.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use seawall_testkit::kafka_wire::*;
use seawall_testkit::{Bytes, Raw};

use super::codes;
use super::logins::{ALICE, Guarded, handshake, plain, token, user};

const SHA_256: i8 = 1;
const SHA_512: i8 = 2;

fn upsertion(
    name: &str,
    mechanism: i8,
    iterations: i32,
    salted: Vec<u8>,
) -> alter_user_scram_credentials_request::ScramCredentialUpsertion {
    let mut one = alter_user_scram_credentials_request::ScramCredentialUpsertion::default();
    one.name = name.into();
    one.mechanism = mechanism;
    one.iterations = iterations;
    one.salt = Bytes::from_static(b"a salt");
    one.salted_password = salted.into();
    one
}

fn deletion(
    name: &str,
    mechanism: i8,
) -> alter_user_scram_credentials_request::ScramCredentialDeletion {
    let mut one = alter_user_scram_credentials_request::ScramCredentialDeletion::default();
    one.name = name.into();
    one.mechanism = mechanism;
    one
}

/// (user, error) of each row, by name.
fn alter(raw: &mut Raw, request: &AlterUserScramCredentialsRequest) -> Vec<(String, i16)> {
    let answer = raw.call::<AlterUserScramCredentialsRequest>(0, request);
    let rows = answer.results.iter();
    let mut rows: Vec<(String, i16)> = rows
        .map(|row| (row.user.as_str().to_owned(), row.error_code))
        .collect();
    rows.sort();
    rows
}

/// User, error, and (mechanism, iterations) of each credential.
type Described = (String, i16, Vec<(i8, i32)>);

fn describe(raw: &mut Raw, names: &[&str]) -> Vec<Described> {
    let mut request = DescribeUserScramCredentialsRequest::default();
    let of_name = |name: &&str| {
        let mut one = describe_user_scram_credentials_request::UserName::default();
        one.name = (*name).into();
        one
    };
    request.users = (!names.is_empty()).then(|| names.iter().map(of_name).collect());
    let answer = raw.call::<DescribeUserScramCredentialsRequest>(0, &request);
    assert_eq!(answer.error_code, codes::NONE);
    let rows = answer.results.iter();
    rows.map(|row| {
        let infos = row.credential_infos.iter();
        let infos = infos
            .map(|info| (info.mechanism, info.iterations))
            .collect();
        (row.user.as_str().to_owned(), row.error_code, infos)
    })
    .collect()
}

fn logs_in(guarded: &Guarded, password: &str) -> bool {
    let mut raw = guarded.connect();
    handshake(&mut raw, "PLAIN");
    token(&mut raw, &plain((ALICE.0, password))).error_code == codes::NONE
}

#[test]
fn users_are_changed_one_by_one_wholly_or_not_at_all_and_outlive_a_crash() {
    let mut guarded = Guarded::start(&[]);
    let mut raw = guarded.broker.connect();
    let mut request = AlterUserScramCredentialsRequest::default();
    request.upsertions = vec![
        upsertion("carol", SHA_256, 8192, vec![7; 32]),
        upsertion("dave", SHA_512, 4096, vec![7; 64]),
        upsertion("few", SHA_256, 4095, vec![7; 32]),
        upsertion("many", SHA_256, 16_385, vec![7; 32]),
        upsertion("odd", 9, 4096, vec![7; 32]),
        upsertion("short", SHA_256, 4096, vec![7; 31]),
        upsertion("", SHA_256, 4096, vec![7; 32]),
        upsertion("twice", SHA_256, 4096, vec![7; 32]),
    ];
    request.deletions = vec![
        deletion("twice", SHA_256),
        deletion("nobody", SHA_256),
        deletion("bob", SHA_512),
    ];
    let named = |name: &str, error| (name.to_owned(), error);
    let unacceptable = codes::UNACCEPTABLE_CREDENTIAL;
    assert_eq!(
        alter(&mut raw, &request),
        [
            named("", unacceptable),
            named("bob", codes::NONE),
            named("carol", codes::NONE),
            named("dave", codes::NONE),
            named("few", unacceptable),
            named("many", unacceptable),
            named("nobody", codes::RESOURCE_NOT_FOUND),
            named("odd", codes::UNSUPPORTED_SASL_MECHANISM),
            named("short", unacceptable),
            named("twice", codes::DUPLICATE_RESOURCE),
        ]
    );
    guarded.broker.crash_and_restart();
    let all = describe(&mut guarded.broker.connect(), &[]);
    let row = |name: &str, infos: &[(i8, i32)]| (name.to_owned(), codes::NONE, infos.to_vec());
    assert_eq!(
        all,
        [
            row("alice", &[(SHA_256, 4096), (SHA_512, 4096)]),
            row("bob", &[(SHA_256, 4096)]),
            row("carol", &[(SHA_256, 8192)]),
            row("dave", &[(SHA_512, 4096)]),
        ]
    );
}

#[test]
fn described_are_those_who_are_asked_for_and_never_a_key() {
    let guarded = Guarded::start(&[]);
    let mut raw = guarded.broker.connect();
    let rows = describe(&mut raw, &["bob", "nobody", "alice", "alice"]);
    let errors: Vec<(&str, i16)> = rows.iter().map(|row| (row.0.as_str(), row.1)).collect();
    assert_eq!(
        errors,
        [
            ("bob", codes::NONE),
            ("nobody", codes::RESOURCE_NOT_FOUND),
            ("alice", codes::DUPLICATE_RESOURCE)
        ]
    );
}

#[test]
fn the_file_of_users_is_for_the_broker_alone_and_holds_no_password() {
    let guarded = Guarded::start(&[]);
    let path = guarded.broker.data().join("__cluster/credentials.json");
    let mode = fs::metadata(&path).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(&path).expect("the file");
    assert!(text.contains("alice") && !text.contains(ALICE.1), "{text}");
}

#[test]
fn the_tool_adds_lists_and_removes_while_the_broker_is_stopped() {
    let mut guarded = Guarded::start(&[]);
    let data = guarded.broker.data().to_owned();
    let refused = user(&["add", "eve", "--password-stdin"], &data, "x");
    assert!(!refused.status.success());
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("kafka-configs"), "{words}");
    assert!(logs_in(&guarded, ALICE.1));

    guarded.broker.shut_down();
    let changed = user(&["add", "alice", "--password-stdin"], &data, "another one");
    assert!(changed.status.success(), "{changed:?}");
    assert!(user(&["remove", "bob"], &data, "").status.success());
    assert!(
        !user(&["remove", "bob"], &data, "").status.success(),
        "he is gone"
    );
    assert!(
        !user(&["add", "", "--password-stdin"], &data, "x")
            .status
            .success()
    );
    assert!(
        !user(&["add", "x", "--password-stdin"], &data, "")
            .status
            .success()
    );
    assert!(
        !user(&["add", "x"], &data, "x").status.success(),
        "from standard input only"
    );
    let listed = user(&["list"], &data, "");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(
        listed,
        "alice\tSCRAM-SHA-256 (4096 iterations), SCRAM-SHA-512 (4096 iterations)\n"
    );
    guarded.broker.start_again();
    assert!(logs_in(&guarded, "another one"));
    assert!(!logs_in(&guarded, ALICE.1));
}

#[test]
fn secrets_are_described_as_such_and_without_a_value() {
    let guarded = Guarded::start(&[
        ("ssl.keystore.key", "a secret"),
        ("ssl.key.password", "more"),
    ]);
    let mut resource = describe_configs_request::DescribeConfigsResource::default();
    resource.resource_type = 4;
    resource.resource_name = "1".into();
    resource.configuration_keys = None;
    let mut request = DescribeConfigsRequest::default();
    request.resources = vec![resource];
    request.include_synonyms = true;
    let answer = guarded
        .broker
        .connect()
        .call::<DescribeConfigsRequest>(4, &request);
    let rows = &answer.results[0].configs;
    for key in [
        "ssl.keystore.key",
        "ssl.key.password",
        "ssl.truststore.certificates",
    ] {
        let row = rows.iter().find(|row| row.name.as_str() == key).expect(key);
        assert!(row.is_sensitive && row.value.is_none(), "{row:?}");
        assert!(
            row.synonyms.iter().all(|one| one.value.is_none()),
            "{row:?}"
        );
    }
    assert!(!format!("{answer:?}").contains("a secret"));
    assert!(
        !guarded.broker.log().contains("a secret"),
        "{}",
        guarded.broker.log()
    );
}
