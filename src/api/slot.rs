//! The duty to answer one request, and what its client pays for it.
//!
//! Owns:     the throttle time in answers, and that the connection is muted for exactly that long
//!           (KIP-219).
//! Does not: measure; quotas do.
//!
//! A client is muted whatever it can be told: as in Kafka, an answer without a field for the throttle time is followed by
//! the same silence.
//!
//! Where no limit is set a slot is a reply slot and nothing more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_net::{CloseReason, ConnInfo, ReplySlot, ResponseBody};
use seawall_planted::planted;

use crate::broker::Broker;
use crate::security::quota::{Client, QuotaKind, millis};

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;

/// See the module.
pub(super) struct Slot {
    inner: ReplySlot,
    toll: Option<Box<Toll>>,
}

/// What is to be paid for a request.
struct Toll {
    broker: Arc<Broker>,
    client: Client,
    key: i16,
    version: i16,
    request_bytes: usize,
}

impl Slot {
    /// A slot that costs nothing.
    pub(super) fn free(inner: ReplySlot) -> Self {
        Self { inner, toll: None }
    }

    /// A slot of a request that limits may be about.
    pub(super) fn tolled(
        inner: ReplySlot,
        broker: &Arc<Broker>,
        client: Client,
        (key, version, request_bytes): (i16, i16, usize),
    ) -> Self {
        let toll = Toll {
            broker: Arc::clone(broker),
            client,
            key,
            version,
            request_bytes,
        };
        Self {
            inner,
            toll: Some(Box::new(toll)),
        }
    }

    /// Pays for a request whose throttle time does not stand in front of its answer; says what is to stand there.
    pub(super) fn pay(&mut self) -> i32 {
        let Some(toll) = self.toll.take() else {
            return 0;
        };
        let time = toll.broker.quotas.work_throttle(&toll.client);
        self.mute(millis(time))
    }

    /// Pays for a Produce, whose throttle time does not stand in front of its answer either.
    pub(super) fn pay_for_produce(&mut self) -> i32 {
        let Some(toll) = self.toll.take() else {
            return 0;
        };
        let kind = QuotaKind::ProducerByteRate;
        let quotas = &toll.broker.quotas;
        let bytes = quotas.bytes(&toll.client, kind, toll.request_bytes);
        let time = bytes.max(quotas.work_throttle(&toll.client));
        self.mute(millis(time))
    }

    /// Answers the request.
    pub(super) fn reply(self, body: impl Into<ResponseBody>) {
        let mut body = body.into();
        if let Some(toll) = &self.toll {
            let told = told(&body, toll.key, toll.version);
            let ms = told.unwrap_or(0).max(toll.due(body.len()));
            if told.is_some_and(|told| ms > told) {
                body = body.with_first_bytes(ms.to_be_bytes());
            }
            self.mute(ms);
        }
        self.inner.reply(body);
    }

    /// Answers the request and closes the connection behind that answer; nobody is held up any more.
    pub(super) fn reply_and_close(self, body: impl Into<ResponseBody>, why: CloseReason) {
        self.inner.reply_and_close(body, why);
    }

    /// Completes the request without an answer (acks=0).
    pub(super) fn silent(mut self) {
        self.pay_for_produce();
        self.inner.silent();
    }

    /// Closes the connection once the earlier requests are answered.
    pub(super) fn close(self, why: CloseReason) {
        self.inner.close(why);
    }

    /// Identity and controls of the connection.
    pub(super) fn conn(&self) -> ConnInfo {
        self.inner.conn()
    }

    fn mute(&self, ms: i32) -> i32 {
        if let Some(ms) = u64::try_from(ms)
            .ok()
            .filter(|ms| *ms > 0 && !planted("quota-told-not-kept"))
        {
            self.inner.mute(Duration::from_millis(ms));
        }
        ms
    }
}

impl Toll {
    fn due(&self, response_bytes: usize) -> i32 {
        let quotas = &self.broker.quotas;
        let work = quotas.work_throttle(&self.client);
        let bytes = if self.key == FETCH {
            let kind = QuotaKind::ConsumerByteRate;
            quotas.bytes(&self.client, kind, response_bytes)
        } else {
            Duration::ZERO
        };
        millis(work.max(bytes))
    }
}

/// Measures what a handler takes of a thread, for those who have a limit.
pub(super) struct Work {
    broker: Arc<Broker>,
    client: Client,
    since: Instant,
}

impl Work {
    /// From now to the drop.
    pub(super) fn of(broker: &Arc<Broker>, client: &Client) -> Self {
        Self {
            broker: Arc::clone(broker),
            client: client.clone(),
            since: Instant::now(),
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let time = self.since.elapsed();
        self.broker.quotas.worked(&self.client, time);
    }
}

/// Whether a request belongs to a login, which nobody pays for.
pub(super) const fn is_login(key: i16) -> bool {
    matches!(key, 17 | 36)
}

/// The lowest version of an API whose answer begins with its throttle time. Produce has it at its end, ApiVersions behind
/// its list, OffsetDelete behind its error: their handlers fill it in. DescribeQuorum and logins have none.
const fn throttle_first_from(key: i16) -> Option<i16> {
    match key {
        2 | 19 | 11 | 23 => Some(2),
        3 | 8 | 9 => Some(3),
        FETCH | 10 | 12..=16 | 20 => Some(1),
        PRODUCE | 17 | 18 | 36 | 47 | 55 => None,
        _ => Some(0),
    }
}

/// The throttle time that an answer tells, if it begins with one.
fn told(body: &ResponseBody, key: i16, version: i16) -> Option<i32> {
    let from = throttle_first_from(key)?;
    if version < from {
        return None;
    }
    let first: [u8; 4] = body.first_bytes()?;
    Some(i32::from_be_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    use crate::api::TABLE;
    use seawall_net::wire::messages as m;
    use seawall_net::wire::{self, FetchResponse};

    macro_rules! begins {
        ($key:ident, $version:ident: $($api:literal $response:ident,)*) => {
            match $key {
                $($api => {
                    let mut response = m::$response::default();
                    response.throttle_time_ms = 0x0102_0304;
                    wire::encode(&response, $version).unwrap()
                })*
                other => panic!("API {other} is not in this list"),
            }
        };
    }

    fn encoded(key: i16, version: i16) -> Bytes {
        if key == FETCH {
            let response = FetchResponse {
                throttle_time_ms: 0x0102_0304,
                ..FetchResponse::default()
            };
            return Bytes::from(response.encode(version).unwrap().into_vec().unwrap());
        }
        begins!(key, version:
            2 ListOffsetsResponse, 3 MetadataResponse, 8 OffsetCommitResponse,
            9 OffsetFetchResponse, 10 FindCoordinatorResponse, 11 JoinGroupResponse,
            12 HeartbeatResponse, 13 LeaveGroupResponse, 14 SyncGroupResponse,
            15 DescribeGroupsResponse, 16 ListGroupsResponse, 19 CreateTopicsResponse,
            20 DeleteTopicsResponse, 21 DeleteRecordsResponse, 22 InitProducerIdResponse,
            23 OffsetForLeaderEpochResponse, 24 AddPartitionsToTxnResponse,
            25 AddOffsetsToTxnResponse, 26 EndTxnResponse, 28 TxnOffsetCommitResponse,
            29 DescribeAclsResponse, 30 CreateAclsResponse, 31 DeleteAclsResponse,
            32 DescribeConfigsResponse, 33 AlterConfigsResponse,
            34 AlterReplicaLogDirsResponse, 35 DescribeLogDirsResponse,
            37 CreatePartitionsResponse, 42 DeleteGroupsResponse, 43 ElectLeadersResponse,
            44 IncrementalAlterConfigsResponse, 45 AlterPartitionReassignmentsResponse,
            46 ListPartitionReassignmentsResponse, 48 DescribeClientQuotasResponse,
            49 AlterClientQuotasResponse, 50 DescribeUserScramCredentialsResponse,
            51 AlterUserScramCredentialsResponse, 57 UpdateFeaturesResponse,
            60 DescribeClusterResponse, 61 DescribeProducersResponse,
            65 DescribeTransactionsResponse, 66 ListTransactionsResponse,
            68 ConsumerGroupHeartbeatResponse, 69 ConsumerGroupDescribeResponse,
            74 ListConfigResourcesResponse, 75 DescribeTopicPartitionsResponse,
        )
    }

    #[test]
    fn throttle_times_stand_where_the_table_says_in_every_version() {
        for api in &TABLE {
            let Some(from) = throttle_first_from(api.key) else {
                continue;
            };
            for version in api.versions.clone().filter(|version| *version >= from) {
                let body = encoded(api.key, version);
                assert_eq!(&body[..4], [1, 2, 3, 4], "{} v{version}", api.name);
                let bytes = body.clone();
                let body = ResponseBody::from(body);
                assert_eq!(told(&body, api.key, version), Some(0x0102_0304));
                let changed = body.with_first_bytes(77_i32.to_be_bytes());
                let changed = changed.into_vec().unwrap();
                assert_eq!(&changed[..4], [0, 0, 0, 77]);
                assert_eq!(changed[4..], bytes[4..]);
            }
        }
    }
}
