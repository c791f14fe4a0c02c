//! The loads of the groups part: a reader that polls, groups that commit, members that rebalance.
//!
//! Owns:     the requests of each load and what is timed in it.
//! Does not: start brokers or print.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kafka_wire::fetch_request::{FetchPartition, FetchTopic};
use kafka_wire::join_group_request::JoinGroupRequestProtocol;
use kafka_wire::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_wire::sync_group_request::SyncGroupRequestAssignment;
use kafka_wire::{
    FetchRequest, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest,
    SyncGroupRequest,
};
use kafka_wire_core::{Bytes, StrBytes};

use crate::admin::{Admin, Topic};
use crate::error::{Doing, Error, Result};
use crate::wait;

/// How long an idle poll waits: short, so that a run has many.
pub(crate) const POLL_MS: i32 = 20;
/// How often members beat; real clients do every three seconds.
pub(crate) const HEARTBEAT_MS: u64 = 50;
/// Groups that commit as fast as they can.
pub(crate) const EAGER: usize = 64;
/// Threads that share the groups which commit once a second.
const COMMIT_THREADS: usize = 32;
const TOPIC: &str = "groups";
const PATIENCE: Duration = Duration::from_secs(60);
const REBALANCE_IN_PROGRESS: i16 = 27;

/// What polls came to, without the first one.
pub(crate) struct Polls {
    pub(crate) count: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// Creates the topic, and has the coordinator answer.
pub(crate) fn prepare(addr: SocketAddr, partitions: i32) -> Result<()> {
    let mut admin = Admin::connect(addr)?;
    admin.create(Topic {
        name: TOPIC,
        partitions,
        flush: false,
    })?;
    wait::until("the topic to serve", PATIENCE, || {
        Ok(admin.ends(TOPIC, partitions).ok())
    })?;
    // Kafka makes the topic behind its groups when somebody looks for a coordinator.
    let mut find = FindCoordinatorRequest::default();
    find.key = StrBytes::from("warm-up");
    wait::until("the coordinator", PATIENCE, || {
        admin.call(&find, 2)?;
        Ok(commit(&mut admin, "warm-up", 1).ok())
    })
}

/// Polls all partitions, which are empty, one poll after the other.
pub(crate) fn polls(
    addr: SocketAddr,
    partitions: i32,
    with_session: bool,
    time: Duration,
) -> Result<Polls> {
    let mut admin = Admin::connect(addr)?;
    let mut request = fetch_all(partitions);
    request.session_epoch = if with_session { 0 } else { -1 };
    let opened = admin.call(&request, 12)?;
    if with_session {
        request.session_id = opened.session_id;
        request.topics.clear();
    }
    let (sent, received) = admin.bytes();
    let (until, mut count) = (Instant::now() + time, 0);
    while Instant::now() < until {
        if with_session {
            request.session_epoch += 1;
        }
        let answer = admin.call(&request, 12)?;
        no_error("Fetch", answer.error_code)?;
        count += 1;
    }
    let (all_sent, all_received) = admin.bytes();
    Ok(Polls {
        count,
        sent: all_sent - sent,
        received: all_received - received,
    })
}

fn fetch_all(partitions: i32) -> FetchRequest {
    let mut topic = FetchTopic::default();
    topic.topic = StrBytes::from(TOPIC);
    topic.partitions = (0..partitions)
        .map(|index| {
            let mut partition = FetchPartition::default();
            partition.partition = index;
            partition.current_leader_epoch = -1;
            partition.partition_max_bytes = 1 << 20;
            partition
        })
        .collect();
    let mut request = FetchRequest::default();
    request.replica_id = -1;
    request.max_wait_ms = POLL_MS;
    request.min_bytes = 1;
    request.max_bytes = 50 << 20;
    request.topics = vec![topic];
    request
}

fn commit(admin: &mut Admin, group: &str, offset: i64) -> Result<()> {
    let mut partition = OffsetCommitRequestPartition::default();
    partition.committed_offset = offset;
    partition.committed_leader_epoch = -1;
    let mut topic = OffsetCommitRequestTopic::default();
    topic.name = StrBytes::from(TOPIC);
    topic.partitions = vec![partition];
    let mut request = OffsetCommitRequest::default();
    request.group_id = StrBytes::from(group);
    request.generation_id_or_member_epoch = -1;
    request.topics = vec![topic];
    let answer = admin.call(&request, 8)?;
    let rows = answer.topics.iter().flat_map(|topic| &topic.partitions);
    rows.map(|row| row.error_code)
        .try_for_each(|code| no_error("OffsetCommit", code))
}

/// Each group commits once a second, evenly spread; a latency counts from when the commit was due.
pub(crate) fn commits(addr: SocketAddr, groups: usize, time: Duration) -> Result<Vec<Duration>> {
    let threads = groups.min(COMMIT_THREADS);
    let start = Instant::now() + Duration::from_millis(200);
    spread(threads, |thread| {
        let mut admin = Admin::connect(addr)?;
        let mine: Vec<usize> = (thread..groups).step_by(threads).collect();
        let mut latencies = Vec::new();
        for second in 0..time.as_secs() {
            for group in &mine {
                let share = u32::try_from(*group).unwrap_or(0);
                let all = u32::try_from(groups).unwrap_or(1);
                let due =
                    start + Duration::from_secs(second) + Duration::from_secs(1) * share / all;
                wait::idle(due.saturating_duration_since(Instant::now()));
                let offset = i64::try_from(second).unwrap_or(0);
                commit(&mut admin, &format!("committer-{group}"), offset)?;
                latencies.push(due.elapsed());
            }
        }
        Ok(latencies)
    })
}

/// Some groups commit one after the other, each as fast as it can.
pub(crate) fn eager_commits(addr: SocketAddr, time: Duration) -> Result<Vec<Duration>> {
    spread(EAGER, |thread| {
        let mut admin = Admin::connect(addr)?;
        let group = format!("eager-{thread}");
        let (until, mut latencies) = (Instant::now() + time, Vec::new());
        while Instant::now() < until {
            let asked = Instant::now();
            commit(&mut admin, &group, 7)?;
            latencies.push(asked.elapsed());
        }
        Ok(latencies)
    })
}

/// The raw cost: a small file replaced so that a power cut leaves the old or the new one.
pub(crate) fn atomic_files(dir: &Path, time: Duration) -> Result<Vec<Duration>> {
    let (new, path) = (dir.join("atomic.new"), dir.join("atomic"));
    let folder = File::open(dir).doing("open the directory")?;
    let (until, mut latencies) = (Instant::now() + time, Vec::new());
    while Instant::now() < until {
        let began = Instant::now();
        let mut file = File::create(&new).doing("create a file")?;
        file.write_all(&[b'x'; 400]).doing("write a file")?;
        file.sync_all().doing("sync a file")?;
        fs::rename(&new, &path).doing("rename a file")?;
        folder.sync_all().doing("sync a directory")?;
        latencies.push(began.elapsed());
    }
    fs::remove_file(&path).doing("remove a file")?;
    Ok(latencies)
}

/// One commit for each of so many new groups.
pub(crate) fn idle_groups(addr: SocketAddr, groups: usize) -> Result<()> {
    let done = spread(COMMIT_THREADS, |thread| {
        let mut admin = Admin::connect(addr)?;
        for group in (thread..groups).step_by(COMMIT_THREADS) {
            commit(&mut admin, &format!("idle-group-{group}"), 1)?;
        }
        Ok(Vec::<Duration>::new())
    });
    done.map(drop)
}

/// How long so many members need until all are in one generation and have their assignments: all at once, and when one
/// more comes.
pub(crate) fn rebalance(addr: SocketAddr, members: usize) -> Result<(Duration, Duration)> {
    let (all, more) = (Gathering::new(members), Gathering::new(members + 1));
    let barrier = Barrier::new(members + 1);
    let old = || -> Result<()> {
        let mut member = Member::connect(addr)?;
        barrier.wait();
        member.stay(&all)?;
        member.stay(&more)
    };
    let new = || Member::connect(addr)?.stay(&more);
    thread::scope(|scope| {
        let mut threads: Vec<_> = (0..members).map(|_| scope.spawn(old)).collect();
        barrier.wait();
        let first = all.complete(Instant::now())?;
        let began = Instant::now();
        threads.push(scope.spawn(new));
        let again = more.complete(began)?;
        for thread in threads {
            let ended = thread.join().map_err(|_| Error::Malformed {
                what: "end of a member's thread",
            })?;
            ended?;
        }
        Ok((first, again))
    })
}

/// Members that are to have their assignments in one generation.
struct Gathering {
    wanted: usize,
    settled: AtomicUsize,
}

impl Gathering {
    fn new(wanted: usize) -> Self {
        Self {
            wanted,
            settled: AtomicUsize::new(0),
        }
    }

    fn is_complete(&self) -> bool {
        self.settled.load(Ordering::Acquire) >= self.wanted
    }

    fn complete(&self, began: Instant) -> Result<Duration> {
        wait::until("the group to settle", PATIENCE, || {
            Ok(self.is_complete().then(|| began.elapsed()))
        })
    }
}

/// A member of the classic protocol.
struct Member {
    admin: Admin,
    id: StrBytes,
    generation: i32,
}

impl Member {
    fn connect(addr: SocketAddr) -> Result<Self> {
        Ok(Self {
            admin: Admin::connect(addr)?,
            id: StrBytes::default(),
            generation: -1,
        })
    }

    /// Joins, and joins again when it must, until the gathering is complete.
    fn stay(&mut self, goal: &Gathering) -> Result<()> {
        while !goal.is_complete() {
            if self.generation >= 0 && !self.must_rejoin()? {
                wait::idle(Duration::from_millis(HEARTBEAT_MS));
                continue;
            }
            let members = self.join()?;
            // The assignment says how many they are.
            if self.sync(&members)? == goal.wanted {
                goal.settled.fetch_add(1, Ordering::AcqRel);
            }
        }
        Ok(())
    }

    /// The ids of all members, for the leader.
    fn join(&mut self) -> Result<Vec<StrBytes>> {
        let mut protocol = JoinGroupRequestProtocol::default();
        protocol.name = StrBytes::from("range");
        protocol.metadata = Bytes::from_static(&[0; 100]);
        let mut request = JoinGroupRequest::default();
        request.group_id = StrBytes::from("rebalanced");
        request.session_timeout_ms = 30_000;
        request.rebalance_timeout_ms = 60_000;
        request.member_id = self.id.clone();
        request.protocol_type = StrBytes::from("consumer");
        request.protocols = vec![protocol];
        let answer = self.admin.call(&request, 3)?;
        no_error("JoinGroup", answer.error_code)?;
        self.id = answer.member_id;
        self.generation = answer.generation_id;
        Ok(answer
            .members
            .into_iter()
            .map(|member| member.member_id)
            .collect())
    }

    /// How many members the assignment tells of; 0 if another rebalance has begun.
    fn sync(&mut self, members: &[StrBytes]) -> Result<usize> {
        let count = u32::try_from(members.len()).unwrap_or(0).to_be_bytes();
        let mut request = SyncGroupRequest::default();
        request.group_id = StrBytes::from("rebalanced");
        request.generation_id = self.generation;
        request.member_id = self.id.clone();
        request.assignments = members
            .iter()
            .map(|member| {
                let mut assignment = SyncGroupRequestAssignment::default();
                assignment.member_id = member.clone();
                assignment.assignment = Bytes::copy_from_slice(&count);
                assignment
            })
            .collect();
        let answer = self.admin.call(&request, 2)?;
        if answer.error_code == REBALANCE_IN_PROGRESS {
            return Ok(0);
        }
        no_error("SyncGroup", answer.error_code)?;
        let told = <[u8; 4]>::try_from(&answer.assignment[..]).unwrap_or_default();
        Ok(usize::try_from(u32::from_be_bytes(told)).unwrap_or(0))
    }

    fn must_rejoin(&mut self) -> Result<bool> {
        let mut request = HeartbeatRequest::default();
        request.group_id = StrBytes::from("rebalanced");
        request.generation_id = self.generation;
        request.member_id = self.id.clone();
        let code = self.admin.call(&request, 2)?.error_code;
        if code == REBALANCE_IN_PROGRESS {
            return Ok(true);
        }
        no_error("Heartbeat", code)?;
        Ok(false)
    }
}

/// Runs `work` in so many threads and gathers what they measured.
fn spread<T: Send>(
    threads: usize,
    work: impl Fn(usize) -> Result<Vec<T>> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let mut all = Vec::new();
        for thread in running {
            let ended = thread.join().map_err(|_| Error::Malformed {
                what: "end of a measuring thread",
            })?;
            all.extend(ended?);
        }
        Ok(all)
    })
}

fn no_error(api: &'static str, code: i16) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::Code { api, code })
}
