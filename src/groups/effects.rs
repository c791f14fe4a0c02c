//! What a command to a group brings about, besides its change.
//!
//! Owns:     the answers that are due, the wish to be stored, the wish to be woken.
//! Does not: carry any of it out; the driver does, with no lock held.
//!
//! # Invariants
//! E1. Every reply given to a machine is answered once: at once, when the change is stored, or by a later command.

use std::time::Instant;

/// The way back to whoever asked.
pub(crate) type Reply<T> = Box<dyn FnOnce(T) + Send>;

/// The group's file could not be written: nothing that waited for it may be told that it was done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NotStored;

/// Whether the state up to and with the change is on stable storage.
pub(crate) type Stored = Result<(), NotStored>;

/// See the module.
pub(crate) struct Effects {
    /// When the command was given.
    pub(crate) now: Instant,
    /// To be called now.
    pub(crate) answers: Vec<Box<dyn FnOnce() + Send>>,
    /// To be called when the group's file holds the change, or cannot hold it.
    pub(crate) when_stored: Vec<Reply<Stored>>,
    /// The group's file must be written.
    pub(crate) store: bool,
    /// The earliest deadline that the command has set.
    pub(crate) wake_at: Option<Instant>,
}

impl Effects {
    /// Of a command that is given now.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            now,
            answers: Vec::new(),
            when_stored: Vec::new(),
            store: false,
            wake_at: None,
        }
    }

    /// Answers as soon as the group's lock is free.
    pub(crate) fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, answer: T) {
        self.answers.push(Box::new(move || reply(answer)));
    }

    /// The group's file must be written.
    pub(crate) fn store(&mut self) {
        self.store = true;
    }

    /// Calls back when all changes so far are stored.
    pub(crate) fn when_stored(&mut self, reply: impl FnOnce(Stored) + Send + 'static) {
        self.when_stored.push(Box::new(reply));
    }

    /// The machine wants a tick then, or earlier.
    pub(crate) fn wake_at(&mut self, when: Instant) {
        self.wake_at = Some(self.wake_at.map_or(when, |earlier| earlier.min(when)));
    }
}
