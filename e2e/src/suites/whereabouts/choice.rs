//! The pools and addresses of generated definitions are those that the functions of whereabouts itself choose.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, ensure};
use ipam::guest::{Definition, Owner, Pool, pool};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{sh, suites::faults::random::Random};

/// How many definitions are compared.
pub(super) const DEFINITIONS: u32 = 5_000;
/// More addresses of a range are not taken.
const TAKEN: u32 = 40;
/// Offsets of limits, exclusions and addresses that are taken are below it.
const NEAR: u32 = 600;

/// What whereabouts chooses, as `choice_test.go` writes it.
#[derive(Debug, Default, Deserialize)]
struct Answer {
    /// Absent where the definition is refused.
    pools: Option<Vec<String>>,
    /// An address with its length for each range; empty where none is free.
    addresses: Option<Vec<String>>,
    refused: String,
}

struct Question {
    ipam: Map<String, Value>,
    /// The addresses of each range that other pods have.
    taken: Vec<Vec<IpAddr>>,
}

/// Compares the choices for definitions that follow from a seed. Returns how many of them both refuse.
pub(super) fn compare(program: &Path, directory: &Path, seed: u64) -> anyhow::Result<usize> {
    let questions: Vec<_> = (0..DEFINITIONS)
        .map(|number| Question::new(&mut Random::new(seed, number)))
        .collect();
    let written: Vec<_> = questions.iter().map(Question::json).collect();
    let (asked, answered) = (directory.join("questions"), directory.join("answers"));
    fs::write(&asked, serde_json::to_vec(&written)?)?;
    let mut command = Command::new(program);
    command.env("QUESTIONS", &asked).env("ANSWERS", &answered);
    sh::run(&mut command)?;
    let answers: Vec<Answer> = serde_json::from_slice(&fs::read(&answered)?)?;
    ensure!(answers.len() == questions.len(), "it answers each question");
    let mut refused = 0;
    for (question, theirs) in questions.iter().zip(answers) {
        refused += usize::from(question.compare(&theirs).with_context(|| {
            let asked = question.json();
            format!("seed {seed}: {asked}\nwhereabouts: {theirs:?}")
        })?);
    }
    Ok(refused)
}

impl Question {
    fn new(random: &mut Random) -> Self {
        let count = 1 + random.below(2);
        let ranges: Vec<_> = (0..count)
            .map(|number| Range::new(random, number))
            .collect();
        let mut ipam = json!({"type": "whereabouts", "kubernetes": {"kubeconfig": "/k"}});
        if random.below(3) == 0 {
            ipam["network_name"] = "blue".into();
        }
        if count == 1 && random.below(2) == 0 {
            let keys = ranges[0].keys.as_object().expect("it is an object").clone();
            ipam.as_object_mut().expect("it is one").extend(keys);
        } else {
            let keys = ranges.iter().map(|range| range.keys.clone());
            ipam["ipRanges"] = keys.collect();
        }
        Self {
            ipam: ipam.as_object().expect("it is an object").clone(),
            taken: ranges.into_iter().map(|range| range.taken).collect(),
        }
    }

    fn json(&self) -> Value {
        let config =
            json!({"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "ipam": self.ipam});
        json!({"config": config, "taken": self.taken})
    }

    /// Returns whether both refuse it, or the addresses of one of its ranges.
    fn compare(&self, theirs: &Answer) -> anyhow::Result<bool> {
        let ours = Definition::parse(&self.ipam);
        let none = Vec::new();
        let addresses = theirs.addresses.as_ref().unwrap_or(&none);
        let gives = theirs.refused.is_empty() && addresses.iter().all(|one| !one.is_empty());
        let ours = match ours {
            Ok(ours) => ours,
            Err(error) => {
                ensure!(!gives, "ours refuses it: {error}");
                return Ok(true);
            }
        };
        ensure!(theirs.refused.is_empty(), "ours accepts it");
        let pools: Vec<_> = ours.pools().collect();
        ensure!(Some(&pools) == theirs.pools.as_ref(), "ours has {pools:?}");
        let mut is_full = false;
        for ((range, taken), theirs) in ours.ranges.iter().zip(&self.taken).zip(addresses) {
            let subnet = range.subnet();
            let mut object = pool::object("kube-system", "pool", subnet);
            object["metadata"]["resourceVersion"] = "1".into();
            for address in taken {
                let offset = subnet.offset(*address).context("it is in the subnet")?;
                object["spec"]["allocations"][offset.to_string()] =
                    json!({"id": "other", "podref": "shop/other", "ifname": "net1"});
            }
            let owner = Owner {
                container: "own".to_owned(),
                pod: "shop/own".to_owned(),
                ifname: "net1".to_owned(),
            };
            let choice = Pool::parse(&object, subnet)?.choose(range, &owner, |_| false);
            let ours = choice.map(|one| format!("{}/{}", one.address, subnet.length()));
            let ours = ours.unwrap_or_default();
            ensure!(ours == *theirs, "ours chooses {ours:?} of {subnet}");
            is_full |= ours.is_empty();
        }
        Ok(is_full)
    }
}

/// A generated range.
struct Range {
    keys: Value,
    taken: Vec<IpAddr>,
}

impl Range {
    /// Those of different numbers do not overlap.
    fn new(random: &mut Random, number: u32) -> Self {
        let (width, base, length) = if random.below(2) == 0 {
            let second = u128::from(number * 128 + random.below(128));
            let length = random.one_of(&[20, 24, 26, 28, 29, 30]);
            (32_u32, 10 << 24 | second << 16, length)
        } else {
            let second = u128::from(number * 256 + random.below(256));
            let length = random.one_of(&[64, 112, 120, 124, 125, 126]);
            (128, 0xfd << 120 | second << 96, length)
        };
        let size = 1_u128 << (width - length);
        let at = |offset: u128| -> IpAddr {
            match u32::try_from(base + offset) {
                Ok(number) => Ipv4Addr::from(number).into(),
                Err(_) => Ipv6Addr::from(base + offset).into(),
            }
        };
        let end = u32::try_from(size).unwrap_or(NEAR).min(NEAR);
        let near = |random: &mut Random| u128::from(random.below(end));
        let subnet = format!("{}/{length}", at(near(random)));
        // Limits that leave only the first or the last address are refused by ours.
        let low = random.below(end - 1);
        let high = low.max(1) + random.below(end - low.max(1));
        let [low, high] = [low, high].map(|offset| at(offset.into()));
        let mut keys = match random.below(4) {
            0 => json!({"range": format!("{low}-{high}/{length}")}),
            1 => json!({"range": subnet, "range_start": low, "range_end": high}),
            2 => json!({"range": subnet, "range_start": low}),
            _ => json!({"range": subnet}),
        };
        let excluded: Vec<_> = (0..random.below(4))
            .map(|_| match random.below(3) {
                0 => at(near(random)).to_string(),
                1 => format!("{}/{width}", at(near(random))),
                _ => format!("{}/{}", at(near(random)), (length + 2).min(width)),
            })
            .collect();
        if !excluded.is_empty() {
            keys["exclude"] = json!(excluded);
        }
        let count = random.below(TAKEN.min(end / 2 + 1));
        let mut taken: Vec<_> = (0..count)
            .map(|number| match random.below(2) {
                0 => u128::from(number),
                _ => near(random),
            })
            .filter(|offset| *offset < size)
            .collect();
        taken.sort_unstable();
        taken.dedup();
        Self {
            keys,
            taken: taken.into_iter().map(at).collect(),
        }
    }
}
