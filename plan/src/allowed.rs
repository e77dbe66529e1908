//! Enforces the option `allowedPlugins`, the list of plugins that may run. It applies to everything that is attached; networks that
//! were attached before the option changed are still detached, because a DEL goes by the state.

use cni::config::{NetworkConfig, Plugin};
use serde_json::{Map, Value};

use super::{Attachment, PlanError, PodView};
use crate::netconf::Netconf;

/// The first plugin of the auxiliary chain. It belongs to Multus and does nothing, so it is always allowed.
const OWN: &str = "passthru";
/// Objects of a configuration whose `type` names a plugin that the plugin itself runs.
const NESTED: [&str; 2] = ["ipam", "delegate"];

/// Refuses the first attachment with a plugin that is not in the list; an empty list allows every plugin.
pub(super) fn check(
    attachments: &[Attachment],
    pod: Option<&PodView>,
    netconf: &Netconf,
) -> Result<(), PlanError> {
    for attachment in attachments {
        if let Some(plugin) = forbidden(&attachment.config, &netconf.allowed_plugins) {
            return Err(PlanError::NotAllowed {
                pod: pod.map(PodView::title),
                network: attachment.name.clone(),
                plugin: plugin.to_owned(),
            });
        }
    }
    Ok(())
}

/// Returns the first plugin of a configuration that is not in the list.
fn forbidden<'a>(config: &'a NetworkConfig, allowed: &[String]) -> Option<&'a str> {
    let is_forbidden = |kind: &&str| *kind != OWN && !allowed.iter().any(|one| one == kind);
    let all = plugin_types(config);
    all.filter(|_| !allowed.is_empty()).find(is_forbidden)
}

/// Returns the types of a configuration's plugins, and of those that these run.
pub fn plugin_types(config: &NetworkConfig) -> impl Iterator<Item = &str> {
    config.plugins.iter().flat_map(kinds)
}

/// Returns the plugin's type and the types of the plugins that its configuration makes it run.
fn kinds(plugin: &Plugin) -> impl Iterator<Item = &str> {
    let nested = NESTED.iter().flat_map(|key| values(&plugin.value, key));
    let types = nested
        .filter_map(Value::as_object)
        .flat_map(|object| values(object, "type"));
    let kinds = types.filter_map(Value::as_str);
    std::iter::once(plugin.kind.as_str()).chain(kinds.filter(|kind| !kind.is_empty()))
}

/// Returns the values of a key in any case: plugins read it so, and which one of several they take is theirs to decide.
fn values<'a>(object: &'a Map<String, Value>, key: &'a str) -> impl Iterator<Item = &'a Value> {
    let is_key = move |(own, _): &(&String, &Value)| own.eq_ignore_ascii_case(key);
    object.iter().filter(is_key).map(|(_, value)| value)
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
    fn nested_plugins_count() {
        for (nested, found) in [
            (r#""ipam":{"type":"dhcp"}"#, Some("dhcp")),
            (r#""delegate":{"type":"host-device"}"#, Some("host-device")),
            (r#""ipam":{"type":"host-local"}"#, None),
            (r#""ipam":{}"#, None),
            (r#""ipam":{"type":""}"#, None),
            (r#""ipam":"dhcp""#, None),
            // Plugins read keys in any case.
            (r#""IPAM":{"Type":"dhcp"}"#, Some("dhcp")),
            (r#""Delegate":{"type":"host-device"}"#, Some("host-device")),
            (
                r#""ipam":{"type":"host-local"},"iPam":{"type":"dhcp"}"#,
                Some("dhcp"),
            ),
        ] {
            let config = format!(r#"{{"cniVersion":"1.0.0","name":"n","type":"bridge",{nested}}}"#);
            check(&config, &["bridge", "host-local"], found);
        }
    }

    #[test]
    fn passthru_is_always_allowed() {
        let chain = r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"passthru"},{"type":"tuning"}]}"#;
        check(chain, &["tuning"], None);
        check(chain, &["bridge"], Some("tuning"));
    }
}
