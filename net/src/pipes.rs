//! Pipes that carry records from a file into a socket without a copy.
//!
//! Owns:     the pipes of a server, and how many there are.
//! Does not: know files: whoever reads one fills a pipe.
//! Filled by any thread that may wait for a disk; emptied by the net thread of the connection.
//!
//! A pipe that is filled from a file holds references to its cached pages, which are there by then: emptying it waits for
//! no disk. Nothing is gained by a pipe where bytes are looked at on their way, as below TLS.
//!
//! # Invariants
//! Z1. There are at most [`PIPES_MAX`], in use or not. Who finds none copies: a reader that does not take its answer costs
//!     the others speed and nothing else.
//! Z2. A pipe that is used again is empty; one that was not emptied is closed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::{pipe2, read};
use parking_lot::Mutex;

/// What a pipe holds, if its bytes begin at the start of a page: the most that an ordinary user may ask for.
const PIPE_BYTES: usize = 1 << 20;
/// What a pipe holds wherever its bytes begin.
pub const PIPED_BYTES_MAX: usize = PIPE_BYTES - 4096;
/// The kernel lets an ordinary user have 64 MiB in pipes; half of that is for whatever else they run.
const PIPES_MAX: usize = 32;

#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    fn open() -> nix::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let size = i32::try_from(PIPE_BYTES).unwrap_or(i32::MAX);
        fcntl(&writer, FcntlArg::F_SETPIPE_SZ(size))?;
        Ok(Self { reader, writer })
    }
}

#[derive(Debug, Default)]
struct State {
    free: Vec<Pipe>,
    /// Pipes that there are.
    count: usize,
    /// The log says that the system gave none.
    told: bool,
}

/// See the file comment.
#[derive(Debug, Default)]
pub struct Pipes(Mutex<State>);

impl Pipes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A pipe with exactly `bytes` in it. `splice` is given the writing end and how many bytes there are already, moves
    /// more, and returns how many. `None` if there is no pipe, or it got fewer: then the caller has to read.
    pub fn filled(
        self: &Arc<Self>,
        bytes: usize,
        splice: impl Fn(BorrowedFd<'_>, usize) -> io::Result<usize>,
    ) -> Option<Piped> {
        let mut piped = Piped {
            pipe: Some(self.take()?),
            left: 0,
            home: Arc::clone(self),
        };
        while piped.left < bytes {
            let pipe = piped.pipe.as_ref()?;
            match splice(pipe.writer.as_fd(), piped.left) {
                Ok(0) | Err(_) => return None,
                Ok(more) => piped.left += more,
            }
        }
        Some(piped)
    }

    fn take(&self) -> Option<Pipe> {
        let mut state = self.0.lock();
        if let Some(pipe) = state.free.pop() {
            return Some(pipe);
        }
        if state.count >= PIPES_MAX {
            return None; // Z1
        }
        state.count += 1;
        drop(state);
        match Pipe::open() {
            Ok(pipe) => Some(pipe),
            Err(error) => {
                let mut state = self.0.lock();
                state.count -= 1;
                if !std::mem::replace(&mut state.told, true) {
                    drop(state);
                    log::warn!(
                        "no pipe of {PIPE_BYTES} bytes, so that records are copied: {error}"
                    );
                }
                None
            }
        }
    }

    fn put(&self, pipe: Pipe, is_empty: bool) {
        let mut state = self.0.lock();
        if is_empty {
            state.free.push(pipe);
        } else {
            state.count -= 1; // Z2
        }
    }
}

/// Bytes in a pipe, on their way into one socket.
#[derive(Debug)]
pub struct Piped {
    pipe: Option<Pipe>,
    left: usize,
    home: Arc<Pipes>,
}

impl Piped {
    /// Bytes that are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether none are left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Moves bytes into a socket that does not block; says how many it took.
    pub(crate) fn splice_into(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let Some(pipe) = &self.pipe else { return Ok(0) };
        let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
        let moved = splice(&pipe.reader, None, socket, None, self.left, flags)?;
        self.left = self.left.saturating_sub(moved);
        if moved == 0 && self.left > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(moved)
    }

    /// Takes the bytes out, where they are looked at: in tests.
    ///
    /// # Errors
    /// The system's.
    pub fn into_vec(mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.left];
        while self.left > 0 {
            let Some(pipe) = &self.pipe else { break };
            let at = bytes.len() - self.left;
            match read(&pipe.reader, &mut bytes[at..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => self.left -= more,
            }
        }
        Ok(bytes)
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.home.put(pipe, self.left == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn fill(pipes: &Arc<Pipes>, file: &File, at: i64, bytes: usize) -> Option<Piped> {
        pipes.filled(bytes, |pipe, done| {
            let mut from = at + i64::try_from(done).unwrap();
            let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
            Ok(splice(
                file,
                Some(&mut from),
                pipe,
                None,
                bytes - done,
                flags,
            )?)
        })
    }

    fn count(pipes: &Pipes) -> (usize, usize) {
        let state = pipes.0.lock();
        (state.count, state.free.len())
    }

    #[test]
    fn a_pipe_holds_its_most_wherever_the_bytes_begin() {
        let content: Vec<u8> = (0..2 * PIPE_BYTES).map(|at| at.to_le_bytes()[1]).collect();
        let (pipes, file) = (Pipes::new(), file_of(&content));
        for at in [0, 1, 4095, 4096] {
            let piped = fill(&pipes, &file, at, PIPED_BYTES_MAX).unwrap();
            let at = usize::try_from(at).unwrap();
            assert!(piped.into_vec().unwrap() == content[at..at + PIPED_BYTES_MAX]);
        }
        assert_eq!(count(&pipes), (1, 1), "one pipe did it all");
    }

    #[test]
    fn a_pipe_that_was_not_emptied_is_not_used_again() {
        let (pipes, file) = (Pipes::new(), file_of(&[1; 10_000]));
        drop(fill(&pipes, &file, 0, 10_000).unwrap());
        assert_eq!(count(&pipes), (0, 0));
        assert!(fill(&pipes, &file, 0, 10_001).is_none(), "there are fewer");
        assert_eq!(count(&pipes), (0, 0));
    }

    #[test]
    fn there_are_only_so_many_pipes() {
        let (pipes, file) = (Pipes::new(), file_of(&[1; 10]));
        let all: Vec<_> = (0..PIPES_MAX)
            .map(|_| fill(&pipes, &file, 0, 10).unwrap())
            .collect();
        assert!(fill(&pipes, &file, 0, 10).is_none());
        for piped in all {
            piped.into_vec().unwrap();
        }
        assert_eq!(count(&pipes), (PIPES_MAX, PIPES_MAX));
        assert!(fill(&pipes, &file, 0, 10).is_some());
    }
}
