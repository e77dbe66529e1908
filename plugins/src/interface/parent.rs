//! The link below a macvlan, ipvlan or vlan: it is on the host, or in the container with `linkInContainer`.

use cni::CniError;

use crate::attachment::{Container, link_by_name, random_veth_name};
use crate::call::Call;
use crate::error::{Context, Result, bail, failure};
use crate::kernel::link::{Link, attachment_alias};
use crate::kernel::route::RT_TABLE_MAIN;
use crate::kernel::{Message, Netlink};

/// The container, and the namespace in which the link below is.
pub(super) struct Parents {
    pub(super) container: Container,
    /// The host; `None` when the link below is in the container.
    host: Option<Netlink>,
}

impl Parents {
    /// Opens the container's namespace, and a socket on the host unless the link below is in the container.
    pub(super) fn open(call: &Call, is_in_container: bool) -> Result<Self> {
        let container = Container::open(&call.netns)?;
        let host = if is_in_container {
            None
        } else {
            Some(Netlink::open()?)
        };
        Ok(Self { container, host })
    }

    fn netlink(&mut self) -> &mut Netlink {
        self.host.as_mut().unwrap_or(&mut self.container.netlink)
    }

    pub(super) fn link(&mut self, name: &str) -> Result<Link> {
        link_by_name(self.netlink(), name)
    }

    /// Returns the link of the default route.
    pub(super) fn link_of_default_route(&mut self) -> Result<Link> {
        let netlink = self.netlink();
        let routes = netlink
            .routes()
            .context(|| "failed to list routes".to_owned())?;
        let index = routes
            .iter()
            .filter(|route| route.destination.length == 0 && route.table == RT_TABLE_MAIN)
            .find_map(|route| route.link)
            .ok_or_else(|| failure!("no default route interface found"))?;
        netlink
            .link_by_index(index)
            .context(|| "failed to look up the link of the default route".to_owned())
    }

    /// Creates a link of the container on `parent`. `request` makes the request of a name and the descriptor of the container's
    /// namespace.
    ///
    /// The link gets its name afterwards: the kernel wants the first one free in the namespace of the link below as well. Its alias names the
    /// attachment.
    pub(super) fn create(
        &mut self,
        parent: &Link,
        kind: &str,
        call: &Call,
        request: impl FnOnce(&str, u32) -> Message,
    ) -> Result<Link> {
        let temporary = random_veth_name()?;
        let message = request(&temporary, self.container.namespace.fd());
        self.netlink()
            .request(message)
            .context(|| format!("failed to create {kind}"))
            .map_err(|error| with_cure(error, kind, parent))?;
        let link = self.container.link(&temporary)?;
        let netlink = &mut self.container.netlink;
        let ifname = &call.ifname;
        let alias = attachment_alias(&call.container_id, ifname);
        if let Err(error) = netlink.rename_with_alias(link.index, ifname, &alias) {
            // The error that is reported is the first one.
            let _ = netlink.delete_link(link.index);
            bail!("failed to rename {kind} to {ifname:?}: {error}");
        }
        Ok(link)
    }
}

/// Adds the cure where the kernel refuses a link because the one below it carries no Ethernet frames.
fn with_cure(mut error: CniError, kind: &str, parent: &Link) -> CniError {
    if !parent.is_ethernet() {
        error.msg += "; ";
        error.msg += &parent.name;
        error.msg += " is no Ethernet interface, which a ";
        error.msg += kind;
        error.msg += " needs as its master: name one that has a MAC address";
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_link_without_ethernet_has_a_cure() {
        let refused = |hardware| {
            let parent = Link {
                name: "tailscale0".to_owned(),
                hardware,
                ..Link::default()
            };
            let error = failure!("failed to create macvlan: invalid argument");
            with_cure(error, "macvlan", &parent).msg
        };
        assert_eq!(
            refused(0xfffe),
            "failed to create macvlan: invalid argument; tailscale0 is no Ethernet interface, which a macvlan needs as its master: name one that has a MAC address"
        );
        assert_eq!(refused(1), "failed to create macvlan: invalid argument");
    }
}
