//! A door for the benches to what is private; not for anybody else.

use std::sync::Arc;

use bytes::Bytes;

use crate::budget::Budget;
use crate::buffers::Pool;
use crate::conn::SCRATCH_BYTES;
use crate::frame::{FrameContext, FrameReader, Step};

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

impl FrameFeed {
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
