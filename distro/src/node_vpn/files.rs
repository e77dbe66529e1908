//! The files of the VPN on this node, by which the commands of this program know of each other.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use node::root::Root;
use vpn::{
    Facts, Prefix,
    flannel::Note,
    kernel::Netlink,
    life::Store,
    provider::Selection,
    state::{self, LIB_DIR, NET_CONF, NOTE, RECORD, RUN_DIR, Record, STATE, State},
    watch::Watch,
};

use crate::unit::VPN_UNIT;

/// More than any of these files.
const MAX: u64 = 1 << 20;

/// The file that `vpn run` locks.
const LOCK: &str = "run.lock";

/// The directories of the VPN below a root.
#[derive(Debug)]
pub(crate) struct VpnFiles<'a> {
    root: &'a Root,
}

impl<'a> VpnFiles<'a> {
    pub(crate) fn new(root: &'a Root) -> Self {
        Self { root }
    }

    /// Makes the directories, which only root may read, also where others made them.
    pub(crate) fn make_dirs(&self) -> anyhow::Result<()> {
        for dir in [RUN_DIR, LIB_DIR] {
            self.root
                .make_dirs(Path::new(dir).parent().context("it has a parent")?, 0o755)?;
            self.root.make_dirs(dir, 0o700)?;
            let path = self.root.name().join(dir.trim_start_matches('/'));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
                .with_context(|| format!("cannot close {} to others", path.display()))?;
        }
        Ok(())
    }

    /// Returns the directory of what ends with a boot, in the caller's own file tree.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.root.name().join(RUN_DIR.trim_start_matches('/'))
    }

    /// Returns whether the VPN is used on this node.
    pub(crate) fn is_used(&self) -> bool {
        let unit = Path::new("/etc/systemd/system").join(VPN_UNIT);
        self.root.exists(unit) || self.root.exists(run(STATE)) || self.root.exists(lib(RECORD))
    }

    /// Returns the record; an empty one where there is none.
    pub(crate) fn record(&self) -> anyhow::Result<Record> {
        let bytes = self.read(&lib(RECORD))?;
        bytes.map_or_else(
            || Ok(Record::default()),
            |bytes| Ok(state::read_record(&bytes)?),
        )
    }

    /// Returns the state that `vpn run` wrote last.
    pub(crate) fn state(&self) -> anyhow::Result<Option<State>> {
        let bytes = self.read(&run(STATE))?;
        bytes
            .map(|bytes| Ok(state::read_state(&bytes)?))
            .transpose()
    }

    pub(crate) fn write_state(&self, state: &State) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec_pretty(state)?;
        Ok(self.root.write_atomic(run(STATE), &bytes, 0o600)?)
    }

    /// Returns the note of flannel's hook in this boot.
    pub(crate) fn note(&self) -> anyhow::Result<Option<Note>> {
        let bytes = self.read(&run(NOTE))?;
        bytes
            .map(|bytes| {
                serde_json::from_slice(&bytes).with_context(|| format!("cannot read {NOTE}"))
            })
            .transpose()
    }

    pub(crate) fn write_note(&self, note: &Note) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec_pretty(note)?;
        Ok(self.root.write_atomic(run(NOTE), &bytes, 0o600)?)
    }

    /// Writes flannel's configuration, whose path is in the address plan.
    pub(crate) fn write_net_conf(&self, text: &str) -> anyhow::Result<()> {
        Ok(self
            .root
            .write_atomic(lib(NET_CONF), text.as_bytes(), 0o600)?)
    }

    /// Returns the networks of flannel's configuration.
    pub(crate) fn networks(&self) -> anyhow::Result<Vec<Prefix>> {
        let Some(bytes) = self.read(&lib(NET_CONF))? else {
            return Ok(Vec::new());
        };
        let conf: serde_json::Value =
            serde_json::from_slice(&bytes).with_context(|| format!("cannot read {NET_CONF}"))?;
        let networks = ["Network", "IPv6Network"].iter().filter_map(|key| {
            let network: Prefix = conf.get(key)?.as_str()?.parse().ok()?;
            (!network.is_default()).then_some(network)
        });
        Ok(networks.collect())
    }

    /// Keeps other processes from running the VPN as long as the file is open.
    pub(crate) fn lock(&self) -> anyhow::Result<fs::File> {
        let path = self.run_dir().join(LOCK);
        let mut options = fs::OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => {
                bail!("`multus-distro vpn run` runs: systemctl disable --now {VPN_UNIT} first")
            }
            Err(fs::TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }

    /// Returns whether `vpn run` runs.
    pub(crate) fn is_kept(&self) -> bool {
        let file = fs::File::open(self.run_dir().join(LOCK));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
    }

    /// Removes what flannel was told about another VPN, and what it said.
    pub(crate) fn remove_notes(&self) -> anyhow::Result<()> {
        for path in [run(NOTE), lib(NET_CONF)] {
            self.root.remove(path)?;
        }
        Ok(())
    }

    /// Removes all files.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        for path in [run(STATE), run(NOTE), run(LOCK), lib(RECORD), lib(NET_CONF)] {
            self.root.remove(path)?;
        }
        for dir in [RUN_DIR, LIB_DIR] {
            // Fails, as it should, while it holds other files.
            let _ = self.root.remove_dir(dir);
        }
        Ok(())
    }

    /// Waits until `vpn run` has written a state of this VPN, which runs, and not longer than the time.
    pub(crate) fn wait(&self, selection: &Selection, time: Duration) -> anyhow::Result<Facts> {
        self.make_dirs()?;
        let dir = self.run_dir();
        let watch = Watch::new(&dir).with_context(|| format!("cannot watch {}", dir.display()))?;
        let end = Instant::now() + time;
        loop {
            let state = self.state()?;
            let is_other = |state: &State| state.selection != *selection;
            let facts = state
                .as_ref()
                .filter(|state| !is_other(state))
                .and_then(|state| state.node.as_ref());
            // A state of an earlier run may name an interface that is gone.
            if let Some(facts) = facts
                && has_interface(facts)?
            {
                return Ok(facts.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let problem = match state {
                    None => format!("{VPN_UNIT} does not run: systemctl start {VPN_UNIT}"),
                    Some(state) if is_other(&state) => {
                        format!("{VPN_UNIT} runs with other settings: systemctl restart {VPN_UNIT}")
                    }
                    Some(State {
                        problem: Some(problem),
                        ..
                    }) => problem,
                    Some(_) => "no interface has its addresses any more".to_owned(),
                };
                bail!(
                    "the VPN is not up after {} s, and the distro needs its addresses: {problem}; see journalctl -u {VPN_UNIT}",
                    time.as_secs()
                );
            }
            // The interface may come without a new state.
            watch.wait(STATE, left.min(Duration::from_secs(1)))?;
        }
    }

    fn read(&self, path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
        match self.root.read(path, MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Store for VpnFiles<'_> {
    fn save(&mut self, record: &Record) -> std::io::Result<()> {
        let bytes = serde_json::to_vec_pretty(record)?;
        let written = self.root.write_atomic(lib(RECORD), &bytes, 0o600);
        written.map_err(std::io::Error::other)
    }
}

fn run(name: &str) -> PathBuf {
    Path::new(RUN_DIR).join(name)
}

fn lib(name: &str) -> PathBuf {
    Path::new(LIB_DIR).join(name)
}

fn has_interface(facts: &Facts) -> anyhow::Result<bool> {
    let network = Netlink::open()
        .and_then(|mut netlink| netlink.network())
        .context("cannot read the interfaces of this node")?;
    let ipv4 = facts.addresses.ipv4.map(Into::into);
    let addresses: Vec<_> = ipv4
        .into_iter()
        .chain(facts.addresses.ipv6.map(Into::into))
        .collect();
    let mut all = network.addresses.iter();
    Ok(all.any(|(address, index)| {
        let link = network.links.get(index);
        addresses.contains(address) && link.is_some_and(|link| link.name == facts.interface)
    }))
}
