//! The server's assignors: who is to have which partition.
//!
//! Owns:     `uniform` (as even as the subscriptions allow, as few moves as that allows) and `range` (runs of partitions
//!           of each topic, so that partitions with the same number go together).
//! Does not: know members' progress: it computes the target from subscriptions and the former target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use seawall_storage::TopicId;

use super::{Consumer, Known, MemberId, Partitions};
use crate::groups::effects::Effects;

/// How a target is computed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Assignor {
    /// As even as possible.
    Uniform,
    /// In runs.
    Range,
}

impl Assignor {
    /// As clients and configurations call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// The assignor of that name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let all = [Self::Uniform, Self::Range];
        all.into_iter().find(|assignor| assignor.name() == name)
    }
}

/// A topic with who reads it.
struct Read<'a> {
    topic: Known,
    /// Indices into the members, in their order.
    readers: &'a [usize],
}

type Target = Vec<Partitions>;

impl Consumer {
    /// The one that most members ask for; the broker's default if none does.
    pub(super) fn assignor(&self) -> Assignor {
        let default = self
            .limits
            .assignors
            .first()
            .copied()
            .unwrap_or(Assignor::Uniform);
        let votes = |assignor: &Assignor| {
            let members = self.members.values();
            members.filter(|m| m.assignor == Some(*assignor)).count()
        };
        let best = self.limits.assignors.iter().rev().max_by_key(|a| votes(a));
        best.copied()
            .filter(|best| votes(best) > 0)
            .unwrap_or(default)
    }

    /// Computes a new target if the group has changed since the last, at most once in a while.
    pub(super) fn assign_if_due(&mut self, fx: &mut Effects) {
        let interval = self.limits.assignment_interval;
        let too_soon = self.assigned_at.is_some_and(|at| fx.now < at + interval);
        if self.epoch == self.assignment_epoch || too_soon {
            return;
        }
        let mut ids: Vec<&MemberId> = self.members.keys().collect();
        // Static members keep their place among the others when they come back under another id.
        ids.sort_by_key(|id| (self.members.get(*id).and_then(|m| m.instance.clone()), *id));
        let readers: Vec<(Known, Vec<usize>)> = self
            .topics
            .iter()
            .map(|(name, topic)| {
                let reads = |id: &&MemberId| self.members.get(*id).is_some_and(|m| m.reads(name));
                let all = ids.iter().enumerate().filter(|(_, id)| reads(id));
                (*topic, all.map(|(place, _)| place).collect())
            })
            .collect();
        let reads: Vec<Read<'_>> = readers
            .iter()
            .map(|(topic, readers)| Read {
                topic: *topic,
                readers,
            })
            .collect();
        let former = ids
            .iter()
            .map(|id| self.target.get(*id).cloned().unwrap_or_default());
        let target = match self.assignor() {
            Assignor::Range => range(ids.len(), &reads),
            Assignor::Uniform => uniform(former.collect(), &reads),
        };
        self.target = ids.into_iter().map(Arc::clone).zip(target).collect();
        self.assignment_epoch = self.epoch;
        self.assigned_at = Some(fx.now);
        fx.store();
    }
}

fn range(members: usize, reads: &[Read<'_>]) -> Target {
    let mut target = vec![Partitions::new(); members];
    for read in reads {
        let readers = i32::try_from(read.readers.len()).unwrap_or(i32::MAX);
        if readers == 0 {
            continue;
        }
        let (each, more) = (
            read.topic.partitions / readers,
            read.topic.partitions % readers,
        );
        let mut next = 0;
        for (place, reader) in (0..).zip(read.readers) {
            let many = each + i32::from(place < more);
            if many > 0 {
                target[*reader].insert(read.topic.id, (next..next + many).collect());
            }
            next += many;
        }
    }
    target
}

/// Keeps what may be kept, gives what is free to who has least, then evens out.
fn uniform(former: Target, reads: &[Read<'_>]) -> Target {
    let mut work = Balance::keep(former, reads);
    work.give_free();
    work.even_out();
    work.target
}

/// A target on its way to balance.
struct Balance<'a> {
    target: Target,
    sizes: Vec<usize>,
    reads: BTreeMap<TopicId, &'a Read<'a>>,
}

impl<'a> Balance<'a> {
    fn keep(former: Target, reads: &'a [Read<'a>]) -> Self {
        let reads: BTreeMap<TopicId, &Read<'_>> = reads.iter().map(|r| (r.topic.id, r)).collect();
        let keep = |(place, mut partitions): (usize, Partitions)| {
            partitions.retain(|topic, all| {
                let read = reads.get(topic);
                let read = read.filter(|r| r.readers.binary_search(&place).is_ok());
                let last = read.map_or(0, |read| read.topic.partitions);
                all.retain(|partition| *partition < last);
                !all.is_empty()
            });
            partitions
        };
        let target: Target = former.into_iter().enumerate().map(keep).collect();
        Self {
            sizes: target.iter().map(super::count).collect(),
            target,
            reads,
        }
    }

    /// The reader of a topic that has least.
    fn least(&self, read: &Read<'_>) -> Option<usize> {
        let readers = read.readers.iter().copied();
        readers.min_by_key(|reader| (self.sizes[*reader], *reader))
    }

    fn give_free(&mut self) {
        let mut taken: BTreeMap<TopicId, BTreeSet<i32>> = BTreeMap::new();
        for partitions in &self.target {
            for (topic, all) in partitions {
                taken.entry(*topic).or_default().extend(all);
            }
        }
        let mut free: Vec<(TopicId, i32)> = Vec::new();
        // Topics with few readers first: who reads many can still be served from others.
        let mut topics: Vec<&&Read<'_>> = self.reads.values().collect();
        topics.sort_by_key(|read| read.readers.len());
        for read in topics {
            let taken = taken.get(&read.topic.id);
            let is_free = |partition: &i32| taken.is_none_or(|all| !all.contains(partition));
            let all = (0..read.topic.partitions).filter(is_free);
            free.extend(all.map(|partition| (read.topic.id, partition)));
        }
        for (topic, partition) in free {
            let least = self.reads.get(&topic).and_then(|read| self.least(read));
            if let Some(least) = least {
                self.put(least, topic, partition);
            }
        }
    }

    fn put(&mut self, member: usize, topic: TopicId, partition: i32) {
        self.target[member]
            .entry(topic)
            .or_default()
            .insert(partition);
        self.sizes[member] += 1;
    }

    /// Moves partitions from who has most to readers that have at least two fewer, until there is none. Every move makes
    /// the sum of squares smaller, so it ends.
    fn even_out(&mut self) {
        let mut settled = vec![false; self.target.len()];
        loop {
            let open = (0..self.target.len()).filter(|member| !settled[*member]);
            let Some(most) = open.max_by_key(|member| self.sizes[*member]) else {
                return;
            };
            if !self.move_one_from(most) {
                settled[most] = true;
                continue;
            }
            // Who has given can take now from those that had nobody to give to.
            for (member, settled) in settled.iter_mut().enumerate() {
                *settled &= self.sizes[member] <= self.sizes[most] + 1;
            }
        }
    }

    fn move_one_from(&mut self, most: usize) -> bool {
        let topics = self.target[most].keys();
        let better = topics.filter_map(|topic| {
            let read = self.reads.get(topic)?;
            let least = self.least(read)?;
            (self.sizes[least] + 1 < self.sizes[most]).then_some((self.sizes[least], *topic, least))
        });
        let Some((_, topic, least)) = better.min() else {
            return false;
        };
        let Some(all) = self.target[most].get_mut(&topic) else {
            return false;
        };
        let Some(partition) = all.pop_last() else {
            return false;
        };
        if all.is_empty() {
            self.target[most].remove(&topic);
        }
        self.sizes[most] -= 1;
        self.put(least, topic, partition);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(id: u128, partitions: i32) -> Known {
        Known {
            id: TopicId(uuid::Uuid::from_u128(id)),
            partitions,
        }
    }

    fn sizes(target: &Target) -> Vec<usize> {
        target.iter().map(super::super::count).collect()
    }

    #[track_caller]
    fn check_whole(target: &Target, reads: &[Read<'_>]) {
        for read in reads.iter().filter(|read| !read.readers.is_empty()) {
            let all = target.iter().enumerate().flat_map(|(member, partitions)| {
                let all = partitions.get(&read.topic.id);
                assert!(
                    all.is_none() || read.readers.contains(&member),
                    "not subscribed"
                );
                all.into_iter().flatten().copied()
            });
            let mut all: Vec<i32> = all.collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..read.topic.partitions), "each once");
        }
    }

    #[test]
    fn ranges_are_runs_and_the_first_get_one_more() {
        let readers = [0, 1, 2];
        let reads = [Read {
            topic: topic(1, 7),
            readers: &readers,
        }];
        let target = range(3, &reads);
        check_whole(&target, &reads);
        assert_eq!(sizes(&target), [3, 2, 2]);
        assert!(target[1][&reads[0].topic.id].iter().eq(&[3, 4]));
    }

    #[test]
    fn uniform_is_even_and_moves_no_more_than_it_must() {
        let readers = [0, 1, 2];
        let reads = [
            Read {
                topic: topic(1, 5),
                readers: &readers,
            },
            Read {
                topic: topic(2, 4),
                readers: &readers,
            },
        ];
        let two = [
            Read {
                topic: topic(1, 5),
                readers: &readers[..2],
            },
            Read {
                topic: topic(2, 4),
                readers: &readers[..2],
            },
        ];
        let before = uniform(vec![Partitions::new(); 2], &two);
        check_whole(&before, &two);
        let mut former = before.clone();
        former.push(Partitions::new());
        let after = uniform(former, &reads);
        check_whole(&after, &reads);
        assert_eq!(sizes(&after), [3, 3, 3]);
        let stayed: usize = before
            .iter()
            .zip(&after)
            .flat_map(|(before, after)| before.iter().map(|(t, all)| (all, after.get(t))))
            .map(|(all, now)| now.map_or(0, |now| all.intersection(now).count()))
            .sum();
        assert_eq!(stayed, 6, "three of nine had to move");
    }

    #[test]
    fn uniform_gives_each_only_what_it_reads_and_is_as_even_as_that_allows() {
        let (all, first, none) = ([0, 1], [0], []);
        let reads = [
            Read {
                topic: topic(1, 4),
                readers: &all,
            },
            Read {
                topic: topic(2, 4),
                readers: &first,
            },
            Read {
                topic: topic(3, 4),
                readers: &none,
            },
        ];
        let target = uniform(vec![Partitions::new(); 2], &reads);
        check_whole(&target, &reads);
        assert_eq!(sizes(&target), [4, 4]);
    }

    #[test]
    fn what_is_gone_is_taken_from_everybody() {
        let readers = [0];
        let wide = [Read {
            topic: topic(1, 4),
            readers: &readers,
        }];
        let target = uniform(vec![Partitions::new()], &wide);
        assert_eq!(sizes(&target), [4]);
        let other = [Read {
            topic: topic(2, 1),
            readers: &readers,
        }];
        let target = uniform(target, &other);
        check_whole(&target, &other);
        assert_eq!(sizes(&target), [1]);
    }

    #[test]
    fn every_target_is_whole_and_even_for_any_subscriptions() {
        let mut seed = 88_172_645_463_325_252_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % below).unwrap()
        };
        for _ in 0..200 {
            let members = 1 + random(6);
            let mut target = vec![Partitions::new(); members];
            for _ in 0..4 {
                let readers: Vec<Vec<usize>> = (0..3)
                    .map(|_| (0..members).filter(|_| random(3) > 0).collect())
                    .collect();
                let reads: Vec<Read<'_>> = (1..)
                    .zip(&readers)
                    .map(|(id, readers)| Read {
                        topic: topic(id, i32::try_from(random(9)).unwrap()),
                        readers,
                    })
                    .collect();
                target = uniform(target, &reads);
                check_whole(&target, &reads);
                let sizes = sizes(&target);
                for read in &reads {
                    for from in read
                        .readers
                        .iter()
                        .filter(|m| target[**m].contains_key(&read.topic.id))
                    {
                        for to in read.readers {
                            assert!(sizes[*from] <= sizes[*to] + 1, "a move would even out");
                        }
                    }
                }
            }
        }
    }
}
