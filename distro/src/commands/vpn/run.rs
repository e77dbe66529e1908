//! `vpn run`: keeps the VPN of this node up, and the routes to its pods, until it is ended. Its end leaves the VPN as it is.

use std::{
    collections::BTreeSet,
    io,
    os::linux::net::SocketAddrExt as _,
    os::unix::{
        ffi::OsStrExt as _,
        net::{SocketAddr, UnixDatagram},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use cmdline::absolute;
use node::root::Root;
use tokio::signal::unix::{SignalKind, signal};
use vpn::{
    Auth, Prefix, Secret,
    flannel::Note,
    kernel::{Netlink, Network},
    life::{Input, Life, Store as _},
    peers,
    provider::{Guide, KEY_FILE, Login, Pods},
    routes, rule,
    state::{NOTE, Record, State},
    watch::Watch,
};

use super::{
    down::{End, undo},
    note,
};
use crate::{
    node_vpn::{
        auth::{self, AuthArgs},
        files::VpnFiles,
        report::cluster,
    },
    settings,
};

/// The time between two looks at a VPN that runs, and at one that does not.
const PAUSE: Duration = Duration::from_secs(10);
const SHORT_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  multus-distro vpn run --vpn-auth-file /etc/multus-vpn.auth\n\n`multus-distro install --vpn-auth-file FILE` makes a systemd unit of it."
)]
pub(crate) struct Args {
    #[command(flatten)]
    auth: AuthArgs,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let files = VpnFiles::new(&root);
    files.make_dirs()?;
    let _lock = files.lock()?;
    let taken = auth::take(&args.auth, settings::variable);
    if let Err(error) = &taken {
        // The distro that waits for the VPN reports this.
        files.write_state(&State::missing(format!("{error:#}")))?;
    }
    let taken = taken?;
    let notes = taken.iter().flat_map(|taken| &taken.notes);
    notes.for_each(|text| note(text));
    keep_up(&root, &files, taken.as_ref().map(|taken| &taken.auth))
}

fn keep_up(root: &Root, files: &VpnFiles<'_>, auth: Option<&Auth>) -> anyhow::Result<()> {
    let configured = configured_routes(auth)?;
    let run_dir = files.run_dir();
    end_at_signals(&run_dir.join(KEY_FILE))?;
    let watch =
        Watch::new(&run_dir).with_context(|| format!("cannot watch {}", run_dir.display()))?;
    let record = record_of(root, files, auth)?;
    let guide = record.selection.guide();
    let pods = record.selection.pods;
    let provider = record.selection.on_this_node(&run_dir);
    let mut life = Life::new(provider, VpnFiles::new(root), record);
    let login = login(auth);
    let cluster = cluster(root, files)?;
    let network = || Netlink::open()?.network();
    // With another root the kernel's rules are not those of the node.
    let is_this_node = root.name() == Path::new("/");
    let mut former: Option<State> = None;
    let mut log = Log::default();
    loop {
        let flannel = files.note().unwrap_or_else(|error| {
            note(&format!("{error:#}: restart the distro"));
            None
        });
        if is_this_node
            && guide.has_table
            && former.as_ref().is_none_or(|former| former.node.is_none())
        {
            // The look that finds the VPN up reports it.
            let _ = add_rules(guide, flannel.as_ref(), &cluster);
        }
        let mut state = life.step(&Input {
            now: Instant::now(),
            login: &login,
            configured: &configured,
            leaves_sources: leaves_sources(guide, auth),
            note: flannel.as_ref(),
            cluster: &cluster,
            network: &network,
        });
        if is_this_node {
            set_kernel(&mut state, flannel.as_ref(), pods);
        }
        let lines = log.lines(former.as_ref(), &state, life.take_events());
        // The state is written first, so that a reader of a line finds it.
        if former.as_ref() != Some(&state) {
            files.write_state(&state)?;
            notify(&state);
        }
        for line in lines {
            note(&line);
        }
        let pause = if state.node.is_some() {
            PAUSE
        } else {
            SHORT_PAUSE
        };
        former = Some(state);
        watch.wait(NOTE, pause)?;
    }
}

/// Returns the record of the VPN that the settings select. A record of another one is undone first.
fn record_of(root: &Root, files: &VpnFiles<'_>, auth: Option<&Auth>) -> anyhow::Result<Record> {
    let former = files.record()?;
    let Some(selection) = auth.map(|auth| auth.selection.clone()) else {
        return Ok(former);
    };
    if former.selection == selection {
        return Ok(former);
    }
    let record = Record::of(selection);
    if former != Record::of(former.selection.clone()) {
        note(&format!(
            "the settings name {}, and {} was used before: what was done to it is undone",
            record.selection.guide().program,
            former.selection.guide().program
        ));
        undo(root, former, End::Routes)?;
    }
    files.remove_notes()?;
    VpnFiles::new(root).save(&record)?;
    Ok(record)
}

fn login(auth: Option<&Auth>) -> Login<'_> {
    let Some(auth) = auth else {
        return Login::default();
    };
    Login {
        key: auth.key.as_ref().filter(|key: &&Secret| !key.is_empty()),
        control_server: auth.control_server.as_deref(),
        extra_args: &auth.extra_args,
    }
}

fn configured_routes(auth: Option<&Auth>) -> anyhow::Result<Vec<Prefix>> {
    let routes = auth.iter().flat_map(|auth| &auth.advertise_routes);
    Ok(routes
        .map(|route| route.parse())
        .collect::<Result<_, _>>()?)
}

fn leaves_sources(guide: &Guide, auth: Option<&Auth>) -> bool {
    let mut args = auth.iter().flat_map(|auth| &auth.extra_args);
    args.any(|arg| {
        arg.trim_start_matches('-')
            .starts_with(guide.sources_argument)
    })
}

/// Keeps the kernel's rules and routes as the state wants them. One that cannot be set is reported, and tried again at the next look.
fn set_kernel(state: &mut State, flannel: Option<&Note>, pods: Pods) {
    let mut kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(error) => {
            let text = format!("cannot read the routes of this node: {error}");
            state.notes.push(text);
            return;
        }
    };
    // The packets that flannel has wrapped are not for pods.
    let networks = flannel.filter(|_| pods != Pods::Vxlan);
    let barriers = networks.map_or(&[][..], |note| &note.networks);
    if let Err(error) = kernel.change_barriers(barriers) {
        state.notes.push(format!(
            "cannot keep packets for pods of other nodes on this node while the VPN is away: {error}"
        ));
    }
    let Some(node) = &state.node else { return };
    let lan = state.lan.iter().copied().collect();
    if let Err(error) = kernel.change_rules(&lan) {
        state.notes.push(format!(
            "cannot set a rule that keeps the LAN out of the VPN: {error}; the kernel needs policy routing (CONFIG_IP_MULTIPLE_TABLES)"
        ));
    }
    if let Err(error) = kernel.change_routes(Some(&node.interface), &state.pods) {
        state.notes.push(format!(
            "cannot set a route to pods of other nodes: {error}"
        ));
    }
}

/// The kernel's rules and routes, which are read once and changed until they are as wanted.
pub(super) struct Kernel {
    netlink: Netlink,
    network: Network,
}

impl Kernel {
    pub(super) fn open() -> io::Result<Self> {
        let mut netlink = Netlink::open()?;
        let network = netlink.network()?;
        Ok(Self { netlink, network })
    }

    /// Adds and deletes rules of this program, until they are those of the ranges.
    pub(super) fn change_rules(&mut self, wanted: &BTreeSet<Prefix>) -> io::Result<()> {
        let (add, delete) = rule::change(&self.network.rules, wanted);
        let (mut add, mut delete) = (add.iter(), delete.iter());
        // New rules come first, so that no range is without one.
        let added = add.try_for_each(|rule| self.netlink.add_rule(rule));
        let deleted = delete.try_for_each(|rule| self.netlink.delete_rule(rule));
        added.and(deleted)
    }

    /// Adds and deletes routes of this program, until they are these.
    pub(super) fn change_routes(
        &mut self,
        interface: Option<&str>,
        wanted: &[Prefix],
    ) -> io::Result<()> {
        let link = interface.and_then(|name| self.network.link_named(name));
        let (add, delete) = peers::change_routes(&self.network, link, wanted);
        let delete = delete
            .iter()
            .try_for_each(|route| self.netlink.delete_route(route));
        let add = link.map_or(Ok(()), |link| {
            let mut add = add.iter();
            add.try_for_each(|range| self.netlink.add_route(*range, link))
        });
        delete.and(add)
    }

    /// Makes exactly these ranges unreachable but for more specific routes, so that packets for pods do not leave by the default route while
    /// no other one leads to them, as without the tunnel.
    pub(super) fn change_barriers(&mut self, wanted: &[Prefix]) -> io::Result<()> {
        let present = &self.network.barriers;
        let mut add = routes::without(wanted, present).into_iter();
        let mut delete = routes::without(present, wanted).into_iter();
        let added = add.try_for_each(|range| self.netlink.add_barrier(range));
        let deleted = delete.try_for_each(|range| self.netlink.delete_barrier(range));
        added.and(deleted)
    }
}

/// Adds the rules of the LAN that are known before the VPN runs: it may come up at any moment, with routes of others. None is deleted,
/// since those of the last look may be needed then.
fn add_rules(guide: &Guide, flannel: Option<&Note>, cluster: &[Prefix]) -> io::Result<()> {
    let Kernel {
        mut netlink,
        network,
    } = Kernel::open()?;
    let (pods, own) = match flannel {
        Some(note) => (note.networks.clone(), note.subnets.clone()),
        None => (cluster.to_vec(), Vec::new()),
    };
    let wanted = rule::before_the_vpn(&network, guide.ranges(), pods, own);
    let (add, _) = rule::change(&network.rules, &wanted);
    add.iter().try_for_each(|rule| netlink.add_rule(rule))
}

/// The lines that were printed and still hold, so that none is repeated.
#[derive(Default)]
struct Log(BTreeSet<String>);

impl Log {
    /// Returns the lines for what has happened since the former state.
    fn lines(&mut self, former: Option<&State>, state: &State, events: Vec<String>) -> Vec<String> {
        let mut lines = Vec::new();
        let former_node = former.and_then(|former| former.node.as_ref());
        if let Some(facts) = state
            .node
            .as_ref()
            .filter(|node| former_node != Some(*node))
        {
            lines.push(format!(
                "the VPN is up: {} on {}, MTU {}",
                facts.addresses, facts.interface, facts.mtu
            ));
            self.0.clear();
        }
        lines.extend(events);
        if former.is_some_and(|former| !former.pending.is_empty()) && state.pending.is_empty() {
            lines.push("all subnets of this node's pods are approved".to_owned());
        }
        if state.node.is_some() {
            // A line that holds no more is printed again when it comes back.
            self.0.retain(|text| state.notes.contains(text));
        }
        for text in state.problem.iter().chain(&state.notes) {
            if self.0.insert(text.clone()) {
                lines.push(text.clone());
            }
        }
        lines
    }
}

/// Tells systemd that the unit has started, and what it does.
fn notify(state: &State) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(Path::new(&path)),
    };
    let status = state.problem.as_deref().unwrap_or("the VPN is up");
    let text = format!("READY=1\nSTATUS={status}");
    // systemd is not part of the VPN: without it all goes on.
    let _ = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address));
}

/// Ends the process at SIGTERM and SIGINT, also while a child runs, and leaves no key behind.
fn end_at_signals(key_file: &Path) -> anyhow::Result<()> {
    // One may be left of a process that was killed.
    let _ = std::fs::remove_file(key_file);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let entered = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    drop(entered);
    let key_file = key_file.to_owned();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            });
            let _ = std::fs::remove_file(&key_file);
            std::process::exit(0);
        })
        .context("cannot start a thread")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use vpn::Facts;

    use super::*;

    #[test]
    fn line_is_printed_once_while_it_holds_and_again_when_it_comes_back() {
        let running = |notes: &[&str]| {
            let mut state = State::running(&Facts {
                interface: "ts7".to_owned(),
                addresses: [std::net::IpAddr::from([100, 64, 0, 1])]
                    .into_iter()
                    .collect(),
                dns_name: None,
                mtu: 1280,
                ranges: Vec::new(),
            });
            state.notes = notes.iter().map(|&text| text.to_owned()).collect();
            state
        };
        let up = "the VPN is up: 100.64.0.1 on ts7, MTU 1280";
        let down = || State::missing("refused");
        let mut log = Log::default();
        let mut former = None;
        for (state, events, expected) in [
            (down(), &[][..], &["refused"][..]),
            (State::missing("starting"), &[], &["starting"]),
            // The next attempt is refused, too.
            (down(), &[], &[]),
            (running(&["away"]), &["renamed"], &[up, "renamed", "away"]),
            (running(&["away"]), &["wiped"], &["wiped"]),
            (running(&["away"]), &["wiped"], &["wiped"]),
            (running(&[]), &[], &[]),
            (running(&["away", "lan"]), &[], &["away", "lan"]),
            (down(), &[], &["refused"]),
            (running(&["lan"]), &[], &[up, "lan"]),
        ] {
            let events = events.iter().map(|&text: &&str| text.to_owned()).collect();
            let lines = log.lines(former.as_ref(), &state, events);
            assert_eq!(lines, expected, "{state:?}");
            former = Some(state);
        }
    }
}
