//! What consumer groups cost: idle polls with and without a fetch session, commits, a rebalance, idle groups.
//!
//! Owns:     the order of the measurements and their lines of output; `group_load` makes the loads.
//! Does not: judge. Brokers take turns, so that figures of one run can be compared.

use std::path::Path;
use std::time::Duration;

use crate::broker::{Install, Program, Running};
use crate::error::Result;
use crate::group_load::{self as load, Polls};
use crate::stats::Percentiles;

/// Partitions of the topic that is polled.
const PARTITIONS: i32 = 1_000;
/// Groups that each commit once a second.
const COMMITTERS: [usize; 3] = [1, 100, 1_000];
/// Members of the group that rebalances.
const MEMBERS: usize = 100;
/// Groups whose memory is weighed.
const IDLE_GROUPS: usize = 5_000;

/// Runs everything on fresh installations of these brokers.
pub(crate) fn run(programs: &[Program], work: &Path, time: Duration) -> Result<()> {
    let mut brokers = Vec::new();
    for program in programs {
        let install = Install::fresh(program, work, &format!("groups-{}", program.name()))?;
        let mut running = install.start()?;
        running.ready(|admin| Ok(admin.brokers()? > 0))?;
        load::prepare(running.addr(), PARTITIONS)?;
        brokers.push((program.name(), install, running));
    }
    idle_polls(&brokers, time)?;
    commits(&brokers, work, time)?;
    rebalances(&brokers)?;
    idle_groups(&brokers)?;
    for (_, install, running) in brokers {
        running.stop()?;
        install.remove()?;
    }
    Ok(())
}

type Broker = (&'static str, Install, Running);

fn idle_polls(brokers: &[Broker], time: Duration) -> Result<()> {
    println!(
        "idle polls over {PARTITIONS} partitions, {} ms long",
        load::POLL_MS
    );
    println!(
        "{:<10} {:>9} {:>10} {:>12} {:>12} {:>14}",
        "broker", "session", "polls", "bytes out", "bytes in", "CPU us/poll"
    );
    for with_session in [false, true] {
        for (name, _, running) in brokers {
            let before = running.cpu()?;
            let Polls {
                count,
                sent,
                received,
            } = load::polls(running.addr(), PARTITIONS, with_session, time)?;
            let cpu = running.cpu()?.saturating_sub(before);
            let per_poll = cpu / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
            println!(
                "{name:<10} {:>9} {count:>10} {:>12} {:>12} {:>14}",
                if with_session { "yes" } else { "no" },
                sent / count.max(1),
                received / count.max(1),
                per_poll.as_micros()
            );
        }
    }
    Ok(())
}

fn commits(brokers: &[Broker], work: &Path, time: Duration) -> Result<()> {
    println!(
        "\ncommits, one a second from each group; `file`: write, fsync, rename and fsync of the directory, 400 bytes"
    );
    println!(
        "{:<10} {:>7} {:>12} {:>12} {:>12} {:>12}",
        "broker", "groups", "commits/s", "p50", "p99", "p99.9"
    );
    commit_line("file", 1, load::atomic_files(work, time)?, time);
    for groups in COMMITTERS {
        for (name, _, running) in brokers {
            commit_line(
                name,
                groups,
                load::commits(running.addr(), groups, time)?,
                time,
            );
        }
    }
    println!("as fast as they can, {} groups at a time", load::EAGER);
    for (name, _, running) in brokers {
        commit_line(
            name,
            load::EAGER,
            load::eager_commits(running.addr(), time)?,
            time,
        );
    }
    commit_line("file", 1, load::atomic_files(work, time)?, time);
    Ok(())
}

fn commit_line(name: &str, groups: usize, latencies: Vec<Duration>, time: Duration) {
    let count = u32::try_from(latencies.len()).unwrap_or(u32::MAX);
    let rate = f64::from(count) / time.as_secs_f64();
    if let Some(p) = Percentiles::of(latencies) {
        println!(
            "{name:<10} {groups:>7} {rate:>12.0} {:>12.2?} {:>12.2?} {:>12.2?}",
            p.p50, p.p99, p.p999
        );
    }
}

fn rebalances(brokers: &[Broker]) -> Result<()> {
    println!(
        "\n{MEMBERS} members of a classic group, a heartbeat every {} ms",
        load::HEARTBEAT_MS
    );
    println!(
        "{:<10} {:>16} {:>16}",
        "broker", "all join", "one more joins"
    );
    for (name, _, running) in brokers {
        let (first, again) = load::rebalance(running.addr(), MEMBERS)?;
        println!("{name:<10} {first:>16.2?} {again:>16.2?}");
    }
    Ok(())
}

fn idle_groups(brokers: &[Broker]) -> Result<()> {
    println!("\n{IDLE_GROUPS} groups with one committed offset each, nobody in them");
    println!("{:<10} {:>16}", "broker", "bytes per group");
    for (name, _, running) in brokers {
        let before = running.resident()?;
        load::idle_groups(running.addr(), IDLE_GROUPS)?;
        let grown = running.resident()?.saturating_sub(before);
        let groups = u64::try_from(IDLE_GROUPS).unwrap_or(1);
        println!("{name:<10} {:>16}", grown / groups);
    }
    Ok(())
}
