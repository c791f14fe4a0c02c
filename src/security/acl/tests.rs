use std::net::IpAddr;
use std::sync::Arc;

use super::filter::{Filter, NameFilter};
use super::index::{Index, Question};
use super::rule::{Operation, PatternType, Permission, ResourceType, Rule};
use super::store::RuleStore;
use crate::cluster::state_file::real_disk;
use crate::cluster::test_disk::{Fault, TestDisk};
use crate::security::quota::QuotaStore;

fn rule(
    (pattern, name): (PatternType, &str),
    (principal, host): (&str, &str),
    (permission, operation): (Permission, Operation),
) -> Rule {
    Rule {
        resource: ResourceType::Topic,
        pattern,
        name: name.to_owned(),
        principal: principal.to_owned(),
        host: host.to_owned(),
        operation,
        permission,
    }
}

const HOME: &str = "10.0.0.1";

/// The filter that means one rule.
fn exactly(rule: &Rule) -> Filter {
    Filter {
        resource: Some(rule.resource),
        name: Some(rule.name.clone()),
        pattern: NameFilter::Pattern(rule.pattern),
        principal: Some(rule.principal.clone()),
        host: Some(rule.host.clone()),
        operation: Some(rule.operation),
        permission: Some(rule.permission),
        never: false,
    }
}

fn may(index: &Index, user: &str, host: &str, operation: Operation, name: &str) -> bool {
    let host: IpAddr = host.parse().unwrap();
    let found = index.find(&Question {
        user,
        host,
        resource: ResourceType::Topic,
        name,
    });
    found.allowed.without(found.denied).has(operation)
}

use Operation::{All, Alter, AlterConfigs, Create, Delete, Describe, DescribeConfigs, Read, Write};
use PatternType::{Literal, Prefixed};
use Permission::{Allow, Deny};

#[test]
fn rules_hold_for_their_user_host_and_name_alone() {
    let rules = [
        rule((Literal, "pay"), ("User:alice", HOME), (Allow, Read)),
        rule((Prefixed, "log-"), ("User:bob", "*"), (Allow, Write)),
        rule((Literal, "*"), ("User:*", "::1"), (Allow, Create)),
        rule((Literal, "pay"), ("Group:alice", "*"), (Allow, All)),
    ];
    let index = Index::new(&rules);
    let check = |user, host, operation, name| may(&index, user, host, operation, name);
    assert!(check("alice", HOME, Read, "pay"));
    assert!(!check("alice", "10.0.0.2", Read, "pay"));
    assert!(!check("alice", HOME, Read, "payments"));
    assert!(!check("bob", HOME, Read, "pay"));
    assert!(check("bob", HOME, Write, "log-") && check("bob", HOME, Write, "log-x"));
    assert!(!check("bob", HOME, Write, "log"));
    assert!(check("anyone", "0:0:0:0:0:0:0:1", Create, "whatever"));
    assert!(
        !check("alice", HOME, Delete, "pay"),
        "other kinds of principals"
    );
}

#[test]
fn what_is_allowed_implies_as_in_kafka_and_what_is_denied_does_not() {
    for (given, implied) in [
        (Read, Describe),
        (Write, Describe),
        (Delete, Describe),
        (Alter, Describe),
        (AlterConfigs, DescribeConfigs),
        (All, Create),
    ] {
        let who = ("User:a", "*");
        let allowed = Index::new(&[rule((Literal, "t"), who, (Allow, given))]);
        assert!(may(&allowed, "a", HOME, implied, "t"), "{given:?}");
        let rules = [
            rule((Literal, "t"), who, (Allow, All)),
            rule((Literal, "t"), who, (Deny, given)),
        ];
        let denied = Index::new(&rules);
        assert!(!may(&denied, "a", HOME, given, "t"));
        assert_eq!(may(&denied, "a", HOME, implied, "t"), given != All);
    }
    let create = [rule((Literal, "t"), ("User:a", "*"), (Allow, Create))];
    assert!(!may(&Index::new(&create), "a", HOME, Describe, "t"));
}

/// Kafka's words, read out one rule at a time.
fn by_the_book(rules: &[Rule], user: &str, host: &str, operation: Operation, name: &str) -> bool {
    let concerns = |rule: &&Rule| {
        let named = match rule.pattern {
            Literal => rule.name == name || rule.name == "*",
            Prefixed => name.starts_with(&rule.name),
        };
        let who = rule.principal == "User:*" || rule.principal == format!("User:{user}");
        named && who && (rule.host == "*" || rule.host == host)
    };
    let mut concerning = rules.iter().filter(concerns);
    let allows = |rule: &Rule| {
        rule.operation == All
            || rule.operation == operation
            || (operation == Describe && [Read, Write, Delete, Alter].contains(&rule.operation))
            || (operation == DescribeConfigs && rule.operation == AlterConfigs)
    };
    let denies = |rule: &Rule| rule.operation == All || rule.operation == operation;
    let mut allowed = false;
    let denied = concerning.any(|rule| match rule.permission {
        Deny => denies(rule),
        Allow => {
            allowed |= allows(rule);
            false
        }
    });
    allowed && !denied
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

#[test]
fn the_index_decides_as_reading_every_rule_would() {
    let names = ["*", "a", "ab", "abc", "abd", "b", "ba", "abcabc", "ü", "üb"];
    let hosts = ["*", HOME, "10.0.0.2"];
    let operations = [
        All,
        Read,
        Write,
        Create,
        Delete,
        Alter,
        Describe,
        DescribeConfigs,
        AlterConfigs,
    ];
    let mut dice = Dice(0x5eed);
    let mut granted = 0;
    for _ in 0..400 {
        let count = dice.roll(25);
        let rules: Vec<Rule> = (0..count)
            .map(|_| {
                let pattern = [Literal, Prefixed][dice.roll(2)];
                let name = (pattern, dice.pick(&names));
                let who = (
                    dice.pick(&["User:*", "User:u", "User:v"]),
                    dice.pick(&hosts),
                );
                let permission = if dice.roll(5) == 0 { Deny } else { Allow };
                rule(
                    name,
                    who,
                    (permission, operations[dice.roll(operations.len())]),
                )
            })
            .collect();
        let index = Index::new(&rules);
        for _ in 0..100 {
            let (user, host) = (dice.pick(&["u", "v", "w"]), dice.pick(&hosts[1..]));
            let operation = operations[1 + dice.roll(operations.len() - 1)];
            let name = dice.pick(&[
                "a", "ab", "abc", "abcd", "abcabcd", "abdx", "bab", "c", "übü",
            ]);
            let expected = by_the_book(&rules, user, host, operation, name);
            let found = may(&index, user, host, operation, name);
            assert_eq!(
                found, expected,
                "{user} {host} {operation:?} {name}: {rules:#?}"
            );
            granted += usize::from(found);
        }
    }
    assert!(granted > 5_000 && granted < 35_000, "{granted} of 40,000");
}

#[test]
fn somebody_may_somewhere_unless_everything_that_is_allowed_is_denied_too() {
    let host: IpAddr = HOME.parse().unwrap();
    let somewhere = |rules: &[Rule]| {
        let index = Index::new(rules);
        index.allows_somewhere(("a", host), ResourceType::Topic, Write)
    };
    let who = ("User:a", "*");
    let allow = |pattern, name| rule((pattern, name), who, (Allow, Write));
    let deny = |pattern, name| rule((pattern, name), who, (Deny, Write));
    assert!(!somewhere(&[]));
    assert!(somewhere(&[allow(Literal, "t")]));
    assert!(somewhere(&[allow(Prefixed, "t")]));
    assert!(somewhere(&[allow(Literal, "*"), deny(Prefixed, "t")]));
    assert!(!somewhere(&[allow(Literal, "t"), deny(Literal, "*")]));
    assert!(!somewhere(&[allow(Literal, "t"), deny(Literal, "t")]));
    assert!(!somewhere(&[allow(Literal, "tx"), deny(Prefixed, "t")]));
    assert!(!somewhere(&[allow(Prefixed, "tx"), deny(Prefixed, "t")]));
    assert!(somewhere(&[allow(Prefixed, "t"), deny(Prefixed, "tx")]));
    assert!(somewhere(&[allow(Prefixed, "t"), deny(Literal, "t")]));
    assert!(!somewhere(&[rule((Literal, "t"), who, (Allow, Read))]));
}

#[test]
fn a_rule_that_could_not_be_stored_does_not_hold() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("cluster");
    std::fs::create_dir(&place).unwrap();
    let store = RuleStore::open(real_disk(), &place, None).unwrap();
    let one = rule((Literal, "t"), ("User:a", "*"), (Allow, Read));
    store.add(&[one]).unwrap();
    std::fs::remove_dir_all(&place).unwrap();
    let other = rule((Literal, "u"), ("User:a", "*"), (Allow, Read));
    store.add(&[other]).unwrap_err();
    assert!(may(&store.load().index, "a", HOME, Read, "t"));
    assert!(!may(&store.load().index, "a", HOME, Read, "u"));
    assert_eq!(store.len(), 1);
    let kept = Arc::clone(&store.load());
    assert!(may(&kept.index, "a", HOME, Read, "t"));
}

/// The file has its new content when the sync of its directory fails, and memory has the old one.
#[test]
fn a_rule_that_is_deleted_after_a_half_failed_change_is_gone_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let disk = TestDisk::default();
    let open = || RuleStore::open(Arc::new(disk.clone()), dir.path(), None).unwrap();
    let store = open();
    let kept = rule((Literal, "t"), ("User:a", "*"), (Allow, Read));
    store.add(&[kept]).unwrap();
    let half = rule((Literal, "u"), ("User:a", "*"), (Allow, Read));
    disk.fail_at(4, Fault::Once);
    store.add(std::slice::from_ref(&half)).unwrap_err();
    assert!(disk.has_failed());
    assert_eq!(open().len(), 2, "the rename was done");
    disk.heal();
    assert_eq!(store.remove(&[exactly(&half)]).unwrap(), [vec![]]);
    assert_eq!(open().len(), 1, "what was acknowledged holds");
    disk.heal();
    store.remove(&[exactly(&half)]).unwrap();
    assert!(disk.steps().is_empty(), "nothing is unsure any more");
}

/// Files as a disk or a hand may leave them: without a checksum, so that what is changed is read on.
#[test]
fn files_of_rules_and_limits_that_are_not_what_was_written_are_errors_and_no_panics() {
    let acls = br#"{"format":1,"acls":[{"resource":"TOPIC","pattern":"LITERAL","name":"t","principal":"User:a",
        "host":"*","operation":"READ","permission":"ALLOW"}]}"#;
    let quotas = br#"{"format":1,"quotas":[{"entity":{"user":{"of":"a"},"clientId":"default"},
        "limits":{"producer_byte_rate":1024.5,"request_percentage":1e300}}]}"#;
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str, bytes: &[u8]| {
        std::fs::write(dir.path().join(name), bytes).unwrap();
        match name {
            "acls.json" => RuleStore::open(real_disk(), dir.path(), None).map(drop),
            _ => QuotaStore::open(real_disk(), dir.path(), None).map(drop),
        }
    };
    let mut dice = Dice(0xd15c);
    for (name, good) in [("acls.json", &acls[..]), ("quotas.json", &quotas[..])] {
        open(name, good).unwrap();
        let mut refused = 0;
        for _ in 0..2_000 {
            let mut bytes = good.to_vec();
            for _ in 0..=dice.roll(3) {
                let at = dice.roll(bytes.len());
                match dice.roll(4) {
                    0 => bytes.truncate(at + 1),
                    1 => bytes[at] ^= 1 << dice.roll(8),
                    2 => drop(bytes.remove(at.min(bytes.len() - 1))),
                    _ => bytes.insert(at, b"{}[]\",:9e-\x00\xff"[dice.roll(12)]),
                }
                if bytes.is_empty() {
                    bytes.push(b'{');
                }
            }
            refused += usize::from(open(name, &bytes).is_err());
        }
        assert!(refused > 1_000, "{name}: {refused} of 2,000");
    }
}
