//! loopback: brings the container's `lo` up.

use cni::CniResult;
use cni::types::{Interface, IpConfig};

use crate::attachment::Container;
use crate::call::Call;
use crate::error::{Context, Result, bail, failure};

const NAME: &str = "lo";

/// Brings `lo` up. A previous result passes through unchanged.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let prev_result = call.prev_result()?;
    let mut container = Container::open(&call.netns)?;
    let link = container.link(NAME)?;
    container
        .netlink
        .set_up(link.index)
        .context(|| format!("failed to set {NAME:?} UP"))?;
    let addresses = container
        .netlink
        .addresses(link.index)
        .context(|| "could not list addresses".to_owned())?;
    if let Some(address) = addresses
        .iter()
        .find(|address| !address.cidr.address.is_loopback())
    {
        bail!(
            "loopback interface found with non-loopback address {:?}",
            address.cidr.address.to_string()
        );
    }
    if let Some(result) = prev_result {
        return Ok(result);
    }
    let first = |is_v4: bool| {
        addresses
            .iter()
            .find(|address| address.cidr.address.is_ipv4() == is_v4)
    };
    Ok(CniResult {
        interfaces: vec![Interface {
            name: NAME.to_owned(),
            mac: "00:00:00:00:00:00".to_owned(),
            sandbox: call.netns.clone(),
            ..Interface::default()
        }],
        ips: [first(true), first(false)]
            .into_iter()
            .flatten()
            .map(|address| IpConfig {
                interface: Some(0),
                address: address.cidr.to_string(),
                gateway: String::new(),
            })
            .collect(),
        ..CniResult::default()
    })
}

/// Takes `lo` down.
pub(crate) fn del(call: &Call) -> Result<()> {
    let Some(mut container) = Container::open_if_present(&call.netns)? else {
        return Ok(());
    };
    let link = container.link(NAME)?;
    container
        .netlink
        .set_down(link.index)
        .context(|| format!("failed to set {NAME:?} DOWN"))
}

/// Fails unless `lo` is up.
pub(crate) fn check(call: &Call) -> Result<()> {
    let mut container = Container::open(&call.netns)?;
    if container.link(NAME)?.is_up() {
        Ok(())
    } else {
        Err(failure!("loopback interface is down"))
    }
}
