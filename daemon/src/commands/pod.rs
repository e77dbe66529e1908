//! `multus-daemon pod NAMESPACE/NAME`: reports a pod's networks on this node to `kubectl multus`, which runs it in the daemon's pod.
//! It reads state from its files, so that it works even while the daemon hangs; failures and readiness come from the daemon.

use std::{io::Write, str::FromStr, sync::Arc};

use anyhow::Context as _;
use api::pod_report::{PodReport, SCHEMA};
use cmdline::error_line;
use plan::daemon_config::Config;

use serde_json::Map;

use super::{
    CommandContext,
    status::{failures, query},
};
use crate::{host::ipam_service, state::pod_report};

/// A pod as `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodName {
    namespace: String,
    name: String,
}

impl FromStr for PodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err("write it as namespace/name".to_owned()),
        }
    }
}

/// Prints the report.
pub fn run(context: &CommandContext, pod: &PodName) -> anyhow::Result<()> {
    let root = Arc::new(context.root()?);
    let PodName { namespace, name } = pod;
    // The daemon runs with the file that it read at its start, so a file that is broken now must not prevent the report.
    let (config, broken) = match context.config() {
        Ok(config) => (config, None),
        Err(error) => (Config::parse(Map::new())?, Some(error_line(error.as_ref()))),
    };
    let (mut containers, mut unread) =
        pod_report::containers(&root, &config.cni_dir, (namespace, name))
            .context("cannot read the node's state")?;
    let claims = ipam_service::claims(&root, &config.cni_dir);
    for container in &mut containers {
        for one in &mut container.attachments {
            let attachment = (container.id.clone(), one.interface.clone());
            one.claim = claims.get(&attachment).cloned();
        }
    }
    unread.extend(broken);
    let problem = match query(context, api::PATH_READYZ) {
        Ok((200, _)) => None,
        Ok((_, body)) => Some(body.trim().to_owned()),
        Err(error) => Some(error_line(error.as_ref())),
    };
    let failures = failures(context).unwrap_or_else(|error| {
        unread.push(format!("recent failures: {}", error_line(error.as_ref())));
        Vec::new()
    });
    let pod = format!("{namespace}/{name}");
    let report = PodReport {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: context.identity.node.clone(),
        problem,
        options: config.raw,
        containers,
        failures: failures.into_iter().filter(|one| one.pod == pod).collect(),
        unread,
    };
    let text = serde_json::to_string_pretty(&report)? + "\n";
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_needs_a_namespace_and_a_name() {
        let pod: PodName = "shop/cart-0".parse().unwrap();
        assert_eq!(
            (pod.namespace.as_str(), pod.name.as_str()),
            ("shop", "cart-0")
        );
        for text in ["cart-0", "/cart-0", "shop/", ""] {
            assert!(text.parse::<PodName>().is_err(), "{text}");
        }
    }
}
