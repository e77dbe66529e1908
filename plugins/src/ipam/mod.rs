//! IPAM: the plugins that hand out addresses, and the way in which a plugin calls one.

pub(crate) mod dhcp;
pub(crate) mod fixed;
pub(crate) mod host_local;
pub(crate) mod multus_ipam;
mod service;
pub(crate) mod whereabouts;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cni::convert;
use cni::exec::{DirectExec, Exec};
use cni::{CniError, CniResult, Command};

use crate::call::Call;
use crate::config::IpamConfig;
use crate::error::{Result, bail, failure, or_undo};
use crate::protocol::{Plugin, plugin};

/// dhcp in the table of plugins.
pub(crate) const DHCP: Plugin = plugin!("dhcp", dhcp, status: dhcp::status);

/// host-local in the table of plugins.
pub(crate) const HOST_LOCAL: Plugin =
    plugin!("host-local", host_local, status: host_local::status, gc: host_local::gc);

/// multus-ipam in the table of plugins.
pub(crate) const MULTUS_IPAM: Plugin =
    plugin!("multus-ipam", multus_ipam, status: multus_ipam::status, gc: multus_ipam::gc);

/// static in the table of plugins.
pub(crate) const STATIC: Plugin = Plugin {
    add: fixed::add,
    check: fixed::check,
    ..Plugin::named("static")
};

/// whereabouts, which is installed only where the daemon serves its pools.
pub(crate) const WHEREABOUTS: Plugin = plugin!(api::plugins::WHEREABOUTS, whereabouts, status: whereabouts::status, gc: multus_ipam::gc);

/// The plugins that need not be started.
const OWN: [&Plugin; 5] = [&DHCP, &HOST_LOCAL, &MULTUS_IPAM, &STATIC, &WHEREABOUTS];

impl IpamConfig {
    /// STATUS of a plugin that cannot do without an IPAM plugin.
    pub(crate) fn require_status(&self, call: &Call) -> Result<()> {
        self.require().map_err(unavailable)?;
        self.status(call)
    }

    /// ADD: returns the addresses for the container.
    pub(crate) fn add(&self, call: &Call) -> Result<CniResult> {
        match self.locate(call)? {
            Program::Own(plugin) => (plugin.add)(call),
            Program::Other(path) => {
                let stdout = run(&path, call, Command::Add)?;
                convert::parse_result_as(&stdout, call.version).map_err(|error| failure!("{error}"))
            }
        }
    }

    /// ADD: requests addresses for the first interface of a result and lets `configure` use them; when that fails, they are given back.
    pub(crate) fn add_for_interface(
        &self,
        call: &Call,
        configure: impl FnOnce(CniResult) -> Result<CniResult>,
    ) -> Result<CniResult> {
        let addresses = self.add(call)?;
        self.use_for_interface(call, addresses, configure)
    }

    /// The second half of [`Self::add_for_interface`].
    pub(crate) fn use_for_interface(
        &self,
        call: &Call,
        mut addresses: CniResult,
        configure: impl FnOnce(CniResult) -> Result<CniResult>,
    ) -> Result<CniResult> {
        or_undo(
            || {
                if addresses.ips.is_empty() {
                    bail!("IPAM plugin returned missing IP config");
                }
                for config in &mut addresses.ips {
                    config.interface = Some(0);
                }
                configure(addresses)
            },
            || {
                // The error that is reported is the first one.
                let _ = self.del(call);
            },
        )
    }

    /// DEL: gives the addresses back. Without a plugin there are none, here and below.
    pub(crate) fn del(&self, call: &Call) -> Result<()> {
        if !self.is_set() {
            return Ok(());
        }
        match self.locate(call)? {
            Program::Own(plugin) => (plugin.del)(call),
            Program::Other(path) => run(&path, call, Command::Del).map(|_| ()),
        }
    }

    /// CHECK: fails when the container's addresses are not reserved.
    pub(crate) fn check(&self, call: &Call) -> Result<()> {
        if !self.is_set() {
            return Ok(());
        }
        match self.locate(call)? {
            Program::Own(plugin) => (plugin.check)(call),
            Program::Other(path) => run(&path, call, Command::Check).map(|_| ()),
        }
    }

    /// STATUS: fails when no address could be handed out.
    pub(crate) fn status(&self, call: &Call) -> Result<()> {
        if !self.is_set() {
            return Ok(());
        }
        match self.locate(call).map_err(unavailable)? {
            Program::Own(plugin) => (plugin.status)(call),
            Program::Other(path) => run(&path, call, Command::Status).map(|_| ()),
        }
    }

    /// GC: releases the addresses that no attachment holds.
    pub(crate) fn gc(&self, call: &Call) -> Result<()> {
        if !self.is_set() {
            return Ok(());
        }
        match self.locate(call)? {
            Program::Own(plugin) => (plugin.gc)(call),
            Program::Other(path) => run(&path, call, Command::Gc).map(|_| ()),
        }
    }

    /// Finds the program in `CNI_PATH`. When that is this very program under another name, it need not be started: its function is
    /// called.
    fn locate(&self, call: &Call) -> Result<Program> {
        self.require()?;
        let dirs: Vec<PathBuf> = std::env::split_paths(&call.path).collect();
        let path =
            DirectExec::default()
                .find(&self.plugin, &dirs)
                .map_err(|error| match error {
                    cni::exec::ExecError::NotFound { plugin, dirs } => {
                        failure!("failed to find plugin {plugin:?} in path [{}]", join(&dirs))
                    }
                    other => failure!("{other}"),
                })?;
        if !is_this_program(&path) {
            return Ok(Program::Other(path));
        }
        // Another plugin of this program would read its own name in `ipam` and start itself again and again.
        let own = OWN.into_iter().find(|plugin| plugin.name == self.plugin);
        own.map(Program::Own)
            .ok_or_else(|| failure!("{} is not an IPAM plugin", self.plugin))
    }
}

enum Program {
    Own(&'static Plugin),
    Other(PathBuf),
}

/// Returns an error of STATUS: no ADD can be served.
fn unavailable(error: CniError) -> CniError {
    CniError {
        code: CniError::PLUGIN_NOT_AVAILABLE,
        ..error
    }
}

fn is_this_program(path: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    identity(path).is_some_and(|found| identity(Path::new("/proc/self/exe")) == Some(found))
}

fn run(path: &Path, call: &Call, command: Command) -> Result<Vec<u8>> {
    let variables = [
        ("CNI_COMMAND", command.as_str()),
        ("CNI_CONTAINERID", &call.container_id),
        ("CNI_NETNS", &call.netns),
        ("CNI_IFNAME", &call.ifname),
        ("CNI_ARGS", &call.args),
        ("CNI_PATH", &call.path),
    ];
    let own = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let from_call = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    // The specification hands every variable on, and the later value of a name counts.
    let env: Vec<_> = own.chain(from_call).collect();
    let exec = DirectExec {
        own_group: false,
        ..DirectExec::default()
    };
    exec.run(path, &env, &call.stdin)
        .map_err(|error| error.to_cni())
}

fn join(dirs: &[PathBuf]) -> String {
    let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    dirs.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_without_its_ipam_plugin_is_not_available() {
        let status = |ipam: &str| {
            let call = Call::with_config(&format!(r#"{{"ipam": {ipam}}}"#), "");
            let config: IpamConfig = serde_json::from_str(ipam).unwrap();
            let error = config.require_status(&call).unwrap_err();
            (error.code, error.msg)
        };
        let unavailable = CniError::PLUGIN_NOT_AVAILABLE;
        assert_eq!(
            status("{}"),
            (unavailable, "no plugin name provided".to_owned())
        );
        assert_eq!(status(r#"{"type": "none"}"#).0, unavailable);
    }

    #[test]
    fn plugin_of_this_program_that_has_no_addresses_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        std::os::unix::fs::symlink(program, dir.path().join("ptp")).unwrap();
        let call = Call {
            path: dir.path().to_str().unwrap().to_owned(),
            ..Call::with_config("{}", "")
        };
        let config: IpamConfig = serde_json::from_str(r#"{"type": "ptp"}"#).unwrap();
        assert_eq!(
            config.add(&call).unwrap_err().msg,
            "ptp is not an IPAM plugin"
        );
    }

    #[test]
    fn dhcp_without_its_service_is_not_available() {
        let dir = tempfile::tempdir().unwrap();
        let config = serde_json::json!({"ipam": {"daemonSocketPath": dir.path().join("none")}});
        let error = dhcp::status(&Call::with_config(&config.to_string(), "")).unwrap_err();
        assert_eq!(error.code, CniError::PLUGIN_NOT_AVAILABLE);
    }
}
