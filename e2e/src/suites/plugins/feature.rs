//! Kinds of links that a kernel may lack, found by trying.

use std::collections::BTreeSet;

use super::sandbox;
use crate::sh;

/// A kind of link, or an option of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Feature {
    Dummy,
    Ipvlan,
    Vlan,
    VlanFiltering,
    Vrf,
}

const ALL: [Feature; 5] = [
    Feature::Dummy,
    Feature::Ipvlan,
    Feature::Vlan,
    Feature::VlanFiltering,
    Feature::Vrf,
];

impl Feature {
    /// Returns what `ip` needs to create such a link on `parent`.
    fn link(self) -> &'static str {
        match self {
            Self::Dummy => "type dummy",
            Self::Ipvlan => "link parent type ipvlan",
            Self::Vlan => "link parent type vlan id 5",
            Self::VlanFiltering => "type bridge vlan_filtering 1",
            Self::Vrf => "type vrf table 5",
        }
    }
}

/// Returns the features that this kernel has.
pub(super) fn kernel_features() -> anyhow::Result<BTreeSet<Feature>> {
    let parent = "ip link add parent type veth peer name other";
    let mut present = BTreeSet::new();
    for feature in ALL {
        let (options, kind) = feature
            .link()
            .split_once("type ")
            .unwrap_or(("", feature.link()));
        let script =
            format!("{parent}; ip link add {options} name probe type {kind} || echo absent");
        let output = sh::run(sandbox::command("sh").args(["-ec", &script]))?;
        if output.is_empty() {
            present.insert(feature);
        }
    }
    Ok(present)
}
