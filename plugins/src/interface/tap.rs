//! tap: a tap device in the container, for a virtual machine there, with or without addresses.

use std::process::Command;

use cni::CniResult;
use cni::types::Interface;

use super::single;
use crate::attachment::{Container, link_by_name};
use crate::call::Call;
use crate::config::tap::Config;
use crate::error::{Context, Result, failure};
use crate::kernel::link::mac_text;
use crate::kernel::tun::{IFF_MULTI_QUEUE, IFF_NO_PI, IFF_VNET_HDR, NewTap};

/// The context of the next program that the thread starts; links that it creates have it.
const EXEC_LABEL: &str = "/proc/thread-self/attr/exec";

/// The kernel has one kind for TUN and TAP devices.
const KIND: &str = "tun";

impl Config {
    /// Returns the device to create. Programs that attach see its flags; they are those of the reference, which differ with the ids.
    fn tap<'a>(&self, name: &'a str) -> NewTap<'a> {
        let queues = if self.multi_queue { IFF_MULTI_QUEUE } else { 0 };
        let flags = match (self.owner, self.group) {
            (Some(_), Some(_)) if self.multi_queue => IFF_VNET_HDR | IFF_NO_PI,
            (Some(_), Some(_)) => IFF_VNET_HDR,
            _ => IFF_NO_PI,
        };
        NewTap {
            name,
            flags: flags | queues,
            owner: self.owner,
            group: self.group,
        }
    }

    /// Returns the arguments of `ip` that create the device.
    fn ip_arguments(&self, name: &str) -> Vec<String> {
        let mut arguments = vec!["tuntap", "add", "mode", "tap", "name", name];
        if self.multi_queue {
            arguments.push("multi_queue");
        }
        let mut arguments: Vec<_> = arguments.into_iter().map(ToOwned::to_owned).collect();
        for (key, id) in [("user", self.owner), ("group", self.group)] {
            if let Some(id) = id {
                arguments.extend([key.to_owned(), id.to_string()]);
            }
        }
        arguments
    }
}

/// Creates the device and gives it the addresses of the IPAM plugin.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config = Config::load(call)?;
    let (mac, mtu) = (config.parse_mac()?, config.parse_mtu()?);
    let mut container = Container::open(&call.netns)?;
    create(&config, &call.ifname, &container)?;
    single::or_delete(call, || {
        let interface = prepare(call, &config, mac.as_deref(), mtu, &mut container)?;
        configure(call, &config, interface, &mut container)
    })
}

/// Creates the device in the container.
fn create(config: &Config, name: &str, container: &Container) -> Result<()> {
    let create = || {
        if config.selinux_context.is_empty() {
            config
                .tap(name)
                .create()
                .map_err(|error| failure!("failed to create tap: {error}"))
        } else {
            create_with_context(config, name)
        }
    };
    container.enter_netns(create)?
}

/// Creates the device by a program that runs in the `SELinux` context: the kernel gives a device the context of its creator, and
/// policies let no plugin change its own.
fn create_with_context(config: &Config, name: &str) -> Result<()> {
    let set_label = |label: &str| {
        std::fs::write(EXEC_LABEL, label)
            .context(|| format!("failed set socket label: write {EXEC_LABEL}"))
    };
    set_label(&config.selinux_context)?;
    let output = Command::new("ip").args(config.ip_arguments(name)).output();
    // A newline clears the context: an IPAM plugin has none.
    set_label("\n")?;
    let output = output.context(|| "failed to run command ip".to_owned())?;
    if output.status.success() {
        return Ok(());
    }
    Err(failure!(
        "failed to run command {}{}: {}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status
    ))
}

/// Gives the device its attributes and brings it up.
fn prepare(
    call: &Call,
    config: &Config,
    mac: Option<&[u8]>,
    mtu: Option<u32>,
    container: &mut Container,
) -> Result<Interface> {
    let name = call.ifname.as_str();
    let netlink = &mut container.netlink;
    let link = netlink
        .link_by_name(name)
        .context(|| format!("failed to refetch tap {name:?}"))?;
    if let Some(mtu) = mtu {
        netlink
            .set_mtu(link.index, mtu)
            .context(|| format!("failed to set the MTU of {name:?} to {mtu}"))?;
    }
    if let Some(mac) = mac {
        netlink.set_mac(link.index, mac).context(|| {
            format!(
                "failed to set the MAC address of {name:?} to {}",
                mac_text(mac)
            )
        })?;
    }
    if !config.bridge.is_empty() {
        let bridge = &config.bridge;
        let index = link_by_name(netlink, bridge)
            .context(|| format!("failed to get bridge {bridge}"))?
            .index;
        netlink
            .set_master(link.index, index)
            .context(|| format!("failed to set tap {name} as a port of bridge {bridge}"))?;
    }
    netlink
        .set_up(link.index)
        .context(|| "failed to set tap interface up".to_owned())?;
    let mac = mac.map_or_else(|| link.mac_text(), mac_text);
    Ok(single::made_interface(call, mac))
}

fn configure(
    call: &Call,
    config: &Config,
    interface: Interface,
    container: &mut Container,
) -> Result<CniResult> {
    if !config.ipam.is_set() {
        return Ok(single::without_addresses(interface, &config.dns));
    }
    config.ipam.add_for_interface(call, |addresses| {
        let notify = &single::NOTIFY[..1];
        single::configure(call, container, interface, &config.dns, notify, addresses)
    })
}

/// Gives the addresses back and deletes the device.
pub(crate) fn del(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    single::delete(call, &config.ipam, KIND)
}

/// Compares the addresses and routes with the previous result.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    let mut container = Container::open(&call.netns)?;
    config.ipam.check(call)?;
    let result = single::expected_result(call, "")?;
    single::expected_link(&mut container, call, &result, "")?;
    single::check_addresses_and_routes(&mut container, call, &result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Config {
        serde_json::from_str(json).unwrap()
    }

    #[track_caller]
    fn check(json: &str, flags: u16, arguments: &str) {
        let config = config(json);
        let tap = config.tap("net1");
        assert_eq!(
            (tap.flags, tap.owner, tap.group),
            (flags, config.owner, config.group)
        );
        assert_eq!(
            config.ip_arguments("net1").join(" "),
            format!("tuntap add mode tap name net1{arguments}")
        );
    }

    #[test]
    fn flags_follow_queues_and_ids() {
        check("{}", IFF_NO_PI, "");
        check(
            r#"{"multiqueue":true,"owner":7}"#,
            IFF_NO_PI | IFF_MULTI_QUEUE,
            " multi_queue user 7",
        );
        check(r#"{"group":0}"#, IFF_NO_PI, " group 0");
        check(r#"{"owner":0,"group":9}"#, IFF_VNET_HDR, " user 0 group 9");
        check(
            r#"{"owner":1,"group":9,"multiqueue":true}"#,
            IFF_VNET_HDR | IFF_NO_PI | IFF_MULTI_QUEUE,
            " multi_queue user 1 group 9",
        );
    }

    #[test]
    fn wrong_numbers_are_refused() {
        assert_eq!(config("{}").parse_mtu().unwrap(), None);
        assert_eq!(config(r#"{"mtu":1400}"#).parse_mtu().unwrap(), Some(1400));
        let error = config(r#"{"mtu":-1}"#).parse_mtu().unwrap_err();
        assert_eq!(error.msg, "invalid MTU -1");
        let error = config(r#"{"mac":"x"}"#).parse_mac().unwrap_err();
        assert_eq!(
            error.msg,
            "invalid args x for MAC addr: address x: invalid MAC address"
        );
    }
}
