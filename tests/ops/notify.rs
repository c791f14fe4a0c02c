//! Words to systemd.

use std::fs;
use std::time::Duration;

use seawall_testkit::Broker;
use seawall_testkit::calls::create_topic;
use seawall_testkit::manager::Manager;
use seawall_testkit::metrics::get;
use seawall_testkit::nix::sys::ptrace;
use seawall_testkit::nix::sys::signal::Signal;
use seawall_testkit::nix::sys::wait::{WaitPidFlag, waitpid};
use seawall_testkit::nix::unistd::Pid;
use seawall_testkit::wait::{self, SOON};

use crate::{metric, setup};

#[test]
fn ready_is_told_when_clients_are_served_and_stopping_when_they_are_not_any_more() {
    let manager = Manager::new();
    let mut broker = manager.of(setup()).launch();
    let (message, before) = manager.hears("READY=1");
    assert!(
        !before.iter().any(|line| line.starts_with("WATCHDOG")),
        "{before:?}"
    );
    assert!(
        message
            .iter()
            .any(|line| line.starts_with("STATUS=serving")),
        "{message:?}"
    );
    let ready = get(broker.admin(), "/readyz", "*/*").expect("an answer");
    assert_eq!((ready.status, ready.body.as_str()), (200, "ready\n"));
    create_topic(&mut broker.connect(), "served", 3, &[]);
    let (message, _) = manager.hears("STATUS=serving 1 topics with 3 partitions");
    assert!(!message.iter().any(|line| line == "READY=1"));
    broker.shut_down();
    manager.hears("STOPPING=1");
}

#[test]
fn the_watchdog_is_fed_again_and_again() {
    let manager = Manager::new();
    let broker = manager.of(setup()).env("WATCHDOG_USEC", "200000").start();
    manager.hears("READY=1");
    for _ in 0..5 {
        manager.hears("WATCHDOG=1");
    }
    assert!(metric(&broker, "seawall_event_loop_silence_seconds") < 10.0);
}

/// The id of the broker's thread of that name.
fn thread(broker: &Broker, name: &str) -> Pid {
    let tasks = fs::read_dir(format!("/proc/{}/task", broker.pid())).expect("tasks");
    let mut tasks = tasks.map(|task| task.expect("a task"));
    let named = tasks.find(|task| {
        let comm = fs::read_to_string(task.path().join("comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    });
    let id = named.expect("the thread").file_name();
    Pid::from_raw(id.to_string_lossy().parse().expect("a number"))
}

#[test]
fn one_event_loop_that_stands_still_starves_the_watchdog_and_is_not_ready() {
    let manager = Manager::new();
    let broker = manager.of(setup()).env("WATCHDOG_USEC", "200000").start();
    let ready = || get(broker.admin(), "/readyz", "*/*").expect("an answer");
    manager.hears("WATCHDOG=1");
    let thread = thread(&broker, "net-1");
    ptrace::seize(thread, ptrace::Options::empty()).expect("trace the thread");
    ptrace::interrupt(thread).expect("stop the thread");
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("the thread stands still");
    wait::until("it is not ready", SOON, || ready().status == 503);
    assert!(ready().body.contains("event loops"), "{}", ready().body);
    ptrace::detach(thread, None).expect("let the thread go");
    wait::until("it is ready again", SOON, || ready().status == 200);
    create_topic(&mut broker.connect(), "mark", 1, &[]);
    let (_, fed) = manager.hears("STATUS=serving 1 topics");
    let fed = fed.iter().filter(|line| *line == "WATCHDOG=1").count();
    // While it stood still for ten seconds at least, two hundred beats were due.
    assert!(fed < 100, "fed {fed} times");
}

#[test]
fn without_a_watchdog_nothing_is_fed() {
    let manager = Manager::new();
    let mut broker = manager.of(setup()).start();
    broker.shut_down();
    let (_, before) = manager.hears("STOPPING=1");
    assert!(
        !before.iter().any(|line| line == "WATCHDOG=1"),
        "{before:?}"
    );
}

#[test]
fn a_manager_that_does_not_listen_keeps_nobody_from_stopping() {
    let manager = Manager::new();
    let mut broker = manager.of(setup()).env("WATCHDOG_USEC", "40000").start();
    // One word more than the kernel keeps for a socket that nobody reads.
    wait::until("a word could not be told", SOON, || {
        broker.log().contains("the service manager cannot be told")
    });
    broker.shut_down();
}

#[test]
fn a_reload_is_told_with_its_time_and_followed_by_ready() {
    let manager = Manager::new();
    let broker = manager.of(setup()).start();
    manager.hears("READY=1");
    broker.signal(Signal::SIGHUP);
    let (message, _) = manager.hears("RELOADING=1");
    let time = message
        .iter()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    let told: u64 = time.expect("a time").parse().expect("microseconds");
    let uptime = std::fs::read_to_string("/proc/uptime").expect("uptime");
    let now: f64 = uptime.split(' ').next().unwrap().parse().expect("seconds");
    let told = Duration::from_micros(told).as_secs_f64();
    assert!((now - told).abs() < 60.0, "{told} is not about {now}");
    manager.hears("READY=1");
    assert!((metric(&broker, "seawall_config_reloads_total") - 1.0).abs() < 0.1);
}
