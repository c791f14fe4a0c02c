//! What time does to a connection.
//!
//! Owns:     which deadline it has missed, and whether it gives way to others.
//! Does not: read a clock or close; the event loop asks, now and then.

use std::time::Instant;

use super::Conn;
use crate::config::Limits;
use crate::service::CloseReason;

impl<C> Conn<C> {
    /// Ends the mute of a connection whose peer has left and did nothing for the idle deadline: what it
    /// sent is started (acks=0 has nobody who asks again), and the connection goes. Says whether it did.
    pub(crate) fn outlast_mute(&mut self, limits: &Limits, now: Instant) -> bool {
        let idle = now.saturating_duration_since(self.moved_at) >= limits.idle_deadline;
        if self.muted_until.is_none() || !self.end_announced || !idle {
            return false;
        }
        self.muted_until = None;
        self.mute_outlasted = true;
        true
    }

    /// Whether everything is written, and only the peer's end of stream is awaited.
    pub(crate) fn lingers(&self) -> bool {
        self.linger_until.is_some()
    }

    /// Whether a frame holds room in the budget and comes too slowly to be complete by its deadline, or
    /// not at all, since its connection is muted or does not take its answers. Only asked while others wait
    /// for that room.
    pub(crate) fn hogs(&self, limits: &Limits, now: Instant) -> bool {
        let (Some((filled, length)), Some(since)) = (self.reader.progress(), self.frame_since)
        else {
            return false;
        };
        let elapsed = now.saturating_duration_since(self.blocked_since.unwrap_or(since));
        if self.closing.is_some() || elapsed < limits.contended_frame_grace {
            return false;
        }
        if self.blocked_since.is_some() {
            return true;
        }
        let due = elapsed.as_secs_f64() / limits.frame_deadline.as_secs_f64().max(0.001);
        (filled as f64) < due * length as f64 || self.moved_at + limits.contended_frame_grace < now
    }

    /// Why the connection must be closed by the clock, if it must.
    pub(crate) fn overdue(&self, limits: &Limits, now: Instant) -> Option<CloseReason> {
        let past = |since: Instant, deadline| now.saturating_duration_since(since) >= deadline;
        if let Some(until) = self.linger_until {
            return (now >= until).then(|| self.closing.unwrap_or(CloseReason::PeerClosed));
        }
        if self.transport.is_handshaking() {
            let late = past(self.opened_at, limits.handshake_deadline);
            return late.then_some(CloseReason::HandshakeDeadline);
        }
        let frame_late = |since| past(since, limits.frame_deadline);
        let blocked = self.blocked_since.is_some();
        if !blocked && self.closing.is_none() && self.frame_since.is_some_and(frame_late) {
            return Some(CloseReason::FrameDeadline);
        }
        let waits_for_us = !self.pending.is_empty()
            || self.parked.is_some()
            || self.held.is_some()
            || self.muted_until.is_some()
            || self.waits_for_budget;
        let in_frame = self.reader.in_frame() && !blocked;
        let idle = !waits_for_us && !in_frame && past(self.moved_at, limits.idle_deadline);
        idle.then_some(CloseReason::Idle)
    }
}
