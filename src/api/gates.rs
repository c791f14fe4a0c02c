//! Which leave each API needs, and how a handler asks for it.
//!
//! Owns:     the operations and resources behind every row of the table, as Kafka has them.
//! Does not: decide; the authorizer does.
//!
//! [`of`] runs while the table is compiled: a row without a gate does not build. In debug builds a
//! handler that asks for what its gate does not name panics, so that the gates here are the true ones.

use std::sync::Arc;

use seawall_storage::TopicId;

use super::codes::ErrorCode;
use super::{Api, Asked, Call, Conn};
use crate::broker::Broker;
use crate::security::acl::{CLUSTER_NAME, Operation, ResourceType};
use crate::security::{Authorizer, Session};
use crate::topics::{Topic as OpenTopic, TopicMap};

use Operation::{
    Alter, AlterConfigs, ClusterAction, Create, Delete, Describe, DescribeConfigs, IdempotentWrite,
    Read, Write,
};
use ResourceType::{Cluster, Group, Topic, TransactionalId};

/// An operation on a kind of resource.
pub(super) type Need = (Operation, ResourceType);

/// What stands before an API.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gate {
    /// Nothing: it tells everybody the same, or is how one logs in.
    Open,
    /// Whoever may do these, as far as the request is about them.
    Needs(&'static [Need]),
}

/// The gate of an API.
pub(super) const fn of(key: i16) -> Gate {
    Gate::Needs(match key {
        0 => &[(Write, Topic), (Write, TransactionalId)],
        1 | 61 => &[(Read, Topic)],
        2 | 23 => &[(Describe, Topic)],
        3 => &[
            (Describe, Topic),
            (Create, Topic),
            (Create, Cluster),
            (Describe, Cluster),
        ],
        8 => &[(Read, Group), (Read, Topic)],
        9 | 69 => &[(Describe, Group), (Describe, Topic)],
        10 => &[(Describe, Group), (Describe, TransactionalId)],
        11..=14 => &[(Read, Group)],
        15 => &[(Describe, Group)],
        16 => &[(Describe, Group), (Describe, Cluster)],
        17 | 18 | 36 => return Gate::Open,
        19 => &[(Create, Topic), (Create, Cluster), (DescribeConfigs, Topic)],
        20 => &[(Delete, Topic), (Describe, Topic)],
        21 => &[(Delete, Topic)],
        22 => &[
            (Write, TransactionalId),
            (IdempotentWrite, Cluster),
            (Write, Topic),
        ],
        24 => &[
            (Write, TransactionalId),
            (Write, Topic),
            (ClusterAction, Cluster),
        ],
        25 => &[(Write, TransactionalId), (Read, Group)],
        26 => &[(Write, TransactionalId)],
        28 => &[(Write, TransactionalId), (Read, Group), (Read, Topic)],
        29 | 35 | 46 | 50 | 55 => &[(Describe, Cluster)],
        30 | 31 | 34 | 43 | 45 | 51 | 57 => &[(Alter, Cluster)],
        32 => &[
            (DescribeConfigs, Topic),
            (DescribeConfigs, Cluster),
            (DescribeConfigs, Group),
        ],
        33 | 44 => &[
            (AlterConfigs, Topic),
            (AlterConfigs, Cluster),
            (AlterConfigs, Group),
        ],
        37 => &[(Alter, Topic)],
        42 => &[(Delete, Group)],
        47 => &[(Delete, Group), (Read, Topic)],
        48 | 74 => &[(DescribeConfigs, Cluster)],
        49 => &[(AlterConfigs, Cluster)],
        // Brokers are told to everybody, as in Kafka; what may be done with the cluster is not.
        60 => &[(Describe, Cluster)],
        65 => &[(Describe, TransactionalId), (Describe, Topic)],
        66 => &[(Describe, TransactionalId)],
        68 => &[(Read, Group), (Describe, Topic)],
        75 => &[(Describe, Topic)],
        _ => panic!("every row of the API table has a gate"),
    })
}

/// What the one who sent a request may do.
#[derive(Clone, Copy)]
pub(super) struct Access<'a> {
    pub(super) authorizer: &'a Authorizer,
    pub(super) session: &'a Session,
    pub(super) api: &'static Api,
}

impl Call<'_> {
    /// What the sender may do.
    pub(super) fn access(&self) -> Access<'_> {
        access(self.broker, self.conn, self.api)
    }
}

/// What the peer of a connection may do, by an API.
pub(super) fn access<'a>(broker: &'a Broker, conn: &'a Conn, api: &'static Api) -> Access<'a> {
    Access {
        authorizer: &broker.authorizer,
        session: &conn.session,
        api,
    }
}

impl<'a> Asked<'a> {
    /// What the sender may do.
    pub(super) fn access(&self) -> Access<'a> {
        Access {
            authorizer: &self.broker.authorizer,
            session: self.session,
            api: self.api,
        }
    }
}

impl Access<'_> {
    /// # Errors
    /// `TOPIC_AUTHORIZATION_FAILED`, counted and logged.
    pub(super) fn topic(&self, operation: Operation, name: &str) -> Result<(), ErrorCode> {
        self.ask(operation, (Topic, name))
            .ok_or(ErrorCode::TopicAuthorizationFailed)
    }

    /// # Errors
    /// `GROUP_AUTHORIZATION_FAILED`, counted and logged.
    pub(super) fn group(&self, operation: Operation, id: &str) -> Result<(), ErrorCode> {
        self.ask(operation, (Group, id))
            .ok_or(ErrorCode::GroupAuthorizationFailed)
    }

    /// # Errors
    /// `TRANSACTIONAL_ID_AUTHORIZATION_FAILED`, counted and logged.
    pub(super) fn transactional_id(&self, operation: Operation, id: &str) -> Result<(), ErrorCode> {
        self.ask(operation, (TransactionalId, id))
            .ok_or(ErrorCode::TransactionalIdAuthorizationFailed)
    }

    /// # Errors
    /// `CLUSTER_AUTHORIZATION_FAILED`, counted and logged.
    pub(super) fn cluster(&self, operation: Operation) -> Result<(), ErrorCode> {
        self.ask(operation, (Cluster, CLUSTER_NAME))
            .ok_or(ErrorCode::ClusterAuthorizationFailed)
    }

    /// The topic of that name. Who may not do this to it does not learn whether it is there.
    ///
    /// # Errors
    /// It is not allowed, or there is none.
    pub(super) fn named<'m>(
        &self,
        map: &'m TopicMap,
        operation: Operation,
        name: &str,
    ) -> Result<&'m Arc<OpenTopic>, ErrorCode> {
        self.topic(operation, name)?;
        map.named(name).map_err(|error| ErrorCode::from(&error))
    }

    /// The topic with that id. Ids tell nothing, and nobody guesses one, so that an unknown one is
    /// called unknown, as in Kafka.
    ///
    /// # Errors
    /// It is not allowed, or there is none.
    pub(super) fn with_id<'m>(
        &self,
        map: &'m TopicMap,
        operation: Operation,
        id: TopicId,
    ) -> Result<&'m Arc<OpenTopic>, ErrorCode> {
        let topic = map.with_id(id).map_err(|error| ErrorCode::from(&error))?;
        self.topic(operation, &topic.name)?;
        Ok(topic)
    }

    /// The same without a count or a line, for filtering what is shown.
    pub(super) fn quietly(&self, operation: Operation, what: (ResourceType, &str)) -> bool {
        self.is_named(operation, what.0);
        self.authorizer.may_quietly(self.session, operation, what)
    }

    /// Whether the topic may be shown at all.
    pub(super) fn sees_topic(&self, name: &str) -> bool {
        self.quietly(Describe, (Topic, name))
    }

    /// Whether there is any topic to which the sender may do this.
    pub(super) fn some_topic(&self, operation: Operation) -> bool {
        self.is_named(operation, Topic);
        self.authorizer
            .may_somewhere(self.session, operation, Topic)
    }

    fn ask(&self, operation: Operation, what: (ResourceType, &str)) -> Option<()> {
        self.is_named(operation, what.0);
        let may = self.authorizer.may(self.session, operation, what);
        may.then_some(())
    }

    fn is_named(&self, operation: Operation, kind: ResourceType) {
        debug_assert!(
            matches!(self.api.gate, Gate::Needs(needs) if needs.contains(&(operation, kind))),
            "{} asks for {operation:?} on {kind:?}, which its gate does not name",
            self.api.name
        );
    }
}
