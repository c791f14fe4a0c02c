//! The consuming load: one connection, one Fetch in flight, the same records over and over from the page cache.
//!
//! Owns:     its connection and one answer buffer.
//! Does not: decompress or decode records; it walks batch headers, as a consumer must.
//!
//! # Invariants
//! F1. Offsets are contiguous within an answer and across answers.
//! F2. Each pass begins at offset 0 and ends at the high watermark.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::error::{Doing, Error, Result};
use crate::frame::{self, Fetch};
use crate::link::{Door, Link};
use crate::produce::Run;

/// Room for the answer's own fields, and for a first batch larger than asked for.
const BUFFER_EXTRA: usize = 2 << 20;

/// A consumer of partition 0 of one topic.
pub(crate) struct Consumer {
    link: Link,
    frame: Fetch,
    name_len: usize,
    correlation: i32,
    answer: Vec<u8>,
    next: i64,
}

impl Consumer {
    /// Connects; nothing is fetched yet.
    pub(crate) fn connect(door: impl Into<Door>, topic: &str, fetch_bytes: usize) -> Result<Self> {
        let link = Link::connect(&door.into(), true)?;
        let max = i32::try_from(fetch_bytes).map_err(|_| Error::Usage("fetch size"))?;
        Ok(Self {
            link,
            frame: Fetch::new(topic, 0, max)?,
            name_len: topic.len(),
            correlation: 0,
            answer: vec![0; fetch_bytes + BUFFER_EXTRA],
            next: 0,
        })
    }

    /// Reads the whole partition once and checks every CRC; warms the page cache. Returns its end.
    pub(crate) fn check_all(&mut self) -> Result<i64> {
        self.next = 0;
        loop {
            let (_, high_watermark) = self.fetch(true)?;
            if self.next >= high_watermark {
                return Ok(self.next);
            }
        }
    }

    /// Fetches for `time`.
    pub(crate) fn run(&mut self, time: Duration) -> Result<Run> {
        let started = Instant::now();
        let mut before = started;
        let mut latencies = Vec::with_capacity(1 << 14);
        let mut total = 0u64;
        self.next = 0;
        while before < started + time {
            let (bytes, high_watermark) = self.fetch(false)?;
            if self.next >= high_watermark {
                self.next = 0;
            }
            total += u64::try_from(bytes).unwrap_or_default();
            let now = Instant::now();
            latencies.push(now - before);
            before = now;
        }
        Ok(Run {
            batches: u64::try_from(latencies.len()).unwrap_or_default(),
            bytes: total,
            elapsed: before - started,
            latencies,
        })
    }

    /// One request and its answer: bytes of whole batches, high watermark.
    fn fetch(&mut self, with_crc: bool) -> Result<(usize, i64)> {
        self.correlation = self.correlation.wrapping_add(1);
        let request = self.frame.at_offset(self.correlation, self.next);
        let sent = self
            .link
            .write_all(request)
            .and_then(|()| self.link.flush());
        sent.doing("send a Fetch")?;
        let len = self.read_answer()?;
        let answer = frame::fetched(&self.answer[4..len], self.name_len)?;
        if answer.correlation != self.correlation {
            return Err(Error::Wrong {
                what: "correlation id",
                expected: i64::from(self.correlation),
                found: i64::from(answer.correlation),
            });
        }
        let (next, bytes) = frame::walk(answer.records, self.next, with_crc)?;
        if bytes == 0 && self.next < answer.high_watermark {
            return Err(Error::Malformed {
                what: "Fetch answer: no batch below the high watermark",
            });
        }
        self.next = next;
        Ok((bytes, answer.high_watermark))
    }

    /// Reads one whole answer, prefix included; returns its length. Only one is ever on its way.
    fn read_answer(&mut self) -> Result<usize> {
        let mut filled = 0;
        loop {
            let wanted = match self.answer[..filled].first_chunk::<4>() {
                Some(prefix) => 4 + frame::length(*prefix)?,
                None => 4,
            };
            if filled >= wanted && filled >= 4 && wanted > 4 {
                return Ok(wanted);
            }
            if wanted > self.answer.len() {
                return Err(Error::Malformed {
                    what: "Fetch answer: much longer than asked for",
                });
            }
            match self
                .link
                .read(&mut self.answer[filled..])
                .doing("read a Fetch answer")?
            {
                0 => {
                    return Err(Error::Malformed {
                        what: "Fetch answer: the connection ended inside it",
                    });
                }
                n => filled += n,
            }
        }
    }
}
