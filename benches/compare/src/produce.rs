//! The producing load: a fixed number of connections with a fixed number of requests in flight.
//!
//! Owns:     its connections and prebuilt frames. One thread; one connection is served by blocking calls, several by epoll.
//! Does not: choose what is measured (`scenario.rs`) or print.
//!
//! # Invariants
//! P1. Every answer counted had error code zero, the expected correlation id and a base offset above the one before it
//!     from the same connection.
//! P2. When a run ends, every request sent has been answered.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use crate::admin::Admin;
use crate::batch::{self, Shape};
use crate::error::{Doing, Error, Result};
use crate::frame::{self, Produce};
use crate::link::{Door, Link};

const SILENCE_MAX: Duration = Duration::from_secs(30);
const ANSWERS_BUFFER: usize = 16 * 1024;

/// One producing load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) topic: String,
    /// Connection i writes to partition i modulo this.
    pub(crate) partitions: i32,
    pub(crate) connections: i32,
    pub(crate) in_flight: usize,
    pub(crate) shape: Shape,
    pub(crate) acks: i16,
    pub(crate) idempotent: bool,
    pub(crate) time: Duration,
    /// Ends the run early, so that loads that outrun the disk do not fill it.
    pub(crate) batches_max: u64,
}

/// What a load achieved.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    pub(crate) latencies: Vec<Duration>,
}

impl Run {
    /// Batches (or fetches) per second.
    pub(crate) fn rate(&self) -> f64 {
        self.batches as f64 / self.elapsed.as_secs_f64()
    }

    /// Payload bytes per second.
    pub(crate) fn bytes_rate(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

/// Runs `load` against the broker behind `door`.
pub(crate) fn run(door: impl Into<Door>, load: &Load) -> Result<Run> {
    let door = door.into();
    let mut producers = Vec::new();
    for index in 0..load.connections {
        producers.push(Producer::new(&door, load, index)?);
    }
    let mut tally = Tally::new(load);
    let elapsed = match &mut producers[..] {
        [only] => run_blocking(only, &mut tally)?,
        many => run_polling(many, &mut tally)?,
    };
    Ok(Run {
        batches: tally.answered,
        bytes: tally.answered * u64::try_from(load.shape.bytes).unwrap_or_default(),
        elapsed,
        latencies: tally.latencies,
    })
}

/// The stop condition and the counts of one run.
struct Tally {
    started: Instant,
    deadline: Instant,
    to_send: u64,
    answered: u64,
    latencies: Vec<Duration>,
}

impl Tally {
    fn new(load: &Load) -> Self {
        let started = Instant::now();
        Self {
            started,
            deadline: started + load.time,
            to_send: load.batches_max,
            answered: 0,
            latencies: Vec::with_capacity(1 << 16),
        }
    }

    /// Connecting and building frames is not part of the run.
    fn restart(&mut self) {
        let time = self.deadline - self.started;
        self.started = Instant::now();
        self.deadline = self.started + time;
    }

    fn may_send(&mut self, now: Instant) -> bool {
        let may = self.to_send > 0 && now < self.deadline;
        self.to_send -= u64::from(may);
        may
    }
}

/// One connection with its frame.
struct Producer {
    link: Link,
    frame: Produce,
    name_len: usize,
    in_flight: usize,
    records: i32,
    sequence: Option<i32>,
    next_correlation: i32,
    sent: VecDeque<(i32, Instant)>,
    last_base: i64,
    unsent: Vec<u8>,
    answers: Vec<u8>,
    filled: usize,
}

impl Producer {
    fn new(door: &Door, load: &Load, index: i32) -> Result<Self> {
        let partition = index % load.partitions.max(1);
        let seed = u64::try_from(index).unwrap_or_default() + 1;
        let mut batch = batch::build(load.shape, seed)?;
        if load.idempotent {
            let (id, epoch) = Admin::connect(door.addr)?.producer_id()?;
            batch::set_producer(&mut batch, id, epoch);
            batch::set_sequence(&mut batch, 0);
        }
        Ok(Self {
            link: Link::connect(door, load.connections == 1)?,
            frame: Produce::new(&load.topic, partition, load.acks, &batch)?,
            name_len: load.topic.len(),
            in_flight: load.in_flight,
            records: load.shape.records,
            sequence: load.idempotent.then_some(0),
            next_correlation: 0,
            sent: VecDeque::with_capacity(load.in_flight),
            last_base: -1,
            unsent: Vec::new(),
            answers: vec![0; ANSWERS_BUFFER],
            filled: 0,
        })
    }

    /// Puts as many requests on their way as may be in flight.
    fn fill(&mut self, tally: &mut Tally, now: Instant) -> Result<()> {
        while self.sent.len() < self.in_flight && tally.may_send(now) {
            if let Some(sequence) = &mut self.sequence {
                batch::set_sequence(self.frame.batch_mut(), *sequence);
                *sequence = sequence.checked_add(self.records).unwrap_or_default();
            }
            self.sent.push_back((self.next_correlation, now));
            let frame = self.frame.with_correlation(self.next_correlation);
            self.next_correlation = self.next_correlation.wrapping_add(1);
            if self.in_flight > 1 || !self.unsent.is_empty() {
                self.unsent.extend_from_slice(frame);
            } else {
                let written = write_some(&mut self.link, frame)?;
                self.unsent.extend_from_slice(&frame[written..]);
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        if !self.unsent.is_empty() {
            let written = write_some(&mut self.link, &self.unsent)?;
            self.unsent.drain(..written);
        }
        match self.link.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e).doing("send a request"),
            _ => Ok(()),
        }
    }

    /// Reads what is there; true if there may be more. A short read on a stream means that there is not (epoll(7)).
    fn read(&mut self) -> Result<bool> {
        match self.link.read(&mut self.answers[self.filled..]) {
            Ok(0) => Err(io::Error::from(ErrorKind::UnexpectedEof)).doing("read an answer"),
            Ok(n) => {
                self.filled += n;
                Ok(self.filled == self.answers.len() || !self.link.short_is_empty())
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(true),
            Err(e) => Err(e).doing("read an answer"),
        }
    }

    /// Counts every whole answer in the buffer.
    fn take_answers(&mut self, tally: &mut Tally, now: Instant) -> Result<()> {
        let mut at = 0;
        while let Some(prefix) = self.answers[at..self.filled].first_chunk::<4>() {
            let end = at + 4 + frame::length(*prefix)?;
            if end > self.filled {
                break;
            }
            let answer = frame::produced(&self.answers[at + 4..end], self.name_len)?;
            self.count(answer, tally, now)?;
            at = end;
        }
        self.answers.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }

    fn count(&mut self, answer: frame::Produced, tally: &mut Tally, now: Instant) -> Result<()> {
        let Some((correlation, sent)) = self.sent.pop_front() else {
            return Err(Error::Malformed {
                what: "Produce answer that nobody asked for",
            });
        };
        expect("correlation id", correlation == answer.correlation, || {
            (i64::from(correlation), i64::from(answer.correlation))
        })?;
        expect("base offset", answer.base_offset > self.last_base, || {
            (self.last_base + 1, answer.base_offset)
        })?;
        self.last_base = answer.base_offset;
        tally.answered += 1;
        tally.latencies.push(now - sent);
        Ok(())
    }
}

fn expect(what: &'static str, holds: bool, values: impl FnOnce() -> (i64, i64)) -> Result<()> {
    if holds {
        return Ok(());
    }
    let (expected, found) = values();
    Err(Error::Wrong {
        what,
        expected,
        found,
    })
}

fn write_some(link: &mut Link, bytes: &[u8]) -> Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match link.write(&bytes[written..]) {
            Ok(n) => written += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e).doing("send a request"),
        }
    }
    Ok(written)
}

/// A blocking socket costs one system call less per answer than epoll does.
fn run_blocking(producer: &mut Producer, tally: &mut Tally) -> Result<Duration> {
    tally.restart();
    producer.fill(tally, tally.started)?;
    while !producer.sent.is_empty() {
        let before = tally.answered;
        producer.read()?;
        let now = Instant::now();
        producer.take_answers(tally, now)?;
        producer.fill(tally, now)?;
        if tally.answered == before && producer.filled == 0 {
            return Err(Error::Timeout {
                waiting_for: "an answer to Produce",
            });
        }
    }
    Ok(tally.started.elapsed())
}

fn run_polling(producers: &mut [Producer], tally: &mut Tally) -> Result<Duration> {
    let mut poll = Poll::new().doing("create an epoll instance")?;
    let mut events = Events::with_capacity(producers.len());
    let both = Interest::READABLE | Interest::WRITABLE;
    for (index, producer) in producers.iter_mut().enumerate() {
        poll.registry()
            .register(producer.link.socket(), Token(index), both)
            .doing("register a connection")?;
    }
    tally.restart();
    for producer in producers.iter_mut() {
        producer.fill(tally, Instant::now())?;
    }
    let mut busy = producers.iter().filter(|p| !p.sent.is_empty()).count();
    while busy > 0 {
        wait_for_events(&mut poll, &mut events)?;
        for event in &events {
            let producer = &mut producers[event.token().0];
            let was_busy = !producer.sent.is_empty();
            serve(producer, tally)?;
            busy -= usize::from(was_busy && producer.sent.is_empty());
        }
    }
    Ok(tally.started.elapsed())
}

fn wait_for_events(poll: &mut Poll, events: &mut Events) -> Result<()> {
    match poll.poll(events, Some(SILENCE_MAX)) {
        Err(e) if e.kind() != ErrorKind::Interrupted => Err(e).doing("wait for answers"),
        Ok(()) if events.is_empty() => Err(Error::Timeout {
            waiting_for: "an answer to Produce",
        }),
        _ => Ok(()),
    }
}

fn serve(producer: &mut Producer, tally: &mut Tally) -> Result<()> {
    producer.flush()?;
    loop {
        let more = producer.read()?;
        let now = Instant::now();
        producer.take_answers(tally, now)?;
        producer.fill(tally, now)?;
        if !more {
            return Ok(());
        }
    }
}
