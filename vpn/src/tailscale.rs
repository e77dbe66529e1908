//! The provider tailscale: the arguments of its program, and the parts of its output that count here.
//!
//! A second `tailscale up` fails unless it repeats every flag that differs from its default, so [`up_args`] repeats them.
//! `tailscale set` changes one setting and needs no repetition.

use std::{
    fs,
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use cni::process::RunError;
use serde::Deserialize;

use crate::{
    Prefix, Secret,
    auth::same_server,
    program::{Output, run_program},
    provider::{Guide, KEY_FILE, Login, Peer, Phase, Provider, ProviderError, Settings, Status},
};

const PROGRAM: &str = "tailscale";
const UNIT: &str = "tailscaled.service";
/// What is said about tailscale. headscale gives its nodes addresses of the same ranges.
pub const GUIDE: Guide = Guide {
    program: PROGRAM,
    daemon: "tailscaled",
    unit: UNIT,
    ranges: &["100.64.0.0/10", "fd7a:115c:a1e0::/48"],
    has_table: true,
    domains: &["ts.net"],
    up: "tailscale up",
    down: "tailscale down",
    log_in_again: "tailscale up --force-reauth",
    log_out: "tailscale logout",
    accept_routes: "tailscale set --accept-routes",
    filter_packets: "tailscale set --netfilter-mode=on",
    accept_connections: "tailscale set --shields-up=false",
    leave_exit_node: "tailscale set --exit-node=",
    refuse_dns: "tailscale set --accept-dns=false",
    keep_sources: "tailscale set --snat-subnet-routes=false",
    ping: "tailscale ping",
    no_interface_flag: "--tun=userspace-networking",
    port: "UDP port 41641",
    sources_argument: "snat-subnet-routes",
    cure,
    outdated,
    policy,
    reach_lan,
    ..Guide::PLAIN
};
/// The control server unless one is set.
const DEFAULT_CONTROL_SERVER: &str = "https://controlplane.tailscale.com";

/// The beginning of the error of a `tailscale up` whose own deadline is over; the daemon goes on with its login.
const UP_TIMEOUT: &str = "timeout waiting for";
/// What stands in the daemon's warning before the reason why it is not logged in.
const LOGIN_ERROR: &str = "You are logged out. The last login error was: ";
/// Words of reasons that are not an answer of a control server.
const UNREACHED: [&str; 9] = [
    "dial ",
    "lookup ",
    "no such host",
    "timeout",
    "timed out",
    "deadline exceeded",
    "fetch control key",
    "connection re",
    "unreachable",
];
/// The time in which another node shall answer a ping, which is the program's own option.
const PING: Duration = Duration::from_secs(5);
/// The deadline of calls that the daemon answers from memory.
const SHORT: Duration = Duration::from_secs(10);
/// The time in which `tailscale up` shall reach the running state, which is its own option.
const UP: Duration = Duration::from_secs(30);
/// The deadline of `tailscale up`, whose own ends before.
const UP_LIMIT: Duration = Duration::from_secs(40);
/// The most characters of an error that are shown.
const MAX_TEXT: usize = 400;

/// Starts the provider's program. Tests have one that answers with recorded outputs.
pub trait Runner {
    /// Runs the program with these arguments, until the deadline.
    fn run(&self, args: &[String], limit: Duration) -> Result<Output, RunError>;
}

/// Runs the provider's program.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRunner;

impl Runner for SystemRunner {
    fn run(&self, args: &[String], limit: Duration) -> Result<Output, RunError> {
        run_program(PROGRAM, args, &[], limit)
    }
}

/// Tailscale on this node.
#[derive(Debug)]
pub struct Tailscale<R> {
    runner: R,
    /// The directory for the key's file, which is root's alone.
    run_dir: PathBuf,
}

impl<R: Runner> Tailscale<R> {
    /// Returns the provider; `run_dir` exists, and only root may read it.
    pub fn new(runner: R, run_dir: impl Into<PathBuf>) -> Self {
        Self {
            runner,
            run_dir: run_dir.into(),
        }
    }

    fn run(&self, args: &[String], limit: Duration) -> Result<String, ProviderError> {
        self.run_with_key(args, limit, None)
    }

    /// Runs the program, whose words may repeat the key; no error has a part of it.
    fn run_with_key(
        &self,
        args: &[String],
        limit: Duration,
        key: Option<&Secret>,
    ) -> Result<String, ProviderError> {
        // Values may be long, and an argument that a user wrote may hold anything.
        let command = [PROGRAM]
            .into_iter()
            .chain(args.iter().map(|arg| arg.split('=').next().unwrap_or(arg)))
            .collect::<Vec<_>>()
            .join(" ");
        let output = self.runner.run(args, limit).map_err(|error| match error {
            RunError::TimedOut(_) => ProviderError::Timeout {
                command: command.clone(),
                limit,
                unit: UNIT,
            },
            RunError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                ProviderError::NotInstalled(PROGRAM.to_owned())
            }
            RunError::Io(error) => ProviderError::Failed {
                command: command.clone(),
                text: error.to_string(),
            },
            RunError::TooMuchOutput => ProviderError::Unreadable {
                command: command.clone(),
                text: "it is too long".to_owned(),
            },
        })?;
        if output.is_success {
            return Ok(output.stdout);
        }
        if output
            .stderr
            .to_lowercase()
            .contains("failed to connect to local")
        {
            return Err(ProviderError::DaemonDown {
                program: PROGRAM,
                unit: UNIT,
            });
        }
        let words = if output.stderr.trim().is_empty() {
            output.stdout
        } else {
            output.stderr
        };
        if words.contains(UP_TIMEOUT) {
            return Err(ProviderError::Timeout {
                command,
                limit: UP,
                unit: UNIT,
            });
        }
        // The key is masked first: a key at the cut would keep its beginning.
        let words = key.map_or_else(|| words.clone(), |key| key.masked(&words));
        Err(ProviderError::Failed {
            command,
            text: one_line(&words),
        })
    }

    fn set(&self, flag: String) -> Result<(), ProviderError> {
        self.run(&["set".to_owned(), flag], SHORT).map(drop)
    }

    fn json<T: for<'a> Deserialize<'a>>(&self, args: [&str; 2]) -> Result<T, ProviderError> {
        let text = self.run(&args.map(str::to_owned), SHORT)?;
        serde_json::from_str(&text).map_err(|error| ProviderError::Unreadable {
            command: format!("{PROGRAM} {}", args.join(" ")),
            text: error.to_string(),
        })
    }
}

impl<R: Runner> Provider for Tailscale<R> {
    fn status(&self) -> Result<Status, ProviderError> {
        self.json::<StatusOutput>(["status", "--json"])
            .map(Status::from)
    }

    fn settings(&self) -> Result<Settings, ProviderError> {
        self.json::<Prefs>(["debug", "prefs"]).map(Settings::from)
    }

    fn up(&self, login: &Login<'_>) -> Result<(), ProviderError> {
        if login.key.is_none() && login.control_server.is_none() && login.extra_args.is_empty() {
            // Without any flag it keeps all settings.
            return self.run(&["up".to_owned()], UP_LIMIT).map(drop);
        }
        let mut prefs: Prefs = self.json(["debug", "prefs"])?;
        if prefs.exit_node.is_empty() && !prefs.exit_node_id.is_empty() {
            // The flag takes the address, the setting has the number. tailscale asks for nothing when it does not know the node.
            let status: StatusOutput = self.json(["status", "--json"])?;
            let mut peers = status.peer.unwrap_or_default().into_values();
            let found = peers.find(|peer| peer.id == prefs.exit_node_id);
            let address = found.and_then(|peer| peer.addresses?.first().copied());
            prefs.exit_node = address
                .map(|address| address.to_string())
                .unwrap_or_default();
        }
        let file = login
            .key
            .map(|key| KeyFile::write(&self.run_dir, key))
            .transpose()
            .map_err(|source| ProviderError::KeyFile {
                program: PROGRAM,
                source,
            })?;
        let path = file.as_ref().map(|file| file.0.as_path());
        self.run_with_key(&up_args(&prefs, login, path), UP_LIMIT, login.key)
            .map(drop)
    }

    fn down(&self) -> Result<(), ProviderError> {
        // Asked for by whoever runs us; without the flag it refuses to cut an SSH session through the VPN.
        let args = ["down", "--accept-risk=lose-ssh"];
        self.run(&args.map(str::to_owned), SHORT).map(drop)
    }

    fn logout(&self) -> Result<(), ProviderError> {
        self.run(&["logout".to_owned()], SHORT).map(drop)
    }

    fn ping(&self, address: IpAddr) -> Result<Duration, ProviderError> {
        let limit = format!("--timeout={}s", PING.as_secs());
        let address = address.to_string();
        let args = ["ping", "--tsmp", "--c=1", &limit, &address];
        let text = self.run(&args.map(str::to_owned), SHORT)?;
        latency(&text).ok_or_else(|| ProviderError::Unreadable {
            command: format!("{PROGRAM} ping"),
            text: one_line(&text),
        })
    }

    fn advertise(&self, routes: &[Prefix]) -> Result<(), ProviderError> {
        let routes: Vec<String> = routes.iter().map(ToString::to_string).collect();
        self.set(format!("--advertise-routes={}", routes.join(",")))
    }

    fn accept_routes(&self, accept: bool) -> Result<(), ProviderError> {
        self.set(format!("--accept-routes={accept}"))
    }

    fn translate_sources(&self, translate: bool) -> Result<(), ProviderError> {
        self.set(format!("--snat-subnet-routes={translate}"))
    }

    fn guide(&self) -> &'static Guide {
        &GUIDE
    }
}

/// Returns what helps against a refused login.
fn cure(error: &str) -> &'static str {
    if error.contains("requested tags") {
        // headscale from 0.28 on gives a node the tags of its key, and refuses those that the node asks for.
        "take --advertise-tags out of extraArgs, and give the key the tags"
    } else if error.contains("mentioning all non-default flags") {
        "the login would lose settings of this node that it names: log in by hand with the command that it names, or put these flags into extraArgs"
    } else {
        "correct the key and the control server in the settings"
    }
}

/// Returns the part of tailscale's policy that approves the pod subnets of nodes with a tag.
fn policy(networks: &[Prefix]) -> String {
    let routes: Vec<String> = networks
        .iter()
        .map(|network| format!("\"{network}\": [\"tag:k3s\"]"))
        .collect();
    format!(
        "\"autoApprovers\": {{\"routes\": {{{}}}}}",
        routes.join(", ")
    )
}

/// Returns how nodes elsewhere reach a server with etcd at its own address.
fn reach_lan(hosts: &[Prefix]) -> String {
    format!(
        "--advertise-routes={} in extraArgs of the VPN's settings has them reach it from elsewhere, except from nodes whose own LAN has the same range, and needs {} in the VPN's policy and the address among the destinations there",
        hosts
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(","),
        policy(hosts)
    )
}

/// Returns a sentence about a release that cannot read its key from a file.
fn outdated(version: &str) -> Option<String> {
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return None;
    };
    ((major, minor) < (1, 20)).then(|| {
        format!("tailscale {version} is too old to read a key from a file: install 1.20 or later")
    })
}

/// The file with the key, which is removed when it is dropped.
struct KeyFile(PathBuf);

impl KeyFile {
    fn write(dir: &Path, key: &Secret) -> io::Result<Self> {
        let file = Self(dir.join(KEY_FILE));
        // One may be left of a process that was killed.
        let _ = fs::remove_file(&file.0);
        let mut options = fs::OpenOptions::new();
        let mut out = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file.0)?;
        out.write_all(key.expose())?;
        Ok(file)
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the arguments of `tailscale up`. Flags of the user come last, and count more.
fn up_args(prefs: &Prefs, login: &Login<'_>, key: Option<&Path>) -> Vec<String> {
    let mut args = vec!["up".to_owned(), format!("--timeout={}s", UP.as_secs())];
    if let Some(path) = key {
        args.push(format!("--auth-key=file:{}", path.display()));
    }
    let mut repeated = prefs.flags();
    if prefs.control_url.is_empty() {
        // The node's own DNS servers are those of CoreDNS, which must not depend on the VPN.
        repeated.push("--accept-dns=false".to_owned());
    }
    if let Some(server) = login.control_server {
        repeated.retain(|flag| !flag.starts_with("--login-server="));
        args.push(format!("--login-server={server}"));
        // Tailscale keeps the former login otherwise, and fails.
        if !prefs.control_url.is_empty() && !same_server(&prefs.control_url, server) {
            args.push("--force-reauth".to_owned());
        }
    }
    let name = |flag: &str| -> String {
        let name = flag.trim_start_matches('-');
        name.split('=').next().unwrap_or(name).to_owned()
    };
    let user_flags: Vec<String> = login.extra_args.iter().map(|arg| name(arg)).collect();
    repeated.retain(|flag| !user_flags.contains(&name(flag)));
    args.extend(repeated);
    args.extend(login.extra_args.iter().cloned());
    args
}

/// Returns the time at the end of the line of an answered ping, such as `in 23ms` or `in 1.2s`.
fn latency(text: &str) -> Option<Duration> {
    let (_, time) = text.trim_end().rsplit_once(" in ")?;
    if let Some(milliseconds) = time.strip_suffix("ms") {
        return milliseconds.parse().ok().map(Duration::from_millis);
    }
    Duration::try_from_secs_f64(time.strip_suffix('s')?.parse().ok()?).ok()
}

/// Joins the lines of an error and keeps its beginning.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The output of `tailscale status --json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StatusOutput {
    #[serde(default)]
    version: String,
    #[serde(rename = "TUN", default)]
    tun: bool,
    backend_state: String,
    #[serde(rename = "AuthURL", default)]
    auth_url: String,
    #[serde(rename = "TailscaleIPs", default)]
    addresses: Option<Vec<IpAddr>>,
    #[serde(rename = "Self", default)]
    own: Option<PeerOutput>,
    #[serde(default)]
    health: Option<Vec<String>>,
    #[serde(default)]
    peer: Option<std::collections::BTreeMap<String, PeerOutput>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct PeerOutput {
    #[serde(rename = "ID")]
    id: String,
    host_name: String,
    #[serde(rename = "DNSName")]
    dns_name: String,
    #[serde(rename = "TailscaleIPs")]
    addresses: Option<Vec<IpAddr>>,
    #[serde(rename = "AllowedIPs")]
    allowed: Option<Vec<Prefix>>,
    cur_addr: String,
    relay: String,
    online: bool,
    active: bool,
    key_expiry: Option<String>,
    created: Option<String>,
}

impl From<StatusOutput> for Status {
    fn from(output: StatusOutput) -> Self {
        let health = output.health.unwrap_or_default();
        let error = health
            .iter()
            .find_map(|text| text.strip_prefix(LOGIN_ERROR));
        let phase = match output.backend_state.as_str() {
            "Running" => Phase::Running,
            "Stopped" => Phase::Stopped,
            "NeedsLogin" => Phase::NeedsLogin(Some(output.auth_url).filter(|url| !url.is_empty())),
            "NeedsMachineAuth" => Phase::NeedsApproval,
            // A daemon that was started again, whose login is not accepted any more.
            "Starting" | "NoState" => match error {
                Some(error) if UNREACHED.iter().any(|words| error.contains(words)) => {
                    Phase::Unreached(error.to_owned())
                }
                Some(_) => Phase::NeedsLogin(None),
                None => Phase::Starting,
            },
            // InUseOtherUser is Windows' alone.
            _ => Phase::Starting,
        };
        let mut own: Peer = output.own.unwrap_or_default().into();
        if let Some(addresses) = output.addresses {
            own.addresses = addresses;
        }
        let peers = output.peer.unwrap_or_default();
        Self {
            phase,
            version: output.version,
            own,
            peers: peers.into_values().map(Peer::from).collect(),
            health,
            has_interface: output.tun,
            ..Status::default()
        }
    }
}

impl From<PeerOutput> for Peer {
    fn from(output: PeerOutput) -> Self {
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        let addresses = output.addresses.unwrap_or_default();
        // The node's own addresses are among those that it may send from.
        let is_own = |route: &Prefix| {
            let is_host = matches!(
                (route.address(), route.length()),
                (IpAddr::V4(_), 32) | (IpAddr::V6(_), 128)
            );
            is_host && addresses.contains(&route.address())
        };
        let mut routes = output.allowed.unwrap_or_default();
        routes.retain(|route| !is_own(route));
        let some_time = |time: Option<String>| time.filter(|time| !time.starts_with("0001-01-01"));
        Self {
            name: output.host_name,
            dns_name: some(output.dns_name.trim_end_matches('.').to_owned()),
            addresses,
            routes,
            is_online: output.online,
            is_active: output.active,
            direct: some(output.cur_addr),
            relay: some(output.relay),
            key_expiry: some_time(output.key_expiry),
            created: some_time(output.created),
            ..Self::default()
        }
    }
}

/// The output of `tailscale debug prefs`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of tailscale's own"
)]
struct Prefs {
    #[serde(rename = "ControlURL")]
    control_url: String,
    route_all: bool,
    #[serde(rename = "CorpDNS")]
    corp_dns: bool,
    #[serde(rename = "RunSSH")]
    run_ssh: bool,
    shields_up: bool,
    advertise_tags: Option<Vec<String>>,
    hostname: String,
    advertise_routes: Option<Vec<Prefix>>,
    #[serde(rename = "NoSNAT")]
    no_snat: bool,
    /// tailscale has three states: true, false, and null, which is its default.
    no_stateful_filtering: Option<bool>,
    netfilter_mode: u8,
    operator_user: String,
    #[serde(rename = "ExitNodeID")]
    exit_node_id: String,
    #[serde(rename = "ExitNodeIP")]
    exit_node: String,
    #[serde(rename = "ExitNodeAllowLANAccess")]
    exit_node_allows_lan: bool,
    app_connector: AppConnector,
    posture_checking: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct AppConnector {
    advertise: bool,
}

impl Prefs {
    /// Returns the flags of `tailscale up` that keep these settings, without those that have their defaults.
    fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        let mut add = |is_set: bool, flag: String| {
            if is_set {
                flags.push(flag);
            }
        };
        // Before the first login nothing is set, and all fields are empty.
        if self.control_url.is_empty() {
            return flags;
        }
        let is_default = self.control_url == DEFAULT_CONTROL_SERVER;
        add(!is_default, format!("--login-server={}", self.control_url));
        add(self.route_all, "--accept-routes".to_owned());
        add(!self.corp_dns, "--accept-dns=false".to_owned());
        add(self.run_ssh, "--ssh".to_owned());
        add(self.shields_up, "--shields-up".to_owned());
        let tags = self.advertise_tags.as_deref().unwrap_or_default();
        add(
            !tags.is_empty(),
            format!("--advertise-tags={}", tags.join(",")),
        );
        add(
            !self.hostname.is_empty(),
            format!("--hostname={}", self.hostname),
        );
        let all = self.advertise_routes.as_deref().unwrap_or_default();
        let (defaults, routes): (Vec<Prefix>, Vec<Prefix>) =
            all.iter().partition(|route| route.is_default());
        let routes: Vec<String> = routes.iter().map(ToString::to_string).collect();
        add(
            !routes.is_empty(),
            format!("--advertise-routes={}", routes.join(",")),
        );
        add(!defaults.is_empty(), "--advertise-exit-node".to_owned());
        add(self.no_snat, "--snat-subnet-routes=false".to_owned());
        let mode = match self.netfilter_mode {
            0 => "off",
            1 => "nodivert",
            _ => "on",
        };
        add(mode != "on", format!("--netfilter-mode={mode}"));
        add(
            !self.operator_user.is_empty(),
            format!("--operator={}", self.operator_user),
        );
        // tailscale does not ask for this one, and loses it.
        let filters = self.no_stateful_filtering == Some(false);
        add(filters, "--stateful-filtering".to_owned());
        let exit_node = &self.exit_node;
        add(!exit_node.is_empty(), format!("--exit-node={exit_node}"));
        let allows_lan = self.exit_node_allows_lan;
        add(allows_lan, "--exit-node-allow-lan-access".to_owned());
        let connects = self.app_connector.advertise;
        add(connects, "--advertise-connector".to_owned());
        add(self.posture_checking, "--report-posture".to_owned());
        flags
    }
}

impl From<Prefs> for Settings {
    fn from(prefs: Prefs) -> Self {
        Self {
            advertised: prefs.advertise_routes.unwrap_or_default(),
            accepts_routes: prefs.route_all,
            translates_sources: !prefs.no_snat,
            accepts_dns: prefs.corp_dns,
            filters_packets: prefs.netfilter_mode == 2,
            blocks_incoming: prefs.shields_up,
            uses_exit_node: !prefs.exit_node_id.is_empty() || !prefs.exit_node.is_empty(),
            control_server: Some(prefs.control_url).filter(|url| !url.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests;
