//! Why a group refuses.

/// The client's fault, or its bad luck; the group is as it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum GroupError {
    /// No group can have this id.
    InvalidId,
    /// The groups are being read from the disk.
    Loading,
    /// The group's file is damaged, cannot be written, or the group is being deleted.
    Unavailable,
    /// There is no such group.
    NotFound,
    /// The group has members.
    NotEmpty,
    /// The group is of the other protocol.
    WrongType,
    /// The member is not in the group.
    UnknownMember,
    /// Another generation is current.
    IllegalGeneration,
    /// The member must join again.
    RebalanceInProgress,
    /// Another process has the same `group.instance.id`.
    FencedInstance,
    /// No protocol that all members know.
    InconsistentProtocol,
    /// The session timeout is outside the broker's bounds.
    SessionTimeout,
    /// As many members as the broker allows.
    Full,
    /// The member must come again with the id that it was given (KIP-394).
    MemberIdRequired,
    /// Members of the group read the topic.
    Subscribed,
    /// The member epoch is too high, or that of a member that was fenced.
    FencedEpoch,
    /// The member epoch is an older one.
    StaleEpoch,
    /// The static member that has the instance id has not left.
    UnreleasedInstance,
    /// The assignor is not one of ours.
    UnsupportedAssignor,
    /// The regular expression does not compile.
    InvalidRegex,
    /// The version of the request cannot carry what the group needs to say.
    UnsupportedVersion,
}
