use super::super::snapshot::PlaceFault;
use super::super::test_broker::Machine;
use super::super::test_disk::Fault;
use super::super::{Cluster, ClusterError};
use super::*;
use seawall_storage::PartitionIndex;
use std::fs;

#[track_caller]
fn refused(machine: &Machine) -> String {
    let before = machine.tree();
    let error = machine.try_start().err().map(|e| e.to_string()).unwrap();
    assert_eq!(machine.tree(), before, "nothing was changed: {error}");
    error
}

#[test]
fn a_cluster_keeps_its_identity() {
    for machine in [Machine::new(2), Machine::with_catalog_apart(2)] {
        let ids = |cluster: &Cluster| {
            let dirs: Vec<_> = cluster
                .log_dirs
                .present()
                .map(|(_, present)| present.id)
                .collect();
            (cluster.id.clone(), dirs)
        };
        let first = ids(&machine.start());
        assert_eq!(first.0.as_str().len(), 22);
        assert_eq!(first.1.len(), 2);
        assert_eq!(ids(&machine.start()), first);
    }
}

#[test]
fn a_first_start_killed_at_any_step_can_be_started_again() {
    for machine in [|| Machine::new(2), || Machine::with_catalog_apart(2)] {
        for step in 0.. {
            let machine = machine();
            machine.disk.fail_at(step, Fault::Killed);
            let killed = machine.try_start().is_err();
            machine.disk.heal();
            let cluster = machine.start();
            assert_eq!(cluster.log_dirs.present().count(), 2, "step {step}");
            assert!(cluster.log_dirs.missing().is_empty());
            cluster.create("t", 2).unwrap();
            cluster.producer_ids.next().unwrap();
            if !killed {
                assert!(step > 10);
                break;
            }
        }
    }
}

#[test]
fn d12_a_second_broker_exits_with_the_owners_name_and_changes_nothing() {
    let machine = Machine::new(1);
    let first = machine.start();
    let owners = fs::read_dir(&machine.dirs[0]).unwrap().count();
    let text = refused(&machine);
    assert!(
        text.contains(&format!("process id {}", std::process::id())),
        "{text}"
    );
    assert_eq!(fs::read_dir(&machine.dirs[0]).unwrap().count(), owners);
    drop(first);
    machine.start();
}

#[test]
fn a_directory_of_kafkas_is_refused_untouched_with_a_word_on_import() {
    let machine = Machine::new(2);
    fs::create_dir(&machine.dirs[1]).unwrap();
    fs::write(machine.dirs[1].join("meta.properties"), "version=1\n").unwrap();
    let text = refused(&machine);
    assert!(
        text.contains("Apache Kafka") && text.contains("MirrorMaker"),
        "{text}"
    );
    assert!(!machine.dirs[0].exists() && fs::read_dir(&machine.dirs[1]).unwrap().count() == 1);
}

#[test]
fn an_absent_log_dir_is_not_an_empty_one() {
    let machine = Machine::new(2);
    let cluster = machine.start();
    cluster.create("t", 2).unwrap();
    machine.put_data(1, "t", 1);
    drop(cluster);
    let away = machine.home.path().join("away");
    fs::rename(&machine.dirs[1], &away).unwrap();
    for mount_point_is_there in [false, true] {
        if mount_point_is_there {
            fs::create_dir(&machine.dirs[1]).unwrap();
        }
        let again = machine.start();
        assert!(matches!(
            again.log_dirs.all()[1].state,
            Err(Absence::MaybeUnmounted { .. })
        ));
        assert_eq!(again.log_dirs.missing().len(), 1);
        let topic = Arc::clone(again.catalog.load().by_name("t").unwrap());
        assert!(topic.place(PartitionIndex(0)).unwrap().is_ok());
        assert!(matches!(
            topic.place(PartitionIndex(1)),
            Some(Err(PlaceFault::DirAbsent(_)))
        ));
        assert!(again.create("t", 1).is_err(), "its name stays taken");
        again
            .create(if mount_point_is_there { "u" } else { "v" }, 3)
            .unwrap();
        let made = fs::read_dir(&machine.dirs[1]).map_or(0, Iterator::count);
        assert_eq!(made, 0, "nothing is made in the mount point");
        assert_eq!(machine.dirs[1].exists(), mount_point_is_there);
    }
    fs::remove_dir(&machine.dirs[1]).unwrap();
    fs::rename(&away, &machine.dirs[1]).unwrap();
    let again = machine.start();
    let topic = Arc::clone(again.catalog.load().by_name("t").unwrap());
    assert!(topic.places().all(|(_, place)| place.is_ok()));
}

#[test]
fn a_topic_deleted_while_a_log_dir_is_absent_is_gone_there_too_when_it_returns() {
    let machine = Machine::with_catalog_apart(2);
    let cluster = machine.start();
    cluster.create("t", 2).unwrap();
    machine.put_data(1, "t", 1);
    drop(cluster);
    let away = machine.home.path().join("away");
    fs::rename(&machine.dirs[1], &away).unwrap();
    let again = machine.start();
    again.delete("t").unwrap();
    let new = again.create("t", 1).unwrap();
    drop(again);
    let mut still_away = machine.start();
    still_away.finish_removal().unwrap();
    assert!(machine.tree().iter().any(|path| path.contains('~')), "R1");
    drop(still_away);
    fs::rename(&away, &machine.dirs[1]).unwrap();
    let mut again = machine.start();
    again.finish_removal().unwrap();
    assert_eq!(again.id_of("t"), Some(new.id));
    let tree = machine.tree();
    assert!(
        !tree
            .iter()
            .any(|path| path.ends_with(".log") || path.contains('~') || path.contains(".lost")),
        "{tree:?}"
    );
}

#[test]
fn a_log_dir_given_up_by_its_id_makes_room_for_a_new_one() {
    let machine = Machine::new(2);
    drop(machine.start());
    let lost: String = fs::read_to_string(machine.dirs[1].join("log-dir.json")).unwrap();
    let lost: serde_json::Value = serde_json::from_str(&lost).unwrap();
    fs::remove_dir_all(&machine.dirs[1]).unwrap();
    let meta = machine.dirs[0].join("__cluster/meta.json");
    let mut text: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&meta).unwrap()).unwrap();
    text.as_object_mut().unwrap().remove("crc32c");
    text["logDirs"]
        .as_array_mut()
        .unwrap()
        .retain(|id| *id != lost["id"]);
    fs::write(&meta, text.to_string()).unwrap();
    assert_eq!(machine.start().log_dirs.present().count(), 2);
}

#[test]
fn a_log_dir_may_be_added_and_may_change_its_place() {
    let mut machine = Machine::with_catalog_apart(1);
    machine.start().create("t", 1).unwrap();
    machine.dirs.insert(0, machine.home.path().join("new"));
    let cluster = machine.start();
    assert_eq!(cluster.log_dirs.present().count(), 2);
    let topic = Arc::clone(cluster.catalog.load().by_name("t").unwrap());
    assert_eq!(
        topic.place(PartitionIndex(0)).unwrap().ok(),
        Some(LogDirIndex(1))
    );
}

#[test]
fn a_log_dir_whose_catalog_is_not_there_is_refused() {
    let machine = Machine::with_catalog_apart(1);
    drop(machine.start());
    let catalog = machine.cluster_dir.clone().unwrap();
    fs::remove_file(catalog.join("meta.json")).unwrap();
    assert!(refused(&machine).contains("meta.json does not exist"));
    fs::remove_dir_all(&catalog).unwrap();
    let text = machine.try_start().unwrap_err().to_string();
    assert!(text.contains("meta.json does not exist"), "{text}");
    assert!(!catalog.exists(), "nothing was made");
}

#[test]
fn the_catalog_is_found_where_it_is_if_the_order_of_log_dirs_changed() {
    let mut machine = Machine::new(2);
    drop(machine.start());
    machine.dirs.reverse();
    let text = refused(&machine);
    assert!(
        text.contains("d0/__cluster") && text.contains("list that log dir first"),
        "{text}"
    );
}

#[test]
fn a_log_dir_of_another_cluster_and_a_copy_are_refused() {
    let (mut machine, other) = (Machine::new(1), Machine::new(2));
    drop(machine.start());
    drop(other.start());
    machine.dirs.push(other.dirs[1].clone());
    let text = machine.try_start().unwrap_err().to_string();
    assert!(text.contains("belongs to the cluster"), "{text}");
    machine.dirs[1] = machine.home.path().join("copy");
    fs::create_dir(&machine.dirs[1]).unwrap();
    fs::copy(
        machine.dirs[0].join("log-dir.json"),
        machine.dirs[1].join("log-dir.json"),
    )
    .unwrap();
    assert!(refused(&machine).contains("one is a copy"));
}

#[test]
fn lost_identity_files_are_refused_and_never_made_anew() {
    let machine = Machine::with_catalog_apart(1);
    machine.start().create("t", 1).unwrap();
    fs::remove_file(machine.dirs[0].join("log-dir.json")).unwrap();
    assert!(refused(&machine).contains("restore that file"));

    let machine = Machine::new(1);
    drop(machine.start());
    fs::remove_dir(machine.dirs[0].join("__cluster/topics")).unwrap();
    let error = machine.try_start().unwrap_err();
    assert!(matches!(error, ClusterError::CatalogMissing(_)), "{error}");

    let machine = Machine::new(1);
    drop(machine.start());
    fs::write(machine.dirs[0].join("__cluster/meta.json"), "{}").unwrap();
    assert!(refused(&machine).contains("meta.json is damaged"));
}

#[test]
fn d09_a_damaged_id_makes_one_log_dir_absent_unless_it_holds_the_catalog() {
    let machine = Machine::new(2);
    drop(machine.start());
    fs::write(machine.dirs[1].join("log-dir.json"), "{").unwrap();
    let cluster = machine.start();
    assert!(matches!(
        cluster.log_dirs.all()[1].state,
        Err(Absence::Damaged(_))
    ));
    drop(cluster);
    fs::write(machine.dirs[0].join("log-dir.json"), "{").unwrap();
    assert!(refused(&machine).contains("log-dir.json is damaged"));
}
