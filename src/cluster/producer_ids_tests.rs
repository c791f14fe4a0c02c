use super::super::test_broker::Machine;
use super::super::test_disk::Fault;
use super::*;
use std::collections::HashSet;

#[test]
fn i05_no_id_is_given_out_twice_whenever_the_broker_is_killed() {
    let machine = Machine::new(1);
    let mut seen = HashSet::new();
    for round in 0..8 {
        let cluster = machine.start();
        // Killed at a step of writing the first or second block, or after some ids.
        machine.disk.fail_at(round, Fault::Killed);
        let given = (0..1500).map_while(|_| cluster.producer_ids.next().ok());
        given.for_each(|id| assert!(seen.insert(id), "{id:?} twice"));
    }
    assert!(seen.len() > 1500);
}

#[test]
fn a_block_is_durable_before_its_first_id_is_given_out() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    assert_eq!(cluster.producer_ids.try_next(), None);
    assert_eq!(cluster.producer_ids.next().unwrap(), ProducerId(0));
    assert!(
        machine
            .disk
            .steps()
            .last()
            .unwrap()
            .ends_with("/producer_ids"),
        "P1"
    );
    machine.disk.heal();
    for n in 1..1000 {
        assert_eq!(cluster.producer_ids.try_next(), Some(ProducerId(n)));
    }
    assert_eq!(machine.disk.syncs(), 0);
    assert_eq!(cluster.producer_ids.try_next(), None);
    assert_eq!(cluster.producer_ids.next().unwrap(), ProducerId(1000));
    assert_eq!(machine.disk.syncs(), 2);
}

#[test]
fn many_threads_never_share_an_id() {
    let machine = Machine::new(1);
    let cluster = machine.start();
    let all: Vec<ProducerId> = std::thread::scope(|scope| {
        let take = || {
            (0..1100)
                .map(|_| cluster.producer_ids.next().unwrap())
                .collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 4400);
}

#[test]
fn a_broker_with_another_number_goes_on_where_the_other_stopped() {
    let mut machine = Machine::new(1);
    assert_eq!(machine.start().producer_ids.next().unwrap(), ProducerId(0));
    machine.set = vec!["node.id=7".to_owned()];
    assert_eq!(
        machine.start().producer_ids.next().unwrap(),
        ProducerId(1000),
        "P2"
    );
}

#[test]
fn a_damaged_or_lost_file_stops_new_producers_and_nothing_else() {
    let machine = Machine::new(1);
    drop(machine.start());
    let path = machine.dirs[0].join("__cluster/producer_ids/broker-1.json");
    for (text, word) in [
        ("{", "restore it"),
        (r#"{"first":5,"end":4}"#, "'end'"),
        (r#"{"first":-5,"end":4}"#, "'end'"),
    ] {
        std::fs::write(&path, text).unwrap();
        let cluster = machine.start();
        let error = cluster.producer_ids.next().unwrap_err().to_string();
        assert!(
            error.contains(word) && error.contains("broker-1.json"),
            "{error}"
        );
        cluster.create(&format!("t{}", word.len()), 1).unwrap();
        cluster.delete(&format!("t{}", word.len())).unwrap();
    }
    std::fs::remove_file(&path).unwrap();
    let error = machine.start().producer_ids.next().unwrap_err();
    assert!(matches!(error, ProducerIdError::Missing(_)), "{error}");
    std::fs::write(&path, format!(r#"{{"first":0,"end":{}}}"#, i64::MAX - 5)).unwrap();
    let error = machine.start().producer_ids.next().unwrap_err();
    assert!(matches!(error, ProducerIdError::Exhausted), "{error}");
}
