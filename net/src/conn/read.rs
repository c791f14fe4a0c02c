//! From readable bytes to frames.
//!
//! Owns:     when and how much is read, and what becomes of bytes that may not be used yet.

use std::io::{self, IoSliceMut};
use std::sync::atomic::Ordering;

use super::{Conn, Context, Scratch, TURN_BYTES, Turn};
use crate::frame::{FrameContext, Step};
use crate::replies::Output;
use crate::service::{CloseReason, Service};
use crate::wire::HEADER_BYTES_MIN;

impl<C> Conn<C> {
    pub(super) fn read<S>(&mut self, context: &Context<'_, S>, scratch: &mut Scratch) -> Turn
    where
        S: Service<Conn = C>,
    {
        if self.end_announced {
            self.announce_end(context.service);
        }
        self.start_held(context);
        self.consume_carry(context);
        let mut turn_bytes = 0;
        while self.readable && self.may_start(context.limits) {
            if turn_bytes >= TURN_BYTES {
                return Turn::Again;
            }
            match self.read_once(context, scratch) {
                Ok(0) => self.end_of_stream(context),
                Ok(bytes) => turn_bytes += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(_) => match self.transport.fault() {
                    Some(why) => return self.refused(why),
                    None => return Turn::Close(CloseReason::PeerReset),
                },
            }
        }
        Turn::Wait
    }

    /// One read: into the frame that is under way and, behind it, into the scratch buffer.
    fn read_once<S>(&mut self, context: &Context<'_, S>, scratch: &mut Scratch) -> io::Result<usize>
    where
        S: Service<Conn = C>,
    {
        let Scratch {
            plain: scratch,
            sealed,
        } = scratch;
        let spare = self.reader.spare();
        let spare_bytes = spare.len().min(TURN_BYTES);
        // A turn that ends within the frame takes nothing behind it.
        let scratch = if spare_bytes < spare.len() {
            &mut []
        } else {
            &mut scratch[..]
        };
        let wanted = spare_bytes + scratch.len();
        let spare = &mut spare[..spare_bytes];
        let into = &mut [IoSliceMut::new(spare), IoSliceMut::new(scratch)];
        let read = self.transport.read_vectored(into, sealed);
        if self.transport.take_secured() {
            self.secured(context);
        }
        let bytes = read?;
        self.moved_at = context.now;
        context.counters.bytes_in.add_bytes(bytes);
        // A short read emptied the socket: the next byte is a new event. Only an end of stream that
        // was announced already will not be announced again.
        self.readable = bytes == wanted || self.end_announced || self.transport.has_ended();
        self.reader.filled(bytes.min(spare_bytes));
        if bytes > 0 {
            let behind = &scratch[..bytes.saturating_sub(spare_bytes)];
            let left = self.consume(context, behind);
            if left > 0 && self.closing.is_none() {
                self.carry = behind[behind.len() - left..].to_vec();
                self.carry_at = 0;
            }
        }
        Ok(bytes)
    }

    /// TLS ended by a fault: the alert that tells the peer must not be destroyed by a reset.
    fn refused(&mut self, why: CloseReason) -> Turn {
        self.close_in_order(why);
        self.pending.clear();
        self.parked = None;
        self.exclusive = false;
        self.output = Output::default();
        self.replied = true;
        Turn::Wait
    }

    /// The handshake is complete: the service learns who it is before the first request.
    fn secured<S: Service<Conn = C>>(&mut self, context: &Context<'_, S>) {
        context.counters.handshakes.add(1);
        let resumed = self.transport.is_resumed();
        context.counters.handshakes_resumed.add(u64::from(resumed));
        if let Some(state) = &mut self.state {
            let certificate = self.transport.peer_certificate();
            context.service.secured(state, certificate);
        }
    }

    fn consume_carry<S: Service<Conn = C>>(&mut self, context: &Context<'_, S>) {
        if !self.may_start(context.limits) {
            return;
        }
        let carry = std::mem::take(&mut self.carry);
        let left = self.consume(context, &carry[self.carry_at.min(carry.len())..]);
        if left > 0 && self.closing.is_none() {
            self.carry_at = carry.len() - left;
            self.carry = carry;
        }
    }

    /// Makes requests of bytes, as far as they may start; returns how many bytes are left.
    fn consume<S>(&mut self, context: &Context<'_, S>, mut input: &[u8]) -> usize
    where
        S: Service<Conn = C>,
    {
        while self.may_start(context.limits) {
            let frames = FrameContext {
                budget: context.budgets.of(self.shared.is_logged_in()),
                pool: context.pool,
                frame_bytes_min: if self.shared.bare.load(Ordering::Relaxed) {
                    0
                } else {
                    HEADER_BYTES_MIN
                },
                frame_bytes_max: self.shared.frame_bytes_max.load(Ordering::Relaxed),
            };
            match self.reader.take(&mut input, frames) {
                Step::NeedBytes => break,
                Step::NeedBudget(bytes) => self.wait_for_budget(context, bytes),
                Step::Bad(why) => self.close_in_order(why),
                Step::Frame(frame) => self.frame(context, frame),
            }
        }
        input.len()
    }

    fn wait_for_budget<S: Service>(&mut self, context: &Context<'_, S>, bytes: usize) {
        self.waits_for_budget = true;
        let shared = &self.shared;
        let budget = context.budgets.of(shared.is_logged_in());
        budget.wait(shared.key(), &shared.mailbox, bytes);
    }

    /// The peer will send nothing more: what is started is answered, what is not complete is lost.
    fn end_of_stream<S: Service<Conn = C>>(&mut self, context: &Context<'_, S>) {
        self.announce_end(context.service);
        self.close_in_order(CloseReason::PeerClosed);
    }

    /// Tells the service, once, that nothing more will come from the peer.
    pub(super) fn announce_end<S: Service<Conn = C>>(&mut self, service: &S) {
        if !self.shared.finished.swap(true, Ordering::AcqRel)
            && let Some(state) = &mut self.state
        {
            service.finished(state);
        }
    }
}
