//! From completed requests to written bytes.
//!
//! Owns:     when and how much is written.

use std::io::{self, IoSlice};

use super::{Conn, Context, TURN_BYTES, Turn};
use crate::replies::{Output, WRITE_PARTS_MAX};
use crate::service::Service;

impl<C> Conn<C> {
    pub(super) fn write_replies<S: Service<Conn = C>>(&mut self, context: &Context<'_, S>) -> Turn {
        let advanced = self.pending.advance(&mut self.output);
        context.counters.replies.add(advanced.replies);
        self.replied |= advanced.replies > 0;
        self.exclusive &= !self.pending.is_empty();
        self.peer_knows |= advanced.peer_knows;
        if let Some(why) = advanced.close {
            self.pending.clear();
            self.parked = None;
            self.exclusive = false;
            self.close_in_order(why);
        }
        self.write(context)
    }

    fn write<S: Service<Conn = C>>(&mut self, context: &Context<'_, S>) -> Turn {
        let mut turn_bytes = 0;
        while self.writable && self.has_output() && !self.reset {
            if turn_bytes >= TURN_BYTES {
                return Turn::Again;
            }
            match self.write_once() {
                Ok(bytes) => {
                    self.moved_at = context.now;
                    context.counters.bytes_out.add_bytes(bytes);
                    turn_bytes += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(_) => self.reset = true,
            }
        }
        if self.reset {
            self.output = Output::default();
        }
        Turn::Wait
    }

    fn has_output(&self) -> bool {
        !self.output.is_empty() || self.transport.wants_write()
    }

    fn write_once(&mut self) -> io::Result<usize> {
        if let Some(piped) = self.output.piped() {
            // Fewer bytes than there are need not mean that the socket is full; it says so itself.
            let bytes = self.transport.splice(piped)?;
            self.output.piped_out(bytes);
            return Ok(bytes);
        }
        let mut slices = [IoSlice::new(&[]); WRITE_PARTS_MAX];
        let offered = self.output.slices(&mut slices);
        let slices = &slices[..offered.count];
        let bytes = self.transport.write_vectored(slices, offered.more)?;
        // A short write filled the socket: room is a new event.
        self.writable = !self.transport.is_full(bytes < offered.bytes);
        self.output.wrote(bytes);
        Ok(bytes)
    }
}
