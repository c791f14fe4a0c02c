//! The only place that turns our errors into Kafka's codes.
//!
//! Owns: the mappings, by matches without `_`, so that a new variant of ours
//! cannot be forgotten here.

use seawall_committer::Refusal;
use seawall_storage::{AppendReject, BatchError, ReadError};

use super::codes::ErrorCode;
use crate::cluster::{ChangeError, CreateError};
use crate::fetch_sessions::SessionError;
use crate::groups::GroupError;
use crate::partition::{AppendError, TrimError};
use crate::topics::LookupError;
use crate::txn::TxnError;

impl From<&BatchError> for ErrorCode {
    fn from(error: &BatchError) -> Self {
        match error {
            BatchError::Empty
            | BatchError::Short
            | BatchError::OldMagic(_)
            | BatchError::MoreThanOne
            | BatchError::BaseOffsetNotZero(_)
            | BatchError::BadCount
            | BatchError::ControlBatch
            | BatchError::TransactionalWithoutProducer
            | BatchError::ProducerWithoutSequence => Self::InvalidRecord,
            BatchError::ImpossibleLength(_)
            | BatchError::UnknownMagic(_)
            | BatchError::CrcMismatch => Self::CorruptMessage,
            BatchError::TooLarge { .. } => Self::MessageTooLarge,
            BatchError::UnsupportedCodec => Self::UnsupportedCompressionType,
        }
    }
}

impl From<&AppendReject> for ErrorCode {
    fn from(reject: &AppendReject) -> Self {
        match reject {
            AppendReject::OutOfOrderSequence => Self::OutOfOrderSequenceNumber,
            AppendReject::ProducerFenced => Self::InvalidProducerEpoch,
            AppendReject::InvalidTxnState => Self::InvalidTxnState,
        }
    }
}

impl From<&AppendError> for ErrorCode {
    fn from(error: &AppendError) -> Self {
        match error {
            AppendError::Rejected(reject, _) => reject.into(),
            AppendError::Refused(Refusal::Stalled | Refusal::Failed(_) | Refusal::NotOwner)
            | AppendError::NoSpace
            | AppendError::NotWritten
            | AppendError::DirBusy => Self::KafkaStorageError,
            AppendError::Deleted => Self::UnknownTopicOrPartition,
            AppendError::Stopping => Self::NotLeaderOrFollower,
        }
    }
}

impl From<&TrimError> for ErrorCode {
    fn from(error: &TrimError) -> Self {
        match error {
            TrimError::OutOfRange => Self::OffsetOutOfRange,
            TrimError::Deleted => Self::UnknownTopicOrPartition,
            TrimError::Unavailable | TrimError::Disk(_) => Self::KafkaStorageError,
        }
    }
}

impl From<&ReadError> for ErrorCode {
    fn from(error: &ReadError) -> Self {
        match error {
            ReadError::OutOfRange { .. } => Self::OffsetOutOfRange,
            ReadError::Corrupt { .. } => Self::CorruptMessage,
            ReadError::Io(_) => Self::KafkaStorageError,
        }
    }
}

impl From<SessionError> for ErrorCode {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::NotFound => Self::FetchSessionIdNotFound,
            SessionError::WrongEpoch => Self::InvalidFetchSessionEpoch,
            SessionError::OtherTopicKeys => Self::FetchSessionTopicIdError,
        }
    }
}

impl From<&LookupError> for ErrorCode {
    fn from(error: &LookupError) -> Self {
        match error {
            LookupError::UnknownTopic | LookupError::UnknownPartition => {
                Self::UnknownTopicOrPartition
            }
            LookupError::UnknownTopicId => Self::UnknownTopicId,
            LookupError::Offline | LookupError::Damaged => Self::KafkaStorageError,
        }
    }
}

impl From<&CreateError> for ErrorCode {
    fn from(error: &CreateError) -> Self {
        match error {
            CreateError::Name(_) | CreateError::Collision(_) => Self::InvalidTopicException,
            CreateError::Exists => Self::TopicAlreadyExists,
            CreateError::Partitions => Self::InvalidPartitions,
            CreateError::Config(_) => Self::InvalidConfig,
            CreateError::NotFresh
            | CreateError::NoLogDir
            | CreateError::Occupied(_)
            | CreateError::Disk(_)
            | CreateError::InDoubt(_) => Self::KafkaStorageError,
        }
    }
}

impl From<&ChangeError> for ErrorCode {
    fn from(error: &ChangeError) -> Self {
        match error {
            ChangeError::Unknown => Self::UnknownTopicOrPartition,
            ChangeError::Config(_) => Self::InvalidConfig,
            ChangeError::Partitions => Self::InvalidPartitions,
            ChangeError::Busy
            | ChangeError::NotFresh
            | ChangeError::Unusable
            | ChangeError::Disk(_)
            | ChangeError::InDoubt(_) => Self::KafkaStorageError,
        }
    }
}

impl From<&GroupError> for ErrorCode {
    fn from(error: &GroupError) -> Self {
        match error {
            GroupError::InvalidId => Self::InvalidGroupId,
            GroupError::Loading => Self::CoordinatorLoadInProgress,
            GroupError::Unavailable => Self::CoordinatorNotAvailable,
            GroupError::NotFound | GroupError::WrongType => Self::GroupIdNotFound,
            GroupError::NotEmpty => Self::NonEmptyGroup,
            GroupError::UnknownMember => Self::UnknownMemberId,
            GroupError::IllegalGeneration => Self::IllegalGeneration,
            GroupError::RebalanceInProgress => Self::RebalanceInProgress,
            GroupError::FencedInstance => Self::FencedInstanceId,
            GroupError::InconsistentProtocol => Self::InconsistentGroupProtocol,
            GroupError::SessionTimeout => Self::InvalidSessionTimeout,
            GroupError::Full => Self::GroupMaxSizeReached,
            GroupError::MemberIdRequired => Self::MemberIdRequired,
            GroupError::Subscribed => Self::GroupSubscribedToTopic,
            GroupError::FencedEpoch => Self::FencedMemberEpoch,
            GroupError::StaleEpoch => Self::StaleMemberEpoch,
            GroupError::UnreleasedInstance => Self::UnreleasedInstanceId,
            GroupError::UnsupportedAssignor => Self::UnsupportedAssignor,
            GroupError::InvalidRegex => Self::InvalidRegularExpression,
            GroupError::UnsupportedVersion => Self::UnsupportedVersion,
        }
    }
}

/// Old versions know no `PRODUCER_FENCED`: `txn_code` says where.
impl From<&TxnError> for ErrorCode {
    fn from(error: &TxnError) -> Self {
        match error {
            TxnError::UnknownProducer => Self::InvalidProducerIdMapping,
            TxnError::Fenced => Self::ProducerFenced,
            TxnError::Concurrent => Self::ConcurrentTransactions,
            TxnError::InvalidState => Self::InvalidTxnState,
            TxnError::NotInTransaction => Self::TransactionAbortable,
            TxnError::InvalidTimeout => Self::InvalidTransactionTimeout,
            TxnError::InvalidId => Self::InvalidRequest,
            TxnError::Unavailable => Self::CoordinatorNotAvailable,
        }
    }
}
