//! The uses of addresses, each with its pod and its time. Blocks, records of nodes and the API play no part in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anyhow::{Context as _, ensure};

/// A use of an address: it begins when the answer has come, and ends before the DEL is sent or when the machine loses its power.
#[derive(Debug, Clone)]
pub(super) struct Use {
    network: &'static str,
    address: String,
    node: String,
    pod: String,
    begin: Instant,
    end: Option<Instant>,
}

#[derive(Debug, Default)]
struct Events {
    uses: Vec<Use>,
    /// Why requests have failed, and how many.
    failed: BTreeMap<String, usize>,
    /// How often a node has lost its power.
    boots: BTreeMap<String, u32>,
    /// The node of each pod that has asked for an address of a pool.
    of_pools: BTreeMap<String, String>,
    /// The nodes that came back with an older disk.
    older: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct History(Mutex<Events>);

impl History {
    /// Returns the number of the node's boot.
    pub(super) fn boot(&self, node: &str) -> u32 {
        self.lock().boots.get(node).copied().unwrap_or_default()
    }

    /// A pod of a node got an address. Returns false when the machine has lost its power since `boot`, which has ended the use.
    pub(super) fn begin(
        &self,
        network: &'static str,
        address: &str,
        node: &str,
        boot: u32,
        pod: &str,
    ) -> bool {
        let mut events = self.lock();
        if events.boots.get(node).copied().unwrap_or_default() != boot {
            return false;
        }
        events.uses.push(Use {
            network,
            address: address.to_owned(),
            node: node.to_owned(),
            pod: pod.to_owned(),
            begin: Instant::now(),
            end: None,
        });
        true
    }

    /// A pod of a node is about to ask for an address of a pool.
    pub(super) fn asks_pool(&self, node: &str, pod: &str) {
        let mut events = self.lock();
        events.of_pools.insert(pod.to_owned(), node.to_owned());
    }

    pub(super) fn comes_back_older(&self, node: &str) {
        self.lock().older.insert(node.to_owned());
    }

    /// Returns the node of a pod whose end an older disk may have lost; fails for a node whose disk was always its own.
    pub(super) fn node_that_lost(&self, pod: &str) -> anyhow::Result<String> {
        let events = self.lock();
        let node = events.of_pools.get(pod);
        let node = node.with_context(|| format!("pod {pod} has never asked for an address"))?;
        ensure!(
            events.older.contains(node),
            "node {node} has lost no disk, and the address of pod {pod} is not free"
        );
        Ok(node.clone())
    }

    pub(super) fn failed(&self, reason: &str) {
        *self.lock().failed.entry(reason.to_owned()).or_default() += 1;
    }

    /// A pod is about to be deleted.
    pub(super) fn end(&self, node: &str, pod: &str) {
        let mut events = self.lock();
        let open = events.uses.iter_mut().rev();
        let mut open = open.filter(|one| one.end.is_none() && one.node == node && one.pod == pod);
        if let Some(one) = open.next() {
            one.end = Some(Instant::now());
        }
    }

    /// A machine has lost its power.
    pub(super) fn power_cut(&self, node: &str) {
        let mut events = self.lock();
        *events.boots.entry(node.to_owned()).or_default() += 1;
        let now = Instant::now();
        for one in &mut events.uses {
            if one.node == node && one.end.is_none() {
                one.end = Some(now);
            }
        }
    }

    /// Returns how many addresses were given.
    pub(super) fn given(&self) -> usize {
        self.lock().uses.len()
    }

    /// Returns how many addresses were given, and why requests have failed, the most frequent reason first.
    pub(super) fn counts(&self) -> (usize, Vec<(String, usize)>) {
        let events = self.lock();
        let failed = events.failed.clone().into_iter();
        let mut failed: Vec<_> = failed.collect();
        failed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        (events.uses.len(), failed)
    }

    /// Fails when two uses of one address overlap.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let twice = self.twice();
        ensure!(twice.is_empty(), "an address was used twice: {twice:#?}");
        Ok(())
    }

    /// Returns the pairs of uses of one address that overlap.
    pub(super) fn twice(&self) -> Vec<[Use; 2]> {
        let mut uses = self.lock().uses.clone();
        uses.sort_by(|one, other| {
            let key = |one: &Use| (one.network, one.address.clone(), one.begin);
            key(one).cmp(&key(other))
        });
        let pairs = uses.windows(2).filter_map(|pair| match pair {
            [one, other]
                if one.network == other.network
                    && one.address == other.address
                    && one.end.is_none_or(|end| end > other.begin) =>
            {
                Some([one.clone(), other.clone()])
            }
            _ => None,
        });
        pairs.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_that_overlap_are_found() {
        let history = History::default();
        assert!(history.begin("small", "10.0.0.2", "n1", 0, "a"));
        history.end("n1", "a");
        assert!(history.begin("small", "10.0.0.2", "n2", 0, "b"));
        assert!(history.begin("large", "10.0.0.2", "n1", 0, "c"));
        history.check().unwrap();
        history.power_cut("n2");
        assert!(!history.begin("small", "10.0.0.9", "n2", 0, "late"));
        assert!(history.begin("small", "10.0.0.2", "n2", 1, "d"));
        history.check().unwrap();
        assert!(history.begin("small", "10.0.0.2", "n1", 0, "e"));
        let error = history.check().unwrap_err().to_string();
        assert!(
            error.contains("10.0.0.2") && error.contains("\"d\""),
            "{error}"
        );
    }
}
