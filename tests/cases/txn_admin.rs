//! What administrators and other brokers ask about transactions: listings, descriptions, verification. Every value here is
//! what Apache Kafka 4.4 answers.

use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use seawall_testkit::kafka_wire::describe_producers_request::TopicRequest;
use seawall_testkit::kafka_wire::describe_producers_response::ProducerState;
use seawall_testkit::kafka_wire::{
    AddPartitionsToTxnRequest, ApiVersionsRequest, DescribeProducersRequest,
    ListTransactionsRequest, ListTransactionsResponse,
};
use seawall_testkit::requests::TopicRef;
use seawall_testkit::txn::Tx;
use seawall_testkit::{BatchBuilder, Raw};

use super::codes;
use crate::broker;

/// The ids among `ours` that a listing names, with their states.
fn listed(answer: &ListTransactionsResponse, ours: &[&Tx]) -> Vec<(String, String)> {
    assert_eq!(answer.error_code, codes::NONE);
    let states = answer.transaction_states.iter();
    let mut rows: Vec<_> = states
        .map(|row| {
            let id = row.transactional_id.as_str().to_owned();
            (id, row.transaction_state.as_str().to_owned())
        })
        .filter(|row| ours.iter().any(|tx| tx.id == row.0))
        .collect();
    rows.sort();
    rows
}

#[test]
fn listings_are_filtered_by_state_producer_duration_and_pattern() {
    let broker = broker();
    let raw = &mut broker.connect();
    let topic = create_topic(raw, &broker.fresh("list"), 1, &[]);
    let (open, idle) = (
        Tx::begin(raw, &broker.fresh("list-open")),
        Tx::begin(raw, &broker.fresh("list-idle")),
    );
    assert_eq!(open.add(raw, &topic, 0), codes::NONE);
    let row = |tx: &Tx, state: &str| (tx.id.clone(), state.to_owned());
    let both = [&open, &idle];
    let mut ask = |change: &dyn Fn(&mut ListTransactionsRequest)| {
        let mut request = ListTransactionsRequest::default();
        request.duration_filter = -1;
        change(&mut request);
        raw.call::<ListTransactionsRequest>(2, &request)
    };
    let mut all = vec![row(&open, "Ongoing"), row(&idle, "Empty")];
    all.sort();
    assert_eq!(listed(&ask(&|_| {}), &both), all);
    let answer = ask(&|r| r.state_filters = vec!["Ongoing".into(), "NoSuchState".into()]);
    assert_eq!(listed(&answer, &both), [row(&open, "Ongoing")]);
    assert_eq!(answer.unknown_state_filters.len(), 1);
    let answer = ask(&|r| r.state_filters = vec!["NoSuchState".into()]);
    assert_eq!(listed(&answer, &both), []);
    let answer = ask(&|r| r.producer_id_filters = vec![idle.producer.0]);
    assert_eq!(listed(&answer, &both), [row(&idle, "Empty")]);
    assert_eq!(
        listed(&ask(&|r| r.duration_filter = 3_600_000), &[&open]),
        []
    );
    for (pattern, wanted) in [
        (format!("{}.*", &open.id[..open.id.len() - 1]), true),
        (open.id[..open.id.len() - 1].to_owned(), false),
        (open.id.clone(), true),
    ] {
        let answer = ask(&|r| r.transactional_id_pattern = Some(pattern.as_str().into()));
        assert_eq!(
            listed(&answer, &[&open]).len(),
            usize::from(wanted),
            "{pattern}"
        );
    }
    let answer = ask(&|r| r.transactional_id_pattern = Some("(".into()));
    assert_eq!(answer.error_code, codes::INVALID_REGULAR_EXPRESSION);
}

/// DescribeProducers of partition 0: the error code and the producers.
fn producers(raw: &mut Raw, topic: &str) -> (i16, Vec<ProducerState>) {
    let mut wanted = TopicRequest::default();
    wanted.name = topic.into();
    wanted.partition_indexes = vec![0];
    let mut request = DescribeProducersRequest::default();
    request.topics = vec![wanted];
    let mut answer = raw.call::<DescribeProducersRequest>(0, &request);
    let row = answer.topics.remove(0).partitions.remove(0);
    (row.error_code, row.active_producers)
}

/// Epoch, last sequence, coordinator epoch and first open offset of one producer.
fn described(raw: &mut Raw, topic: &TopicRef, id: i64) -> (i32, i32, i32, i64) {
    let (code, rows) = producers(raw, &topic.name);
    assert_eq!(code, codes::NONE);
    let row = rows
        .iter()
        .find(|row| row.producer_id == id)
        .expect("it is there");
    let coordinator = row.coordinator_epoch.clamp(-1, 0);
    (
        row.producer_epoch,
        row.last_sequence,
        coordinator,
        row.current_txn_start_offset,
    )
}

#[test]
fn producers_are_described_with_their_open_transactions() {
    let broker = broker();
    let raw = &mut broker.connect();
    let topic = create_topic(raw, &broker.fresh("producers"), 1, &[]);
    let (id, epoch) = calls::new_producer(raw);
    let plain = BatchBuilder::of(&["a", "b"]).producer(id, epoch, 4).build();
    assert_eq!(calls::append(raw, &topic, 0, plain), 0);
    assert_eq!(described(raw, &topic, id), (0, 5, -1, -1));
    let mut tx = Tx::begin(raw, &broker.fresh("producers"));
    let id = tx.producer.0;
    assert_eq!(tx.send_v2(raw, (&topic, 0), 0), (codes::NONE, 2));
    assert_eq!(described(raw, &topic, id), (0, 0, -1, 2));
    assert_eq!(tx.end_v2(raw, true), codes::NONE);
    tx.settled(raw);
    assert_eq!(described(raw, &topic, id), (1, -1, 0, -1));
    let unknown = producers(raw, &broker.fresh("no-such-topic"));
    assert_eq!(
        (unknown.0, unknown.1.len()),
        (codes::UNKNOWN_TOPIC_OR_PARTITION, 0)
    );
}

/// AddPartitionsToTxn as brokers send it: the code of each partition of each transaction.
fn batch(raw: &mut Raw, all: &[(&Tx, bool, &str, &[i32])]) -> Vec<Vec<i16>> {
    let one = |(tx, verify, topic, partitions): &(&Tx, bool, &str, &[i32])| {
        let mut rows = AddPartitionsToTxnTopic::default();
        rows.name = (*topic).into();
        rows.partitions = partitions.to_vec();
        let mut one = AddPartitionsToTxnTransaction::default();
        one.transactional_id = tx.id.as_str().into();
        (one.producer_id, one.producer_epoch) = tx.producer;
        one.verify_only = *verify;
        one.topics = vec![rows];
        one
    };
    let mut request = AddPartitionsToTxnRequest::default();
    request.transactions = all.iter().map(one).collect();
    let answer = raw.call::<AddPartitionsToTxnRequest>(4, &request);
    assert_eq!(answer.error_code, codes::NONE);
    let mut found = Vec::new();
    for (tx, ..) in all {
        let results = answer.results_by_transaction.iter();
        let mut results = results.filter(|row| row.transactional_id.as_str() == tx.id);
        let rows = results
            .next()
            .expect("a result for each")
            .topic_results
            .iter();
        let rows = rows.flat_map(|topic| &topic.results_by_partition);
        let mut rows: Vec<_> = rows
            .map(|row| (row.partition_index, row.partition_error_code))
            .collect();
        rows.sort_unstable();
        found.push(rows.into_iter().map(|row| row.1).collect());
    }
    found
}

#[test]
fn partitions_are_verified_and_added_for_many_transactions_at_once() {
    let broker = broker();
    let raw = &mut broker.connect();
    let topic = create_topic(raw, &broker.fresh("batch"), 3, &[]);
    let (one, two) = (
        Tx::begin(raw, &broker.fresh("batch-1")),
        Tx::begin(raw, &broker.fresh("batch-2")),
    );
    assert_eq!(one.add(raw, &topic, 0), codes::NONE);
    let unknown = one.called(&broker.fresh("batch-unknown"));
    let fenced = two.at_epoch(9);
    let name = topic.name.as_str();
    let found = batch(
        raw,
        &[(&one, true, name, &[0, 1]), (&unknown, true, name, &[0])],
    );
    let abortable = codes::TRANSACTION_ABORTABLE;
    assert_eq!(found[0], [codes::NONE, abortable]);
    assert_eq!(found[1], [codes::INVALID_PRODUCER_ID_MAPPING]);
    assert_eq!(
        batch(raw, &[(&fenced, true, name, &[0])])[0],
        [codes::PRODUCER_FENCED]
    );
    let found = batch(
        raw,
        &[(&one, false, name, &[1]), (&two, false, name, &[0, 2])],
    );
    assert_eq!(found, [vec![codes::NONE], vec![codes::NONE; 2]]);
    assert_eq!(
        batch(raw, &[(&one, true, name, &[0, 1])])[0],
        [codes::NONE; 2]
    );
    assert_eq!(two.describe(raw).3, 2);
}

#[test]
fn transactions_of_version_2_are_a_finalised_feature() {
    let broker = broker();
    let answer = broker
        .connect()
        .call::<ApiVersionsRequest>(3, &api_versions());
    let mut finalized = answer.finalized_features.iter();
    let ours = finalized.find(|row| row.name.as_str() == "transaction.version");
    assert_eq!(ours.expect("finalised").max_version_level, 2);
    assert!(answer.finalized_features_epoch >= 0);
}

fn api_versions() -> ApiVersionsRequest {
    let mut request = ApiVersionsRequest::default();
    request.client_software_name = "test".into();
    request.client_software_version = "1".into();
    request
}
