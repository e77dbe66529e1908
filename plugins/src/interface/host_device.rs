//! host-device: moves a link of the host into the container and, on DEL, back. The link's alias keeps its name on the host meanwhile.
//! A PCI device whose driver gives it to user space (DPDK) has no link to move: it gets only addresses.

use std::path::{Path, PathBuf};

use cni::CniResult;
use cni::types::{Dns, Interface};

use super::single;
use crate::attachment::{Container, link_by_name};
use crate::call::Call;
use crate::config::host_device::Config;
use crate::error::{Context, Result, bail, failure};
use crate::kernel::link::Link;
use crate::kernel::netns::Namespace;
use crate::kernel::{Errno, Netlink};

/// The drivers that give a device to user space.
const USER_SPACE_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/// The directories in which the kernel shows devices.
struct Sysfs {
    pci: PathBuf,
    auxiliary: PathBuf,
}

impl Sysfs {
    fn below(root: &Path) -> Self {
        Self {
            pci: root.join("bus/pci/devices"),
            auxiliary: root.join("bus/auxiliary/devices"),
        }
    }
}

/// How the link is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    Name(String),
    Mac(Vec<u8>),
    /// The link is the first one in this directory.
    Directory(PathBuf),
}

impl Config {
    /// Reads the configuration of a call.
    fn load(call: &Call) -> Result<(Self, Sysfs)> {
        let sysfs = Sysfs::below(Path::new("/sys"));
        let config: Self = call.config()?;
        Ok((config.with_device(&sysfs)?, sysfs))
    }

    /// Puts the device of the runtime in its place and finds out whether user space has it.
    fn with_device(mut self, sysfs: &Sysfs) -> Result<Self> {
        let id = std::mem::take(&mut self.runtime.device_id);
        if !id.is_empty() {
            if sysfs.pci.join(&id).exists() {
                self.pci_address = id;
            } else if sysfs.auxiliary.join(&id).exists() {
                self.pci_address.clear();
                self.auxiliary = id;
            } else {
                bail!("runtime config DeviceID {id} not found or unsupported");
            }
        }
        let names = [
            &self.device,
            &self.hwaddr,
            &self.kernelpath,
            &self.pci_address,
            &self.auxiliary,
        ];
        if names.iter().all(|name| name.is_empty()) {
            bail!(r#"specify either "device", "hwaddr", "kernelpath" or "pciBusID""#);
        }
        if !self.pci_address.is_empty() {
            self.dpdk_mode = has_user_space_driver(sysfs, &self.pci_address)
                .context(|| "error with host device".to_owned())?;
        }
        Ok(self)
    }

    /// Decides how the link is found; the first key that is set counts.
    fn selector(&self, sysfs: &Sysfs) -> Result<Selector> {
        if !self.device.is_empty() {
            return Ok(Selector::Name(self.device.clone()));
        }
        if !self.hwaddr.is_empty() {
            return self.parse_hwaddr().map(Selector::Mac);
        }
        if !self.kernelpath.is_empty() {
            self.check_kernelpath()?;
            return Ok(Selector::Directory(Path::new(&self.kernelpath).join("net")));
        }
        if self.pci_address.is_empty() {
            let device = sysfs.auxiliary.join(&self.auxiliary);
            return Ok(Selector::Directory(device.join("net")));
        }
        let device = sysfs.pci.join(&self.pci_address);
        let directory = device.join("net");
        if directory.symlink_metadata().is_ok() {
            return Ok(Selector::Directory(directory));
        }
        // A virtio device has its link one level deeper.
        first_entry(&device, |name| {
            name.starts_with("virtio") && device.join(name).join("net").exists()
        })
        .map(|name| Selector::Directory(device.join(name).join("net")))
        .ok_or_else(|| failure!("no net directory under pci device {}", self.pci_address))
    }
}

/// Returns whether the driver of a PCI device gives it to user space.
fn has_user_space_driver(sysfs: &Sysfs, address: &str) -> Result<bool> {
    let device = sysfs.pci.join(address);
    let resolve = |path: &Path| {
        path.canonicalize()
            .context(|| format!("lstat {}", path.display()))
    };
    let driver = resolve(&resolve(&device)?.join("driver"))?;
    let name = driver.file_name().unwrap_or_default();
    Ok(USER_SPACE_DRIVERS.iter().any(|driver| name == *driver))
}

/// Returns the first name of a directory, in their order, that fulfils a condition.
fn first_entry(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> Option<String> {
    let entries = std::fs::read_dir(directory).ok()?;
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_wanted(name))
        .min()
}

impl Selector {
    /// Returns whether a link that has its former name as its alias is the one that was found.
    pub(super) fn matches(&self, link: &Link) -> bool {
        match self {
            Self::Name(name) => link.alias == *name || link.other_names.contains(name),
            Self::Mac(mac) => link.mac == *mac,
            Self::Directory(directory) => {
                let device = directory.parent().and_then(Path::file_name);
                device.is_some_and(|device| device == link.device.as_str())
                    || first_entry(directory, |_| true).is_some_and(|name| name == link.name)
            }
        }
    }
}

/// Returns the link of the device.
fn find(selector: &Selector, host: &mut Netlink) -> Result<Link> {
    match selector {
        Selector::Name(name) => link_by_name(host, name),
        Selector::Mac(mac) => {
            let links = host
                .links()
                .context(|| "failed to list node links".to_owned())?;
            let found = links.into_iter().find(|link| link.mac == *mac);
            found.ok_or_else(|| failure!("failed to find physical interface"))
        }
        Selector::Directory(directory) => {
            let shown = directory.display();
            if let Err(error) = std::fs::read_dir(directory) {
                let text = format!("open {shown}: {}", Errno::from(error));
                bail!("failed to read directory {shown}: {text:?}");
            }
            let name = first_entry(directory, |_| true)
                .ok_or_else(|| failure!("failed to find network device in path {shown}"))?;
            link_by_name(host, &name)
        }
    }
}

/// The host's side of a move.
pub(super) struct Host {
    namespace: Namespace,
    pub(super) netlink: Netlink,
}

impl Host {
    pub(super) fn open() -> Result<Self> {
        let namespace = Namespace::current();
        Ok(Self {
            namespace: namespace.context(|| "failed to open a netlink socket".to_owned())?,
            netlink: Netlink::open()?,
        })
    }

    /// Returns the link of the device. One that lost its container gets its name back first: nothing else does if no DEL came.
    fn find(&mut self, selector: &Selector, ifname: &str) -> Result<Link> {
        let found = find(selector, &mut self.netlink);
        let may_be_stray = found
            .as_ref()
            .map_or(true, |link| !link.is_up() && !link.alias.is_empty());
        if !may_be_stray {
            return found;
        }
        self.rename_stray(ifname, selector)?;
        find(selector, &mut self.netlink)
    }

    /// Moves a link into the container under its new name and brings it up there.
    pub(super) fn move_in(
        &mut self,
        device: &Link,
        container: &mut Container,
        ifname: &str,
    ) -> Result<Link> {
        let failed = |error: Errno| {
            failure!(
                "failed to move link failed to move {ifname:?} (host: {:?}) to container NS: {error}",
                device.name
            )
        };
        // The request moves the link before it names it, so that a name which is taken would leave it half way.
        if container.netlink.link_by_name(ifname).is_ok() {
            return Err(failed(Errno::EEXIST));
        }
        let moved = self
            .netlink
            .move_as(device.index, &container.namespace, ifname, &device.name);
        let finish = |container: &mut Container| {
            moved.map_err(failed)?;
            let link = container.netlink.link_by_name(ifname).map_err(|error| {
                failure!("failed to move link failed to find {ifname:?} in container NS: {error}")
            })?;
            container.netlink.set_up(link.index).map_err(|error| {
                failure!("failed to move link failed to set {ifname:?} up: {error}")
            })?;
            Ok(link)
        };
        let link = finish(container);
        if link.is_err() {
            self.take_back(device, ifname, container);
        }
        link
    }

    /// Undoes a move, as far as it went. The error that is reported is the one that made this necessary.
    fn take_back(&mut self, device: &Link, ifname: &str, container: &mut Container) {
        for name in [ifname, device.name.as_str()] {
            if let Ok(link) = container.netlink.link_by_name(name)
                && link.mac == device.mac
                && link.kind == device.kind
            {
                let _ = container.netlink.move_as(
                    link.index,
                    &self.namespace,
                    &device.name,
                    &device.alias,
                );
                break;
            }
        }
        if device.is_up()
            && let Ok(link) = self.netlink.link_by_name(&device.name)
        {
            let _ = self.netlink.set_up(link.index);
        }
    }

    /// Moves a link out of the container under the name that it had on the host, and leaves it down: its state there is not known.
    pub(super) fn move_out(&mut self, container: &mut Container, link: &Link) -> Result<()> {
        let (ifname, name) = (&link.name, &link.alias);
        if name.is_empty() {
            bail!("failed to find original ifname for {ifname:?} (alias is not set)");
        }
        let failed = |error: Errno| failure!("failed to move {name:?} to hostNS: {error}");
        if self.netlink.link_by_name(name).is_ok() {
            return Err(failed(Errno::EEXIST));
        }
        let netlink = &mut container.netlink;
        let other = netlink.link_by_name(name).ok();
        if other.is_some_and(|other| other.index != link.index) {
            // Its name is another link's here, so it cannot have it before it arrives.
            return netlink
                .move_as(link.index, &self.namespace, name, "")
                .map_err(failed);
        }
        // The host's device manager must never see the container's name: it would rename what it sees.
        let rename = |netlink: &mut Netlink| {
            netlink.set_down(link.index)?;
            netlink.rename_with_alias(link.index, name, "")
        };
        let moved = rename(netlink)
            .map_err(|error| failure!("failed to rename device {ifname:?} to {name:?}: {error}"))
            .and_then(|()| netlink.move_to(link.index, &self.namespace).map_err(failed));
        if moved.is_err() {
            // The error that is reported is the first one.
            let _ = netlink.rename_with_alias(link.index, ifname, name);
            if link.is_up() {
                let _ = netlink.set_up(link.index);
            }
        }
        moved
    }

    /// Gives the link that lost its container the name that it had.
    pub(super) fn rename_stray(&mut self, ifname: &str, selector: &Selector) -> Result<()> {
        let links = self
            .netlink
            .links()
            .context(|| "failed to list node links".to_owned())?;
        let Some(link) = stray(&links, ifname, selector) else {
            return Ok(());
        };
        self.netlink
            .rename_with_alias(link.index, &link.alias, "")
            .context(|| {
                format!(
                    "failed to rename device {:?} to {:?}",
                    link.name, link.alias
                )
            })
    }
}

/// Moves the link into the container and gives it the addresses of the IPAM plugin.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let (config, sysfs) = Config::load(call)?;
    let mut container = Container::open(&call.netns)?;
    if config.dpdk_mode {
        let interface = single::made_interface(call, String::new());
        return configure(call, &config, interface, None);
    }
    let mut host = Host::open()?;
    let device = config
        .selector(&sysfs)
        .and_then(|selector| host.find(&selector, &call.ifname))
        .context(|| "failed to find host device".to_owned())?;
    let link = host.move_in(&device, &mut container, &call.ifname)?;
    let interface = single::made_interface(call, link.mac_text());
    let result = configure(call, &config, interface, Some(&mut container));
    if result.is_err() {
        host.take_back(&device, &call.ifname, &mut container);
    }
    result
}

/// Gives the interface the addresses of the IPAM plugin; without a link, they are only in the result.
fn configure(
    call: &Call,
    config: &Config,
    interface: Interface,
    container: Option<&mut Container>,
) -> Result<CniResult> {
    if !config.ipam.is_set() {
        return Ok(single::without_addresses(interface, &Dns::default()));
    }
    config
        .ipam
        .add_for_interface(call, |addresses| match container {
            Some(container) => {
                single::configure(call, container, interface, &config.dns, &[], addresses)
            }
            None => Ok(CniResult {
                interfaces: vec![interface],
                dns: config.dns.clone(),
                ..addresses
            }),
        })
}

/// Gives the addresses back and moves the link to the host; neither keeps the other from being done. A device that was unplugged has
/// nothing to move, so that what the bus no longer says is not an error here.
pub(crate) fn del(call: &Call) -> Result<()> {
    let sysfs = Sysfs::below(Path::new("/sys"));
    let config: Config = call.config()?;
    let names_device = !config.runtime.device_id.is_empty() || !config.pci_address.is_empty();
    let config = match config.clone().with_device(&sysfs) {
        Ok(config) => config,
        Err(_) if names_device => config,
        Err(error) => return Err(error),
    };
    let released = config.ipam.del(call);
    if !config.dpdk_mode {
        give_back(call, &config, &sysfs)?;
    }
    released
}

/// Moves the link to the host.
fn give_back(call: &Call, config: &Config, sysfs: &Sysfs) -> Result<()> {
    let ifname = call.ifname.as_str();
    let Some(mut container) = Container::open_if_present(&call.netns)? else {
        return match config.selector(sysfs) {
            Ok(selector) => Host::open()?.rename_stray(ifname, &selector),
            Err(_) => Ok(()),
        };
    };
    let links = container
        .netlink
        .links()
        .context(|| format!("failed to find {ifname:?} in containerNS"))?;
    let listed = call.listed_interface();
    let mac = listed.as_ref().map(|interface| interface.mac.as_str());
    let selector = config.selector(sysfs).ok();
    match device(&links, ifname, selector.as_ref(), mac) {
        Some(link) => Host::open()?.move_out(&mut container, link),
        None => Ok(()),
    }
}

/// Returns the link of the attachment among those of the container, where a pod may have renamed it, changed its hardware address, and
/// given its name to another link. The alias tells it from links on top of it, which may have its address. The configuration says most
/// about it, then the hardware address in the previous result, then the name. When no previous result lists the interface, whose
/// hardware address `mac` is, only the name counts: another attachment may have the device.
fn device<'a>(
    links: &'a [Link],
    ifname: &str,
    selector: Option<&Selector>,
    mac: Option<&str>,
) -> Option<&'a Link> {
    let has_mac = |link: &Link| mac.is_some_and(|mac| !mac.is_empty() && mac == link.mac_text());
    let signs = |link: &&Link| {
        let is_device = mac.is_some() && selector.is_some_and(|selector| selector.matches(link));
        let has_alias = !link.alias.is_empty();
        [has_alias, is_device, has_mac(link), link.name == ifname]
    };
    // A link that lost its alias is still reported, if it is nothing else.
    let is_candidate = |link: &&Link| match signs(link) {
        [true, is_device, has_mac, has_name] => is_device || has_mac || has_name,
        [false, _, has_mac, has_name] => has_mac && has_name,
    };
    links.iter().filter(is_candidate).max_by_key(signs)
}

/// Returns the link that lost its container: when a network namespace ends, the kernel moves the hardware in it to the host, down and
/// with the container's name, or with one of its own (`dev7`) where that is taken. An alias that somebody else gave to a link of the
/// host is left alone.
fn stray<'a>(links: &'a [Link], ifname: &str, selector: &Selector) -> Option<&'a Link> {
    let is_lost = |link: &Link| {
        let number = link.name.strip_prefix("dev");
        let has_kernels_name = number.is_some_and(|number| number.parse::<u32>().is_ok());
        link.name == ifname || has_kernels_name || selector == &Selector::Name(link.alias.clone())
    };
    links.iter().find(|link| {
        !link.is_up()
            && !link.alias.is_empty()
            && is_lost(link)
            && selector.matches(link)
            && links.iter().all(|other| other.name != link.alias)
    })
}

/// Compares the link with the previous result.
pub(crate) fn check(call: &Call) -> Result<()> {
    let (config, _) = Config::load(call)?;
    let mut container = Container::open(&call.netns)?;
    config.ipam.check(call)?;
    let result = single::expected_result(call, "")?;
    if config.dpdk_mode {
        return Ok(());
    }
    let (interface, link) = single::expected_link(&mut container, call, &result, "")?;
    single::check_mac(interface, &link, "")?;
    single::check_addresses_and_routes(&mut container, call, &result)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree with a device of each kind.
    fn sysfs() -> (tempfile::TempDir, Sysfs) {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for path in [
            "bus/pci/devices/0000:00:01.0/net/ens1",
            "bus/pci/devices/0000:00:01.0/net/ens1b",
            "bus/pci/devices/0000:00:02.0/virtio3/net/eth7",
            "bus/pci/devices/0000:00:03.0",
            "bus/pci/devices/0000:00:04.0",
            "bus/auxiliary/devices/mlx5_core.sf.4/net/p0s4",
            "bus/pci/drivers/vfio-pci",
            "bus/pci/drivers/ice",
        ] {
            fs::create_dir_all(at(path)).unwrap();
        }
        for (device, driver) in [("01.0", "ice"), ("02.0", "ice"), ("03.0", "vfio-pci")] {
            let link = format!("bus/pci/devices/0000:00:{device}/driver");
            symlink(at("bus/pci/drivers").join(driver), at(&link)).unwrap();
        }
        let sysfs = Sysfs::below(root.path());
        (root, sysfs)
    }

    fn config(json: &str) -> Config {
        serde_json::from_str(json).unwrap()
    }

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let (root, sysfs) = sysfs();
        let config = config(json).with_device(&sysfs).unwrap();
        assert!(!config.dpdk_mode);
        let found = match config.selector(&sysfs).unwrap() {
            Selector::Name(name) => name,
            Selector::Mac(mac) => format!("{mac:x?}"),
            Selector::Directory(path) => match path.strip_prefix(root.path()) {
                Ok(path) => path.display().to_string(),
                Err(_) => path.display().to_string(),
            },
        };
        assert_eq!(found, expected);
    }

    #[track_caller]
    fn check_refused(json: &str, expected: &str) {
        let (root, sysfs) = sysfs();
        let error = config(json)
            .with_device(&sysfs)
            .and_then(|config| config.selector(&sysfs))
            .unwrap_err();
        let root = root.path().canonicalize().unwrap();
        assert_eq!(error.msg.replace(root.to_str().unwrap(), ""), expected);
    }

    #[test]
    fn first_key_finds_the_link() {
        check(
            r#"{"device":"eth1","hwaddr":"x","pcibusid":"0000:00:01.0"}"#,
            "eth1",
        );
        check(
            r#"{"hwaddr":"00-11-22-33-44-55","kernelpath":"x"}"#,
            "[0, 11, 22, 33, 44, 55]",
        );
        check(
            r#"{"kernelpath":"/sys/devices/pci0/x"}"#,
            "/sys/devices/pci0/x/net",
        );
        check(
            r#"{"pcibusid":"0000:00:01.0"}"#,
            "bus/pci/devices/0000:00:01.0/net",
        );
        check(
            r#"{"pcibusid":"0000:00:02.0"}"#,
            "bus/pci/devices/0000:00:02.0/virtio3/net",
        );
    }

    #[test]
    fn device_of_the_runtime_replaces_the_address() {
        check(
            r#"{"pcibusid":"0000:00:09.0","runtimeconfig":{"deviceid":"0000:00:01.0"}}"#,
            "bus/pci/devices/0000:00:01.0/net",
        );
        check(
            r#"{"pcibusid":"0000:00:09.0","runtimeconfig":{"deviceid":"mlx5_core.sf.4"}}"#,
            "bus/auxiliary/devices/mlx5_core.sf.4/net",
        );
        check_refused(
            r#"{"runtimeconfig":{"deviceid":"0000:00:09.0"}}"#,
            "runtime config DeviceID 0000:00:09.0 not found or unsupported",
        );
    }

    #[test]
    fn drivers_for_user_space_leave_no_link() {
        let (_root, sysfs) = sysfs();
        let dpdk = |json| config(json).with_device(&sysfs).unwrap().dpdk_mode;
        assert!(dpdk(r#"{"runtimeconfig":{"deviceid":"0000:00:03.0"}}"#));
        assert!(dpdk(r#"{"device":"eth1","pcibusid":"0000:00:03.0"}"#));
        assert!(dpdk(r#"{"device":"eth1","dpdkmode":true}"#));
        assert!(!dpdk(r#"{"pcibusid":"0000:00:01.0","dpdkmode":true}"#));
    }

    #[test]
    fn wrong_devices_are_refused() {
        check_refused(
            "{}",
            r#"specify either "device", "hwaddr", "kernelpath" or "pciBusID""#,
        );
        check_refused(
            r#"{"hwaddr":"x"}"#,
            r#"failed to parse MAC address "x": address x: invalid MAC address"#,
        );
        check_refused(
            r#"{"kernelpath":"sys/devices/x"}"#,
            r#"kernel device path "sys/devices/x" must be absolute and begin with /sys/devices/"#,
        );
        check_refused(
            r#"{"pcibusid":"0000:00:09.0"}"#,
            "error with host device: lstat /bus/pci/devices/0000:00:09.0: no such file or directory",
        );
        check_refused(
            r#"{"pcibusid":"0000:00:04.0"}"#,
            "error with host device: lstat /bus/pci/devices/0000:00:04.0/driver: no such file or directory",
        );
    }

    #[test]
    fn pci_device_without_a_link_is_refused() {
        let (root, sysfs) = sysfs();
        let driver = root.path().join("bus/pci/devices/0000:00:04.0/driver");
        symlink(root.path().join("bus/pci/drivers/ice"), driver).unwrap();
        let config = config(r#"{"pcibusid":"0000:00:04.0"}"#)
            .with_device(&sysfs)
            .unwrap();
        assert_eq!(
            config.selector(&sysfs).unwrap_err().msg,
            "no net directory under pci device 0000:00:04.0"
        );
    }

    fn link(name: &str, alias: &str, flags: u32) -> Link {
        Link {
            name: name.to_owned(),
            alias: alias.to_owned(),
            mac: vec![2; 6],
            flags,
            ..Link::default()
        }
    }

    #[test]
    fn link_that_lost_its_container_is_found() {
        let by_name = Selector::Name("ens1".to_owned());
        let by_mac = Selector::Mac(vec![2; 6]);
        let (_root, sysfs) = sysfs();
        let by_directory = Selector::Directory(sysfs.pci.join("0000:00:01.0/net"));
        let lost = link("net1", "ens1", 0);
        let links = [link("eth0", "uplink", 0), lost.clone()];
        assert_eq!(stray(&links, "net1", &by_name), Some(&lost));
        assert_eq!(stray(&links, "net1", &by_mac), Some(&lost));
        assert_eq!(stray(&links, "net1", &by_directory), None);
        for (name, alias, device, selector) in [
            // As the directory shows it, and on kernels that name the device.
            ("ens1", "ens7", "", &by_directory),
            ("ens1", "ens7", "0000:00:01.0", &by_directory),
            // Two pods' net1 came back at once.
            ("dev7", "ens1", "", &by_mac),
            ("dev7", "ens1", "0000:00:01.0", &by_directory),
            // The pod had renamed it.
            ("vpp0", "ens1", "", &by_name),
        ] {
            let lost = Link {
                device: device.to_owned(),
                ..link(name, alias, 0)
            };
            let ifname = if name == "ens1" { "ens1" } else { "net1" };
            let links = [lost];
            assert_eq!(stray(&links, ifname, selector), links.first(), "{links:?}");
        }
        for other in [
            // Not the device, up, without a name to return to, and with a name that is taken.
            vec![link("net1", "ens2", 0)],
            vec![link("net1", "ens1", 1)],
            vec![link("net1", "", 0)],
            vec![lost.clone(), link("ens1", "", 0)],
        ] {
            assert_eq!(stray(&other, "net1", &by_name), None, "{other:?}");
        }
        // The administrator's alias of a link that came back before.
        assert_eq!(stray(&[link("ens1", "uplink", 0)], "net1", &by_mac), None);
    }

    #[test]
    fn device_is_found_under_any_name() {
        let (_root, sysfs) = sysfs();
        let by_name = Selector::Name("ens1".to_owned());
        let by_other_name = Selector::Name("enp0s31f6longname0".to_owned());
        let by_mac = Selector::Mac(vec![2; 6]);
        let by_directory = Selector::Directory(sysfs.pci.join("0000:00:01.0/net"));
        let ours = Link {
            other_names: vec!["enp0s31f6longname0".to_owned()],
            device: "0000:00:01.0".to_owned(),
            ..link("vpp0", "ens1", 1)
        };
        let links = [
            link("eth0", "", 1),
            // On top of ours, with its address and the name that it had.
            link("net1", "", 1),
            Link {
                mac: vec![4; 6],
                ..link("net2", "ens2", 1)
            },
            ours.clone(),
        ];
        let mac = Some("02:02:02:02:02:02");
        let selectors = [&by_name, &by_other_name, &by_mac, &by_directory];
        for (selector, mac) in selectors
            .map(|selector| (Some(selector), Some("")))
            .into_iter()
            .chain([(None, mac), (Some(&by_name), mac)])
        {
            let found = device(&links, "net1", selector, mac);
            assert_eq!(found, Some(&ours), "{selector:?}");
        }
        // Another attachment's device, and links that only have the name or the address.
        let others = &links[..3];
        for selector in [None, Some(&by_name), Some(&by_directory)] {
            assert_eq!(
                device(others, "net1", selector, Some("")),
                None,
                "{selector:?}"
            );
        }
        // No result lists the interface: another attachment has the device.
        for selector in selectors {
            let found = device(&links, "net3", Some(selector), None);
            assert_eq!(found, None, "{selector:?}");
        }
        // The definition has changed since: name and alias are left.
        let former = [link("net1", "ens1", 1)];
        let selector = Some(&Selector::Name("ens9".to_owned()));
        assert_eq!(device(&former, "net1", selector, None), former.first());
        // The alias was lost, which DEL reports.
        assert_eq!(device(&links[1..2], "net1", None, mac), links.get(1));
    }

    #[test]
    fn first_link_of_a_directory_counts() {
        let (_root, sysfs) = sysfs();
        let directory = sysfs.pci.join("0000:00:01.0/net");
        assert_eq!(first_entry(&directory, |_| true).as_deref(), Some("ens1"));
        assert_eq!(first_entry(&directory.join("x"), |_| true), None);
    }
}
