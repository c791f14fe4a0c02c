//! Words to systemd.

use std::time::Duration;

use seawall_testkit::calls::create_topic;
use seawall_testkit::manager::Manager;
use seawall_testkit::metrics::get;
use seawall_testkit::nix::sys::signal::Signal;

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
