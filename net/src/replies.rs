//! Replies in the order of their requests, and the bytes that wait to be written.
//!
//! Owns:     the requests of one connection that are started and not answered, and its output.
//! Does not: touch sockets.
//! Runs on the net thread of its connection.
//!
//! # Invariants
//! R1. Replies enter the output in the order of their requests, whatever the order of completion.
//! R2. Nothing enters the output behind a close.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

use crate::body::{BodyPart, ResponseBody};
use crate::mailbox::Outcome;
use crate::pipes::Piped;
use crate::service::CloseReason;

/// Parts handed to one `writev`. The kernel takes 1,024; a stack array of that would be large for
/// what it saves.
pub(crate) const WRITE_PARTS_MAX: usize = 64;

/// Requests that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    requests: VecDeque<Waiting>,
    /// Sequence number of the first of them.
    first: u64,
}

#[derive(Debug)]
struct Waiting {
    head: ReplyHead,
    outcome: Option<Outcome>,
}

/// What the header of a reply depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyHead {
    pub(crate) correlation_id: i32,
    pub(crate) form: HeadForm,
}

/// How the header of a reply looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HeadForm {
    /// None: the reply is one of the bare tokens of SASL.
    Bare,
    /// The correlation id.
    Plain,
    /// The correlation id and tagged fields.
    Flexible,
}

impl HeadForm {
    fn bytes(self) -> usize {
        match self {
            Self::Bare => 0,
            Self::Plain => 4,
            Self::Flexible => 5,
        }
    }
}

/// What completing a request led to.
#[derive(Debug, Default)]
pub(crate) struct Advanced {
    /// Replies that entered the output.
    pub(crate) replies: u64,
    /// The connection is to be closed behind what is in the output.
    pub(crate) close: Option<CloseReason>,
    /// ... and what is in the output says so to the peer, who may go first.
    pub(crate) peer_knows: bool,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds a request; its number is for [`Self::complete`].
    pub(crate) fn push(&mut self, head: ReplyHead) -> u64 {
        let seq = self.first + self.requests.len() as u64;
        self.requests.push_back(Waiting {
            head,
            outcome: None,
        });
        seq
    }

    /// Notes how a request ended. A number that is not waiting is ignored.
    pub(crate) fn complete(&mut self, seq: u64, outcome: Outcome) {
        let at = seq
            .checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok());
        if let Some(waiting) = at.and_then(|at| self.requests.get_mut(at)) {
            waiting.outcome.get_or_insert(outcome);
        }
    }

    /// Moves what is answered, from the front, into the output (R1, R2).
    pub(crate) fn advance(&mut self, output: &mut Output) -> Advanced {
        let mut advanced = Advanced::default();
        while advanced.close.is_none() {
            let Some(outcome) = self.requests.front_mut().and_then(|w| w.outcome.take()) else {
                break;
            };
            let Some(waiting) = self.requests.pop_front() else {
                break;
            };
            self.first += 1;
            match outcome {
                Outcome::Silent => {}
                Outcome::Close(why) => advanced.close = Some(why),
                Outcome::Last(body, why) => {
                    let pushed = output.push(waiting.head, body);
                    advanced.replies += u64::from(pushed.is_ok());
                    advanced.peer_knows = pushed.is_ok();
                    advanced.close = Some(pushed.err().unwrap_or(why));
                }
                Outcome::Reply(body) => match output.push(waiting.head, body) {
                    Ok(()) => advanced.replies += 1,
                    Err(why) => advanced.close = Some(why),
                },
            }
        }
        advanced
    }

    /// Forgets all requests; completions that come later are ignored.
    pub(crate) fn clear(&mut self) {
        self.first += self.requests.len() as u64;
        self.requests.clear();
    }
}

/// One part of the output.
#[derive(Debug)]
enum Part {
    Head([u8; 9], usize),
    Body(Bytes),
    Piped(Piped),
}

impl Part {
    /// Its bytes, where they are in memory.
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Head(bytes, length) => Some(&bytes[..*length]),
            Self::Body(bytes) => Some(bytes),
            Self::Piped(_) => None,
        }
    }
}

impl From<BodyPart> for Part {
    fn from(part: BodyPart) -> Self {
        match part {
            BodyPart::Bytes(bytes) => Self::Body(bytes),
            BodyPart::Piped(piped) => Self::Piped(piped),
        }
    }
}

/// What of the output is offered to the socket.
pub(crate) struct Slices {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    /// A pipe follows.
    pub(crate) more: bool,
}

/// Bytes that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    parts: VecDeque<Part>,
    /// Bytes of the first part that are written.
    written: usize,
    bytes: usize,
}

impl Output {
    /// Bytes not written yet.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds a reply: length, header, body.
    fn push(&mut self, head: ReplyHead, body: ResponseBody) -> Result<(), CloseReason> {
        let header_bytes = head.form.bytes();
        let length = i32::try_from(header_bytes + body.len());
        let length = length.map_err(|_| CloseReason::ReplyTooLong)?;
        // The ninth byte is the number of tagged fields: none.
        let mut bytes = [0; 9];
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..8].copy_from_slice(&head.correlation_id.to_be_bytes());
        self.bytes += 4 + header_bytes + body.len();
        self.parts.push_back(Part::Head(bytes, 4 + header_bytes));
        self.parts.extend(body.into_parts().map(Part::from));
        Ok(())
    }

    /// What is next, if it is in a pipe.
    pub(crate) fn piped(&mut self) -> Option<&mut Piped> {
        match self.parts.front_mut() {
            Some(Part::Piped(piped)) => Some(piped),
            _ => None,
        }
    }

    /// Fills `slices` with what is next, up to a pipe.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; WRITE_PARTS_MAX]) -> Slices {
        let mut skip = self.written;
        let (mut count, mut bytes) = (0, 0);
        for (slot, part) in slices.iter_mut().zip(&self.parts) {
            let Some(part) = part.bytes() else { break };
            let part = &part[std::mem::take(&mut skip)..];
            *slot = IoSlice::new(part);
            count += 1;
            bytes += part.len();
        }
        let more = matches!(self.parts.get(count), Some(Part::Piped(_)));
        Slices { count, bytes, more }
    }

    /// Notes bytes that the kernel took out of the pipe in front.
    pub(crate) fn piped_out(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if self.piped().is_some_and(|piped| piped.is_empty()) {
            self.parts.pop_front();
        }
    }

    /// Drops bytes that the kernel took of `slices`.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.written += bytes;
        while let Some(part) = self.parts.front().and_then(Part::bytes) {
            let length = part.len();
            if self.written < length {
                return;
            }
            self.written -= length;
            self.parts.pop_front();
        }
    }
}
