//! TxnOffsetCommit: offsets that count once the producer's transaction is committed.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::txn_offset_commit_request::TxnOffsetCommitRequestTopic;
use seawall_net::wire::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use seawall_net::wire::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};

use super::codes::ErrorCode;
use super::offset_rows::{AskedOffset, Keep};
use super::{Call, MALFORMED, reply, text, topic_id_from_wire, txn_code};
use crate::broker::Broker;
use crate::groups::{Committer, Row, StagedRows};
use crate::security::acl::Operation;
use crate::topics::Topic;
use crate::txn::{Command, Producer, TxnError};

/// The lowest version that adds the group to the transaction by itself (KIP-890).
const V2_FROM: i16 = 5;
/// The lowest version that knows `TRANSACTION_ABORTABLE`.
const ABORTABLE_FROM: i16 = 4;
/// The lowest version that names topics by id.
const IDS_FROM: i16 = 6;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<TxnOffsetCommitRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let producer = Producer::new(request.producer_id, request.producer_epoch);
    let access = call.access();
    let may = access
        .transactional_id(Operation::Write, request.transactional_id.as_str())
        .and_then(|()| access.group(Operation::Read, request.group_id.as_str()));
    let (rows, mut response) = sort_out(&call, may, &request);
    if may.is_err() {
        reply(call.slot, &response, version);
        return Flow::Done;
    }
    let slot = call.slot;
    let answer = move |code: ErrorCode| {
        fill(&mut response, code);
        reply(slot, &response, version);
    };
    let instance = request.group_instance_id.as_ref();
    let staging = Staging {
        broker: Arc::clone(call.broker),
        id: request.transactional_id.as_str().into(),
        group: request.group_id.as_str().into(),
        who: Committer {
            member: request.member_id.as_str().into(),
            instance: instance.map(|instance| instance.as_str().into()),
            generation: request.generation_id_or_member_epoch,
        },
        producer,
        rows,
        version,
    };
    staging.start(Box::new(answer));
    Flow::Done
}

/// Offsets on their way into a group.
struct Staging {
    broker: Arc<Broker>,
    id: Arc<str>,
    group: Arc<str>,
    who: Committer,
    producer: Producer,
    rows: Vec<Row>,
    version: i16,
}

type Answer = Box<dyn FnOnce(ErrorCode) + Send>;

impl Staging {
    fn start(self, answer: Answer) {
        if self.version < V2_FROM {
            return self.stage(answer);
        }
        let command = Command::Add {
            producer: self.producer,
            partitions: std::collections::BTreeSet::new(),
            group: Some(self.group.to_string()),
            v2: true,
        };
        let (broker, id) = (Arc::clone(&self.broker), Arc::clone(&self.id));
        let added = move |added: Result<Producer, TxnError>| match added {
            Ok(_) => self.stage(answer),
            Err(error) => answer(self.code(error)),
        };
        broker.txns.submit(&broker, &id, command, Box::new(added));
    }

    fn stage(self, answer: Answer) {
        let txns = &self.broker.txns;
        let in_time = match txns.begin_staging(&self.id, self.producer, &self.group) {
            Ok(in_time) => in_time,
            Err(error) => return answer(self.code(error)),
        };
        let staged = StagedRows {
            producer: self.producer.id.get(),
            epoch: self.producer.epoch.get(),
            rows: self.rows,
        };
        let told = move |stored: Result<(), crate::groups::GroupError>| {
            answer(stored.map_or_else(|error| ErrorCode::from(&error), |()| ErrorCode::None));
        };
        let groups = &self.broker.groups;
        groups.stage(&self.group, &self.who, staged, Box::new(told));
        drop(in_time);
    }

    fn code(&self, error: TxnError) -> ErrorCode {
        match error {
            TxnError::NotInTransaction if self.version < ABORTABLE_FROM => {
                ErrorCode::InvalidTxnState
            }
            TxnError::Concurrent if self.version < V2_FROM => ErrorCode::CoordinatorNotAvailable,
            error => txn_code(error, false),
        }
    }
}

/// The rows that can be staged, and the answer as it is if they are; none where the whole is refused.
fn sort_out(
    call: &Call<'_>,
    may: Result<(), ErrorCode>,
    request: &TxnOffsetCommitRequest,
) -> (Vec<Row>, TxnOffsetCommitResponse) {
    let (broker, access) = (call.broker, call.access());
    let version = call.request.header.api_version;
    let map = broker.topics.load();
    let keep = Keep::new(broker, None);
    let mut rows = Vec::new();
    let mut response = TxnOffsetCommitResponse::default();
    for asked in &request.topics {
        let mut answers = TxnOffsetCommitResponseTopic::default();
        let topic = if version >= IDS_FROM {
            answers.topic_id = asked.topic_id;
            let id = topic_id_from_wire(asked.topic_id);
            may.and_then(|()| access.with_id(&map, Operation::Read, id))
        } else {
            answers.name = text(asked.name.as_str());
            may.and_then(|()| access.named(&map, Operation::Read, asked.name.as_str()))
        };
        answers.partitions = partitions(&keep, topic, asked, &mut rows);
        response.topics.push(answers);
    }
    (rows, response)
}

fn partitions(
    keep: &Keep,
    topic: Result<&Arc<Topic>, ErrorCode>,
    asked: &TxnOffsetCommitRequestTopic,
    rows: &mut Vec<Row>,
) -> Vec<TxnOffsetCommitResponsePartition> {
    let partitions = asked.partitions.iter();
    partitions
        .map(|asked| {
            let mut row = TxnOffsetCommitResponsePartition::default();
            row.partition_index = asked.partition_index;
            let offset = AskedOffset {
                partition: asked.partition_index,
                offset: asked.committed_offset,
                leader_epoch: asked.committed_leader_epoch,
                metadata: asked.committed_metadata.as_ref(),
            };
            match keep.row(topic, &offset) {
                Ok(kept) => rows.push(kept),
                Err(code) => row.error_code = code.code(),
            }
            row
        })
        .collect()
}

/// What became of the rows that were not refused by themselves.
fn fill(response: &mut TxnOffsetCommitResponse, code: ErrorCode) {
    let rows = response
        .topics
        .iter_mut()
        .flat_map(|topic| &mut topic.partitions);
    for row in rows.filter(|row| row.error_code == ErrorCode::None.code()) {
        row.error_code = code.code();
    }
}
