//! The configuration of host-local, with the requests of `CNI_ARGS`, `args.cni` and the runtime.

use std::net::IpAddr;

use cni::types::Route;
use cni::version::Version;
use serde::Deserialize;

use crate::call::Call;
use crate::config::range::{RangeConfig, RangeSet, RangeTexts};
use crate::config::{Args, Ips, canonical_route};
use crate::error::{Context, Result, bail, failure};
use crate::ip::{self, Cidr};

pub(crate) const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Document {
    pub(crate) ipam: Option<Ipam>,
    #[serde(rename = "runtimeconfig")]
    pub(crate) runtime: RuntimeConfig,
    pub(crate) args: Args<Ips>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ipam {
    /// The one range of configurations from before `ranges`.
    #[serde(flatten)]
    pub(crate) range: RangeTexts,
    pub(crate) ranges: Vec<Vec<RangeTexts>>,
    pub(crate) routes: Vec<Route>,
    #[serde(rename = "datadir")]
    pub(crate) data_dir: String,
    #[serde(rename = "resolvconf")]
    pub(crate) resolv_conf: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct RuntimeConfig {
    #[serde(rename = "ipranges")]
    pub(crate) ranges: Vec<Vec<RangeTexts>>,
    pub(crate) ips: Vec<String>,
}

/// The configuration, checked.
#[derive(Debug)]
pub(crate) struct Config {
    /// The sets of ranges; the container gets one address of each.
    pub(crate) sets: Vec<RangeSet>,
    /// The addresses that the container is to have.
    pub(crate) requested: Vec<IpAddr>,
    /// The routes of the result.
    pub(crate) routes: Vec<Route>,
    /// The directory in which each network has its own.
    pub(crate) data_dir: String,
    /// The file with the name servers of the result; empty for none.
    pub(crate) resolv_conf: String,
}

impl Config {
    /// Reads the configuration of a call.
    pub(crate) fn load(call: &Call) -> Result<Self> {
        let document: Document = call.config()?;
        let ipam = document
            .ipam
            .ok_or_else(|| failure!("IPAM config missing 'ipam' key"))?;
        let args = call.known_args(&["IP"])?;
        let from_args = args.get("IP").filter(|text| !text.is_empty()).map(|text| {
            parse_requested(text).context(|| {
                format!(
                    "ARGS: error parsing value of pair {:?}",
                    format!("IP={text}")
                )
            })
        });
        let from_config = [&document.args.cni.ips, &document.runtime.ips];
        let from_config = from_config
            .into_iter()
            .flatten()
            .map(|text| parse_requested(text));
        let requested = from_args
            .into_iter()
            .chain(from_config)
            .collect::<Result<Vec<_>>>()?;
        let runtime_sets = document.runtime.ranges.into_iter();
        let old_form = ipam.range.subnet.is_some().then(|| vec![ipam.range]);
        let sets = runtime_sets
            .chain(old_form)
            .chain(ipam.ranges)
            .map(|set| set.iter().map(RangeTexts::read).collect())
            .collect::<Result<Vec<Vec<_>>>>()?;
        Ok(Self {
            sets: parse_sets(&sets, call.version)?,
            requested,
            routes: ipam
                .routes
                .into_iter()
                .map(canonical_route)
                .collect::<Result<_>>()?,
            data_dir: match ipam.data_dir.as_str() {
                "" => DEFAULT_DATA_DIR.to_owned(),
                data_dir => data_dir.to_owned(),
            },
            resolv_conf: ipam.resolv_conf,
        })
    }
}

pub(crate) fn parse_sets(configs: &[Vec<RangeConfig>], version: Version) -> Result<Vec<RangeSet>> {
    if configs.is_empty() {
        bail!("no IP ranges specified");
    }
    let mut sets = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        let set = RangeSet::parse(config).context(|| format!("invalid range set {index}"))?;
        sets.push(set);
    }
    let v4 = sets.iter().filter(|set| set.is_ipv4()).count();
    if version < Version::V0_3_0 && (v4 > 1 || sets.len() - v4 > 1) {
        bail!("CNI version {version} does not support more than 1 address per family");
    }
    for (index, set) in sets.iter().enumerate() {
        let overlapping = sets[index + 1..]
            .iter()
            .position(|other| set.overlaps(other));
        if let Some(other) = overlapping {
            bail!("range set {index} overlaps with {}", index + 1 + other);
        }
    }
    Ok(sets)
}

/// Reads an address; a prefix length is allowed, since the runtime knows none, and passed over.
pub(crate) fn parse_requested(text: &str) -> Result<IpAddr> {
    if text.is_empty() {
        bail!("cannot understand ip: IP <nil> not v4 nor v6");
    }
    let address = match text.parse::<Cidr>() {
        Ok(cidr) => Ok(cidr.address.to_canonical()),
        Err(_) => ip::parse(text),
    };
    address.map_err(|_| failure!("invalid IP address {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn load(ipam: &str, rest: &str, args: &str, version: Version) -> Result<Config> {
        let stdin = format!(r#"{{"name":"net","ipam":{ipam}{rest}}}"#);
        Config::load(&Call {
            version,
            ..Call::with_config(&stdin, args)
        })
    }

    #[track_caller]
    pub(crate) fn check(ipam: &str, rest: &str, args: &str, sets: &[&str], requested: &[&str]) {
        let config = load(ipam, rest, args, Version::LATEST).unwrap();
        let found: Vec<_> = config.sets.iter().map(ToString::to_string).collect();
        assert_eq!(found, sets);
        let found: Vec<_> = config.requested.iter().map(ToString::to_string).collect();
        assert_eq!(found, requested);
    }

    #[track_caller]
    pub(crate) fn check_refused(ipam: &str, rest: &str, args: &str, expected: &str) {
        let error = load(ipam, rest, args, Version::LATEST).unwrap_err();
        assert_eq!(error.msg, expected);
    }

    const OLD: &str = r#"{"subnet":"10.0.0.0/29"}"#;

    #[test]
    pub(crate) fn sets_of_the_runtime_come_first_and_the_old_form_before_the_new() {
        check(
            r#"{"subnet":"10.0.0.0/29","rangeStart":"10.0.0.4","ranges":[[{"subnet":"10.0.1.0/29"}]]}"#,
            r#","runtimeConfig":{"ipRanges":[[{"subnet":"10.0.2.0/29"}],[{"subnet":"fd00::/124"}]]}"#,
            "",
            &[
                "10.0.2.1-10.0.2.6",
                "fd00::1-fd00::f",
                "10.0.0.4-10.0.0.6",
                "10.0.1.1-10.0.1.6",
            ],
            &[],
        );
    }

    #[test]
    pub(crate) fn requested_of_all_sources_are_added() {
        check(
            OLD,
            r#","args":{"cni":{"ips":["10.0.0.3/29","::ffff:10.0.0.4"]}},"runtimeConfig":{"ips":["fd00::5"]}"#,
            "IgnoreUnknown=1;K8S_POD_NAME=x;IP=10.0.0.2",
            &["10.0.0.1-10.0.0.6"],
            &["10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::5"],
        );
    }

    #[test]
    pub(crate) fn wrong_configurations_are_refused() {
        check_refused("null", "", "", "IPAM config missing 'ipam' key");
        check_refused(r#"{"type":"host-local"}"#, "", "", "no IP ranges specified");
        check_refused(
            r#"{"rangeStart":"10.0.0.1","gateway":"10.0.0.1"}"#,
            "",
            "",
            "no IP ranges specified",
        );
        check_refused(
            r#"{"ranges":[[{"subnet":"10.0.0.0/29"}],[]]}"#,
            "",
            "",
            "invalid range set 1: empty range set",
        );
        check_refused(
            r#"{"ranges":[[{"subnet":"10.0.0.0/29"}],[{"subnet":"10.0.1.0/29"}],[{"subnet":"10.0.1.0/24"}]]}"#,
            "",
            "",
            "range set 1 overlaps with 2",
        );
        check_refused(
            OLD,
            "",
            "IP=x",
            r#"ARGS: error parsing value of pair "IP=x": invalid IP address x"#,
        );
        check_refused(
            r#"{"ranges":[[{"subnet":"10.0.0.0/29","gateway":"x"}]]}"#,
            "",
            "",
            "invalid IP address: x",
        );
        check_refused(
            OLD,
            r#","runtimeConfig":{"ips":[""]}"#,
            "",
            "cannot understand ip: IP <nil> not v4 nor v6",
        );
        check_refused(
            r#"{"subnet":"10.0.0.0/29","routes":[{"dst":"10.9.0.0"}]}"#,
            "",
            "",
            "invalid CIDR address: 10.9.0.0",
        );
    }

    #[test]
    pub(crate) fn old_versions_have_one_address_of_each_family() {
        let version = Version::parse("0.2.0").unwrap();
        let both = r#"{"ranges":[[{"subnet":"10.0.0.0/29"}],[{"subnet":"fd00::/64"}]]}"#;
        assert!(load(both, "", "", version).is_ok());
        let two = r#"{"ranges":[[{"subnet":"10.0.0.0/29"}],[{"subnet":"10.0.1.0/29"}]]}"#;
        assert_eq!(
            load(two, "", "", version).unwrap_err().msg,
            "CNI version 0.2.0 does not support more than 1 address per family"
        );
    }

    #[test]
    pub(crate) fn paths_and_routes_are_read() {
        let ipam = r#"{"subnet":"10.0.0.0/29","dataDir":"/run/x","resolvConf":"/etc/resolv.conf",
            "routes":[{"dst":"2001:db8:2::0/64","gw":"2001:DB8::1"},{"dst":"0.0.0.0/0","mtu":1400}]}"#;
        let config = load(ipam, "", "", Version::LATEST).unwrap();
        assert_eq!(
            (config.data_dir.as_str(), config.resolv_conf.as_str()),
            ("/run/x", "/etc/resolv.conf")
        );
        assert_eq!(config.routes[0].dst, "2001:db8:2::/64");
        assert_eq!(config.routes[0].gw, "2001:db8::1");
        assert_eq!(
            (config.routes[1].dst.as_str(), config.routes[1].mtu),
            ("0.0.0.0/0", 1400)
        );
        let config = load(OLD, "", "", Version::LATEST).unwrap();
        assert_eq!(config.data_dir, "/var/lib/cni/networks");
    }
}
