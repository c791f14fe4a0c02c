//! The way from any thread to the net thread that owns a connection.
//!
//! Owns:     the message queue of a net thread, its wake-ups, and the part of a connection that
//!           other threads may touch.
//! Does not: know sockets.
//!
//! # Invariants
//! M1. A message that was sent is seen: the sender wakes the thread, or the thread looks at the
//!     queue once more before it sleeps.
//! M2. The queue is unbounded but bounded in fact: two messages per reply slot, and at most one
//!     unpark at a time per connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use mio::Waker;
use mio::net::TcpStream;

use crate::body::ResponseBody;
use crate::budget::Permit;
use crate::pipes::Pipes;
use crate::quota::Place;
use crate::service::{CloseReason, ConnId};

/// Where a connection lives: its place in the thread's table and its number, which tells a later
/// connection in the same place from it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ConnKey {
    pub(crate) place: usize,
    pub(crate) id: ConnId,
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Reply(ResponseBody),
    /// An answer, and nothing behind it.
    Last(ResponseBody, CloseReason),
    Silent,
    Close(CloseReason),
}

/// What a net thread is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// A new connection for this thread.
    Adopt(Accepted),
    /// A request is complete.
    Complete(ConnKey, u64, Outcome),
    /// A connection is not to be read for so long.
    Mute(ConnKey, Duration),
    /// A parked connection may go on.
    Unpark(ConnKey),
    /// The budget has room for the frame that a connection waits to read.
    Grant(ConnKey, Permit),
    /// Close a connection now.
    Close(ConnKey, CloseReason),
    /// Stop taking requests, answer those in flight.
    Drain,
    /// Close everything and end the thread.
    Stop,
}

/// A connection that was accepted and belongs to no thread yet.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) listener: usize,
    pub(crate) place: Place,
}

/// The sending side of a net thread's queue.
#[derive(Debug)]
pub(crate) struct Mailbox {
    sender: Sender<Message>,
    waker: Waker,
    /// The thread is in, or about to enter, its poll.
    sleeping: AtomicBool,
    /// Beats that were asked of the thread, and the last one that it gave.
    asked: AtomicU64,
    beaten: AtomicU64,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> (Arc<Self>, Receiver<Message>) {
        let (sender, receiver) = unbounded();
        let mailbox = Self {
            sender,
            waker,
            sleeping: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            beaten: AtomicU64::new(0),
        };
        (Arc::new(mailbox), receiver)
    }

    /// Puts a message into the queue and wakes the thread if it sleeps. A burst wakes it once.
    pub(crate) fn send(&self, message: Message) {
        if self.sender.send(message).is_err() {
            return; // The thread has ended; so have its connections.
        }
        self.rouse();
    }

    /// Asks the thread to show that it goes round.
    pub(crate) fn ask_for_beat(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.rouse();
    }

    /// Whether the thread has gone round since it was last asked.
    pub(crate) fn has_beaten(&self) -> bool {
        self.beaten.load(Ordering::Relaxed) == self.asked.load(Ordering::Relaxed)
    }

    /// The thread goes round.
    pub(crate) fn beat(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        self.beaten.store(asked, Ordering::Relaxed);
    }

    /// Wakes the thread if it sleeps.
    fn rouse(&self) {
        fence(Ordering::SeqCst); // M1: pairs with the fence in `about_to_sleep`.
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            log::error!("cannot wake a net thread: {error}");
        }
    }

    /// Announces a sleep; the thread must look at its queue, and whether a beat is asked, between this and the sleep (M1).
    pub(crate) fn about_to_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread is awake and will look at its queue.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

/// The part of a connection that other threads may touch.
#[derive(Debug)]
pub(crate) struct ConnShared {
    pub(crate) id: ConnId,
    pub(crate) place: usize,
    pub(crate) listener: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Where its bytes go out as they are.
    pub(crate) pipes: Option<Arc<Pipes>>,
    pub(crate) alive: AtomicBool,
    pub(crate) finished: AtomicBool,
    /// A request asked for a close: nothing is started behind it, even before the message comes.
    pub(crate) doomed: AtomicBool,
    pub(crate) unpark_queued: AtomicBool,
    /// Frames have no header for now.
    pub(crate) bare: AtomicBool,
    pub(crate) frame_bytes_max: AtomicUsize,
    pub(crate) frame_bytes_by_login: [usize; 2],
    pub(crate) logged_in: AtomicBool,
}

impl ConnShared {
    pub(crate) fn key(&self) -> ConnKey {
        ConnKey {
            place: self.place,
            id: self.id,
        }
    }

    pub(crate) fn complete(&self, seq: u64, outcome: Outcome) {
        if matches!(outcome, Outcome::Close(_) | Outcome::Last(..)) {
            self.doomed.store(true, Ordering::Release);
        }
        if self.alive.load(Ordering::Acquire) {
            self.mailbox
                .send(Message::Complete(self.key(), seq, outcome));
        }
    }

    pub(crate) fn unpark(&self) {
        if !self.unpark_queued.swap(true, Ordering::AcqRel) {
            self.mailbox.send(Message::Unpark(self.key()));
        }
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.logged_in.load(Ordering::Relaxed)
    }

    pub(crate) fn set_logged_in(&self, yes: bool) {
        let bytes = self.frame_bytes_by_login[usize::from(yes)];
        self.frame_bytes_max.store(bytes, Ordering::Relaxed);
        self.logged_in.store(yes, Ordering::Relaxed);
    }
}
