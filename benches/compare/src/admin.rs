//! Requests around a measurement: create topics, wait until they serve, ask for their ends.
//!
//! Owns:     one blocking connection; messages come from `kafka-wire`.
//! Does not: appear in anything that is timed, except that a broker counts as started when it answers here.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kafka_wire::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_wire::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_wire::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_wire::{
    CreateTopicsRequest, DescribeLogDirsRequest, IncrementalAlterConfigsRequest,
    InitProducerIdRequest, KafkaRequest, ListOffsetsRequest, MetadataRequest, OutboundFrameLimits,
    ProduceRequest, RequestResponsePair, encode_request, response_header_version_for,
};
use kafka_wire_core::{
    ApiVersion, Bytes, BytesMut, DecodeLimits, KafkaDecode, KafkaEncode, StrBytes,
};

use crate::error::{Doing, Error, Result};
use crate::{frame, wait};

const TIMEOUT: Duration = Duration::from_secs(60);
const LATEST: i64 = -1;
/// The kind of a resource that has configs.
const TOPIC: i8 = 2;
/// Kafka's answer while it fetches its first block of producer ids.
const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
const REQUEST_MAX: usize = 64 << 20;

/// A topic to create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topic<'a> {
    pub(crate) name: &'a str,
    pub(crate) partitions: i32,
    /// Whether every acks=all batch waits for an fsync of its own log (`flush.messages=1`).
    pub(crate) flush: bool,
}

/// One blocking connection for set-up requests.
pub(crate) struct Admin {
    stream: TcpStream,
    correlation: i32,
    sent: u64,
    received: u64,
}

impl Admin {
    /// Connects.
    pub(crate) fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, TIMEOUT).doing("connect to the broker")?;
        stream.set_nodelay(true).doing("set TCP_NODELAY")?;
        stream
            .set_read_timeout(Some(TIMEOUT))
            .doing("set a timeout")?;
        Ok(Self {
            stream,
            correlation: 0,
            sent: 0,
            received: 0,
        })
    }

    /// Number of brokers that Metadata names: zero while a broker is still starting.
    pub(crate) fn brokers(&mut self) -> Result<usize> {
        let mut request = MetadataRequest::default();
        request.topics = Some(Vec::new());
        Ok(self.call(&request, 9)?.brokers.len())
    }

    /// Creates a topic.
    pub(crate) fn create(&mut self, topic: Topic<'_>) -> Result<()> {
        let flush: &[_] = if topic.flush {
            &[("flush.messages", "1")]
        } else {
            &[]
        };
        self.create_with(topic.name, topic.partitions, flush)
    }

    /// Creates a topic with these configs.
    pub(crate) fn create_with(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let mut wanted = CreatableTopic::default();
        wanted.name = StrBytes::from(name);
        wanted.num_partitions = partitions;
        wanted.replication_factor = 1;
        for (key, value) in configs {
            let mut config = CreatableTopicConfig::default();
            config.name = StrBytes::from(*key);
            config.value = Some(StrBytes::from(*value));
            wanted.configs.push(config);
        }
        let mut request = CreateTopicsRequest::default();
        request.topics.push(wanted);
        request.timeout_ms = 60_000;
        let answer = self.call(&request, 5)?;
        answer
            .topics
            .iter()
            .try_for_each(|t| no_error("CreateTopics", t.error_code))
    }

    /// Sets one config of a topic.
    pub(crate) fn configure(&mut self, topic: &str, key: &str, value: &str) -> Result<()> {
        let mut config = AlterableConfig::default();
        config.name = StrBytes::from(key);
        config.value = Some(StrBytes::from(value));
        let mut resource = AlterConfigsResource::default();
        resource.resource_type = TOPIC;
        resource.resource_name = StrBytes::from(topic);
        resource.configs.push(config);
        let mut request = IncrementalAlterConfigsRequest::default();
        request.resources.push(resource);
        let answer = self.call(&request, 1)?;
        answer
            .responses
            .iter()
            .try_for_each(|r| no_error("IncrementalAlterConfigs", r.error_code))
    }

    /// Bytes of a topic on the disk.
    pub(crate) fn size(&mut self, topic: &str) -> Result<u64> {
        let mut request = DescribeLogDirsRequest::default();
        request.topics = None;
        let answer = self.call(&request, 4)?;
        let topics = answer.results.iter().flat_map(|dir| &dir.topics);
        let partitions = topics
            .filter(|t| t.name.as_str() == topic)
            .flat_map(|t| &t.partitions);
        Ok(partitions
            .map(|p| u64::try_from(p.partition_size).unwrap_or(0))
            .sum())
    }

    /// The end offsets of the partitions 0..`partitions`, in order.
    pub(crate) fn ends(&mut self, topic: &str, partitions: i32) -> Result<Vec<i64>> {
        let mut asked = ListOffsetsTopic::default();
        asked.name = StrBytes::from(topic);
        for index in 0..partitions {
            let mut partition = ListOffsetsPartition::default();
            partition.partition_index = index;
            partition.current_leader_epoch = -1;
            partition.timestamp = LATEST;
            asked.partitions.push(partition);
        }
        let mut request = ListOffsetsRequest::default();
        request.replica_id = -1;
        request.topics.push(asked);
        let answer = self.call(&request, 6)?;
        let mut ends = vec![-1; usize::try_from(partitions).unwrap_or_default()];
        for partition in answer.topics.iter().flat_map(|t| &t.partitions) {
            no_error("ListOffsets", partition.error_code)?;
            if let Some(end) = usize::try_from(partition.partition_index)
                .ok()
                .and_then(|i| ends.get_mut(i))
            {
                *end = partition.offset;
            }
        }
        Ok(ends)
    }

    /// Writes `batch` once into every partition from..to of `topic`, acks=all, as one request.
    pub(crate) fn produce_to_all(
        &mut self,
        topic: &str,
        partitions: std::ops::Range<i32>,
        batch: &[u8],
    ) -> Result<()> {
        let records = Bytes::copy_from_slice(batch);
        let mut data = TopicProduceData::default();
        data.name = StrBytes::from(topic);
        for index in partitions {
            let mut partition = PartitionProduceData::default();
            partition.index = index;
            partition.records = Some(records.clone());
            data.partition_data.push(partition);
        }
        let mut request = ProduceRequest::default();
        request.acks = -1;
        request.timeout_ms = 30_000;
        request.topic_data.push(data);
        let answer = self.call(&request, 9)?;
        answer
            .responses
            .iter()
            .flat_map(|t| &t.partition_responses)
            .try_for_each(|p| no_error("Produce", p.error_code))
    }

    /// A new producer id and its epoch.
    pub(crate) fn producer_id(&mut self) -> Result<(i64, i16)> {
        let mut request = InitProducerIdRequest::default();
        request.transactional_id = None;
        request.transaction_timeout_ms = 60_000;
        request.producer_id = -1;
        request.producer_epoch = -1;
        wait::until("a producer id", TIMEOUT, || {
            let answer = self.call(&request, 4)?;
            if answer.error_code == COORDINATOR_LOAD_IN_PROGRESS {
                return Ok(None);
            }
            no_error("InitProducerId", answer.error_code)?;
            Ok(Some((answer.producer_id, answer.producer_epoch)))
        })
    }

    /// Bytes sent and received so far, lengths included.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.sent, self.received)
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn call<R>(&mut self, request: &R, version: i16) -> Result<R::Response>
    where
        R: RequestResponsePair + KafkaEncode,
        R::Response: KafkaDecode,
    {
        let version = ApiVersion::new(version);
        self.correlation += 1;
        let mut out = BytesMut::new();
        let limits = OutboundFrameLimits::new(REQUEST_MAX);
        let client = Some(StrBytes::from("seawall-compare"));
        encode_request(&mut out, self.correlation, client, request, version, limits)?;
        self.stream.write_all(&out).doing("send a request")?;
        self.sent += u64::try_from(out.len()).unwrap_or_default();
        let answer = self.answer()?;
        let body = answer.slice(response_head::<R>(version)?.min(answer.len())..);
        let limits = DecodeLimits::default();
        Ok(R::Response::decode_from_bytes(body, version, limits)?)
    }

    fn answer(&mut self) -> Result<Bytes> {
        let mut prefix = [0; 4];
        self.stream
            .read_exact(&mut prefix)
            .doing("read an answer")?;
        let mut answer = Vec::new();
        let len = u64::try_from(frame::length(prefix)?).unwrap_or_default();
        let got = (&mut self.stream)
            .take(len)
            .read_to_end(&mut answer)
            .doing("read an answer")?;
        if u64::try_from(got).unwrap_or_default() < len {
            return Err(Error::Malformed {
                what: "answer: the connection ended inside it",
            });
        }
        self.received += len + 4;
        Ok(Bytes::from(answer))
    }
}

/// Bytes of the response header: correlation id, from version 1 on also tags (always empty in practice).
fn response_head<R: KafkaRequest>(version: ApiVersion) -> Result<usize> {
    let header = response_header_version_for::<R>(version)?;
    Ok(if header == 0 { 4 } else { 5 })
}

/// An answer without an error.
pub(crate) fn no_error(api: &'static str, code: i16) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::Code { api, code })
}
