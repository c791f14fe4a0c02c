//! The server over real sockets, with a toy service above it. One target, since linking is slow.
//! Cases with an id (`p13`) are those of the project's list of inputs that must work.

mod backpressure;
mod end;
mod hostile;
mod limits;
mod order;
mod parking;
mod split;
mod support;
