use super::super::snapshot::PlaceFault;
use super::super::test_broker::{Machine, overrides};
use super::super::test_disk::Fault;
use super::super::{Cluster, LogDirIndex};
use super::*;
use crate::config::{CommandLine, Config};
use seawall_storage::PartitionIndex;

#[track_caller]
fn check_whole(cluster: &Cluster, name: &str, partitions: i32) {
    let snapshot = cluster.catalog.snapshot();
    let topic = snapshot.by_name(name).unwrap();
    assert_eq!(snapshot.by_id(topic.id).map(|t| t.id), Some(topic.id));
    assert_eq!(topic.partition_count(), partitions);
    assert!(topic.places().all(|(_, place)| place.is_ok()));
    assert_eq!(topic.config.retention_ms, Some(5));
}

/// Runs `change` with every step failing in turn, until none fails, and lets `judge` look at the broker after a restart.
fn at_every_step(
    machine: impl Fn() -> Machine,
    fault: Fault,
    change: impl Fn(&Cluster) -> Result<(), String>,
    judge: impl Fn(&Machine, &Cluster, &Result<(), String>),
) {
    for step in 0.. {
        let machine = machine();
        let cluster = machine.start();
        machine.disk.fail_at(step, fault);
        let result = change(&cluster);
        let failed = machine.disk.has_failed();
        assert_eq!(result.is_err(), failed, "step {step}: {result:?}");
        machine.disk.heal();
        drop(cluster);
        let mut again = machine.start();
        again.finish_removal().unwrap();
        judge(&machine, &again, &result);
        if !failed {
            assert!(step > 5, "the steps were counted");
            return;
        }
    }
}

#[test]
fn a_created_topic_is_there_at_once_and_after_a_restart() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    let topic = cluster.create("t", 3).unwrap();
    check_whole(&cluster, "t", 3);
    drop(cluster);
    let again = machine.start();
    check_whole(&again, "t", 3);
    assert_eq!(again.id_of("t"), Some(topic.id));
    assert!(again.findings.is_empty() && again.removal.is_empty());
}

#[test]
fn a_creation_costs_the_same_number_of_syncs_however_many_partitions() {
    for partitions in [1, 1000] {
        for dirs in [1, 2] {
            let machine = Machine::new(dirs);
            let cluster = machine.start();
            cluster.create("warm", 2).unwrap();
            machine.disk.heal();
            cluster.create("t", 2.max(partitions)).unwrap();
            assert_eq!(machine.disk.syncs(), 4 * dirs + 2, "T4");
        }
    }
}

#[test]
fn the_row_is_the_last_step_of_a_creation_and_everything_is_durable_before_it() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    machine.disk.heal();
    cluster.create("t", 1).unwrap();
    let steps = machine.disk.steps();
    let row = steps
        .iter()
        .position(|s| s.starts_with("rename") && s.ends_with("topics/t.json"))
        .unwrap();
    assert_eq!(row, steps.len() - 2);
    assert!(steps[row + 1].starts_with("sync") && steps[row + 1].ends_with("/topics"));
    let root_synced = steps
        .iter()
        .position(|s| s.starts_with("sync") && s.ends_with("/d0"))
        .unwrap();
    let stamped = steps
        .iter()
        .position(|s| s.starts_with("rename") && s.ends_with(".topic-id.json"))
        .unwrap();
    assert!(stamped < root_synced && root_synced < row, "D6");
}

#[test]
fn a_creation_killed_at_any_step_leaves_a_whole_topic_or_none_and_the_name_is_usable() {
    for dirs in [1, 2] {
        at_every_step(
            || Machine::new(dirs),
            Fault::Killed,
            |cluster| cluster.create("t", 2).map(drop).map_err(|e| e.to_string()),
            |_, again, result| {
                if again.id_of("t").is_none() {
                    assert!(result.is_err(), "T1");
                    again.create("t", 2).unwrap();
                }
                check_whole(again, "t", 2);
            },
        );
    }
}

#[test]
fn a_creation_that_fails_at_any_step_leaves_nothing_or_is_in_doubt_until_a_restart() {
    at_every_step(
        || Machine::new(1),
        Fault::Once,
        |cluster| {
            let error = match cluster.create("t", 2) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            assert!(cluster.id_of("t").is_none(), "T2");
            match &error {
                CreateError::Disk(_) => drop(cluster.create("t", 2).unwrap()),
                CreateError::InDoubt(_) => {
                    assert!(
                        matches!(cluster.create("t", 2), Err(CreateError::Exists)),
                        "T3"
                    );
                }
                other => panic!("{other}"),
            }
            Err(error.to_string())
        },
        |_, again, _| check_whole(again, "t", 2),
    );
}

#[test]
fn a_deletion_killed_at_any_step_is_undone_or_completed_and_nothing_is_left() {
    for dirs in [1, 2] {
        at_every_step(
            || {
                let machine = Machine::new(dirs);
                let cluster = machine.start();
                cluster.create("t", 2).unwrap();
                machine.put_data(0, "t", 0);
                machine
            },
            Fault::Killed,
            |cluster| cluster.delete("t"),
            |machine, again, result| {
                if again.id_of("t").is_some() {
                    assert!(result.is_err());
                    check_whole(again, "t", 2);
                    assert!(
                        machine.dirs[0]
                            .join("t/0/00000001-00000000000000000000.log")
                            .exists()
                    );
                } else {
                    let left = machine.tree();
                    assert!(
                        left.iter()
                            .all(|p| !p.contains("/t") || p.contains("/topics")),
                        "{left:?}"
                    );
                    assert!(left.iter().all(|p| !p.contains('~')
                        && !p.contains(".trash")
                        && !p.contains(".lost")));
                    again.create("t", 1).unwrap();
                }
            },
        );
    }
}

#[test]
fn the_name_of_a_deleted_topic_is_given_free_when_its_directories_are_aside() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    let old = cluster.create("t", 1).unwrap();
    let mut removal = cluster.catalog.delete(old.id).unwrap();
    assert!(cluster.id_of("t").is_none());
    assert!(
        matches!(cluster.create("t", 1), Err(CreateError::Exists)),
        "its logs may still be open"
    );
    machine.disk.fail_at(0, Fault::Once);
    assert!(matches!(
        cluster.catalog.set_aside(&mut removal),
        Progress::Stuck(_)
    ));
    assert!(
        matches!(cluster.create("t", 1), Err(CreateError::Exists)),
        "T3"
    );
    machine.disk.heal();
    assert!(matches!(
        cluster.catalog.set_aside(&mut removal),
        Progress::More
    ));
    let new = cluster.create("t", 1).unwrap();
    assert_ne!(new.id, old.id, "D11");
    assert!(matches!(
        cluster.catalog.remove_step(&mut removal, 100),
        Progress::Done
    ));
    drop(cluster);
    assert_eq!(machine.start().id_of("t"), Some(new.id));
}

#[test]
fn a_deletion_never_takes_a_directory_of_another_incarnation() {
    let (machine, other) = (Machine::new(1), Machine::new(1));
    let cluster = machine.start();
    cluster.create("t", 1).unwrap();
    machine.put_data(0, "t", 0);
    other.start().create("t", 1).unwrap();
    let stamp = |machine: &Machine| machine.dirs[0].join("t/.topic-id.json");
    std::fs::copy(stamp(&other), stamp(&machine)).unwrap();
    cluster.delete("t").unwrap();
    let tree = machine.tree();
    assert!(
        tree.iter().any(|path| path.ends_with(".log")),
        "D11, D12: {tree:?}"
    );
}

#[test]
fn of_overrides_in_several_log_dirs_the_highest_revision_holds() {
    let machine = Machine::new(2);
    machine.start().create("t", 2).unwrap();
    for (dir, revision, retention) in [(0, 3, 30), (1, 4, 40)] {
        let text =
            format!(r#"{{"revision":{revision},"config":{{"retention.ms":"{retention}"}}}}"#);
        std::fs::write(machine.dirs[dir].join("t/.config.json"), text).unwrap();
    }
    let cluster = machine.start();
    let topic = Arc::clone(cluster.catalog.load().by_name("t").unwrap());
    assert_eq!(topic.config.retention_ms, Some(40));
    cluster
        .catalog
        .set_overrides(topic.id, &overrides(&[("retention.ms", "50")]))
        .unwrap();
    drop(cluster);
    let again = machine.start();
    assert_eq!(
        again
            .catalog
            .load()
            .by_name("t")
            .unwrap()
            .config
            .retention_ms,
        Some(50)
    );
}

#[test]
fn what_cannot_be_removed_now_is_removed_later_and_the_tombstone_goes_last() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    let topic = cluster.create("t", 2).unwrap();
    machine.put_data(0, "t", 0);
    let mut removal = cluster.catalog.delete(topic.id).unwrap();
    assert!(matches!(
        cluster.catalog.set_aside(&mut removal),
        Progress::More
    ));
    machine.disk.fail_at(0, Fault::Once);
    assert!(
        matches!(
            cluster.catalog.remove_step(&mut removal, 1),
            Progress::Stuck(_)
        ),
        "R2"
    );
    let tombstone = |machine: &Machine| machine.tree().iter().any(|path| path.contains('~'));
    let mut steps = 0;
    while matches!(cluster.catalog.remove_step(&mut removal, 1), Progress::More) {
        steps += 1;
        assert!(tombstone(&machine), "R1");
    }
    assert!(steps > 2 && removal.is_empty() && !tombstone(&machine));
}

#[test]
fn t03_t06_names_are_refused_as_in_kafka_and_nothing_is_made() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    cluster.create("a.b", 1).unwrap();
    let before = machine.tree();
    assert!(
        matches!(cluster.create("a_b", 1), Err(CreateError::Collision(other)) if other.as_str() == "a.b")
    );
    assert!(matches!(cluster.create("a.b", 1), Err(CreateError::Exists)));
    for name in [
        "",
        "..",
        "a/b",
        "__cluster",
        "__consumer_offsets",
        &"x".repeat(250),
    ] {
        assert!(
            matches!(cluster.create(name, 1), Err(CreateError::Name(_))),
            "{name}"
        );
    }
    for partitions in [0, -1, i32::MAX] {
        assert!(matches!(
            cluster.create("p", partitions),
            Err(CreateError::Partitions)
        ));
    }
    let zstd = NewTopic {
        name: "z",
        partitions: 1,
        overrides: overrides(&[("compression.type", "zstd")]),
    };
    assert!(matches!(
        cluster.catalog.create(&zstd),
        Err(CreateError::Config(_))
    ));
    assert_eq!(machine.tree(), before);
    cluster.create(&"x".repeat(249), 1).unwrap();
    drop(cluster);
    assert_eq!(machine.start().catalog.load().topics().len(), 2);
}

#[test]
fn t01_fifty_topics_created_at_the_same_time_are_all_there() {
    let machine = Machine::new(2);
    let cluster = machine.start();
    std::thread::scope(|scope| {
        for thread in 0..5 {
            let cluster = &cluster;
            scope.spawn(move || {
                (0..10).for_each(|n| drop(cluster.create(&format!("t{thread}-{n}"), 3).unwrap()));
            });
        }
    });
    let snapshot = cluster.catalog.snapshot();
    assert_eq!(snapshot.topics().len(), 50);
    assert!(
        snapshot
            .topics()
            .is_sorted_by_key(|topic| topic.name.clone())
    );
    let in_first = |topic: &Arc<Topic>| {
        topic
            .places()
            .filter(|(_, p)| matches!(p, Ok(LogDirIndex(0))))
            .count()
    };
    let spread: usize = snapshot.topics().iter().map(in_first).sum();
    assert_eq!(spread, 75, "half of the partitions in each of two log dirs");
}

#[test]
fn new_partitions_go_where_there_is_most_room_and_are_spread_where_there_is_as_much() {
    let machine = Machine::new(3);
    let cluster = machine.start();
    let room = |free: [u64; 3]| {
        for (n, bytes) in free.into_iter().enumerate() {
            let claim = cluster.log_dirs.claim(LogDirIndex(n)).unwrap();
            claim.set_free_bytes(bytes);
        }
    };
    let places = |name: &str| -> Vec<usize> {
        let topic = cluster.create(name, 4).unwrap();
        topic.places().map(|(_, p)| p.unwrap().0).collect()
    };
    room([10, 1000, 100]);
    assert_eq!(places("roomy"), [1, 1, 1, 1]);
    room([1000, 10, 950]);
    assert_eq!(places("two"), [0, 2, 0, 2]);
    room([500, 500, 500]);
    assert_eq!(places("all"), [0, 2, 0, 2], "the second has four already");
    cluster
        .log_dirs
        .claim(LogDirIndex(1))
        .unwrap()
        .set_well(false);
    room([10, 1000, 5]);
    assert_eq!(places("sick"), [0, 0, 0, 0]);
}

#[test]
fn only_one_of_many_creations_of_a_name_succeeds() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    let names = ["a.b", "a_b", "a.b", "a_b"];
    let created: usize = std::thread::scope(|scope| {
        let threads =
            names.map(|name| scope.spawn(|| usize::from(cluster.create(name, 1).is_ok())));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(created, 1, "T3");
}

#[test]
fn a_stray_stamp_without_data_goes_and_one_with_data_is_kept_as_lost() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    for name in ["empty", "full", "torn"] {
        cluster.create(name, 1).unwrap();
    }
    machine.put_data(0, "full", 0);
    machine.put_data(0, "torn", 0);
    drop(cluster);
    for name in ["empty", "full", "torn"] {
        std::fs::remove_file(machine.dirs[0].join(format!("__cluster/topics/{name}.json")))
            .unwrap();
    }
    std::fs::write(machine.dirs[0].join("torn/.topic-id.json"), b"{").unwrap();
    std::fs::create_dir_all(machine.dirs[0].join("mine/deep")).unwrap();
    std::fs::create_dir(machine.dirs[0].join("empty-of-mine")).unwrap();
    let again = machine.start();
    let tree = machine.tree();
    let lost: Vec<_> = tree
        .iter()
        .filter(|path| path.contains(".lost-") && path.ends_with(".log"))
        .collect();
    assert_eq!(lost.len(), 2, "D12: {tree:?}");
    assert!(!tree.contains("d0/empty") && !tree.contains("d0/full"));
    assert!(
        tree.contains("d0/mine/deep") && tree.contains("d0/empty-of-mine"),
        "none of ours"
    );
    assert_eq!(again.findings.len(), 3);
    assert!(matches!(
        again.create("mine", 1),
        Err(CreateError::Occupied(_))
    ));
    again.create("full", 1).unwrap();
    again.create("empty-of-mine", 1).unwrap();
}

#[test]
fn d09_a_damaged_row_makes_one_topic_unusable_and_its_data_and_name_stay() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    cluster.create("bad", 1).unwrap();
    cluster.create("good", 1).unwrap();
    machine.put_data(0, "bad", 0);
    drop(cluster);
    let row = machine.dirs[0].join("__cluster/topics/bad.json");
    let text = std::fs::read_to_string(&row).unwrap();
    std::fs::write(&row, text.replace("[0]", "[1]")).unwrap();
    let again = machine.start();
    check_whole(&again, "good", 1);
    assert!(again.id_of("bad").is_none());
    let why = again.catalog.load().damaged("bad").unwrap().to_string();
    assert!(why.contains("bad.json") && why.contains("crc32c"), "{why}");
    assert!(matches!(again.create("bad", 1), Err(CreateError::Exists)));
    assert!(machine.dirs[0].join("bad/0").exists(), "D12");
    drop(again);
    std::fs::write(&row, text).unwrap();
    check_whole(&machine.start(), "bad", 1);
}

#[test]
fn a_catalogued_topic_without_its_stamp_is_offline_and_never_made_anew() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    cluster.create("t", 1).unwrap();
    drop(cluster);
    std::fs::rename(
        machine.dirs[0].join("t"),
        machine.home.path().join("elsewhere"),
    )
    .unwrap();
    let again = machine.start();
    let topic = Arc::clone(again.catalog.load().by_name("t").unwrap());
    assert!(matches!(
        topic.place(PartitionIndex(0)),
        Some(Err(PlaceFault::StampMissing(_)))
    ));
    assert!(!machine.dirs[0].join("t").exists());
    assert!(matches!(
        again.catalog.set_overrides(topic.id, &overrides(&[])),
        Err(ChangeError::Unusable)
    ));
    drop(again);
    std::fs::rename(
        machine.home.path().join("elsewhere"),
        machine.dirs[0].join("t"),
    )
    .unwrap();
    check_whole(&machine.start(), "t", 1);
}

#[test]
fn a_directory_of_another_incarnation_is_never_taken_for_the_topics_own() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    cluster.create("t", 1).unwrap();
    machine.put_data(0, "t", 0);
    drop(cluster);
    let other = Machine::new(1);
    let elsewhere = other.start();
    elsewhere.create("t", 1).unwrap();
    std::fs::copy(
        other.dirs[0].join("t/.topic-id.json"),
        machine.dirs[0].join("t/.topic-id.json"),
    )
    .unwrap();
    let again = machine.start();
    let topic = Arc::clone(again.catalog.load().by_name("t").unwrap());
    assert!(
        matches!(
            topic.place(PartitionIndex(0)),
            Some(Err(PlaceFault::StampMissing(_)))
        ),
        "D11"
    );
    assert!(
        machine
            .tree()
            .iter()
            .any(|path| path.contains(".lost-") && path.ends_with(".log")),
        "D12"
    );
}

#[test]
fn damaged_missing_or_invalid_overrides_take_the_topic_offline_with_the_way_out() {
    type Damage = fn(&Path);
    let cases: [(Damage, &str); 3] = [
        (
            |path| std::fs::write(path, b"{\"revision\":0").unwrap(),
            "restore it",
        ),
        (|path| std::fs::remove_file(path).unwrap(), "revision"),
        (
            |path| {
                std::fs::write(path, br#"{"revision":0,"config":{"retention.ms":"x"}}"#).unwrap();
            },
            "retention.ms",
        ),
    ];
    for (damage, word) in cases {
        let machine = Machine::new(1);
        let cluster = machine.start();
        cluster.create("t", 1).unwrap();
        drop(cluster);
        damage(&machine.dirs[0].join("t/.config.json"));
        let again = machine.start();
        assert!(
            again.findings[0].to_string().contains(word),
            "{}",
            again.findings[0]
        );
        let topic = Arc::clone(again.catalog.load().by_name("t").unwrap());
        assert!(topic.places().all(|(_, place)| place.is_err()));
    }
}

#[test]
fn changed_overrides_hold_at_once_and_after_a_restart_whatever_step_is_the_last() {
    for fault in [Fault::Killed, Fault::Once] {
        at_every_step(
            || {
                let machine = Machine::new(2);
                machine.start().create("t", 2).unwrap();
                machine
            },
            fault,
            |cluster| {
                let id = cluster.id_of("t").unwrap();
                let changed = cluster
                    .catalog
                    .set_overrides(id, &overrides(&[("retention.ms", "77")]));
                let holds = cluster
                    .catalog
                    .load()
                    .by_name("t")
                    .unwrap()
                    .config
                    .retention_ms;
                assert_eq!(holds, Some(if changed.is_ok() { 77 } else { 5 }));
                changed.map(drop).map_err(|error| error.to_string())
            },
            |_, again, result| {
                let topic = Arc::clone(again.catalog.load().by_name("t").unwrap());
                assert!(topic.places().all(|(_, place)| place.is_ok()));
                let holds = topic.config.retention_ms;
                assert!(holds == Some(77) || (result.is_err() && holds == Some(5)));
                let changed = again
                    .catalog
                    .set_overrides(topic.id, &overrides(&[("retention.ms", "8")]))
                    .unwrap();
                assert_eq!(changed.config.retention_ms, Some(8));
            },
        );
    }
}

#[test]
fn added_partitions_are_all_there_or_none_whatever_step_is_the_last() {
    at_every_step(
        || {
            let machine = Machine::new(2);
            machine.start().create("t", 1).unwrap();
            machine
        },
        Fault::Killed,
        |cluster| {
            let id = cluster.id_of("t").unwrap();
            cluster
                .catalog
                .add_partitions(id, 4)
                .map(drop)
                .map_err(|error| error.to_string())
        },
        |_, again, result| {
            let count = again.catalog.load().by_name("t").unwrap().partition_count();
            assert!(count == 4 || (count == 1 && result.is_err()));
            check_whole(again, "t", count);
            let id = again.id_of("t").unwrap();
            assert!(matches!(
                again.catalog.add_partitions(id, count),
                Err(ChangeError::Partitions)
            ));
            again.catalog.add_partitions(id, 6).unwrap();
            check_whole(again, "t", 6);
        },
    );
}

#[test]
fn validation_tells_what_a_creation_would_and_makes_nothing() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    let before = machine.tree();
    let new = NewTopic {
        name: "t",
        partitions: 1,
        overrides: overrides(&[("segment.ms", "9")]),
    };
    let (name, config) = cluster.catalog.check(&new).unwrap();
    assert_eq!((name.as_str(), config.segment_ms), ("t", 9));
    assert_eq!(machine.tree(), before);
}

#[test]
fn no_topic_misses_new_settings_for_good() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    let catalog = &cluster.catalog;
    for name in ["idle", "busy", "failing"] {
        cluster.create(name, 1).unwrap();
    }
    let kept = |name: &str| {
        let snapshot = catalog.snapshot();
        snapshot.by_name(name).unwrap().config.flush_messages
    };
    let settings = |messages: u32| {
        let line = CommandLine {
            set: vec![format!("log.flush.interval.messages={messages}")],
            ..CommandLine::default()
        };
        Settings::clone(&Config::load(&line).unwrap().settings)
    };
    let busy = catalog.begin(cluster.id_of("busy").unwrap()).unwrap();
    let failing = catalog.begin(cluster.id_of("failing").unwrap()).unwrap();
    let taken = catalog.set_settings(settings(77));
    assert_eq!((taken.changed.len(), taken.busy.len()), (1, 2));
    assert_eq!(kept("idle"), 77);
    // The change under way brings them.
    catalog.publish(busy.with_config(Arc::clone(&busy.config), busy.revision));
    assert_eq!(kept("busy"), 77);
    // One that fails leaves them to the next time, even if nothing is new then.
    catalog.end(&failing, false);
    let taken = catalog.set_settings(settings(77));
    assert_eq!((taken.changed.len(), taken.busy.len()), (1, 0));
    assert_eq!(kept("failing"), 77);
    assert!(catalog.set_settings(settings(77)).changed.is_empty());
}
