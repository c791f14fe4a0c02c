//! Rules of users who have logged in: each sees and does what is theirs, and nothing else.

use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::*;
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, TopicRef};
use seawall_testkit::{BatchBuilder, Raw};

use super::access::{ALL, AUTHORIZER, GROUP, READ, Rule, TOPIC, allow, create};
use super::codes;
use super::logins::{ALICE, BOB, Guarded, plain, token};

fn logged_in(guarded: &Guarded, who: (&str, &str)) -> Raw {
    let mut raw = guarded.begun("PLAIN");
    assert_eq!(token(&mut raw, &plain(who)).error_code, codes::NONE);
    raw
}

/// The names that are shown to somebody who asks for all.
fn shown(raw: &mut Raw) -> Vec<String> {
    let mut request = MetadataRequest::default();
    request.topics = None;
    let answer = raw.call::<MetadataRequest>(9, &request);
    let names = answer.topics.into_iter().filter_map(|topic| topic.name);
    names.map(|name| name.as_str().to_owned()).collect()
}

fn fetched(raw: &mut Raw, topic: &TopicRef) -> (i16, usize) {
    let from = [FetchFrom::new(0, 0)];
    let request = requests::fetch(calls::FETCH, topic, AT_ONCE, &from);
    let answer = raw.call::<FetchRequest>(calls::FETCH, &request);
    let part = &answer.responses[0].partitions[0];
    (part.error_code, calls::whole_batches(part).len())
}

/// Joins the group as far as its name is concerned.
fn joined(raw: &mut Raw, group: &str) -> i16 {
    let mut request = JoinGroupRequest::default();
    request.group_id = group.into();
    request.session_timeout_ms = 10_000;
    request.rebalance_timeout_ms = 10_000;
    request.protocol_type = "consumer".into();
    let mut protocol = join_group_request::JoinGroupRequestProtocol::default();
    protocol.name = "range".into();
    request.protocols = vec![protocol];
    raw.call::<JoinGroupRequest>(5, &request).error_code
}

#[test]
fn two_users_see_their_own_topics_and_groups_and_nothing_of_each_other() {
    let settings = [
        ("authorizer.class.name", AUTHORIZER),
        ("super.users", "User:ANONYMOUS"),
    ];
    let guarded = Guarded::start(&settings);
    let mut admin = guarded.broker.connect();
    let topics = ["alice-topic", "bob-topic"].map(|name| create_topic(&mut admin, name, 1, &[]));
    let principals = ["User:alice", "User:bob"];
    let groups = ["alice-group", "bob-group"];
    for (place, principal) in principals.into_iter().enumerate() {
        let own = |rule| Rule { principal, ..rule };
        let rules = [
            own(allow((ALL, TOPIC), &topics[place].name, "*")),
            own(allow((READ, GROUP), groups[place], "*")),
        ];
        create(&mut admin, &rules);
    }
    for (place, who) in [ALICE, BOB].into_iter().enumerate() {
        let (own, other) = (&topics[place], &topics[1 - place]);
        let mut raw = logged_in(&guarded, who);
        assert_eq!(shown(&mut raw), [own.name.as_str()]);
        let mut write = |topic: &TopicRef| {
            let batch = BatchBuilder::of(&["x"]).build();
            calls::produce(&mut raw, topic, 0, -1, batch).error_code
        };
        assert_eq!(write(own), codes::NONE);
        assert_eq!(write(other), codes::TOPIC_AUTHORIZATION_FAILED);
        assert_eq!(fetched(&mut raw, own), (codes::NONE, 1));
        let refused = (codes::TOPIC_AUTHORIZATION_FAILED, 0);
        assert_eq!(fetched(&mut raw, other), refused);
        // A new member is told to come again with the id it got.
        assert_eq!(joined(&mut raw, groups[place]), codes::MEMBER_ID_REQUIRED);
        let refused = codes::GROUP_AUTHORIZATION_FAILED;
        assert_eq!(joined(&mut raw, groups[1 - place]), refused);
    }
    assert_eq!(shown(&mut admin).len(), 2);
}
