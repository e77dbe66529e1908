//! The configuration of bridge.

use serde::Deserialize;

use crate::call::Call;
use crate::config::{Args, DnsConfig, IpamConfig, Mac, Masquerade, parse_mac};
use crate::error::{Result, bail, failure};

/// The highest identifier of a VLAN.
pub(crate) const MAX_VLAN: i64 = 4094;

/// The configuration as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key of the configuration"
)]
pub(crate) struct Config {
    /// The bridge's name; `cni0` when empty.
    pub(crate) bridge: String,
    /// Whether the bridge takes the gateway's address.
    #[serde(rename = "isgateway")]
    pub(crate) is_gateway: bool,
    /// Whether that gateway is the container's default route as well.
    #[serde(rename = "isdefaultgateway")]
    pub(crate) is_default_gateway: bool,
    /// Whether another address of the bridge gives way to the gateway's.
    #[serde(rename = "forceaddress")]
    pub(crate) force_address: bool,
    #[serde(flatten)]
    pub(crate) masquerade: Masquerade,
    pub(crate) mtu: i64,
    #[serde(rename = "hairpinmode")]
    pub(crate) hairpin_mode: bool,
    #[serde(rename = "promiscmode")]
    pub(crate) promisc_mode: bool,
    pub(crate) vlan: i64,
    #[serde(rename = "vlantrunk")]
    pub(crate) vlan_trunk: Option<Vec<VlanTrunk>>,
    /// Whether a port with VLANs stays in the bridge's default VLAN.
    #[serde(rename = "preservedefaultvlan")]
    pub(crate) preserve_default_vlan: bool,
    /// Whether the container may send only with its own hardware address.
    #[serde(rename = "macspoofchk")]
    pub(crate) mac_spoof_check: bool,
    /// Whether duplicate address detection runs for IPv6 addresses.
    #[serde(rename = "enabledad")]
    pub(crate) enable_dad: bool,
    /// Whether the container's end stays down.
    #[serde(rename = "disablecontainerinterface")]
    pub(crate) disable_container_interface: bool,
    #[serde(rename = "portisolation")]
    pub(crate) port_isolation: bool,
    pub(crate) ipam: IpamConfig,
    pub(crate) dns: DnsConfig,
    pub(crate) args: Args<Mac>,
    #[serde(rename = "runtimeconfig")]
    pub(crate) runtime: Mac,
}

/// Some VLANs of a trunk.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VlanTrunk {
    #[serde(rename = "minid")]
    pub(crate) min_id: Option<i64>,
    #[serde(rename = "maxid")]
    pub(crate) max_id: Option<i64>,
    pub(crate) id: Option<i64>,
}

/// A configuration that was checked.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    /// The port's own VLAN.
    pub(crate) vlan: Option<u16>,
    /// The VLANs of the port as a trunk, in ascending order.
    pub(crate) trunk: Vec<u16>,
    /// The hardware address of the container's end as text; empty when the kernel chooses.
    pub(crate) mac: String,
}

impl Plan {
    /// Reads and checks the configuration.
    pub(crate) fn load(call: &Call) -> Result<Self> {
        let mut config: Config = call.config()?;
        if config.bridge.is_empty() {
            "cni0".clone_into(&mut config.bridge);
        }
        let vlan = u16::try_from(config.vlan)
            .ok()
            .filter(|_| config.vlan <= MAX_VLAN)
            .ok_or_else(|| {
                failure!(
                    "invalid VLAN ID {} (must be between 0 and {MAX_VLAN})",
                    config.vlan
                )
            })?;
        let trunk = trunk_ids(config.vlan_trunk.as_deref().unwrap_or_default())?;
        // The runtime's own request comes before that of the configuration's arguments, and that before CNI_ARGS.
        let args = call.known_args(&["MAC"])?;
        let requested = [
            config.runtime.mac.as_str(),
            config.args.cni.mac.as_str(),
            args.get("MAC").unwrap_or_default(),
        ];
        let mac = requested.into_iter().find(|mac| !mac.is_empty());
        Ok(Self {
            vlan: Some(vlan).filter(|vlan| *vlan != 0),
            trunk,
            mac: mac.unwrap_or_default().to_owned(),
            config,
        })
    }

    /// Refuses what ADD cannot do.
    pub(crate) fn validate(&self) -> Result<()> {
        let config = &self.config;
        if config.ipam.is_set() && config.disable_container_interface {
            bail!("cannot use IPAM when DisableContainerInterface flag is set");
        }
        if config.hairpin_mode && config.promisc_mode {
            bail!("cannot set hairpin mode and promiscuous mode at the same time");
        }
        Ok(())
    }

    /// Returns the hardware address of the container's end; empty when the kernel chooses.
    pub(crate) fn mac(&self) -> Result<Vec<u8>> {
        if self.mac.is_empty() {
            return Ok(Vec::new());
        }
        parse_mac(&self.mac).ok_or_else(|| {
            failure!(
                "failed to make veth pair: address {}: invalid MAC address",
                self.mac
            )
        })
    }
}

/// Returns the VLANs of a trunk in ascending order.
fn trunk_ids(trunk: &[VlanTrunk]) -> Result<Vec<u16>> {
    let id = |number: i64, name: &str| {
        u16::try_from(number)
            .ok()
            .filter(|_| (1..=MAX_VLAN).contains(&number))
            .ok_or_else(|| failure!("incorrect trunk {name} parameter"))
    };
    let mut ids = Vec::new();
    for entry in trunk {
        match (entry.min_id, entry.max_id) {
            (Some(min), Some(max)) => {
                let (min, max) = (id(min, "minID")?, id(max, "maxID")?);
                if max < min {
                    bail!("minID is greater than maxID in trunk parameter");
                }
                ids.extend(min..=max);
            }
            (None, None) => {}
            (min, _) => {
                let missing = if min.is_none() { "minID" } else { "maxID" };
                bail!("minID and maxID should be configured simultaneously, {missing} is missing");
            }
        }
        if let Some(number) = entry.id {
            ids.push(id(number, "id")?);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let plan = Plan::load(call)?;
    plan.validate()?;
    plan.mac()?;
    plan.config.masquerade.check()
}
