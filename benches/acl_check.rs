//! What a question to the rules costs: none, a hundred, ten thousand of them, half of them prefixes.
//!
//! Owns: the numbers of rules and the names that are asked for. The broker is no library, so its two files of rules
//! are compiled into this bench as they are.

#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    reason = "the bench needs a part of the two files, and criterion_group makes functions without comments"
)]

#[path = "../src/security/acl/index.rs"]
mod index;
#[path = "../src/security/acl/rule.rs"]
mod rule;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use criterion::{Criterion, criterion_group, criterion_main};
use index::{Index, Question};
use rule::{Operation, PatternType, Permission, ResourceType, Rule};

fn rules(count: usize) -> Vec<Rule> {
    let rule = |number: usize| Rule {
        resource: ResourceType::Topic,
        pattern: [PatternType::Literal, PatternType::Prefixed][number % 2],
        name: format!("team-{:03}.topic-{number}", number % 300),
        principal: format!("User:user-{}", number % 500),
        host: "*".to_owned(),
        operation: [Operation::Read, Operation::Write][number / 2 % 2],
        permission: Permission::Allow,
    };
    (0..count).map(rule).collect()
}

fn bench(c: &mut Criterion) {
    let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for count in [0, 100, 10_000] {
        let index = Index::new(&rules(count));
        for (what, name) in [
            ("literal", "team-048.topic-48"),
            ("prefixed", "team-049.topic-49-and-more"),
            ("no rule", "another-topic"),
        ] {
            let asked = Question {
                user: "user-48",
                host,
                resource: ResourceType::Topic,
                name,
            };
            c.bench_function(&format!("{count} rules, {what}"), |b| {
                b.iter(|| index.find(black_box(&asked)));
            });
        }
    }
    c.bench_function("10000 rules made into an index", |b| {
        let all = rules(10_000);
        b.iter(|| Index::new(black_box(&all)));
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
