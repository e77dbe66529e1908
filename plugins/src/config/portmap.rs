//! The configuration of portmap.

use std::net::IpAddr;

use serde::Deserialize;

use crate::call::Call;
use crate::config::Backend;
use crate::error::{Result, bail, failure};

/// The bit that marks packets to masquerade, when the configuration names none.
pub(crate) const DEFAULT_MARK_BIT: i64 = 13;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) backend: Option<String>,
    /// Whether connections from the host itself and from the container to its own port work; they need a changed source.
    pub(crate) snat: Option<bool>,
    /// Further conditions on the packets that are forwarded, in the words of the backend.
    #[serde(rename = "conditionsv4")]
    pub(crate) conditions_v4: Vec<String>,
    #[serde(rename = "conditionsv6")]
    pub(crate) conditions_v6: Vec<String>,
    /// Whether the source of all connections is changed.
    #[serde(rename = "masqall")]
    pub(crate) masq_all: bool,
    /// The number of the bit that marks packets to masquerade, from 0.
    #[serde(rename = "markmasqbit")]
    pub(crate) mark_masq_bit: Option<i64>,
    /// A chain of somebody else that marks packets to masquerade.
    #[serde(rename = "externalsetmarkchain")]
    pub(crate) external_set_mark_chain: Option<String>,
    #[serde(rename = "runtimeconfig")]
    pub(crate) runtime: RuntimeConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RuntimeConfig {
    #[serde(rename = "portmappings")]
    pub(crate) port_mappings: Vec<Mapping>,
}

/// One forwarded port.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Mapping {
    #[serde(rename = "hostport")]
    pub(crate) host_port: i64,
    #[serde(rename = "containerport")]
    pub(crate) container_port: i64,
    pub(crate) protocol: String,
    /// The host's address to which the port is bound; all addresses when empty.
    #[serde(rename = "hostip")]
    pub(crate) host_ip: String,
}

impl Config {
    pub(crate) fn load(call: &Call) -> Result<Self> {
        let config: Self = call.config()?;
        if config.mark_masq_bit.is_some() && config.external_set_mark_chain.is_some() {
            bail!("Cannot specify externalSetMarkChain and markMasqBit");
        }
        if !(0..=31).contains(&config.mark_bit()) {
            bail!("MasqMarkBit must be between 0 and 31");
        }
        Ok(config)
    }

    pub(crate) fn snat(&self) -> bool {
        self.snat.unwrap_or(true)
    }

    pub(crate) fn mark_bit(&self) -> i64 {
        self.mark_masq_bit.unwrap_or(DEFAULT_MARK_BIT)
    }

    pub(crate) fn mappings(&self) -> &[Mapping] {
        &self.runtime.port_mappings
    }

    /// Returns the conditions for packets to an address.
    pub(crate) fn conditions(&self, address: IpAddr) -> &[String] {
        if address.is_ipv4() {
            &self.conditions_v4
        } else {
            &self.conditions_v6
        }
    }

    /// Returns the options that only one backend understands.
    pub(crate) fn options(&self) -> Vec<(Backend, &'static str)> {
        let chain = self.external_set_mark_chain.as_ref();
        let chain = chain.map(|_| (Backend::Iptables, "externalSetMarkChain"));
        let conditions = [
            (&self.conditions_v4, "conditionsV4"),
            (&self.conditions_v6, "conditionsV6"),
        ];
        let conditions = conditions
            .into_iter()
            .filter_map(|(conditions, name)| Some((backend_of_conditions(conditions)?, name)));
        chain.into_iter().chain(conditions).collect()
    }

    pub(crate) fn check_ports(&self) -> Result<()> {
        for mapping in self.mappings() {
            for (port, of) in [
                (mapping.container_port, "container"),
                (mapping.host_port, "host"),
            ] {
                if port_number(port) == 0 {
                    bail!("Invalid {of} port number: {port}");
                }
            }
        }
        Ok(())
    }

    /// Returns the backend of this name. Options for the other one are an error.
    pub(crate) fn named_backend(&self, name: &str) -> Result<Backend> {
        let chosen = Backend::parse(name);
        let options = self.options();
        let (wrong, wrong_name) = match chosen {
            Some(Backend::Iptables) => (Backend::Nftables, "nftables"),
            _ => (Backend::Iptables, "iptables"),
        };
        let wrong_options: Vec<_> = options
            .iter()
            .filter(|(backend, _)| *backend == wrong)
            .map(|(_, option)| *option)
            .collect();
        if !wrong_options.is_empty() {
            bail!(
                "{name} backend was requested but configuration contains {wrong_name}-specific options [{}]",
                wrong_options.join(" ")
            );
        }
        chosen.ok_or_else(|| failure!("unrecognized backend {name:?}"))
    }
}

/// Returns the backend in whose words the conditions are: those of iptables begin with a hyphen or an exclamation mark, those of
/// nftables never do.
pub(crate) fn backend_of_conditions(conditions: &[String]) -> Option<Backend> {
    match conditions.first()?.chars().next()? {
        '-' | '!' => Some(Backend::Iptables),
        _ => Some(Backend::Nftables),
    }
}

/// Returns the number of a port, 0 for a number that is not a port's.
pub(crate) fn port_number(port: i64) -> u16 {
    u16::try_from(port).unwrap_or(0)
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    match &config.backend {
        Some(name) => config.named_backend(name).map(|_| ()),
        None => Ok(()),
    }
}
