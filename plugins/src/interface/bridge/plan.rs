//! The configuration of the bridge plugin, and what follows from it before the kernel is touched.

use cni::CniResult;
use cni::types::Route;

use crate::attachment::cidr;
use crate::config::bridge::Plan;
use crate::error::{Context, Result, failure};
use crate::ip::{self, Cidr};
use crate::kernel::bridge_port::{VLAN_PVID, VLAN_UNTAGGED, Vlans};

/// The VLAN of untagged packets on a trunk without one of its own.
const NATIVE_VLAN: u16 = 1;
/// The index of the container's end among the interfaces of a result.
pub(super) const CONTAINER: i64 = 2;

impl Plan {
    /// Returns the MTU of bridge and pair, or `None` for the kernel's default.
    pub(super) fn mtu(&self) -> Option<u32> {
        let mtu = u32::try_from(self.config.mtu).ok();
        mtu.filter(|mtu| *mtu != 0)
    }

    /// Returns whether the bridge separates VLANs.
    pub(super) fn filters_vlans(&self) -> bool {
        self.vlan.is_some() || self.config.vlan_trunk.is_some()
    }

    /// Returns the VLANs of the container's port, in the order in which the kernel takes them.
    pub(super) fn port_vlans(&self) -> Vec<Vlans> {
        let native = |id| Vlans::one(id, VLAN_PVID | VLAN_UNTAGGED);
        let mut vlans: Vec<_> = self.vlan.map(native).into_iter().collect();
        vlans.extend(rows(&self.trunk));
        if self.vlan.is_none() && !self.trunk.is_empty() {
            vlans.push(native(NATIVE_VLAN));
        }
        vlans
    }

    fn is_gateway(&self) -> bool {
        self.config.is_gateway || self.config.is_default_gateway
    }

    /// Completes the result of the IPAM plugin with gateways and default routes. Returns the addresses that the bridge takes, those of
    /// IPv4 first.
    pub(super) fn complete(&self, result: &mut CniResult) -> Result<Vec<Cidr>> {
        let mut gateways = Vec::new();
        for config in &mut result.ips {
            config.interface = Some(CONTAINER);
            if !self.is_gateway() {
                continue;
            }
            let address = cidr(config)?;
            let gateway = if config.gateway.is_empty() {
                ip::next(address.network().address)
                    .ok_or_else(|| failure!("the network of {address} has no gateway"))?
            } else {
                ip::parse(&config.gateway).context(|| "invalid gateway".to_owned())?
            };
            config.gateway = gateway.to_string();
            gateways.push(Cidr::new(gateway, address.length));
            let default = if address.address.is_ipv4() {
                "0.0.0.0/0"
            } else {
                "::/0"
            };
            // One that says nothing but its destination will take this gateway.
            let bare = Route {
                dst: default.to_owned(),
                ..Route::default()
            };
            let is_there =
                |route: &Route| *route == bare || route.dst == default && !route.gw.is_empty();
            if self.config.is_default_gateway && !result.routes.iter().any(is_there) {
                result.routes.push(Route {
                    gw: config.gateway.clone(),
                    ..bare
                });
            }
        }
        gateways.sort_by_key(|gateway| gateway.address.is_ipv6());
        Ok(gateways)
    }
}

/// Returns ascending identifiers as rows, which make a short request.
fn rows(ids: &[u16]) -> Vec<Vlans> {
    ids.chunk_by(|a, b| a + 1 == *b)
        .map(|row| Vlans {
            first: row[0],
            last: row[row.len() - 1],
            flags: 0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use cni::types::IpConfig;

    use super::*;
    use crate::call::Call;

    fn plan(json: &str) -> Result<Plan> {
        plan_with_args(json, "")
    }

    fn plan_with_args(json: &str, args: &str) -> Result<Plan> {
        Plan::load(&Call::with_config(json, args))
    }

    #[test]
    fn vlans_become_rows() {
        let vlans = |json| plan(json).unwrap().port_vlans();
        let native = VLAN_PVID | VLAN_UNTAGGED;
        assert_eq!(vlans("{}"), []);
        assert_eq!(vlans(r#"{"vlan": 100}"#), [Vlans::one(100, native)]);
        let trunk = r#"{"vlanTrunk": [{"minID": 5, "maxID": 7}, {"id": 8}, {"id": 3}, {"id": 6}]}"#;
        let row = Vlans {
            first: 5,
            last: 8,
            flags: 0,
        };
        assert_eq!(vlans(trunk), [Vlans::one(3, 0), row, Vlans::one(1, native)]);
        assert_eq!(
            vlans(r#"{"vlan": 9, "vlanTrunk": [{"id": 3}]}"#),
            [Vlans::one(9, native), Vlans::one(3, 0)]
        );
        assert!(plan(r#"{"vlanTrunk": []}"#).unwrap().filters_vlans());
        assert!(!plan(r#"{"vlan": 0}"#).unwrap().filters_vlans());
    }

    #[test]
    fn impossible_vlans_are_refused() {
        for (json, expected) in [
            (
                r#"{"vlan": -1}"#,
                "invalid VLAN ID -1 (must be between 0 and 4094)",
            ),
            (
                r#"{"vlan": 4095}"#,
                "invalid VLAN ID 4095 (must be between 0 and 4094)",
            ),
            (
                r#"{"vlanTrunk": [{"id": 0}]}"#,
                "incorrect trunk id parameter",
            ),
            (
                r#"{"vlanTrunk": [{"minID": 0, "maxID": 1}]}"#,
                "incorrect trunk minID parameter",
            ),
            (
                r#"{"vlanTrunk": [{"minID": 1, "maxID": 5000}]}"#,
                "incorrect trunk maxID parameter",
            ),
            (
                r#"{"vlanTrunk": [{"minID": 2, "maxID": 1}]}"#,
                "minID is greater than maxID in trunk parameter",
            ),
            (
                r#"{"vlanTrunk": [{"minID": 2}]}"#,
                "minID and maxID should be configured simultaneously, maxID is missing",
            ),
            (
                r#"{"vlanTrunk": [{"maxID": 2}]}"#,
                "minID and maxID should be configured simultaneously, minID is missing",
            ),
        ] {
            assert_eq!(plan(json).unwrap_err().msg, expected, "{json}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for json in [
            r#"{"hairpinMode": true, "promiscMode": true}"#,
            r#"{"disableContainerInterface": true, "ipam": {"type": "static"}}"#,
        ] {
            assert!(plan(json).unwrap().validate().is_err(), "{json}");
        }
        assert_eq!(plan("{}").unwrap().validate(), Ok(()));
    }

    #[test]
    fn runtime_decides_the_hardware_address() {
        let mac = |json: &str, args: &str| plan_with_args(json, args).unwrap().mac;
        let args = r#""args": {"cni": {"mac": "02:00:00:00:00:02"}}"#;
        let runtime = r#""runtimeConfig": {"mac": "02:00:00:00:00:03"}"#;
        let environment = "MAC=02:00:00:00:00:01";
        assert_eq!(mac("{}", environment), "02:00:00:00:00:01");
        assert_eq!(
            mac(&format!("{{{args}}}"), environment),
            "02:00:00:00:00:02"
        );
        assert_eq!(
            mac(&format!("{{{args}, {runtime}}}"), environment),
            "02:00:00:00:00:03"
        );
        let error = plan_with_args("{}", "MAC=x").unwrap().mac().unwrap_err();
        assert_eq!(
            error.msg,
            "failed to make veth pair: address x: invalid MAC address"
        );
    }

    #[test]
    fn bridge_takes_the_gateways() {
        let ip = |address: &str, gateway: &str| IpConfig {
            address: address.to_owned(),
            gateway: gateway.to_owned(),
            ..IpConfig::default()
        };
        let mut result = CniResult {
            ips: vec![ip("fd00::5/64", ""), ip("10.1.2.3/24", "10.1.2.9")],
            routes: vec![Route {
                dst: "0.0.0.0/0".to_owned(),
                gw: "10.1.2.7".to_owned(),
                ..Route::default()
            }],
            ..CniResult::default()
        };
        let mut plain = result.clone();
        let gateways = plan(r#"{"isDefaultGateway": true}"#)
            .unwrap()
            .complete(&mut result)
            .unwrap();
        let gateways: Vec<_> = gateways.iter().map(ToString::to_string).collect();
        assert_eq!(gateways, ["10.1.2.9/24", "fd00::1/64"]);
        assert_eq!(result.ips[0].gateway, "fd00::1");
        assert_eq!(result.ips[1].interface, Some(2));
        let routes: Vec<_> = result
            .routes
            .iter()
            .map(|route| format!("{} {}", route.dst, route.gw))
            .collect();
        assert_eq!(routes, ["0.0.0.0/0 10.1.2.7", "::/0 fd00::1"]);

        let mut bare = plain.clone();
        bare.routes[0].gw.clear();
        plan(r#"{"isDefaultGateway": true}"#)
            .unwrap()
            .complete(&mut bare)
            .unwrap();
        let destinations: Vec<_> = bare.routes.iter().map(|route| &route.dst).collect();
        assert_eq!(destinations, ["0.0.0.0/0", "::/0"]);

        let gateways = plan("{}").unwrap().complete(&mut plain).unwrap();
        assert_eq!(gateways, []);
        assert_eq!(plain.ips[0].gateway, "");
        assert_eq!(plain.routes.len(), 1);
    }
}
