//! An answer that many hands fill in.
//!
//! Owns:     the response until the last hand lets go of it; then it is sent.

use std::sync::Arc;

use parking_lot::Mutex;

type Send_<R> = Box<dyn FnOnce(R) + Send>;

/// See the module. Whoever still has something to fill in holds an `Arc` of it.
pub(super) struct Gather<R>(Mutex<Option<(R, Send_<R>)>>);

impl<R> Gather<R> {
    /// `send` is called when the last `Arc` is dropped.
    pub(super) fn new(response: R, send: impl FnOnce(R) + Send + 'static) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some((response, Box::new(send))))))
    }

    /// Fills something in.
    pub(super) fn with(&self, fill: impl FnOnce(&mut R)) {
        if let Some((response, _)) = &mut *self.0.lock() {
            fill(response);
        }
    }
}

impl<R> Drop for Gather<R> {
    fn drop(&mut self) {
        if let Some((response, send)) = self.0.get_mut().take() {
            send(response);
        }
    }
}
