//! Which plugins may run at all: the option `allowedPlugins`. It is asked for everything that is attached; what was attached before
//! the option said otherwise is still detached, as that goes by the state.

use cni::config::{NetworkConfig, Plugin};
use serde_json::Value;

use super::{Attachment, PlanError, PodView};
use crate::netconf::Netconf;

/// Heads the auxiliary chain; it is a part of multus and does nothing.
const OWN: &str = "passthru";
/// Objects of a configuration whose `type` names a plugin that the plugin itself runs.
const NESTED: [&str; 2] = ["ipam", "delegate"];

/// Refuses the first attachment with a plugin that is not in the list; an empty list has all.
pub(super) fn check(
    attachments: &[Attachment],
    pod: Option<&PodView>,
    netconf: &Netconf,
) -> Result<(), PlanError> {
    let pod = || {
        pod.map_or_else(
            || "every pod".to_owned(),
            |pod| format!("pod {}/{}", pod.namespace, pod.name),
        )
    };
    for attachment in attachments {
        if let Some(plugin) = forbidden(&attachment.config, &netconf.allowed_plugins) {
            return Err(PlanError::NotAllowed {
                pod: pod(),
                network: attachment.name.clone(),
                plugin: plugin.to_owned(),
            });
        }
    }
    Ok(())
}

/// The first plugin of a configuration that is not in the list.
fn forbidden<'a>(config: &'a NetworkConfig, allowed: &[String]) -> Option<&'a str> {
    let is_forbidden = |kind: &&str| *kind != OWN && !allowed.iter().any(|one| one == kind);
    let all = config.plugins.iter().flat_map(kinds);
    all.filter(|_| !allowed.is_empty()).find(is_forbidden)
}

/// The plugin, and those that it is told to run.
fn kinds(plugin: &Plugin) -> impl Iterator<Item = &str> {
    let nested = NESTED.iter().filter_map(|key| {
        let kind = plugin.value.get(*key)?.get("type").and_then(Value::as_str);
        kind.filter(|kind| !kind.is_empty())
    });
    std::iter::once(plugin.kind.as_str()).chain(nested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: &str, allowed: &[&str], expected: Option<&str>) {
        let config = NetworkConfig::parse(config.as_bytes()).unwrap();
        let allowed: Vec<_> = allowed.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(forbidden(&config, &allowed), expected);
    }

    #[test]
    fn every_plugin_of_a_chain_counts() {
        let chain =
            r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"bridge"},{"type":"tuning"}]}"#;
        check(chain, &[], None);
        check(chain, &["bridge", "tuning"], None);
        check(chain, &["bridge"], Some("tuning"));
        check(chain, &["tuning"], Some("bridge"));
        check(chain, &["Bridge", "tuning"], Some("bridge"));
    }

    #[test]
    fn what_a_plugin_runs_counts() {
        for (nested, found) in [
            (r#""ipam":{"type":"dhcp"}"#, Some("dhcp")),
            (r#""delegate":{"type":"host-device"}"#, Some("host-device")),
            (r#""ipam":{"type":"host-local"}"#, None),
            (r#""ipam":{}"#, None),
            (r#""ipam":{"type":""}"#, None),
            (r#""ipam":"dhcp""#, None),
        ] {
            let config = format!(r#"{{"cniVersion":"1.0.0","name":"n","type":"bridge",{nested}}}"#);
            check(&config, &["bridge", "host-local"], found);
        }
    }

    #[test]
    fn our_own_head_of_a_chain_needs_no_permission() {
        let chain = r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"passthru"},{"type":"tuning"}]}"#;
        check(chain, &["tuning"], None);
        check(chain, &["bridge"], Some("tuning"));
    }
}
