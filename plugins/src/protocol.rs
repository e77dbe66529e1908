//! The plugin's side of the CNI specification: reads the variables and stdin, runs the verb, prints one document.

use std::io::Read;

use cni::convert;
use cni::types::Dns;
use cni::version::{self, SUPPORTED, Version};
use cni::{CniError, CniResult, Command, ContainerId, IfName};
use serde_json::Value;

use crate::call::{Call, invalid_environment, refused, with_config};
use crate::error::{Result, bail, failure};
use crate::kernel::Errno;
use crate::kernel::netns::{Namespace, OpenError};

/// How many bytes a configuration may have; a result of a long chain has some thousand.
const CONFIG_LIMIT: u64 = 16 << 20;

/// One plugin: a function for each verb.
pub(crate) struct Plugin {
    /// The name of its program and the `type` of its configurations.
    pub(crate) name: &'static str,
    /// The versions of the specification that it accepts.
    pub(crate) versions: &'static [Version],
    /// ADD: attaches the container.
    pub(crate) add: fn(&Call) -> Result<CniResult>,
    /// DEL: takes the attachment away; succeeds when nothing is left of it.
    pub(crate) del: fn(&Call) -> Result<()>,
    /// CHECK: fails when the attachment is not as ADD left it.
    pub(crate) check: fn(&Call) -> Result<()>,
    /// STATUS: fails when ADD could not be served.
    pub(crate) status: fn(&Call) -> Result<()>,
    /// GC: releases what no attachment of the configuration's list holds.
    pub(crate) gc: fn(&Call) -> Result<()>,
}

impl Plugin {
    /// A plugin whose verbs do nothing, for those that a plugin has no work for.
    pub(crate) const fn named(name: &'static str) -> Self {
        Self {
            name,
            versions: &SUPPORTED,
            add: |_| Ok(CniResult::default()),
            del: |_| Ok(()),
            check: |_| Ok(()),
            status: |_| Ok(()),
            gc: |_| Ok(()),
        }
    }
}

/// A plugin with the verbs `add`, `del` and `check` of a module, and with other fields as stated.
macro_rules! plugin {
    ($name:expr, $($module:ident)::+ $(, $field:ident: $value:expr)*) => {
        Plugin {
            add: $($module)::+::add,
            del: $($module)::+::del,
            check: $($module)::+::check,
            $($field: $value,)*
            ..Plugin::named($name)
        }
    };
}
pub(crate) use plugin;

impl Call {
    pub(crate) fn namespace(&self) -> Result<Namespace> {
        open_netns(&self.netns)
    }
}

/// Opens the network namespace that `CNI_NETNS` names.
pub(crate) fn open_netns(path: &str) -> Result<Namespace> {
    Namespace::open(path).map_err(|error| netns_error(path, &error))
}

/// The same for DEL: `None` when the path is empty or the namespace is gone, so that its links are gone too.
pub(crate) fn open_netns_if_present(path: &str) -> Result<Option<Namespace>> {
    if path.is_empty() {
        return Ok(None);
    }
    match Namespace::open(path) {
        Ok(namespace) => Ok(Some(namespace)),
        Err(OpenError::NotFound(_)) => Ok(None),
        Err(error) => Err(netns_error(path, &error)),
    }
}

fn netns_error(path: &str, error: &OpenError) -> CniError {
    failure!("failed to open netns {path:?}: {error}")
}

/// Runs the verb that the variables name and returns the document for stdout.
pub(crate) fn run(plugin: &Plugin) -> Result<Vec<u8>> {
    let command = variable("CNI_COMMAND");
    let command: Command = command.parse().map_err(refused)?;
    let call = read_call(command)?;
    if command == Command::Version {
        return Ok(version::version_output(plugin.versions).into_bytes());
    }
    let call = with_config(call, command, plugin.versions, read_stdin()?)?;
    let mut output = Vec::new();
    match command {
        Command::Add => {
            let result = (plugin.add)(&call)?;
            output = print(&result, call.version)?;
            check_netns(&call)?;
        }
        Command::Del => {
            (plugin.del)(&call)?;
            check_netns(&call)?;
        }
        Command::Check => (plugin.check)(&call)?,
        Command::Status => (plugin.status)(&call)?,
        Command::Gc => (plugin.gc)(&call)?,
        Command::Version => {}
    }
    Ok(output)
}

/// Reads the variables; stdin is still unread.
fn read_call(command: Command) -> Result<Call> {
    let missing: Vec<_> = command
        .required_variables()
        .iter()
        .filter(|name| variable(name).is_empty())
        .copied()
        .collect();
    let call = Call {
        container_id: variable("CNI_CONTAINERID"),
        netns: variable("CNI_NETNS"),
        ifname: variable("CNI_IFNAME"),
        args: variable("CNI_ARGS"),
        path: variable("CNI_PATH"),
        may_share_netns: {
            let value = variable("CNI_NETNS_OVERRIDE");
            value == "1" || value.eq_ignore_ascii_case("true")
        },
        stdin: Vec::new(),
        version: Version::LATEST,
        network: String::new(),
    };
    if command.is_about_attachment() {
        if !call.container_id.is_empty() {
            ContainerId::parse(&call.container_id).map_err(refused)?;
        }
        if !call.ifname.is_empty() {
            IfName::parse(&call.ifname).map_err(refused)?;
        }
    }
    if !missing.is_empty() {
        return Err(invalid_environment(format!(
            "required env variables [{}] missing",
            missing.join(",")
        )));
    }
    Ok(call)
}

fn read_stdin() -> Result<Vec<u8>> {
    let mut stdin = Vec::new();
    std::io::stdin()
        .take(CONFIG_LIMIT)
        .read_to_end(&mut stdin)
        .map_err(|error| {
            let text = format!("error reading from stdin: {}", Errno::from(error));
            CniError::new(CniError::IO_FAILURE, text)
        })?;
    Ok(stdin)
}

/// Returns the result in the version of the configuration.
fn print(result: &CniResult, version: Version) -> Result<Vec<u8>> {
    if version < Version::V0_3_0 && result.ips.is_empty() {
        bail!("cannot convert: no valid IP addresses");
    }
    Ok(cni::types::pretty(&shape(result, version)))
}

/// Returns the result as JSON, in the shape of the reference plugins. They keep fields that a version does not know yet: a route that
/// an IPAM plugin attaches to a table would lose the table on its way through a chain of 1.0.0.
fn shape(result: &CniResult, version: Version) -> Value {
    let mut value = convert::result_to(result, version);
    if version < Version::V0_3_0 {
        return value;
    }
    let mut newest = convert::result_to(result, Version::LATEST);
    let same_since_1_0: &[&str] = &["interfaces", "routes"];
    let kept = if version < Version::V1_0_0 {
        &["routes"]
    } else {
        same_since_1_0
    };
    for key in kept {
        if let Some(list) = newest.get_mut(key) {
            value[*key] = list.take();
        }
    }
    if version >= Version::V1_0_0
        && result.dns == Dns::default()
        && let Some(object) = value.as_object_mut()
    {
        object.remove("dns");
    }
    value
}

/// Refuses a container whose network namespace is the plugin's own: what the plugin did was done to the host.
fn check_netns(call: &Call) -> Result<()> {
    if call.may_share_netns || call.netns.is_empty() {
        return Ok(());
    }
    // A namespace that is gone is DEL's business, and none of ours.
    let (Ok(container), Ok(own)) = (Namespace::open(&call.netns), Namespace::current()) else {
        return Ok(());
    };
    if container.is_same(&own) {
        return Err(CniError::new(
            CniError::INVALID_NETNS,
            "plugin's netns and netns from CNI_NETNS should not be the same",
        ));
    }
    Ok(())
}

fn variable(name: &str) -> String {
    std::env::var_os(name)
        .map(|value| value.to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_keep_what_the_reference_keeps() {
        let result = convert::parse_value(
            &json!({
                "cniVersion": "1.1.0",
                "interfaces": [{"name": "eth0", "mtu": 1400}],
                "ips": [{"address": "10.1.2.3/24"}],
                "routes": [{"dst": "10.9.0.0/16", "table": 7, "priority": 2}],
            }),
            None,
        )
        .unwrap();
        let at = |version: Version| shape(&result, version);
        assert_eq!(
            at(Version::V0_4_0),
            json!({
                "cniVersion": "0.4.0",
                "interfaces": [{"name": "eth0"}],
                "ips": [{"version": "4", "address": "10.1.2.3/24"}],
                "routes": [{"dst": "10.9.0.0/16", "table": 7, "priority": 2}],
                "dns": {},
            })
        );
        assert_eq!(
            at(Version::V1_0_0),
            json!({
                "cniVersion": "1.0.0",
                "interfaces": [{"name": "eth0", "mtu": 1400}],
                "ips": [{"address": "10.1.2.3/24"}],
                "routes": [{"dst": "10.9.0.0/16", "table": 7, "priority": 2}],
            })
        );
        assert_eq!(
            at(Version::V0_2_0),
            json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.2.3/24", "routes": [{"dst": "10.9.0.0/16"}]}, "dns": {}})
        );
        let mut named = result.clone();
        named.dns.domain = "a.example".to_owned();
        assert_eq!(
            shape(&named, Version::V1_0_0)["dns"],
            json!({"domain": "a.example"})
        );
    }
}
