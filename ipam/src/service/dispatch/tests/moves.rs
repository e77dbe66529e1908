//! Random histories: pods of three nodes come and go while all pools are moved into blocks and back, one request at a time, and while nodes
//! lose answers, processes and power. No address is used twice, and none is lost.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::super::super::Times;
use super::super::super::guest::tests::TIMES_AT_ONCE;
use super::super::super::tests::Dice;
use super::*;

/// What the dice show for a request that is made.
const MADE: u64 = 3;
const NODES: [&str; 3] = ["a", "b", "c"];

/// One range that is shared from the start, one of which nodes hold blocks, and one that overlaps it.
fn ranges() -> [Value; 3] {
    ["10.40.0.0/27", "10.48.0.0/22", "10.48.0.0/23"]
        .map(|range| json!({"type": "whereabouts", "range": range}))
}

struct Node {
    dir: tempfile::TempDir,
    boot: usize,
    both: Both,
}

/// What the command does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Adopting,
    Writing,
    Adopted,
    Returning,
    Closing,
    Reserving,
    Reopening,
    Removing,
}

struct History {
    seed: u64,
    moved: Moved,
    nodes: Vec<Node>,
    phase: Phase,
    times: Times,
    /// The address of each pod with its space: the two overlapping ranges have one.
    uses: BTreeMap<(bool, String), (usize, String, usize)>,
}

impl History {
    fn new(seed: u64) -> Self {
        let moved = Moved::new();
        for node in NODES {
            moved.server.add_node(node);
        }
        // A request that was given up on may be made until the end.
        let times = Times {
            settled: Duration::from_hours(1),
            ..TIMES_AT_ONCE
        };
        let nodes = (0..NODES.len()).map(|at| {
            let dir = tempfile::tempdir().unwrap();
            let both = node(&moved, at, &dir, 0, times);
            Node { dir, boot: 0, both }
        });
        let nodes = nodes.collect();
        Self {
            seed,
            moved,
            nodes,
            phase: Phase::Open,
            times,
            uses: BTreeMap::new(),
        }
    }

    fn restart(&mut self, at: usize) {
        let Node { dir, boot, both } = &mut self.nodes[at];
        *both = node(&self.moved, at, dir, *boot, self.times);
    }

    fn fates(&self, dice: &mut Dice) {
        let roll = dice.roll(24);
        self.moved.cluster.set_fate(roll, dice.choose(3));
        self.moved.server.set_fate(roll, dice.choose(3));
    }

    fn add(&mut self, at: usize, pod: &str, range: usize) {
        let mut of = allocation(pod, pod, &ranges()[range]);
        of.pod.uid = format!("uid-{pod}");
        match self.nodes[at].both.serve(&Ask::Allocate(of)) {
            Answer::Done(grants) => {
                let address = grants[0].address.split('/').next().unwrap();
                let key = (range == 0, address.to_owned());
                let other = self.uses.insert(key, (at, pod.to_owned(), range));
                assert_eq!(
                    other, None,
                    "{address} of {pod} in {:?} of {}",
                    self.phase, self.seed
                );
            }
            // The runtime deletes a container that has failed.
            Answer::Failed { .. } => self.del(at, pod, range),
        }
    }

    fn del(&self, at: usize, pod: &str, range: usize) {
        let from = Ask::ReleaseFrom(allocation(pod, pod, &ranges()[range]));
        assert!(is_done(&self.nodes[at].both.serve(&from)));
    }

    fn step(&mut self, step: usize, dice: &mut Dice) {
        let at = dice.choose(NODES.len());
        self.fates(dice);
        let share_of_adds = if (step / 60).is_multiple_of(2) { 8 } else { 3 };
        match dice.roll(20) {
            roll if roll < share_of_adds => {
                let range = dice.choose(ranges().len());
                self.add(at, &format!("{}-{step}", self.seed), range);
            }
            0..11 => {
                let own: Vec<_> = self.uses.iter().filter(|(_, one)| one.0 == at).collect();
                if own.is_empty() {
                    return;
                }
                let (key, (_, pod, range)) = own[dice.choose(own.len())];
                let (key, pod, range) = (key.clone(), pod.clone(), *range);
                self.uses.remove(&key);
                self.del(at, &pod, range);
            }
            11 => self.restart(at),
            12 => {
                self.uses.retain(|_, (on, ..)| *on != at);
                self.nodes[at].boot += 1;
                self.restart(at);
            }
            13 => {
                self.moved.cluster.land();
                self.moved.server.land();
            }
            14..17 => {
                self.nodes[at].both.work();
            }
            _ => self.go_on(),
        }
        let conflicts = self.nodes[at].both.take_conflicts();
        assert_eq!(conflicts, 0, "step {step} of {}", self.seed);
    }

    /// Makes the next request of the command, which reads everything before.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of request")]
    fn go_on(&mut self) {
        self.moved.cluster.set_fate(MADE, 0);
        self.moved.server.set_fate(MADE, 0);
        let moved = &self.moved;
        let pools = moved.pools();
        let blocks = moved.blocks();
        let name = |block: &AddressBlock| object::name(&block.space, block.block);
        match self.phase {
            Phase::Open if pools.is_empty() => {}
            Phase::Open => self.phase = Phase::Adopting,
            Phase::Adopting => match pools
                .iter()
                .zip(moved.spaces())
                .find(|(pool, _)| pool.is_open())
            {
                Some((pool, space)) => moved.patch(pool, &pool.assign(ADOPTING, &space)),
                None => self.phase = Phase::Writing,
            },
            Phase::Writing => {
                let nodes: BTreeMap<_, _> = self
                    .uses
                    .values()
                    .map(|(at, pod, _)| (format!("shop/{pod}"), NODES[*at].to_owned()))
                    .collect();
                let place = |pod: &str| {
                    let (uid, node) = ("uid".to_owned(), nodes.get(pod)?.clone());
                    Some(moving::PodPlace { uid, node })
                };
                let plan = moving::adopt(
                    &pools,
                    &moved.spaces(),
                    &moved.reservations(),
                    place,
                    &blocks,
                );
                let is_transient =
                    |one: &moving::Obstacle| matches!(one, moving::Obstacle::InUse { .. });
                if plan.obstacles.iter().any(is_transient) {
                    // A node that had not heard of a return frees what it has got since.
                    for node in &self.nodes {
                        node.both.work();
                    }
                    return;
                }
                assert_eq!(plan.obstacles, [], "{}", self.seed);
                let unwritten = plan.blocks.iter().find_map(|((space, block), slots)| {
                    let mut known = blocks.iter();
                    let known = known.find(|one| (&one.space, one.block) == (space, *block));
                    let is_written = |one: &&AddressBlock| one.mode == Mode::Shared(slots.clone());
                    match known {
                        Some(one) if is_written(&one) => None,
                        other => Some((space, block, slots, other)),
                    }
                });
                match unwritten {
                    Some((space, block, slots, None)) => {
                        let object = moving::block(space, *block, slots);
                        moved.server.create(&object).unwrap();
                    }
                    Some((_, _, slots, Some(one))) => {
                        let patch = moving::change_mode(one, "shared", Some(slots));
                        moved.server.patch(&name(one), &patch).unwrap();
                    }
                    None => match pools
                        .iter()
                        .zip(moved.spaces())
                        .find(|(pool, _)| pool.word != ADOPTED)
                    {
                        Some((pool, space)) => {
                            moved.patch(pool, &pool.assign(ADOPTED, &space));
                            self.phase = Phase::Adopted;
                        }
                        None => self.phase = Phase::Adopted,
                    },
                }
            }
            Phase::Adopted => match pools
                .iter()
                .zip(moved.spaces())
                .find(|(pool, _)| pool.word == ADOPTING)
            {
                Some((pool, space)) => moved.patch(pool, &pool.assign(ADOPTED, &space)),
                None => self.phase = Phase::Returning,
            },
            Phase::Returning => match pools.iter().find(|pool| pool.word != RETURNING) {
                Some(pool) => moved.patch(pool, &pool.stamp(RETURNING)),
                None => self.phase = Phase::Closing,
            },
            Phase::Closing => {
                let open = blocks
                    .iter()
                    .find(|block| !matches!(block.mode, Mode::Closed(_)));
                match open {
                    Some(block) if matches!(block.mode, Mode::Node(_)) => {
                        let wanted = want(block, "/return");
                        let object = moved.server.patch(&name(block), &wanted).unwrap();
                        self.nodes
                            .iter()
                            .for_each(|node| node.both.changed(&object));
                    }
                    Some(block) => {
                        let closed = moving::change_mode(block, "closed", None);
                        moved.server.patch(&name(block), &closed).unwrap();
                    }
                    None => self.phase = Phase::Reserving,
                }
            }
            Phase::Reserving => {
                let back = self.back(&pools, blocks);
                let there = moved.cluster.all("OverlappingRangeIPReservation");
                for name in there
                    .keys()
                    .filter(|name| moving::is_stale(&pools, name, &back))
                {
                    moved.cluster.remove(name);
                }
                for (name, owner) in &back.reservations {
                    let object = reservation::object("kube-system", name, owner);
                    let path = format!("/apis/{API_VERSION}/namespaces/kube-system/{RESERVATIONS}");
                    moved.cluster.remove(name);
                    moved.cluster.create(&path, &object).unwrap();
                }
                self.phase = Phase::Reopening;
            }
            Phase::Reopening => {
                let back = self.back(&pools, blocks);
                let mut left = pools.iter().zip(&back.allocations);
                match left.find(|(pool, _)| pool.word == RETURNING) {
                    Some((pool, entries)) => moved.patch(pool, &pool.reopen(Some(entries))),
                    None => self.phase = Phase::Removing,
                }
            }
            Phase::Removing => match blocks
                .iter()
                .find(|block| matches!(block.mode, Mode::Closed(_)))
            {
                Some(block) => drop(moved.server.objects.lock().unwrap().remove(&name(block))),
                None => self.phase = Phase::Open,
            },
        }
    }

    fn back(&self, pools: &[StoredPool], mut blocks: Vec<AddressBlock>) -> moving::Return {
        blocks.retain(|block| matches!(block.mode, Mode::Closed(_)));
        let back = moving::give_back(pools, &blocks);
        // An address that a pool has again may be free there.
        if pools.iter().all(|pool| pool.word == RETURNING) {
            assert_eq!(back.obstacles, [], "{}", self.seed);
        }
        back
    }

    /// Everything that nobody uses is free when the pools are where they were.
    fn end(mut self) {
        self.moved.cluster.land();
        self.moved.server.land();
        while self.phase != Phase::Open {
            self.go_on();
        }
        self.times = TIMES_AT_ONCE;
        for (at, pod, range) in std::mem::take(&mut self.uses).into_values() {
            self.del(at, &pod, range);
        }
        for at in 0..NODES.len() {
            self.restart(at);
            for _ in 0..10 {
                self.nodes[at].both.work();
            }
        }
        self.moved.cluster.assert_free();
        let counts = self.nodes.iter().map(|node| node.both.counts().addresses);
        assert_eq!(counts.sum::<usize>(), 0, "{}", self.seed);
        let owners = self.moved.owners();
        assert_eq!(owners, [""; 0], "{}", self.seed);
    }
}

fn node(moved: &Moved, at: usize, dir: &tempfile::TempDir, boot: usize, times: Times) -> Both {
    let boot = boot.to_string();
    let store = Store::open_in_boot(dir.path(), &boot).unwrap();
    let records = Records::open_in_boot(dir.path().join("guest"), &boot).unwrap();
    let guest = Guest::resume(Arc::clone(&moved.cluster), records, "kube-system", times);
    let blocks = Service::resume(Arc::clone(&moved.server), store, NODES[at], times);
    Services::new(blocks.unwrap(), Some(guest.unwrap()))
}

fn random_histories(seeds: std::ops::Range<u64>, steps: usize) {
    thread::scope(|scope| {
        for seed in seeds {
            scope.spawn(move || {
                let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let (mut dice, mut history) = (Dice(seed), History::new(seed));
                for step in 0..steps {
                    history.step(step, &mut dice);
                }
                history.end();
            });
        }
    });
}

#[test]
fn random_histories_of_moved_pools_give_no_address_twice_and_lose_none() {
    random_histories(1..9, 1_500);
}

#[test]
#[ignore = "minutes"]
fn many_random_histories_of_moved_pools_give_no_address_twice_and_lose_none() {
    for first in (100..300).step_by(8) {
        random_histories(first..first + 8, 4_000);
    }
}
