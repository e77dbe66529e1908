//! dummy: an interface that leads nowhere, for addresses that the container answers for.

use cni::CniResult;

use super::single;
use crate::attachment::Container;
use crate::call::Call;
use crate::config::dummy::{Config, load};
use crate::error::{Context, Result, bail};
use crate::kernel::Message;
use crate::kernel::link::NewLink;

const KIND: &str = "dummy";

/// Returns the request that creates the interface.
fn request(name: &str) -> Message {
    let link = NewLink {
        name,
        kind: KIND,
        ..NewLink::default()
    };
    link.message(|_| {})
}

/// Creates the interface and gives it the addresses of the IPAM plugin.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config = load(call)?;
    let mut container = Container::open(&call.netns)?;
    let ifname = call.ifname.as_str();
    container
        .netlink
        .request(request(ifname))
        .context(|| "failed to create dummy".to_owned())?;
    single::or_delete(call, || {
        let link = container
            .link(ifname)
            .context(|| format!("failed to fetch dummy{ifname:?}"))?;
        let interface = single::made_interface(call, link.mac_text());
        config.ipam.add_for_interface(call, |mut result| {
            result.interfaces = vec![interface];
            container.configure(ifname, &result)?;
            Ok(result)
        })
    })
}

/// Gives the addresses back and deletes the interface.
pub(crate) fn del(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    single::delete(call, &config.ipam, KIND)
}

/// Compares the interface with the previous result.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config = load(call)?;
    let mut container = Container::open(&call.netns)?;
    config.ipam.check(call)?;
    let result = single::expected_result(call, "dummy: ")?;
    let (interface, link) = single::expected_link(&mut container, call, &result, "")?;
    single::check_kind(&link, KIND)?;
    single::check_mac(interface, &link, "")?;
    if !link.is_up() {
        bail!("Interface {} is down", link.name);
    }
    container.check_addresses(&call.ifname, &result.ips)
}

/// Fails when the IPAM plugin could serve no ADD.
pub(crate) fn status(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    config.ipam.require_status(call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::link::requests::check_new_link;

    #[test]
    fn request_has_the_attributes_of_the_reference() {
        check_new_link(
            request("net9"),
            "09000300 6e657439 00000000  10001200 09000100 64756d6d79000000",
        );
    }
}
