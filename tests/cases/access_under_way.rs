//! Rules that change while somebody is at work, and what is asked about nothing.

use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::consumers::Consumer;
use seawall_testkit::kafka_wire::{
    AddPartitionsToTxnRequest, FetchRequest, FetchResponse, add_partitions_to_txn_request,
};
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, FetchLimits, TopicRef};
use seawall_testkit::txn::Tx;
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw, metrics};

use super::access::{
    DESCRIBE, GROUP, READ, TOPIC, TXN_ID, WRITE, allow, create, guarded, guarded_by, guarded_setup,
    remove_all_of,
};
use super::codes;

/// The stranger's host.
const HOST: &str = "127.0.0.2";
const LONG: FetchLimits = FetchLimits {
    max_wait_ms: 20_000,
    ..AT_ONCE
};

fn code(answer: &FetchResponse) -> i16 {
    answer.responses[0].partitions[0].error_code
}

fn from(topic: &TopicRef, limits: FetchLimits, offset: i64) -> FetchRequest {
    requests::fetch(calls::FETCH, topic, limits, &[FetchFrom::new(0, offset)])
}

fn fetches(broker: &Broker) -> Option<f64> {
    let page = metrics::scrape(broker.admin());
    metrics::value(&page, "seawall_requests_total{api=\"Fetch\"}")
}

#[test]
fn a_request_under_way_keeps_its_answer_and_the_next_one_sees_the_new_rules() {
    // One event loop: it has asked for leave and let the fetch wait before it takes the next request of anybody.
    let (broker, mut admin, mut stranger) =
        guarded_by(&guarded_setup().set("num.network.threads", "1"));
    let topic = create_topic(&mut admin, "feed", 1, &[]);
    create(&mut admin, &[allow((READ, TOPIC), "feed", HOST)]);
    let request = from(&topic, LONG, 0);
    let waiting = stranger.send::<FetchRequest>(calls::FETCH, &request);
    wait::until("the fetch has begun", SOON, || {
        fetches(&broker) == Some(1.0)
    });
    assert_eq!(remove_all_of(&mut admin, HOST), 1);
    calls::append(&mut admin, &topic, 0, BatchBuilder::of(&["x"]).build());
    let answer = stranger.receive::<FetchRequest>(calls::FETCH, waiting);
    assert_eq!(code(&answer), codes::NONE);
    assert_eq!(
        calls::whole_batches(&answer.responses[0].partitions[0]).len(),
        1
    );
    let answer = stranger.call::<FetchRequest>(calls::FETCH, &request);
    assert_eq!(code(&answer), codes::TOPIC_AUTHORIZATION_FAILED);
}

#[test]
fn a_fetch_session_follows_the_rules_as_they_change() {
    let (_broker, mut admin, mut stranger) = guarded();
    let topic = create_topic(&mut admin, "feed", 1, &[]);
    let rule = [allow((READ, TOPIC), "feed", HOST)];
    create(&mut admin, &rule);
    let mut first = from(&topic, AT_ONCE, 0);
    first.session_epoch = 0;
    let answer = stranger.call::<FetchRequest>(calls::FETCH, &first);
    assert_eq!(code(&answer), codes::NONE);
    let session = answer.session_id;
    assert!(session > 0, "{session}");
    let mut epoch = 0;
    let mut next = |stranger: &mut Raw| {
        epoch += 1;
        let mut request = from(&topic, AT_ONCE, 0);
        request.topics.clear();
        request.session_id = session;
        request.session_epoch = epoch;
        let answer = stranger.call::<FetchRequest>(calls::FETCH, &request);
        assert_eq!(answer.error_code, codes::NONE);
        answer
    };
    calls::append(&mut admin, &topic, 0, BatchBuilder::of(&["x"]).build());
    remove_all_of(&mut admin, HOST);
    let refused = next(&mut stranger);
    assert_eq!(code(&refused), codes::TOPIC_AUTHORIZATION_FAILED);
    let part = &refused.responses[0].partitions[0];
    assert!(calls::whole_batches(part).is_empty());
    create(&mut admin, &rule);
    let served = next(&mut stranger);
    assert_eq!(code(&served), codes::NONE);
    assert_eq!(
        calls::whole_batches(&served.responses[0].partitions[0]).len(),
        1
    );
}

/// Says that a transaction reaches no partition, in either form.
fn add_nothing(raw: &mut Raw, tx: &Tx, topic: Option<&str>) -> String {
    let mut request = AddPartitionsToTxnRequest::default();
    request.v3_and_below_transactional_id = tx.id.as_str().into();
    request.v3_and_below_producer_id = tx.producer.0;
    request.v3_and_below_producer_epoch = tx.producer.1;
    let topics = topic.into_iter().map(|name| {
        let mut topic = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default();
        topic.name = name.into();
        topic
    });
    request.v3_and_below_topics = topics.collect();
    format!("{:?}", raw.call::<AddPartitionsToTxnRequest>(3, &request))
}

#[test]
fn a_transaction_is_not_touched_without_leave_even_where_nothing_is_added_to_it() {
    let (_broker, mut admin, mut stranger) = guarded();
    create_topic(&mut admin, "walled", 1, &[]);
    let tx = Tx::begin(&mut admin, "walled");
    let before = tx.describe(&mut admin);
    for topic in [None, Some("walled")] {
        add_nothing(&mut stranger, &tx, topic);
        assert_eq!(tx.describe(&mut admin), before, "{topic:?}");
    }
    // As in Kafka it begins a transaction for who may write with the id.
    create(&mut admin, &[allow((WRITE, TXN_ID), "walled", HOST)]);
    add_nothing(&mut stranger, &tx, None);
    assert_eq!(tx.describe(&mut admin).1, "Ongoing");
}

#[test]
fn a_regular_expression_finds_nothing_that_its_member_may_not_describe() {
    let (_broker, mut admin, stranger) = guarded();
    let seen = create_topic(&mut admin, "feed-seen", 1, &[]);
    let hidden = create_topic(&mut admin, "feed-hidden", 1, &[]);
    let rules = [
        allow((READ, GROUP), "g", HOST),
        allow((DESCRIBE, TOPIC), "feed-seen", HOST),
        allow((DESCRIBE, TOPIC), "feed-later", HOST),
    ];
    create(&mut admin, &rules);
    let mut member = Consumer::new(stranger, "g", "m-1", &[]);
    let mut request = member.full_request();
    request.subscribed_topic_names = None;
    request.subscribed_topic_regex = Some("feed-.*".into());
    request.topic_partitions = Some(Vec::new());
    assert_eq!(member.send(&request).error_code, codes::NONE);
    let beat = |member: &mut Consumer| assert_eq!(member.beat().error_code, codes::NONE);
    wait::until("the topic that may be seen", SOON, || {
        beat(&mut member);
        member.owns(seen.id) == [0]
    });
    // The group looks at all topics again.
    create_topic(&mut admin, "feed-unseen", 1, &[]);
    let later = create_topic(&mut admin, "feed-later", 1, &[]);
    wait::until("the one that came later", SOON, || {
        beat(&mut member);
        member.owns(later.id) == [0]
    });
    assert_eq!(member.owned.len(), 2, "{:?}", member.owned);
    create(&mut admin, &[allow((DESCRIBE, TOPIC), "feed-hidden", HOST)]);
    wait::until("the one that may be seen by now", SOON, || {
        beat(&mut member);
        member.owns(hidden.id) == [0]
    });
    assert_eq!(member.owned.len(), 3, "{:?}", member.owned);
}
