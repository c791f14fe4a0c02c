//! Who may do what: rules over real sockets.
//!
//! Without a login everybody is `User:ANONYMOUS`, so that people here differ by their address: the administrator comes
//! from 127.0.0.1, the stranger from 127.0.0.2.

use std::net::{IpAddr, Ipv4Addr};

use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::{
    ApiVersionsRequest, CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest,
    ListGroupsRequest, MetadataRequest, ProduceRequest, create_acls_request, delete_acls_request,
};
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::{BatchBuilder, Broker, Raw, Setup, metrics};

use super::access_walk::{ROWS, Row, commit, open_transaction};
use super::codes;
use crate::setup;

pub(super) const TOPIC: i8 = 2;
pub(super) const GROUP: i8 = 3;
pub(super) const CLUSTER: i8 = 4;
pub(super) const TXN_ID: i8 = 5;
pub(super) const LITERAL: i8 = 3;
pub(super) const PREFIXED: i8 = 4;
pub(super) const ALL: i8 = 2;
pub(super) const READ: i8 = 3;
pub(super) const WRITE: i8 = 4;
pub(super) const CREATE: i8 = 5;
pub(super) const DELETE: i8 = 6;
pub(super) const ALTER: i8 = 7;
pub(super) const DESCRIBE: i8 = 8;
pub(super) const CLUSTER_ACTION: i8 = 9;
pub(super) const DESCRIBE_CONFIGS: i8 = 10;
pub(super) const ALTER_CONFIGS: i8 = 11;
const DENY: i8 = 2;
const ALLOW: i8 = 3;
const ANYBODY: &str = "User:*";
const ADMIN: &str = "127.0.0.1";
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
pub(super) const AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
const SECURITY_DISABLED: i16 = 54;

/// One rule.
#[derive(Clone)]
pub(super) struct Rule<'a> {
    pub(super) resource: i8,
    pub(super) pattern: i8,
    pub(super) name: &'a str,
    pub(super) principal: &'a str,
    pub(super) host: &'a str,
    pub(super) operation: i8,
    pub(super) permission: i8,
}

/// Lets everybody at that host do something.
pub(super) fn allow<'a>((operation, resource): (i8, i8), name: &'a str, host: &'a str) -> Rule<'a> {
    Rule {
        resource,
        pattern: LITERAL,
        name,
        principal: ANYBODY,
        host,
        operation,
        permission: ALLOW,
    }
}

impl Rule<'_> {
    fn creation(&self) -> create_acls_request::AclCreation {
        let mut rule = create_acls_request::AclCreation::default();
        rule.resource_type = self.resource;
        rule.resource_pattern_type = self.pattern;
        rule.resource_name = self.name.into();
        rule.principal = self.principal.into();
        rule.host = self.host.into();
        rule.operation = self.operation;
        rule.permission_type = self.permission;
        rule
    }
}

pub(super) fn create(raw: &mut Raw, rules: &[Rule<'_>]) {
    let mut request = CreateAclsRequest::default();
    request.creations = rules.iter().map(Rule::creation).collect();
    let answer = raw.call::<CreateAclsRequest>(3, &request);
    for result in &answer.results {
        assert_eq!(result.error_code, codes::NONE, "{:?}", result.error_message);
    }
}

/// Removes the rules of a host; gives their number.
pub(super) fn remove_all_of(raw: &mut Raw, host: &str) -> usize {
    let mut filter = delete_acls_request::DeleteAclsFilter::default();
    filter.resource_type_filter = 1;
    filter.pattern_type_filter = 1;
    filter.resource_name_filter = None;
    filter.principal_filter = None;
    filter.host_filter = Some(host.into());
    filter.operation = 1;
    filter.permission_type = 1;
    let mut request = DeleteAclsRequest::default();
    request.filters = vec![filter];
    let answer = raw.call::<DeleteAclsRequest>(3, &request);
    assert_eq!(answer.filter_results[0].error_code, codes::NONE);
    answer.filter_results[0].matching_acls.len()
}

pub(super) fn guarded_setup() -> Setup {
    setup()
        .set("authorizer.class.name", AUTHORIZER)
        .set("allow.everyone.if.no.acl.found", "true")
}

/// A broker where the administrator's host may do everything, and no other host anything.
pub(super) fn guarded() -> (Broker, Raw, Raw) {
    guarded_by(&guarded_setup())
}

/// The same with other settings.
pub(super) fn guarded_by(setup: &Setup) -> (Broker, Raw, Raw) {
    let broker = setup.start();
    let mut admin = broker.connect();
    // The cluster comes last: from then on rules are needed to make rules.
    let everything = [
        allow((ALL, TOPIC), "*", ADMIN),
        allow((ALL, GROUP), "*", ADMIN),
        allow((ALL, TXN_ID), "*", ADMIN),
        allow((ALL, CLUSTER), "kafka-cluster", ADMIN),
    ];
    create(&mut admin, &everything);
    let stranger = Raw::connect_from(STRANGER, broker.addr());
    (broker, admin, stranger)
}

fn refusals(answer: &str) -> Vec<&str> {
    let codes = ["29", "30", "31", "53"];
    let said = answer
        .match_indices("error_code: ")
        .map(|(at, field)| &answer[at + field.len()..]);
    let said = said.map(|rest| rest.split([',', ' ', '}']).next().unwrap_or(""));
    said.filter(|code| codes.contains(code)).collect()
}

#[test]
fn every_api_refuses_who_has_no_rule_and_serves_who_has_exactly_its_rules() {
    let (_broker, mut admin, mut stranger) = guarded();
    let topic = create_topic(&mut admin, "walled", 1, &[]);
    calls::append(&mut admin, &topic, 0, BatchBuilder::of(&["x"]).build());
    fill(&mut admin);
    let request = ApiVersionsRequest::default();
    let served = admin.call::<ApiVersionsRequest>(0, &request).api_keys;
    let walked: Vec<i16> = ROWS.iter().map(|row| row.key).collect();
    for api in &served {
        assert!(
            walked.contains(&api.api_key),
            "API {} is served and has no row in the walk",
            api.api_key
        );
    }
    let is_served = |row: &&Row| served.iter().any(|api| api.api_key == row.key);
    for row in ROWS.iter().filter(is_served) {
        walk((&mut admin, &mut stranger), row, &topic);
    }
}

/// A group and a transactional id, so that there is something to be seen.
fn fill(admin: &mut Raw) {
    assert_eq!(commit(admin, "walled"), codes::NONE);
    assert_eq!(open_transaction(admin, "walled"), codes::NONE);
}

/// The code that tells that a rule for a resource is missing, and for nothing else.
fn code_of(row: &Row, missing: (i8, i8)) -> &'static str {
    match (row.key, missing.1) {
        // Either of two rules would do; Kafka names the other one.
        (19, CLUSTER) => "29",
        (22, TOPIC) => "31",
        (_, TOPIC) => "29",
        (_, GROUP) => "30",
        (_, CLUSTER) => "31",
        _ => "53",
    }
}

fn walk((admin, stranger): (&mut Raw, &mut Raw), row: &Row, topic: &TopicRef) {
    let what = format!("API {} with {:?}", row.key, row.needs);
    let before = (row.ask)(stranger, topic);
    if row.filters {
        assert!(!before.contains("walled"), "{what} shows: {before}");
        assert!(refusals(&before).is_empty(), "{what}: {before}");
    } else {
        let said = refusals(&before);
        let of_a_need = |code: &&str| row.needs.iter().any(|need| code_of(row, *need) == *code);
        let all = said.iter().all(of_a_need);
        assert!(all && !said.is_empty(), "{what} answers: {before}");
    }
    let rules = row.needs.iter().map(|(operation, resource)| {
        let name = match *resource {
            CLUSTER => "kafka-cluster",
            _ => "walled",
        };
        allow((*operation, *resource), name, "127.0.0.2")
    });
    let rules: Vec<Rule<'_>> = rules.collect();
    // Each of the rules is needed.
    if !row.filters {
        for left_out in 0..rules.len() {
            let mut most = rules.clone();
            most.remove(left_out);
            create(admin, &most);
            let answer = (row.ask)(stranger, topic);
            let said = refusals(&answer);
            let code = code_of(row, row.needs[left_out]);
            let all = said.iter().all(|other| *other == code);
            assert!(all && !said.is_empty(), "{what}, less {code}: {answer}");
            remove_all_of(admin, "127.0.0.2");
        }
    }
    create(admin, &rules);
    let after = (row.ask)(stranger, topic);
    assert!(refusals(&after).is_empty(), "{what} still says: {after}");
    let has_nothing_to_show = [17, 18, 36, 60].contains(&row.key);
    assert!(
        !row.filters || has_nothing_to_show || after.contains("walled"),
        "{what} hides: {after}"
    );
    assert_eq!(remove_all_of(admin, "127.0.0.2"), rules.len());
    let again = (row.ask)(stranger, topic);
    assert_eq!(
        refusals(&again).is_empty(),
        row.filters,
        "{what}, after the rules are gone: {again}"
    );
}

#[test]
fn without_an_authorizer_rules_are_not_kept() {
    let broker = setup().set("log.cleaner.threads", "1").start();
    let mut raw = broker.connect();
    for version in 1..=3 {
        let mut request = CreateAclsRequest::default();
        request.creations = vec![allow((READ, TOPIC), "t", "*").creation()];
        let answer = raw.call::<CreateAclsRequest>(version, &request);
        assert_eq!(answer.results[0].error_code, SECURITY_DISABLED);
        let mut request = DescribeAclsRequest::default();
        request.resource_type_filter = 1;
        request.operation = 1;
        request.permission_type = 1;
        let answer = raw.call::<DescribeAclsRequest>(version, &request);
        assert_eq!(answer.error_code, SECURITY_DISABLED);
    }
}

fn described(raw: &mut Raw, version: i16, pattern: i8, name: Option<&str>) -> Vec<String> {
    let mut request = DescribeAclsRequest::default();
    request.resource_type_filter = TOPIC;
    request.pattern_type_filter = pattern;
    request.resource_name_filter = name.map(Into::into);
    request.principal_filter = None;
    request.host_filter = Some("127.0.0.2".into());
    request.operation = 1;
    request.permission_type = 1;
    let answer = raw.call::<DescribeAclsRequest>(version, &request);
    assert_eq!(answer.error_code, codes::NONE);
    let resources = answer.resources.iter();
    let names = resources.map(|r| format!("{}/{}", r.pattern_type, r.resource_name.as_str()));
    names.collect()
}

#[test]
fn rules_are_described_by_any_match_and_pattern_and_survive_a_kill() {
    let (mut broker, mut admin, _) = guarded();
    let prefixed = Rule {
        pattern: PREFIXED,
        ..allow((READ, TOPIC), "pay", "127.0.0.2")
    };
    let rules = [
        allow((READ, TOPIC), "pay", "127.0.0.2"),
        allow((READ, TOPIC), "payments", "127.0.0.2"),
        allow((READ, TOPIC), "*", "127.0.0.2"),
        prefixed,
    ];
    create(&mut admin, &rules);
    for round in 0..2 {
        for version in 1..=3 {
            let (any, matching) = (1, 2);
            let mut all = |pattern, name| described(&mut admin, version, pattern, name);
            assert_eq!(all(any, None), ["3/*", "3/pay", "3/payments", "4/pay"]);
            assert_eq!(all(any, Some("pay")), ["3/pay", "4/pay"]);
            assert_eq!(
                all(matching, Some("payments")),
                ["3/*", "3/payments", "4/pay"]
            );
            assert_eq!(all(PREFIXED, Some("pay")), ["4/pay"]);
            assert_eq!(all(LITERAL, Some("payments")), ["3/payments"]);
        }
        if round == 0 {
            broker.crash_and_restart();
            admin = broker.connect();
        }
    }
}

#[test]
fn what_no_rule_can_be_is_refused_in_words_and_changes_nothing() {
    let (_broker, mut admin, _) = guarded();
    let good = allow((READ, TOPIC), "t", "127.0.0.9");
    let bad = [
        allow((READ, 6), "token", "*"),
        allow((READ, 7), "User:a", "*"),
        allow((READ, 1), "t", "*"),
        allow((READ, 99), "t", "*"),
        allow((1, TOPIC), "t", "*"),
        allow((READ, TOPIC), "", "*"),
        allow((READ, TOPIC), "t", ""),
        allow((READ, CLUSTER), "another", "*"),
        Rule {
            permission: 1,
            ..good.clone()
        },
        Rule {
            pattern: 2,
            ..good.clone()
        },
    ];
    let mut request = CreateAclsRequest::default();
    request.creations = bad.iter().map(Rule::creation).collect();
    let mut nobody = good.creation();
    nobody.principal = "alice".into();
    request.creations.push(nobody);
    let answer = admin.call::<CreateAclsRequest>(3, &request);
    for result in &answer.results {
        assert_eq!(result.error_code, codes::INVALID_REQUEST);
        let message = result.error_message.as_ref().expect("a message");
        assert!(message.as_str().len() > 10, "{message:?}");
    }
    assert_eq!(remove_all_of(&mut admin, "*"), 0);
    assert_eq!(remove_all_of(&mut admin, "127.0.0.9"), 0);
}

#[test]
fn a_denial_beats_what_is_allowed_and_prefixes_and_implied_operations_count() {
    let (_broker, mut admin, mut stranger) = guarded();
    for name in ["app-one", "app-two", "other"] {
        create_topic(&mut admin, name, 1, &[]);
    }
    let prefix = Rule {
        pattern: PREFIXED,
        ..allow((WRITE, TOPIC), "app-", "127.0.0.2")
    };
    let denied = Rule {
        permission: DENY,
        ..allow((WRITE, TOPIC), "app-two", "*")
    };
    create(&mut admin, &[prefix, denied]);
    let mut produce = |name: &str| {
        let topic = TopicRef {
            name: name.to_owned(),
            id: Default::default(),
        };
        let batch = BatchBuilder::of(&["x"]).build();
        calls::produce(&mut stranger, &topic, 0, -1, batch).error_code
    };
    assert_eq!(produce("app-one"), codes::NONE);
    assert_eq!(produce("app-two"), codes::TOPIC_AUTHORIZATION_FAILED);
    assert_eq!(produce("other"), codes::TOPIC_AUTHORIZATION_FAILED);
    // Whether it is there is none of their business.
    assert_eq!(produce("nowhere"), codes::TOPIC_AUTHORIZATION_FAILED);
    // Write implies Describe, also where Write itself is denied.
    let mut request = MetadataRequest::default();
    request.topics = None;
    request.include_topic_authorized_operations = true;
    let answer = stranger.call::<MetadataRequest>(12, &request);
    let row = |topic: &seawall_testkit::kafka_wire::metadata_response::MetadataResponseTopic| {
        let name = topic.name.as_ref().expect("a name").as_str().to_owned();
        (name, topic.topic_authorized_operations)
    };
    let mut shown: Vec<_> = answer.topics.iter().map(row).collect();
    shown.sort();
    let (write, describe) = (1 << WRITE, 1 << DESCRIBE);
    assert_eq!(
        shown,
        [
            ("app-one".to_owned(), write | describe),
            ("app-two".to_owned(), describe)
        ]
    );
}

#[test]
fn a_topic_that_may_not_be_described_looks_like_one_that_is_not_there() {
    let (_broker, mut admin, mut stranger) = guarded();
    let hidden = create_topic(&mut admin, "hidden", 1, &[]);
    let said = |stranger: &mut Raw, name: &str| {
        let mut request = requests::metadata(9, &[name]);
        request.allow_auto_topic_creation = true;
        let answer = stranger.call::<MetadataRequest>(9, &request);
        let mut row = answer.topics[0].clone();
        assert!(row.topic_id.is_zero());
        row.name = None;
        format!("{row:?}")
    };
    assert_eq!(
        said(&mut stranger, "hidden"),
        said(&mut stranger, "missing")
    );
    assert!(said(&mut stranger, "hidden").contains("error_code: 29"));
    // By its id, which nobody guesses, it is refused without its name.
    let mut request = requests::metadata(12, &["x"]);
    request.topics.as_mut().expect("topics")[0].name = None;
    request.topics.as_mut().expect("topics")[0].topic_id = hidden.id;
    request.allow_auto_topic_creation = false;
    let answer = stranger.call::<MetadataRequest>(12, &request);
    assert_eq!(answer.topics[0].name, None);
    assert_eq!(
        answer.topics[0].error_code,
        codes::TOPIC_AUTHORIZATION_FAILED
    );
    // Nor is a topic made for somebody who may see it and not create it.
    let sees = Rule {
        pattern: PREFIXED,
        ..allow((DESCRIBE, TOPIC), "new", "127.0.0.2")
    };
    create(&mut admin, &[sees]);
    assert!(said(&mut stranger, "newcomer").contains("error_code: 29"));
    let all = admin.call::<MetadataRequest>(12, &{
        let mut request = MetadataRequest::default();
        request.topics = None;
        request
    });
    assert_eq!(all.topics.len(), 1, "{:?}", all.topics);
}

#[test]
fn refusals_are_counted_by_kind_and_logged_on_one_line_each_and_not_without_end() {
    let (broker, _admin, mut stranger) = guarded();
    let evil = "evil\nERROR forged line\u{1b}[31m \u{202e}".to_owned();
    for number in 0..200 {
        let topic = TopicRef {
            name: format!("{evil}{number}"),
            id: Default::default(),
        };
        let batch = BatchBuilder::of(&["x"]).build();
        let answer = calls::produce(&mut stranger, &topic, 0, -1, batch);
        assert_eq!(answer.error_code, codes::TOPIC_AUTHORIZATION_FAILED);
    }
    let page = metrics::scrape(broker.admin());
    let count = "seawall_authorization_denials_total{operation=\"WRITE\",resource=\"TOPIC\"} 200";
    assert!(page.contains(count), "{page}");
    assert!(!page.contains("evil"), "names are no labels");
    let log = broker.log();
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("denied:"))
        .collect();
    assert!((1..=11).contains(&lines.len()), "{}", lines.len());
    assert!(lines[0].contains("User:ANONYMOUS") && lines[0].contains("127.0.0.2"));
    assert!(!log.lines().any(|line| line.starts_with("ERROR forged")));
    assert!(!log.contains('\u{1b}') && !log.contains('\u{202e}'));
}

#[test]
fn super_users_need_no_rules_and_others_get_nothing_by_default() {
    let open = setup()
        .set("authorizer.class.name", AUTHORIZER)
        .set("super.users", "User:admin;User:ANONYMOUS")
        .start();
    create_topic(&mut open.connect(), "t", 1, &[]);
    let closed = setup()
        .set("authorizer.class.name", AUTHORIZER)
        .set("super.users", "User:admin")
        .start();
    let mut raw = closed.connect();
    let request = requests::create_topics(vec![requests::topic("t", 1, &[])]);
    let answer = raw.call::<seawall_testkit::kafka_wire::CreateTopicsRequest>(7, &request);
    assert_eq!(
        answer.topics[0].error_code,
        codes::TOPIC_AUTHORIZATION_FAILED
    );
    let groups = raw.call::<ListGroupsRequest>(5, &ListGroupsRequest::default());
    assert_eq!((groups.error_code, groups.groups.len()), (codes::NONE, 0));
}

#[test]
fn a_class_that_nobody_reads_and_a_damaged_file_of_rules_stop_the_start() {
    let other = setup().set("authorizer.class.name", "com.example.Authorizer");
    let (status, log) = other.start_expecting_exit();
    assert!(
        !status.success() && log.contains("authorizer.class.name"),
        "{log}"
    );
    let wrong = setup()
        .set("authorizer.class.name", AUTHORIZER)
        .set("super.users", "alice");
    let (status, log) = wrong.start_expecting_exit();
    assert!(!status.success() && log.contains("super.users"), "{log}");
    let dir = tempfile::tempdir().expect("a directory");
    let mut broker = guarded_setup().on(dir.path()).start();
    create(&mut broker.connect(), &[allow((READ, TOPIC), "t", "*")]);
    broker.shut_down();
    let file = dir.path().join("__cluster/acls.json");
    let text = std::fs::read_to_string(&file).expect("the file of rules");
    std::fs::write(&file, text.replace("READ", "ALL")).expect("write");
    let (status, log) = guarded_setup().on(dir.path()).start_expecting_exit();
    assert!(!status.success() && log.contains("acls.json"), "{log}");
}

#[test]
fn an_unwritten_request_of_a_refused_producer_without_answers_ends_its_connection() {
    let (_broker, mut admin, mut stranger) = guarded();
    let topic = create_topic(&mut admin, "quiet", 1, &[]);
    let batch = BatchBuilder::of(&["x"]).build();
    let request = requests::produce(calls::PRODUCE, &topic, 0, vec![(0, Some(batch))]);
    stranger.send::<ProduceRequest>(calls::PRODUCE, &request);
    stranger.expect_closed("acks=0 without the right to write");
    assert_eq!(calls::end_offset(&mut admin, &topic, 0), 0);
}
