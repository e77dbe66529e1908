//! All orders of the requests of two nodes and of a command that moves the pools, but for those with more changes of turn or more faults than
//! a few. A request that is made is one step, so an address is taken, a pool stamped and a block closed at every place of an ADD.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::super::super::Times;
use super::super::super::guest::tests::TIMES_AT_ONCE;
use super::super::super::tests::turns::{Choices, Turns};
use super::moves::Node;
use super::*;
use crate::range::Subnet;

/// What a thread does.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A pod starts on a node.
    Add(&'static str),
    Del(&'static str),
    Work,
    Adopt,
    Return,
}

use Act::{Add, Adopt, Del, Return, Work};

/// What was done before, and what each thread does: the nodes, and then the command.
struct Case {
    range: &'static str,
    /// Before that, a pod `old` runs on the first node, and `other` on the second one.
    is_adopted: bool,
    acts: [&'static [Act]; 3],
}

const NODES: [&str; 2] = ["a", "b"];
const COMMAND: usize = NODES.len();

/// How much of a history is not as usual.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// So often another thread goes on, though this one could, or late writes are made before the end.
    switches: usize,
    /// So many writes are late, or have no answer.
    faults: usize,
}

struct History<'a> {
    world: World,
    nodes: Vec<Node>,
    ipam: Value,
    subnet: Subnet,
    /// The pods with the addresses that they use.
    uses: Mutex<BTreeMap<String, &'static str>>,
    choices: &'a Mutex<Choices>,
    /// The requests so far, each with its thread and its fate.
    requests: Mutex<Vec<String>>,
}

impl<'a> History<'a> {
    fn new(case: &Case, choices: &'a Mutex<Choices>) -> Self {
        let world = World::new(&NODES);
        // A request that was given up on may be made until the end.
        let times = Times {
            settled: Duration::from_hours(1),
            patience: Duration::from_mins(1),
            ..TIMES_AT_ONCE
        };
        let history = Self {
            nodes: NODES.map(|name| Node::new(&world, name, times)).into(),
            ipam: json!({"type": "whereabouts", "range": case.range}),
            subnet: case.range.parse().unwrap(),
            uses: Mutex::default(),
            world,
            choices,
            requests: Mutex::default(),
        };
        for (place, pod) in ["old", "other"].into_iter().enumerate() {
            history.act(place, Add(pod));
        }
        if case.is_adopted {
            history.act(COMMAND, Adopt);
            for (place, pod) in ["new", "newer"].into_iter().enumerate() {
                history.act(place, Add(pod));
            }
        }
        history
    }

    fn act(&self, place: usize, act: Act) {
        // An ADD may need no request.
        turns::take(Next::Read);
        match act {
            Add(pod) => {
                let both = &self.nodes[place].both;
                match self.world.add(NODES[place], both, pod, &self.ipam) {
                    Ok(address) => {
                        let other = self.uses.lock().unwrap().insert(address, pod);
                        assert_eq!(other, None, "{}", self.description());
                    }
                    // The runtime deletes a container that has failed.
                    Err(_) => self.nodes[place].del(pod, &self.ipam),
                }
            }
            Del(pod) => {
                self.uses.lock().unwrap().retain(|_, user| *user != pod);
                self.nodes[place].del(pod, &self.ipam);
            }
            Work => self.nodes[place].work(),
            Adopt | Return => {
                // A user runs a command again that has failed.
                for _ in 0..3 {
                    let report = if matches!(act, Adopt) {
                        ready(mover::adopt(&self.world, MEANT))
                    } else {
                        ready(mover::give_back(&self.world, MEANT))
                    };
                    if report.is_ok_and(|report| report.is_done) {
                        return;
                    }
                }
            }
        }
    }

    /// Returns the requests of this history, and the choices that lead to it.
    fn description(&self) -> String {
        let choices = self.choices.lock().unwrap().unusual();
        let requests = self.requests.lock().unwrap().join("\n");
        format!("choices {choices:?}:\n{requests}")
    }

    fn note(&self, place: usize, fate: Fate) {
        let (of_pools, of_blocks) = (self.world.cluster.requests(), self.world.server.requests());
        let thread = NODES.get(place).unwrap_or(&"command");
        let made = [of_pools, of_blocks].concat().join(", ");
        let mut requests = self.requests.lock().unwrap();
        requests.push(format!("{thread}: {made} {fate:?}"));
    }

    fn run(&self, case: &Case, bounds: Bounds) {
        let turns = Turns::new(case.acts.len());
        thread::scope(|scope| {
            let _end = turns.until_dropped();
            for (place, acts) in case.acts.iter().enumerate() {
                let all = acts.iter();
                turns.start(scope, place, move || {
                    all.for_each(|act| self.act(place, *act));
                });
            }
            self.schedule(&turns, bounds);
        });
    }

    /// Lets one thread after the other go on, as the choices say.
    fn schedule(&self, turns: &Turns, mut left: Bounds) {
        let mut current = self.choices.lock().unwrap().choose(turns.next().len());
        let mut is_late = false;
        loop {
            let next = turns.next();
            let mut others: Vec<_> = (0..next.len())
                .filter(|at| *at != current && next[*at] != Next::Nothing)
                .collect();
            let goes_on = next[current] != Next::Nothing;
            let waits = next[current] == Next::Pause;
            if !goes_on && others.is_empty() {
                break;
            }
            if waits && others.is_empty() {
                self.nodes.iter().for_each(Node::work);
            } else if goes_on && left.switches == 0 && !waits {
                others.clear();
            }
            // The first option is the usual one: this thread goes on, unless it waits or has ended.
            let first = (goes_on && (!waits || others.is_empty())).then_some((current, Fate::Made));
            let switched = others.iter().map(|at| (*at, Fate::Made));
            let mut options: Vec<_> = first.into_iter().chain(switched).collect();
            let has_fault = left.faults > 0 && next[current] == Next::Write;
            if has_fault {
                options.extend([Fate::Lost, Fate::Late, Fate::Away].map(|fate| (current, fate)));
            }
            let lands = options.len();
            let chosen = {
                let mut choices = self.choices.lock().unwrap();
                choices.choose(lands + usize::from(is_late && left.switches > 0))
            };
            if chosen == lands {
                self.world.land();
                let landed = "late writes are made".to_owned();
                self.requests.lock().unwrap().push(landed);
                is_late = false;
                left.switches -= 1;
                continue;
            }
            let (place, fate) = options[chosen];
            left.faults -= usize::from(fate != Fate::Made);
            left.switches -= usize::from(place != current && first.is_some());
            is_late |= fate == Fate::Late;
            current = place;
            turns.go(place, fate);
            self.note(place, fate);
        }
    }

    /// Every pod has kept its address, and what nobody uses is free.
    fn end(mut self) {
        self.world.bring_back(&self.nodes, &self.description());
        let (entries, reservations) = self.world.cluster.taken();
        for (address, pod) in self.uses.lock().unwrap().iter() {
            let address = address.split('/').next().unwrap();
            let number = self.subnet.offset(address.parse().unwrap()).unwrap();
            let entry = format!("{number} shop/{pod} {pod}");
            let reservation = format!("{address} shop/{pod}");
            let is_there = entries.contains(&entry) && reservations.contains(&reservation);
            assert!(
                is_there,
                "{entry}: {entries:?}, {reservations:?}, {}",
                self.description()
            );
        }
        let pods = self.world.pods.lock().unwrap().clone();
        for (pod, of) in &pods {
            let place = NODES.iter().position(|name| **name == *of.node).unwrap();
            self.nodes[place].del(pod.trim_start_matches("shop/"), &self.ipam);
        }
        let conflicts = self.nodes.iter().map(|node| node.both.take_conflicts());
        assert_eq!(conflicts.sum::<u64>(), 0, "{}", self.description());
        let description = self.description();
        self.world.assert_free(&mut self.nodes, &description);
    }
}

/// Runs all histories of a case. Returns how many there are.
fn explore(case: &Case, bounds: Bounds) -> usize {
    let (choices, mut count) = (Mutex::new(Choices::default()), 0);
    loop {
        let history = History::new(case, &choices);
        history.run(case, bounds);
        history.end();
        count += 1;
        if !choices.lock().unwrap().begin_next() {
            return count;
        }
    }
}

const SHARED: &str = "10.40.0.0/29";
const HELD: &str = "10.40.0.0/23";

/// The cases of a range that is shared from the start, and of one of which nodes hold blocks.
fn cases() -> Vec<Case> {
    let ranges = [SHARED, HELD].into_iter();
    let cases = ranges.flat_map(|range| {
        let case = |is_adopted, acts| Case {
            range,
            is_adopted,
            acts,
        };
        [
            case(false, [&[Add("x"), Del("old")], &[Add("y")], &[Adopt]]),
            case(
                false,
                [&[Del("old"), Add("x")], &[Add("y")], &[Adopt, Return]],
            ),
            case(
                true,
                [&[Del("old"), Add("x")], &[Add("y"), Work], &[Return]],
            ),
            case(
                true,
                [
                    &[Add("x"), Del("new")],
                    &[Del("newer"), Work],
                    &[Return, Adopt],
                ],
            ),
        ]
    });
    cases.collect()
}

fn explore_all(bounds: &[(usize, usize)]) {
    thread::scope(|scope| {
        for (number, case) in cases().into_iter().enumerate() {
            scope.spawn(move || {
                for &(switches, faults) in bounds {
                    let bounds = Bounds { switches, faults };
                    let count = explore(&case, bounds);
                    println!("case {number}, {bounds:?}: {count} histories");
                    assert!(count > 100, "case {number}, {bounds:?}: {count} histories");
                }
            });
        }
    });
}

#[test]
fn requests_of_moved_pools_in_all_orders_with_one_change_of_turn_give_no_address_twice() {
    explore_all(&[(1, 0)]);
}

#[test]
#[ignore = "minutes"]
fn requests_of_moved_pools_in_all_orders_with_more_changes_of_turn_give_no_address_twice() {
    explore_all(&[(0, 1), (2, 0), (1, 1)]);
}
