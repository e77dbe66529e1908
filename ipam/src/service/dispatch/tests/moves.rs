//! Random histories: pods of three nodes come and go while all pools are moved into blocks and back, one request at a time, and while nodes
//! and the command lose answers, processes and power. No address is used twice, and none is lost.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use super::super::super::Times;
use super::super::super::guest::tests::TIMES_AT_ONCE;
use super::super::super::tests::Dice;
use super::super::super::tests::turns::Turns;
use super::*;

const NODES: [&str; 3] = ["a", "b", "c"];

/// One range that is shared from the start, one of which nodes hold blocks, and one that overlaps it.
fn ranges() -> [Value; 3] {
    ["10.40.0.0/27", "10.48.0.0/22", "10.48.0.0/23"]
        .map(|range| json!({"type": "whereabouts", "range": range}))
}

/// A machine with a daemon.
pub(super) struct Node {
    dir: tempfile::TempDir,
    boot: usize,
    name: &'static str,
    pub(super) both: Both,
    /// What it hears of its blocks.
    events: Mutex<Receiver<Value>>,
}

impl Node {
    pub(super) fn new(world: &World, name: &'static str, times: Times) -> Self {
        let dir = disk();
        Self {
            both: start(world, name, &dir, 0, times),
            events: Mutex::new(world.server.watch(name)),
            boot: 0,
            name,
            dir,
        }
    }

    pub(super) fn restart(&mut self, world: &World, times: Times) {
        self.both = start(world, self.name, &self.dir, self.boot, times);
        self.events = Mutex::new(world.server.watch(self.name));
    }

    /// Hears what there is to hear, and does what is due.
    pub(super) fn work(&self) {
        let events = self.events.lock().unwrap();
        for object in events.try_iter() {
            self.both.changed(&object);
        }
        self.both.work();
    }

    /// Does all that is due.
    pub(super) fn work_up(&self) {
        for _ in 0..10 {
            self.work();
        }
    }

    pub(super) fn del(&self, pod: &str, ipam: &Value) {
        let from = Ask::ReleaseFrom(allocation(pod, pod, ipam));
        assert!(is_done(&self.both.serve(&from)));
    }
}

fn start(world: &World, name: &str, dir: &tempfile::TempDir, boot: usize, times: Times) -> Both {
    let boot = boot.to_string();
    let store = Store::open_in_boot(dir.path(), &boot).unwrap();
    let records = Records::open_in_boot(dir.path().join("guest"), &boot).unwrap();
    let guest = Guest::resume(
        Arc::clone(&world.cluster),
        records,
        "kube-system",
        "a",
        times,
    );
    let blocks = Service::resume(Arc::clone(&world.server), store, name, times);
    Services::new(blocks.unwrap(), Some(guest.unwrap()))
}

/// Moves the pools in one direction and the other, until it is over.
fn command(seed: u64, world: &World, turns: &Turns, mut dice: Dice) {
    while !turns.is_over() {
        let report = if dice.choose(2) == 0 {
            ready(mover::adopt(world, MEANT))
        } else {
            ready(mover::give_back(world, MEANT))
        };
        if let Ok(report) = report {
            let mut obstacles = report.obstacles.iter();
            // A node that got no answer looks later whether a pod that has ended has an entry, beside that of the address' next pod.
            let is_transient = |one: &String| {
                one.contains(" is in block ")
                    || (report.done.is_empty() && one.contains("may be ending"))
            };
            assert!(obstacles.all(is_transient), "{report:?} in {seed}");
        }
        turns::take(Next::Pause);
    }
}

struct History<'a> {
    seed: u64,
    world: &'a World,
    nodes: Vec<Node>,
    turns: &'a Turns,
    /// So many operators move pools at the same time.
    commands: usize,
    times: Times,
    /// The address of each pod with its space: the two overlapping ranges have one.
    uses: BTreeMap<(bool, String), (usize, String, usize)>,
}

impl<'a> History<'a> {
    fn new(seed: u64, world: &'a World, turns: &'a Turns, commands: usize) -> Self {
        for node in NODES {
            world.server.add_node(node);
        }
        // A request that was given up on may be made until the end.
        let times = Times {
            settled: Duration::from_hours(1),
            ..TIMES_AT_ONCE
        };
        Self {
            seed,
            nodes: NODES.map(|name| Node::new(world, name, times)).into(),
            world,
            turns,
            commands,
            times,
            uses: BTreeMap::new(),
        }
    }

    fn fates(&self, dice: &mut Dice) {
        let roll = dice.roll(24);
        self.world.cluster.set_fate(roll, dice.choose(3));
        self.world.server.set_fate(roll, dice.choose(3));
    }

    fn add(&mut self, at: usize, pod: &str, range: usize) {
        let ipam = &ranges()[range];
        let added = self.world.add(NODES[at], &self.nodes[at].both, pod, ipam);
        let Ok(address) = added else {
            // The runtime deletes a container that has failed.
            return self.nodes[at].del(pod, ipam);
        };
        let address = address.split('/').next().unwrap();
        let key = (range == 0, address.to_owned());
        let other = self.uses.insert(key, (at, pod.to_owned(), range));
        assert_eq!(other, None, "{address} of {pod} in {}", self.seed);
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
                self.nodes[at].del(&pod, &ranges()[range]);
            }
            11 => self.nodes[at].restart(self.world, self.times),
            12 => {
                self.uses.retain(|_, (on, ..)| *on != at);
                self.nodes[at].boot += 1;
                self.nodes[at].restart(self.world, self.times);
            }
            13 => self.world.land(),
            14..16 => self.nodes[at].work(),
            _ => {
                let fates = [Fate::Lost, Fate::Late, Fate::Away];
                let fate = fates.get(dice.choose(64)).copied();
                let command = dice.choose(self.commands);
                self.turns.go(command, fate.unwrap_or(Fate::Made));
            }
        }
        let conflicts = self.nodes[at].both.take_conflicts();
        assert_eq!(conflicts, 0, "step {step} of {}", self.seed);
    }

    /// Everything that nobody uses is free when the pools are where they were.
    fn end(mut self) {
        self.world.bring_back(&self.nodes, &self.seed);
        for (at, pod, range) in std::mem::take(&mut self.uses).into_values() {
            self.nodes[at].del(&pod, &ranges()[range]);
        }
        self.world.assert_free(&mut self.nodes, &self.seed);
    }
}

impl World {
    /// Makes the writes that were delayed.
    pub(super) fn land(&self) {
        self.cluster.land();
        self.namespaces.land();
        self.server.land();
    }

    /// Makes the writes that were delayed, and moves everything back into pools.
    pub(super) fn bring_back(&self, nodes: &[Node], history: &dyn Display) {
        self.land();
        if self.all_pools().is_empty() {
            return;
        }
        let mut last = None;
        for _ in 0..9 {
            let back = ready(mover::give_back(self, MEANT));
            match back {
                Ok(report) if report.is_done => return,
                // One that was begun ends first.
                Err(MoveError::Adopting) => drop(ready(mover::adopt(self, MEANT))),
                back => last = Some(back),
            }
            nodes.iter().for_each(Node::work_up);
        }
        panic!("{last:?} in {history}");
    }

    /// Fails unless the next daemons find nothing in use.
    pub(super) fn assert_free(&self, nodes: &mut [Node], history: &dyn Display) {
        for node in nodes.iter_mut() {
            node.restart(self, TIMES_AT_ONCE);
            node.work_up();
        }
        assert_eq!(self.cluster.taken(), (vec![], vec![]), "{history}");
        for node in nodes.iter() {
            let left = addresses(&node.both);
            assert_eq!(left, 0, "{history}");
        }
        assert_eq!(self.owners(), [""; 0], "{history}");
    }
}

fn random_histories(seeds: std::ops::Range<u64>, steps: usize) {
    thread::scope(|scope| {
        for seed in seeds {
            scope.spawn(move || {
                let commands = if seed.is_multiple_of(2) { 1 } else { 2 };
                let (world, turns) = (World::new(&[]), Turns::new(commands));
                let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let mut history = History::new(seed, &world, &turns, commands);
                thread::scope(|scope| {
                    let _end = turns.until_dropped();
                    for place in 0..commands {
                        let (world, turns, dice) = (&world, &turns, Dice(dice.roll(u64::MAX)));
                        turns.start(scope, place, move || command(seed, world, turns, dice));
                    }
                    turns.next();
                    for step in 0..steps {
                        history.step(step, &mut dice);
                    }
                });
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
