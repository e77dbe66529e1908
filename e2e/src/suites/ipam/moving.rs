//! Pools of whereabouts become addresses of blocks, and pools again, on a real API server, while pods come and go.

use std::{
    collections::{BTreeSet, VecDeque},
    ffi::OsString,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use serde_json::{Value, json};

use super::{
    CLEAN_WITHIN, add, fails,
    fleet::{self, Fleet},
    give, guest, until_free_within,
};
use crate::{
    control_plane::objects,
    pool,
    report::{CheckFailed, Report, say},
    sh,
    test_env::TestEnv,
};

/// How many pods each node has when the pools are moved, or in the long form all nodes together.
const PODS: usize = 40;
const LONG_PODS: usize = 10_000;
/// Between how many ranges further pods are divided.
const MANY: usize = 40;
/// A pod waits no longer while pools are adopted.
const MOST_WAIT: Duration = Duration::from_secs(5);
/// An adoption of so many addresses takes no longer, and neither does their return.
const MOST_MOVE: Duration = Duration::from_secs(30);
/// How often a pod starts meanwhile in the cluster, which leaves this machine time for the control plane.
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// So many addresses are given while nothing is moved: what a pod waits then, it waits for the machine.
const BEFORE: usize = 400;
/// So many addresses of pools all nodes together free at least in a second.
const FREED_A_SECOND: u64 = 20;
/// How many pods of each node come and go.
const NAMES: usize = 4;

/// The range of pods that come and go, ranges that overlap, and a definition whose addresses have no reservations.
fn ranges() -> [Value; 4] {
    [
        json!({"type": "whereabouts", "range": "10.48.0.0/20"}),
        json!({"type": "whereabouts", "range": "10.44.0.0/18"}),
        json!({"type": "whereabouts", "range": "10.44.0.0/19", "exclude": ["10.44.0.0/26"]}),
        json!({"type": "whereabouts", "range": "10.44.0.0/20", "enable_overlapping_ranges": false}),
    ]
}

/// One of those ranges for the first pods of a node. Further ones have ranges of one kind: whoever takes an address writes the whole pool.
fn range(at: usize) -> Value {
    if at < PODS {
        return ranges()[at % ranges().len()].clone();
    }
    json!({"type": "whereabouts", "range": format!("10.60.{}.0/24", at % MANY)})
}

pub(super) fn run(
    env: &TestEnv,
    fleet: &Fleet,
    is_long: bool,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let nodes = u32::try_from(fleet.members.len()).expect("a handful");
    let (count, pause) = if is_long {
        (LONG_PODS / fleet.members.len(), LONG_PAUSE * nodes)
    } else {
        (PODS, Duration::ZERO)
    };
    let moving = Moving {
        env,
        fleet,
        count,
        pause,
    };
    let before = report.check("pods of all nodes have addresses of pools", || {
        if is_long {
            moving.define()?;
        }
        moving.fill()
    })?;
    report.check("pods of pools come and go", || moving.nothing_moves())?;
    report.check("pools are adopted while pods come and go", || {
        moving.during("adopt", |_| moving.adopt(&before))
    })?;
    report.check(
        "the program of whereabouts gives no address meanwhile",
        || moving.is_refused(),
    )?;
    report.check("pools are given back while pods come and go", || {
        moving.during("return", |_| moving.give_back(&before))
    })?;
    report.check("nothing is left of the pods of pools", || {
        for (member, pod) in &before {
            fleet.members[*member].del(pod)?;
        }
        // A DEL is answered before the address is free: a node frees the addresses of its pods one after the other.
        until_free_within(fleet, CLEAN_WITHIN + before.len() as u64 / FREED_A_SECOND)
    })
}

struct Moving<'a> {
    env: &'a TestEnv,
    fleet: &'a Fleet,
    /// How many pods each node has.
    count: usize,
    /// The least time between the starts of two pods that come and go on a node; without one they follow each other at once.
    pause: Duration,
}

/// How long a pod has waited for its address, and how long after the move began.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    lasted: Duration,
    began: Duration,
}

/// The node and the name of a pod.
type Pods = Vec<(usize, String)>;

impl Moving<'_> {
    /// Makes a definition of each range that pods have. Without them reservations say where the addresses get.
    fn define(&self) -> anyhow::Result<()> {
        let ranges: BTreeSet<_> = (0..self.count).map(|at| range(at).to_string()).collect();
        let definitions = ranges.iter().enumerate().map(|(number, ipam)| {
            let ipam: Value = serde_json::from_str(ipam)?;
            let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": ipam});
            Ok(objects::network(&format!("pool-{number}"), &config))
        });
        let definitions: Vec<_> = definitions.collect::<anyhow::Result<_>>()?;
        self.fleet.control.apply(&self.fleet.server, &definitions)
    }

    /// Makes pods, and takes their addresses on all nodes at once.
    fn fill(&self) -> anyhow::Result<Pods> {
        let mut pods = Vec::new();
        for (number, member) in self.fleet.members.iter().enumerate() {
            let names = (0..self.count).map(|at| format!("pool-{number}-{at}"));
            let names: Vec<_> = names.collect();
            let goes = (0..NAMES).map(|at| going(number, at));
            let all = names.iter().cloned().chain(goes);
            let objects = all.map(|pod| objects::pod(&pod, &member.node.name, None));
            let objects: Vec<_> = objects.collect();
            self.fleet.control.apply(&self.fleet.server, &objects)?;
            pods.extend(names.into_iter().map(|name| (number, name)));
        }
        pool::at_once(0..self.fleet.members.len(), |number| {
            let mut own = pods.iter().filter(|(on, _)| *on == number).enumerate();
            own.try_for_each(|(at, (_, pod))| {
                add(&self.fleet.members[number], pod, &range(at)).map(drop)
            })
        })?;
        Ok(pods)
    }

    /// Moves the pools while pods of each node come and go, which never get an address that another one has.
    fn during(
        &self,
        verb: &str,
        moving: impl FnOnce(&AtomicUsize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let records = self.staying()?;
        let used = records
            .iter()
            .filter(|record| record["uses"][0]["reserved"] == true);
        let used = used.filter_map(|record| record["uses"][0]["addresses"][0].as_str());
        let used = Mutex::new(used.map(str::to_owned).collect::<BTreeSet<_>>());
        let (is_over, longest) = (AtomicBool::new(false), Mutex::new(Wait::default()));
        let given = AtomicUsize::new(0);
        let begin = Instant::now();
        let outcome = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.fleet.members.len())
                .map(|number| {
                    let (used, is_over, given, longest) = (&used, &is_over, &given, &longest);
                    scope.spawn(move || {
                        self.come_and_go(number, used, is_over, given, (begin, longest))
                    })
                })
                .collect();
            let outcome = moving(&given);
            is_over.store(true, Ordering::Relaxed);
            workers.into_iter().try_for_each(pool::joined)?;
            anyhow::Ok(outcome)
        })?;
        let longest = longest.into_inner().expect("no thread panics");
        say(&format!(
            "        {verb}: {} addresses meanwhile in {:.1} s, each within {} ms; that pod began after {:.1} s",
            given.into_inner(),
            begin.elapsed().as_secs_f64(),
            longest.lasted.as_millis(),
            longest.began.as_secs_f64()
        ));
        outcome?;
        ensure!(
            longest.lasted < MOST_WAIT + Duration::from_secs(1),
            "a pod has waited for {:?}",
            longest.lasted
        );
        Ok(())
    }

    fn come_and_go(
        &self,
        number: usize,
        used: &Mutex<BTreeSet<String>>,
        is_over: &AtomicBool,
        all: &AtomicUsize,
        (begin, longest): (Instant, &Mutex<Wait>),
    ) -> anyhow::Result<()> {
        let member = &self.fleet.members[number];
        let [common, ..] = ranges();
        let mut here = VecDeque::new();
        let (mut given, mut last) = (0, Instant::now());
        let leave = |(container, address): (String, String)| {
            used.lock().expect("no thread panics").remove(&address);
            member.del_container(&container)
        };
        while !is_over.load(Ordering::Relaxed) {
            let pod = going(number, given % NAMES);
            let mut allocation = fleet::allocation(&pod, &common)?;
            let container = format!("container-{pod}-{given}");
            allocation.attachment.container.clone_from(&container);
            thread::sleep(self.pause.saturating_sub(last.elapsed()));
            let start = Instant::now();
            last = start;
            let added = give(member, allocation);
            let wait = Wait {
                lasted: start.elapsed(),
                began: start - begin,
            };
            let mut longest = longest.lock().expect("no thread panics");
            *longest = wait.max(*longest);
            drop(longest);
            // As the runtime does: a container that has failed is deleted, and the next one tried.
            let Ok(address) = added else {
                member.del_container(&container)?;
                continue;
            };
            let address = address.split('/').next().unwrap_or_default().to_owned();
            let is_new = used
                .lock()
                .expect("no thread panics")
                .insert(address.clone());
            ensure!(is_new, "{address} was given twice");
            given += 1;
            all.fetch_add(1, Ordering::Relaxed);
            here.push_back((container, address));
            if here.len() == NAMES {
                here.pop_front().map_or(Ok(()), leave)?;
            }
        }
        here.into_iter().try_for_each(leave)
    }

    /// Lets pods of pools come and go as they do during a move.
    fn nothing_moves(&self) -> anyhow::Result<()> {
        self.during("nothing", |given| {
            sh::until(120, "pods have come and gone", || {
                let given = given.load(Ordering::Relaxed);
                ensure!(given >= BEFORE, "{given} addresses of {BEFORE}");
                Ok(())
            })
        })
    }

    /// Returns the records of the pods that stay.
    fn staying(&self) -> anyhow::Result<Vec<Value>> {
        let mut all = Vec::new();
        for member in &self.fleet.members {
            let records = member.documents("whereabouts")?.into_iter();
            all.extend(records.filter(|record| {
                let container = record["container"].as_str().unwrap_or_default();
                record["state"] == "given" && container.starts_with("container-pool-")
            }));
        }
        Ok(all)
    }

    /// Returns the addresses of these pods.
    fn addresses(&self) -> anyhow::Result<Vec<String>> {
        let records = self.staying()?.into_iter();
        let addresses = records.map(|record| {
            let one = &record["uses"][0];
            format!("{} {}", record["container"], one["addresses"])
        });
        Ok(addresses.collect())
    }

    /// Returns the arguments of kubectl-multus.
    fn arguments(&self, verb: &str) -> Vec<OsString> {
        let words = format!("ipam {verb} whereabouts --yes --output=json --kubeconfig");
        let words = words.split(' ').map(OsString::from);
        words.chain([self.fleet.control.admin().into()]).collect()
    }

    /// Runs the command, prints when its steps began and how long it has taken, and returns its answer.
    fn run(&self, verb: &str) -> anyhow::Result<Value> {
        let start = Instant::now();
        let program = self.env.program("kubectl-multus");
        let mut command = self.fleet.server.command(program);
        let output = sh::output(command.args(self.arguments(verb)), b"")?;
        let [steps, answer] = [output.stderr, output.stdout].map(String::from_utf8);
        let (steps, answer) = (steps?, answer?);
        ensure!(output.status.success(), "{verb}: {steps}{answer}");
        steps
            .lines()
            .for_each(|step| say(&format!("        {verb}: {step}")));
        let took = start.elapsed();
        say(&format!(
            "        {verb}: {:.1} s in all",
            took.as_secs_f64()
        ));
        ensure!(took < MOST_MOVE, "{verb} has taken {took:?}");
        Ok(serde_json::from_str(&answer)?)
    }

    /// Runs the command and kills it after a moment.
    fn interrupt(&self, verb: &str, after: Duration) -> anyhow::Result<()> {
        let program = self.env.program("kubectl-multus");
        let server = &self.fleet.server;
        let name = format!("{verb}-interrupted");
        let service = server.serve(&name, program, |command| command.args(self.arguments(verb)))?;
        // The moment at which it is killed is the case.
        thread::sleep(after);
        server.end(&service, "KILL")
    }

    fn adopt(&self, pods: &Pods) -> anyhow::Result<()> {
        let (before, pools) = (self.addresses()?, self.fleet.pools()?.0);
        for milliseconds in [150, 300] {
            self.interrupt("adopt", Duration::from_millis(milliseconds))?;
        }
        let answer = self.run("adopt")?;
        say(&format!(
            "        {} addresses of {} pools",
            pools.len(),
            answer["pools"]
        ));
        ensure!(self.addresses()? == before, "an address has changed");
        let blocks = self.fleet.blocks()?;
        let slots = blocks
            .iter()
            .filter_map(|block| block["spec"]["slots"].as_array());
        let adopted = slots.flatten().filter(|slot| {
            let owner = slot["owner"].as_str().unwrap_or_default();
            owner.starts_with("pool/container-pool-")
        });
        ensure!(adopted.count() == pods.len(), "not all pods are in blocks");
        Ok(())
    }

    fn is_refused(&self) -> anyhow::Result<()> {
        let member = &self.fleet.members[0];
        let [common, ..] = ranges();
        let config = json!({"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "ipam": guest::with_flat_file(common)});
        let added = member.whereabouts(&self.fleet.reference, "ADD", "refused", &config);
        fails(added, "the addresses of all pools are in blocks")
    }

    fn give_back(&self, pods: &Pods) -> anyhow::Result<()> {
        let before = self.addresses()?;
        for milliseconds in [150, 1000] {
            self.interrupt("return", Duration::from_millis(milliseconds))?;
        }
        self.run("return")?;
        ensure!(self.addresses()? == before, "an address has changed");
        let (taken, reservations) = self.fleet.pools()?;
        for (_, pod) in pods {
            let name = format!("default/{pod}");
            let entries = taken.iter().filter(|one| one.ends_with(&name)).count();
            ensure!(entries == 1, "{pod} has {entries} entries");
        }
        let unreserved = pods.len() / ranges().len();
        ensure!(
            reservations.len() >= pods.len() - unreserved - NAMES,
            "{} reservations of {} pods",
            reservations.len(),
            pods.len()
        );
        let blocks = self.fleet.blocks()?;
        let closed = blocks.iter().filter(|one| one["spec"]["mode"] == "closed");
        let closed = closed.count();
        ensure!(closed == 0, "{closed} closed blocks are left");
        Ok(())
    }
}

fn going(number: usize, at: usize) -> String {
    format!("goes-{number}-{at}")
}
