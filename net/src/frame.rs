//! Frames out of a stream of bytes, split anywhere.
//!
//! Owns:     the frame that is being assembled, its buffer and its share of the byte budget.
//! Does not: touch sockets, or know what is in a frame.
//! Runs on the net thread of its connection.
//!
//! # Invariants
//! F1. A frame has its whole length reserved before a buffer is made for its body.
//! F2. A buffer grows with the bytes that arrived, never to what a length field claims; only a
//!     recycled buffer, which costs nothing, may be longer.
//! F3. After a bad length nothing more is read: there is no way to find the next frame.

use std::sync::Arc;

use bytes::Bytes;

use crate::budget::{Budget, Permit};
use crate::buffers::{POOLED_BYTES_MIN, Pool};
use crate::service::CloseReason;

/// What a reader needs from its surroundings.
#[derive(Clone, Copy)]
pub(crate) struct FrameContext<'a> {
    pub(crate) budget: &'a Arc<Budget>,
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) frame_bytes_min: usize,
    pub(crate) frame_bytes_max: usize,
}

/// What the reader found in its input.
#[derive(Debug)]
pub(crate) enum Step {
    /// The input is used up and the frame is not complete.
    NeedBytes,
    /// The budget has no room for a frame of this length: wait, then [`FrameReader::grant`].
    NeedBudget(usize),
    /// A complete frame without its length.
    Frame(Bytes),
    /// The stream cannot be read any further.
    Bad(CloseReason),
}

/// See the file comment.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    length: [u8; 4],
    length_got: usize,
    body: Body,
    frames: u64,
}

#[derive(Debug, Default)]
enum Body {
    /// The length is not known yet.
    #[default]
    None,
    /// The length is known and waits for the budget.
    Waiting(usize),
    Partial(Partial),
}

/// A frame of which some bytes are there.
#[derive(Debug)]
struct Partial {
    /// Initialised bytes; the frame's own are the first `filled` of them.
    buffer: Vec<u8>,
    filled: usize,
    length: usize,
    permit: Permit,
    pool: Arc<Pool>,
}

impl FrameReader {
    /// Whether a frame was begun and is not complete.
    pub(crate) fn in_frame(&self) -> bool {
        self.length_got > 0
    }

    /// Where the next bytes of the frame belong: they may be read into this directly and reported
    /// with [`Self::filled`]. Empty between frames.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        match &mut self.body {
            Body::Partial(partial) => partial.spare(),
            _ => &mut [],
        }
    }

    /// Reports bytes that were read into [`Self::spare`].
    pub(crate) fn filled(&mut self, bytes: usize) {
        if let Body::Partial(partial) = &mut self.body {
            partial.filled += bytes;
        }
    }

    /// Hands over the budget's permit after [`Step::NeedBudget`].
    pub(crate) fn grant(&mut self, permit: Permit, pool: &Arc<Pool>) {
        if let Body::Waiting(length) = self.body {
            self.body = Body::Partial(Partial::new(length, 0, permit, pool));
        }
    }

    /// Takes bytes from the front of `input` until a frame is complete or the input is used up.
    pub(crate) fn take(&mut self, input: &mut &[u8], context: FrameContext<'_>) -> Step {
        if matches!(self.body, Body::None) {
            let length = match self.take_length(input, context) {
                Ok(Some(length)) => length,
                Ok(None) => return Step::NeedBytes,
                Err(why) => return Step::Bad(why),
            };
            self.body = match context.budget.try_reserve(length) {
                Some(permit) if length <= input.len() => {
                    return self.whole(input, length, permit, context.pool);
                }
                Some(permit) => {
                    Body::Partial(Partial::new(length, input.len(), permit, context.pool))
                }
                None => Body::Waiting(length),
            };
        }
        match &mut self.body {
            Body::None => Step::NeedBytes,
            Body::Waiting(length) => Step::NeedBudget(*length),
            Body::Partial(partial) => {
                partial.copy(input);
                self.complete()
            }
        }
    }

    /// The length of the next frame, once its four bytes are there.
    fn take_length(
        &mut self,
        input: &mut &[u8],
        context: FrameContext<'_>,
    ) -> Result<Option<usize>, CloseReason> {
        let missing = &mut self.length[self.length_got..];
        let (bytes, left) = input.split_at(missing.len().min(input.len()));
        missing[..bytes.len()].copy_from_slice(bytes);
        *input = left;
        self.length_got += bytes.len();
        if self.length_got < self.length.len() {
            return Ok(None);
        }
        check_length(
            self.length,
            context.frame_bytes_min,
            context.frame_bytes_max,
        )
        .map(Some)
        .map_err(|why| self.recognise().unwrap_or(why))
    }

    /// Names a peer that speaks another protocol, from the first bytes of a connection.
    fn recognise(&self) -> Option<CloseReason> {
        if self.frames > 0 {
            return None;
        }
        match &self.length {
            b"GET " | b"POST" | b"HEAD" | b"PUT " | b"DELE" | b"OPTI" | b"PATC" | b"CONN"
            | b"PRI " => Some(CloseReason::Http),
            // A TLS record: handshake, then the major version.
            [0x16, 0x03, ..] => Some(CloseReason::Tls),
            _ => None,
        }
    }

    /// A frame that lies in the input as a whole: one copy, into a buffer of its own size.
    fn whole(
        &mut self,
        input: &mut &[u8],
        length: usize,
        permit: Permit,
        pool: &Arc<Pool>,
    ) -> Step {
        let (bytes, left) = input.split_at(length);
        *input = left;
        self.next();
        Step::Frame(Bytes::from_owner(Frame {
            buffer: bytes.to_vec(),
            length,
            pool: Arc::clone(pool),
            _permit: permit,
        }))
    }

    fn complete(&mut self) -> Step {
        match std::mem::take(&mut self.body) {
            Body::Partial(partial) if partial.filled == partial.length => {
                self.next();
                Step::Frame(Bytes::from_owner(partial.into_frame()))
            }
            body => {
                self.body = body;
                Step::NeedBytes
            }
        }
    }

    fn next(&mut self) {
        self.length_got = 0;
        self.body = Body::None;
        self.frames += 1;
    }
}

fn check_length(length: [u8; 4], min: usize, max: usize) -> Result<usize, CloseReason> {
    let claimed = i32::from_be_bytes(length);
    match usize::try_from(claimed) {
        Ok(length) if length > max => Err(CloseReason::FrameTooLong { claimed, max }),
        Ok(length) if length >= min => Ok(length),
        _ => Err(CloseReason::FrameTooShort { claimed }),
    }
}

impl Partial {
    fn new(length: usize, arrived: usize, permit: Permit, pool: &Arc<Pool>) -> Self {
        Self {
            buffer: pool
                .take(length)
                .unwrap_or_else(|| vec![0; grown(arrived, length)]),
            filled: 0,
            length,
            permit,
            pool: Arc::clone(pool),
        }
    }

    fn spare(&mut self) -> &mut [u8] {
        if self.filled == self.buffer.len() && self.filled < self.length {
            self.buffer.resize(grown(self.filled, self.length), 0);
        }
        let end = self.buffer.len().min(self.length);
        self.buffer.get_mut(self.filled..end).unwrap_or_default()
    }

    fn copy(&mut self, input: &mut &[u8]) {
        while !input.is_empty() && self.filled < self.length {
            let spare = self.spare();
            let (bytes, left) = input.split_at(spare.len().min(input.len()));
            spare[..bytes.len()].copy_from_slice(bytes);
            *input = left;
            self.filled += bytes.len();
        }
    }

    fn into_frame(self) -> Frame {
        Frame {
            buffer: self.buffer,
            length: self.length,
            pool: self.pool,
            _permit: self.permit,
        }
    }
}

/// The size of a buffer after `arrived` bytes: twice that, and not more than the frame needs (F2).
/// Sizes of large buffers are rounded up, so that they serve again for frames of about their size.
fn grown(arrived: usize, length: usize) -> usize {
    /// The first read of a frame should not be cut into crumbs.
    const FIRST_BYTES: usize = 16 * 1024;
    let bytes = arrived.saturating_mul(2).max(FIRST_BYTES);
    if bytes < length {
        return bytes;
    }
    if length < POOLED_BYTES_MIN {
        length
    } else {
        length.next_multiple_of(POOLED_BYTES_MIN)
    }
}

/// A complete frame. Its budget is given back, and its buffer recycled, with its last slice.
struct Frame {
    buffer: Vec<u8>,
    length: usize,
    pool: Arc<Pool>,
    _permit: Permit,
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(reader: &mut FrameReader, mut bytes: &[u8], budget: &Arc<Budget>) -> Step {
        let context = FrameContext {
            budget,
            pool: &Pool::new(),
            frame_bytes_min: 10,
            frame_bytes_max: 100 * 1024 * 1024,
        };
        reader.take(&mut bytes, context)
    }

    #[test]
    fn p09_a_buffer_grows_with_what_arrived_and_not_with_what_is_claimed() {
        let budget = Budget::new(usize::MAX);
        let mut reader = FrameReader::default();
        let claimed = 100 * 1024 * 1024_i32;
        feed(&mut reader, &claimed.to_be_bytes(), &budget);
        assert_eq!(budget.used(), 100 * 1024 * 1024, "F1");
        let mut arrived = 0;
        while arrived < 8 * 1024 * 1024 {
            let room = reader.spare().len();
            assert!(room <= (16 * 1024).max(arrived), "F2: {room} for {arrived}");
            reader.filled(room);
            arrived += room;
        }
        drop(reader);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_frame_waits_for_the_budget_and_goes_on_with_its_permit() {
        let budget = Budget::new(100);
        let held = budget.try_reserve(80).unwrap();
        let mut reader = FrameReader::default();
        let step = feed(&mut reader, &[0, 0, 0, 30], &budget);
        assert!(matches!(step, Step::NeedBudget(30)), "{step:?}");
        drop(held);
        reader.grant(budget.try_reserve(30).unwrap(), &Pool::new());
        let step = feed(&mut reader, &[7; 30], &budget);
        let Step::Frame(frame) = step else {
            panic!("{step:?}");
        };
        assert_eq!((&frame[..], budget.used()), (&[7; 30][..], 30));
        let last_slice = frame.slice(3..5);
        drop(frame);
        assert_eq!(budget.used(), 30);
        drop(last_slice);
        assert_eq!(budget.used(), 0);
    }
}
