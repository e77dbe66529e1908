//! Links (`linux/if_link.h`), as the kernel describes them.

use crate::codec::{Attributes, Message, text, u16_at, u32_at};

/// Creates or changes a link, and describes one.
pub const RTM_NEWLINK: u16 = 16;
/// Requests a link, or all.
pub const RTM_GETLINK: u16 = 18;

/// The hardware address.
pub const IFLA_ADDRESS: u16 = 1;
/// The name.
pub const IFLA_IFNAME: u16 = 3;
/// The MTU.
pub const IFLA_MTU: u16 = 4;
/// The index of the link below.
pub const IFLA_LINK: u16 = 5;
/// The index of the bridge, bond or VRF.
pub const IFLA_MASTER: u16 = 10;
/// The length of the transmit queue.
pub const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
/// The kind, and the attributes of the kind.
pub const IFLA_LINKINFO: u16 = 18;
/// The alias.
pub const IFLA_IFALIAS: u16 = 20;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_PROP_LIST: u16 = 52;
/// An alternative name.
pub const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_PARENT_DEV_NAME: u16 = 56;
/// The kind, in `IFLA_LINKINFO`.
pub const IFLA_INFO_KIND: u16 = 1;
/// The attributes of the kind, in `IFLA_LINKINFO`.
pub const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;

/// The beginning of an alias that names an attachment.
const ATTACHMENT: &str = "cni:";
/// The longest alias in bytes (`IFALIASZ` with its zero).
const ALIAS_LIMIT: usize = 255;

/// The flag of a link that is up (`linux/if.h`).
pub const IFF_UP: u32 = 0x1;

/// The hardware type of Ethernet, also of virtual links that carry its frames (`linux/if_arp.h`).
const ARPHRD_ETHER: u16 = 1;

/// A link as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index in its network namespace.
    pub index: u32,
    /// `ARPHRD_*`: the frames that it carries.
    pub hardware: u16,
    /// Its name.
    pub name: String,
    /// `IFF_*`.
    pub flags: u32,
    /// `IF_OPER_*`: whether it passes packets.
    pub oper_state: u8,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its hardware address; empty where it has none.
    pub mac: Vec<u8>,
    /// The index of the bridge, bond or VRF that it is a port of.
    pub master: Option<u32>,
    /// The index of the link below it, or of a veth's other end; in another network namespace if `has_remote_parent`.
    pub parent: Option<u32>,
    /// Whether `parent` is an index in another network namespace.
    pub has_remote_parent: bool,
    /// The length of its transmit queue in packets.
    pub tx_queue: u32,
    /// How many users hold it promiscuous.
    pub promiscuity: u32,
    /// Its alias, as `ip link set alias` writes it, unless that names an attachment.
    pub alias: String,
    /// The attachment that the link was made for: the text of [`attachment_alias`]; empty without.
    pub attachment: String,
    /// The kind of a virtual link (`macvlan`); empty for hardware.
    pub kind: String,
    /// The attributes that its kind has.
    pub data: Vec<u8>,
    /// The kind of its master, as a port sees it.
    pub port_kind: String,
    /// Its alternative names.
    pub other_names: Vec<String>,
    /// The name of the hardware's device on its bus (`0000:18:02.5`); empty without hardware, and on kernels before 5.14.
    pub device: String,
}

impl Link {
    /// Returns whether the link is up, as far as its owner decides.
    pub fn is_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }

    /// Returns whether this is a name of the link, its own or an alternative one.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.other_names.iter().any(|other| other == name)
    }

    /// Returns whether the link carries Ethernet frames; a loopback, and the TUN device of a VPN, do not.
    pub fn is_ethernet(&self) -> bool {
        self.hardware == ARPHRD_ETHER
    }

    /// Returns its hardware address as text.
    pub fn mac_text(&self) -> String {
        mac_text(&self.mac)
    }

    /// Returns an attribute of the link's kind.
    pub fn data(&self, kind: u16) -> Option<&[u8]> {
        Attributes(&self.data).get(kind)
    }

    /// Requests all links of the socket's network namespace.
    pub fn list() -> Message {
        Message::new(RTM_GETLINK, 0, &[0; 16])
    }

    /// Reads a link from what follows the header of a message.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut link = Self {
            hardware: u16_at(body, 2)?,
            index: u32_at(body, 4)?,
            flags: u32_at(body, 8)?,
            ..Self::default()
        };
        for (kind, value) in Attributes(body.get(16..)?) {
            match kind {
                IFLA_ADDRESS => link.mac = value.to_vec(),
                IFLA_IFNAME => link.name = text(value),
                IFLA_MTU => link.mtu = u32_at(value, 0).unwrap_or_default(),
                IFLA_OPERSTATE => link.oper_state = value.first().copied().unwrap_or_default(),
                IFLA_LINK => link.parent = u32_at(value, 0).filter(|index| *index != 0),
                IFLA_LINK_NETNSID => link.has_remote_parent = true,
                IFLA_MASTER => link.master = u32_at(value, 0).filter(|index| *index != 0),
                IFLA_TXQLEN => link.tx_queue = u32_at(value, 0).unwrap_or_default(),
                IFLA_PROMISCUITY => link.promiscuity = u32_at(value, 0).unwrap_or_default(),
                IFLA_IFALIAS => {
                    let alias = text(value);
                    let names_attachment = alias.starts_with(ATTACHMENT);
                    let place = if names_attachment {
                        &mut link.attachment
                    } else {
                        &mut link.alias
                    };
                    *place = alias;
                }
                IFLA_PARENT_DEV_NAME => link.device = text(value),
                IFLA_PROP_LIST => {
                    let properties = Attributes(value);
                    let names = properties.filter(|(kind, _)| *kind == IFLA_ALT_IFNAME);
                    link.other_names = names.map(|(_, value)| text(value)).collect();
                }
                IFLA_LINKINFO => {
                    let info = Attributes(value);
                    link.kind = info.get(IFLA_INFO_KIND).map(text).unwrap_or_default();
                    link.data = info.get(IFLA_INFO_DATA).unwrap_or_default().to_vec();
                    link.port_kind = info.get(IFLA_INFO_SLAVE_KIND).map(text).unwrap_or_default();
                }
                _ => {}
            }
        }
        Some(link)
    }
}

/// Returns the alias of a link that is made for an attachment, by which it is found when the pod has given it another name: `KubeVirt` does.
/// Empty when a container's id is too long for it.
pub fn attachment_alias(container: &str, ifname: &str) -> String {
    let alias = [ATTACHMENT, container, ":", ifname].concat();
    if alias.len() > ALIAS_LIMIT {
        String::new()
    } else {
        alias
    }
}

/// Returns a hardware address as text: `0a:58:…`.
pub fn mac_text(mac: &[u8]) -> String {
    let bytes: Vec<_> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_type_is_read() {
        // Family, padding, type, index, flags and mask of flags, as the kernel sends them.
        let link = |kind: u16| {
            let mut body = vec![0, 0];
            body.extend(kind.to_ne_bytes());
            body.extend([7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            Link::parse(&body).unwrap()
        };
        assert!(link(ARPHRD_ETHER).is_ethernet());
        // ARPHRD_NONE: a TUN device; ARPHRD_LOOPBACK.
        for other in [0xfffe, 772] {
            assert!(!link(other).is_ethernet());
        }
    }

    #[test]
    fn alias_that_names_an_attachment_is_read_apart_from_others() {
        let read = |alias: &str| {
            let mut message = Message::new(RTM_NEWLINK, 0, &[0; 16]);
            message.put(IFLA_IFALIAS, alias.as_bytes());
            let link = Link::parse(&message.finish(0, 1)[16..]).unwrap();
            (link.alias, link.attachment)
        };
        assert_eq!(read("uplink"), ("uplink".to_owned(), String::new()));
        let ours = attachment_alias("3f2a", "net1");
        assert_eq!(read(&ours), (String::new(), "cni:3f2a:net1".to_owned()));
        assert_eq!(attachment_alias(&"3".repeat(246), "net1").len(), 255);
        assert_eq!(attachment_alias(&"3".repeat(247), "net1"), "");
    }

    #[test]
    fn other_names_and_the_device_are_read() {
        let mut message = Message::new(RTM_NEWLINK, 0, &[0; 16]);
        message
            .put_text(IFLA_IFNAME, "eth0")
            .put_text(IFLA_PARENT_DEV_NAME, "0000:18:02.5");
        message.nest(IFLA_PROP_LIST, |properties| {
            for name in ["enp24s2f5", "enx020000000001"] {
                properties.put_text(IFLA_ALT_IFNAME, name);
            }
        });
        let link = Link::parse(&message.finish(0, 1)[16..]).unwrap();
        assert_eq!(link.name, "eth0");
        assert_eq!(link.other_names, ["enp24s2f5", "enx020000000001"]);
        assert_eq!(link.device, "0000:18:02.5");
        assert!(link.is_named("eth0") && link.is_named("enp24s2f5") && !link.is_named("eth1"));
    }
}
