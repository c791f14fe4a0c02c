//! A real file system that misbehaves on order, for tests of a whole process.
//!
//! Owns:     a FUSE mount served from memory by a thread of the test; what was synced and what was not; orders to hang,
//!           delay or fail calls below a path; a capacity; power cuts.
//! Does not: know the broker, or keep anything beyond the test.
//!
//! # Invariants
//! F1. Only an fsync makes bytes of a file durable, and only an fsync of the directory a name in it. A power cut takes
//!     any part of the rest.
//! F2. Bytes whose fsync failed are clean and not durable: a later fsync of the same file succeeds and says nothing
//!     about them, as on Linux, until they are written again.
//! F3. A hung call is done when its order is lifted, and answered EIO when the mount ends. The thread that serves the
//!     mount never waits.
//! F4. Nothing is cached by the kernel: files are opened with direct I/O, names and attributes live for no time.
//!
//! The kernel holds an inode's lock over an fsync on FUSE, so that a write to a file waits for an fsync of that file,
//! as it does on NFS. Reads do not.

mod dice;
mod file;
mod mount;
mod orders;
mod serve;
mod tree;

pub use mount::FaultFs;
pub use orders::{Call, Errno, Fault, Standing};
