//! A door for the benches and the fuzzers to what is private; not for anybody else.

use std::sync::Arc;

use bytes::Bytes;

use crate::budget::Budget;
use crate::buffers::Pool;
use crate::conn::SCRATCH_BYTES;
use crate::frame::{FrameContext, FrameReader, Step};
use crate::wire::RawHeader;

/// Feeds a frame reader as a connection does, without a socket.
#[derive(Debug)]
pub struct FrameFeed {
    reader: FrameReader,
    budget: Arc<Budget>,
    pool: Arc<Pool>,
}

impl Default for FrameFeed {
    fn default() -> Self {
        Self {
            reader: FrameReader::default(),
            budget: Budget::new(usize::MAX),
            pool: Pool::new(),
        }
    }
}

/// Where the body behind a request header begins; `None` if the header cannot be decoded.
#[must_use]
pub fn header_at(frame: &Bytes) -> Option<usize> {
    RawHeader::decode(frame).ok().map(|header| header.body_at)
}

impl FrameFeed {
    /// Assembles all frames of a stream that comes in pieces of `step` bytes, until it ends or is
    /// refused; gives their number.
    pub fn frames_of(&mut self, stream: &[u8], step: usize, frame_bytes_max: usize) -> usize {
        let context = FrameContext {
            budget: &self.budget,
            pool: &self.pool,
            frame_bytes_min: 0,
            frame_bytes_max,
        };
        let mut frames = 0;
        for piece in stream.chunks(step.max(1)) {
            let spare = self.reader.spare();
            let (direct, mut left) = piece.split_at(spare.len().min(piece.len()));
            spare[..direct.len()].copy_from_slice(direct);
            self.reader.filled(direct.len());
            loop {
                match self.reader.take(&mut left, context) {
                    Step::Frame(_) => frames += 1,
                    Step::NeedBytes => break,
                    _ => return frames,
                }
            }
        }
        frames
    }

    /// Assembles the one frame that `stream` holds, from reads as a socket delivers them: straight
    /// into the frame's buffer as far as it goes. `None` if the stream holds no whole frame.
    pub fn one_frame(&mut self, stream: &[u8]) -> Option<Bytes> {
        let context = FrameContext {
            frame_bytes_min: 0,
            budget: &self.budget,
            pool: &self.pool,
            frame_bytes_max: usize::MAX,
        };
        let mut left = stream;
        loop {
            let spare = self.reader.spare();
            let (direct, rest) = left.split_at(spare.len().min(left.len()));
            spare[..direct.len()].copy_from_slice(direct);
            self.reader.filled(direct.len());
            let (mut read, behind) = rest.split_at(SCRATCH_BYTES.min(rest.len()));
            left = behind;
            match self.reader.take(&mut read, context) {
                Step::Frame(frame) => return Some(frame),
                Step::NeedBytes if !left.is_empty() => {}
                _ => return None,
            }
        }
    }
}
