//! The configuration of tuning.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::call::Call;
use crate::config::{Args, Mac, parse_requested_mac};
use crate::error::{Result, bail};

/// The directory of the former values, unless the configuration names another one.
pub(crate) const DATA_DIR: &str = "/run/cni/tuning";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) datadir: String,
    #[serde(flatten)]
    pub(crate) settings: Settings,
    #[serde(rename = "runtimeconfig")]
    pub(crate) runtime: Mac,
    pub(crate) args: Args<Settings>,
}

/// The values to set; an absent one stays as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    #[serde(deserialize_with = "pairs")]
    pub(crate) sysctl: Vec<(String, String)>,
    pub(crate) mac: Option<String>,
    pub(crate) promisc: Option<bool>,
    pub(crate) mtu: Option<i64>,
    pub(crate) allmulti: Option<bool>,
    pub(crate) txqlen: Option<i64>,
}

impl Settings {
    /// Takes the values that `overrides` has.
    pub(crate) fn override_with(&mut self, overrides: Self) {
        for (key, value) in overrides.sysctl {
            self.sysctl.retain(|(present, _)| *present != key);
            self.sysctl.push((key, value));
        }
        self.mac = overrides.mac.or(self.mac.take());
        self.promisc = overrides.promisc.or(self.promisc);
        self.mtu = overrides.mtu.or(self.mtu);
        self.allmulti = overrides.allmulti.or(self.allmulti);
        self.txqlen = overrides.txqlen.or(self.txqlen);
    }

    /// Forgets values that mean "as it is".
    pub(crate) fn normalise(mut self) -> Self {
        self.mac = self.mac.filter(|mac| !mac.is_empty());
        self.promisc = self.promisc.filter(|promisc| *promisc);
        self.mtu = self.mtu.filter(|mtu| *mtu != 0);
        self
    }

    pub(crate) fn changes_link(&self) -> bool {
        self.mac.is_some()
            || self.promisc.is_some()
            || self.mtu.is_some()
            || self.allmulti.is_some()
            || self.txqlen.is_some()
    }
}

/// Reads an object of texts in its order.
pub(crate) fn pairs<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Vec<(String, String)>, D::Error> {
    struct Pairs;
    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(String, String)>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("an object of texts")
        }

        fn visit_map<A: MapAccess<'de>>(
            self,
            mut map: A,
        ) -> std::result::Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }
    deserializer.deserialize_map(Pairs)
}

/// A call's configuration with the requests of the runtime.
pub(crate) struct Request {
    pub(crate) data_dir: PathBuf,
    pub(crate) settings: Settings,
}

impl Request {
    /// Reads the configuration. The runtime's request for the hardware address comes before that of `CNI_ARGS`; `args.cni` comes before
    /// both.
    pub(crate) fn load(call: &Call) -> Result<Self> {
        let config: Config = call.config()?;
        let mut settings = config.settings;
        if let Some(mac) = config.runtime.or_args(call)? {
            settings.mac = Some(mac);
        }
        settings.override_with(config.args.cni);
        let data_dir = if config.datadir.is_empty() {
            DATA_DIR.into()
        } else {
            config.datadir.into()
        };
        Ok(Self {
            data_dir,
            settings: settings.normalise(),
        })
    }
}

/// Returns whether an object `sysctl` of the configuration has a key twice, which a parsed configuration no longer shows.
pub(crate) fn has_duplicate_sysctls(config: &[u8]) -> bool {
    struct Keys;
    impl<'de> Visitor<'de> for Keys {
        type Value = Vec<String>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("a configuration")
        }

        fn visit_map<A: MapAccess<'de>>(
            self,
            mut map: A,
        ) -> std::result::Result<Self::Value, A::Error> {
            let mut keys = Vec::new();
            while let Some(key) = map.next_key::<String>()? {
                if key.eq_ignore_ascii_case("sysctl") {
                    let Sysctl(pairs) = map.next_value()?;
                    keys.extend(pairs.into_iter().map(|(key, _)| key));
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(keys)
        }
    }
    #[derive(Deserialize)]
    struct Sysctl(#[serde(deserialize_with = "pairs")] Vec<(String, String)>);

    let mut deserializer = serde_json::Deserializer::from_slice(config);
    // A configuration that is wrong in another way fails where it is read.
    let keys = deserializer.deserialize_map(Keys).unwrap_or_default();
    let mut seen = HashSet::new();
    !keys.iter().all(|key| seen.insert(key))
}

/// Returns the file of a sysctl: dots separate as slashes do, and the first `IFNAME` stands for the interface. Those that are not of
/// the network belong to the node and are refused.
pub(crate) fn sysctl_file(name: &str, ifname: &str) -> Result<PathBuf> {
    let name = name.replace('.', "/").replacen("IFNAME", ifname, 1);
    let parts: Vec<_> = name.split('/').filter(|part| !part.is_empty()).collect();
    let leaves = parts.iter().any(|part| matches!(*part, "." | ".."));
    if parts.len() < 2 || parts[0] != "net" || leaves {
        bail!("invalid net sysctl key: {name:?}");
    }
    Ok(Path::new("/proc/sys").join(parts.join("/")))
}

pub(crate) fn load_checked(call: &Call) -> Result<Request> {
    if has_duplicate_sysctls(&call.stdin) {
        bail!("duplicated sysctl keys are not allowed");
    }
    Request::load(call)
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let settings = load_checked(call)?.settings;
    for (name, _) in &settings.sysctl {
        sysctl_file(name, &call.ifname)?;
    }
    match &settings.mac {
        Some(mac) => parse_requested_mac(mac).map(drop),
        None => Ok(()),
    }
}
