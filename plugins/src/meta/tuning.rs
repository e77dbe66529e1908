//! tuning: sysctls of the container, and the hardware address, MTU, queue length and modes of its interface. DEL gives the interface
//! its former values back.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cni::CniResult;
use serde::{Deserialize, Serialize};

use crate::attachment::Container;
use crate::call::Call;
use crate::config::tuning::{Request, Settings, load_checked, sysctl_file};
use crate::config::{parse_mac, parse_requested_mac};
use crate::error::{Context, Result, bail, failure, or_undo};
use crate::kernel::link::{IFF_ALLMULTI, IFF_PROMISC, Link, mac_text};
use crate::kernel::netns::Namespace;
use crate::kernel::{Errno, Netlink};

/// The patterns of the sysctls that configurations may set, one in each line. Without the file they may set all of the network.
const ALLOW_LIST: &str = "/etc/cni/tuning/allowlist.conf";

/// Fails unless each sysctl matches a pattern of the file; a missing file allows all.
fn check_allowed(sysctls: &[(String, String)], file: &Path) -> Result<()> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context(|| format!("open {}", file.display())),
    };
    let patterns: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    for (name, _) in sysctls {
        if !matches_one(name, &patterns)? {
            bail!(
                "Sysctl {name} is not allowed. Only the following sysctls are allowed: [{}]",
                patterns.join(" ")
            );
        }
    }
    Ok(())
}

fn matches_one(name: &str, patterns: &[&str]) -> Result<bool> {
    for pattern in patterns {
        let regex = regex_lite::Regex::new(pattern)
            .map_err(|error| failure!("error parsing regexp: {error}: `{pattern}`"))?;
        if regex.is_match(name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the files of all sysctls with their values.
fn sysctl_files<'a>(
    sysctls: &'a [(String, String)],
    ifname: &str,
) -> Result<Vec<(PathBuf, &'a str)>> {
    let files = sysctls
        .iter()
        .map(|(name, value)| Ok((sysctl_file(name, ifname)?, value.as_str())));
    files.collect()
}

fn write_sysctl(file: &Path, value: &str) -> Result<()> {
    let mut parameter = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(file)
        .context(|| format!("open {}", file.display()))?;
    parameter
        .write_all(value.as_bytes())
        .context(|| format!("write {}", file.display()))
}

/// Opens the container's namespace; the reference says of a missing one no more than the path.
fn open_container(path: &str) -> Result<Container> {
    let namespace = Namespace::open(path)?;
    let netlink = Netlink::open_in(&namespace)?;
    Ok(Container { namespace, netlink })
}

fn find_link(netlink: &mut Netlink, ifname: &str) -> Result<Link> {
    crate::attachment::link_by_name(netlink, ifname).context(|| format!("failed to get {ifname:?}"))
}

/// Sets the values and keeps the former ones for DEL.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let request = load_checked(call)?;
    check_allowed(&request.settings.sysctl, Path::new(ALLOW_LIST))?;
    let mut result = required_result(call)?;
    let files = sysctl_files(&request.settings.sysctl, &call.ifname)?;
    let mut container = open_container(&call.netns)?;
    let write_all = || {
        files
            .iter()
            .try_for_each(|(file, value)| write_sysctl(file, value))
    };
    container.enter_netns(write_all)??;
    if request.settings.changes_link() {
        let link = find_link(&mut container.netlink, &call.ifname)?;
        let backup = Backup::of(&link, &request.settings);
        let file = Backup::file(&request.data_dir, call);
        backup.save(&file, &call.ifname)?;
        or_undo(
            || change_link(&mut container.netlink, link.index, &request.settings),
            || {
                if let Ok(mut container) = open_container(&call.netns) {
                    backup.restore(&mut container.netlink, link.index);
                }
                let _ = fs::remove_file(&file);
            },
        )?;
    }
    if let Some(mac) = &request.settings.mac {
        for interface in &mut result.interfaces {
            if interface.name == call.ifname {
                interface.mac.clone_from(mac);
            }
        }
    }
    Ok(result)
}

fn required_result(call: &Call) -> Result<CniResult> {
    call.prev_result()?
        .ok_or_else(|| failure!("Required prevResult missing"))
}

fn change_link(netlink: &mut Netlink, index: u32, settings: &Settings) -> Result<()> {
    if let Some(text) = &settings.mac {
        let mac = parse_requested_mac(text)?;
        netlink.set_mac(index, &mac).map_err(plain)?;
    }
    if settings.promisc.is_some() {
        set_mode(netlink, index, IFF_PROMISC, true).map_err(plain)?;
    }
    if let Some(mtu) = settings.mtu {
        set_mtu(netlink, index, mtu).map_err(plain)?;
    }
    if let Some(allmulti) = settings.allmulti {
        set_mode(netlink, index, IFF_ALLMULTI, allmulti).map_err(plain)?;
    }
    if let Some(length) = settings.txqlen {
        set_tx_queue(netlink, index, length).map_err(plain)?;
    }
    Ok(())
}

fn plain(error: Errno) -> cni::CniError {
    failure!("{error}")
}

fn set_mode(
    netlink: &mut Netlink,
    index: u32,
    mode: u32,
    is_on: bool,
) -> std::result::Result<(), Errno> {
    netlink.set_flags(index, if is_on { mode } else { 0 }, mode)
}

fn set_mtu(netlink: &mut Netlink, index: u32, mtu: i64) -> std::result::Result<(), Errno> {
    let mtu = u32::try_from(mtu).map_err(|_| Errno::EINVAL)?;
    netlink.set_mtu(index, mtu)
}

fn set_tx_queue(netlink: &mut Netlink, index: u32, length: i64) -> std::result::Result<(), Errno> {
    let length = u32::try_from(length).map_err(|_| Errno::EINVAL)?;
    netlink.set_tx_queue(index, length)
}

/// The former values of an interface, only those that were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Backup {
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promisc: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allmulti: Option<bool>,
    #[serde(rename = "txQLen", skip_serializing_if = "Option::is_none")]
    tx_queue: Option<i64>,
}

impl Backup {
    /// Returns the present values of what the settings will change.
    fn of(link: &Link, settings: &Settings) -> Self {
        Self {
            mac: settings.mac.as_ref().map(|_| mac_text(&link.mac)),
            promisc: settings.promisc.map(|_| link.promiscuity != 0),
            mtu: settings.mtu.map(|_| i64::from(link.mtu)),
            allmulti: settings.allmulti.map(|_| is_allmulti(link)),
            tx_queue: settings.txqlen.map(|_| i64::from(link.tx_queue)),
        }
    }

    /// Returns the file for an attachment.
    fn file(data_dir: &Path, call: &Call) -> PathBuf {
        data_dir.join(format!("{}_{}.json", call.container_id, call.ifname))
    }

    /// Returns the text of the file, with one space for each level.
    fn to_text(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
        let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
        self.serialize(&mut serializer)?;
        Ok(text)
    }

    fn save(&self, file: &Path, ifname: &str) -> Result<()> {
        if let Some(dir) = file.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o600)
                .create(dir)
                .context(|| "failed to create backup directory".to_owned())?;
        }
        let text = self
            .to_text()
            .context(|| format!("failed to marshall data for {ifname:?}"))?;
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(file)
            .and_then(|mut file| file.write_all(&text));
        written.context(|| format!("failed to save file {ifname}.json"))
    }

    /// Gives an interface its former values, each one even when another is refused. Returns whether all were accepted.
    fn restore(&self, netlink: &mut Netlink, index: u32) -> bool {
        let mac = self.mac.as_deref().and_then(parse_mac);
        [
            self.mtu.map(|mtu| set_mtu(netlink, index, mtu)),
            mac.map(|mac| netlink.set_mac(index, &mac)),
            self.promisc
                .map(|is_on| set_mode(netlink, index, IFF_PROMISC, is_on)),
            self.allmulti
                .map(|is_on| set_mode(netlink, index, IFF_ALLMULTI, is_on)),
            self.tx_queue
                .map(|length| set_tx_queue(netlink, index, length)),
        ]
        .into_iter()
        .flatten()
        .all(|outcome| outcome.is_ok())
    }
}

fn is_allmulti(link: &Link) -> bool {
    link.flags & IFF_ALLMULTI != 0
}

/// Gives the interface its former values. An interface that no longer exists needs none, and its file goes; nothing fails DEL, since a
/// value that the kernel refuses to take back will be refused again.
pub(crate) fn del(call: &Call) -> Result<()> {
    let request = Request::load(call)?;
    let file = Backup::file(&request.data_dir, call);
    let Ok(text) = fs::read(&file) else {
        return Ok(());
    };
    let backup: Option<Backup> = serde_json::from_slice(&text).ok();
    let is_done = backup.is_none_or(|backup| {
        let Ok(mut container) = open_container(&call.netns) else {
            return true;
        };
        container
            .netlink
            .link_by_name(&call.ifname)
            .map_or(true, |link| {
                backup.restore(&mut container.netlink, link.index)
            })
    });
    if is_done {
        let _ = fs::remove_file(&file);
    }
    Ok(())
}

/// Compares the container with the configuration.
pub(crate) fn check(call: &Call) -> Result<()> {
    let request = load_checked(call)?;
    required_result(call)?;
    let files = sysctl_files(&request.settings.sysctl, &call.ifname)?;
    let mut container = open_container(&call.netns)?;
    container.enter_netns(|| check_sysctls(&files))??;
    let link = container
        .netlink
        .link_by_name(&call.ifname)
        .map_err(|_| failure!("Cannot find container link {}", call.ifname))?;
    match difference(&request.settings, &link) {
        None => Ok(()),
        Some(text) => Err(failure!("Error: Tuning {text}")),
    }
}

fn check_sysctls(files: &[(PathBuf, &str)]) -> Result<()> {
    for (file, expected) in files {
        let shown = file.display();
        let value = fs::read_to_string(file).context(|| format!("open {shown}"))?;
        let value = value.strip_suffix('\n').unwrap_or(&value);
        if value != *expected {
            bail!(
                "Error: Tuning configured value of {shown} is {expected}, current value is {value}"
            );
        }
    }
    Ok(())
}

/// Returns the first difference between the settings and an interface.
fn difference(settings: &Settings, link: &Link) -> Option<String> {
    let name = &link.name;
    if let Some(mac) = &settings.mac
        && parse_mac(mac).as_ref() != Some(&link.mac)
    {
        let current = link.mac_text();
        return Some(format!(
            "configured Ethernet of {name} is {mac}, current value is {current}"
        ));
    }
    let promisc = settings.promisc.is_some();
    if promisc != (link.promiscuity != 0) {
        return Some(format!(
            "link {name} configured promisc is {promisc}, current value is {}",
            link.promiscuity
        ));
    }
    if let Some(mtu) = settings.mtu
        && mtu != i64::from(link.mtu)
    {
        return Some(format!(
            "configured MTU of {name} is {mtu}, current value is {}",
            link.mtu
        ));
    }
    if let Some(allmulti) = settings.allmulti
        && allmulti != is_allmulti(link)
    {
        return Some(format!(
            "configured all-multicast mode of {name} is {allmulti}, current value is {}",
            is_allmulti(link)
        ));
    }
    if let Some(length) = settings.txqlen
        && length != i64::from(link.tx_queue)
    {
        return Some(format!(
            "configured Transmit Queue Length of {name} is {length}, current value is {}",
            link.tx_queue
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tuning::has_duplicate_sysctls;

    #[test]
    fn sysctls_of_the_network_have_a_file() {
        for (name, expected) in [
            (
                "net.ipv4.conf.IFNAME.log_martians",
                "/proc/sys/net/ipv4/conf/eth0.5/log_martians",
            ),
            ("net/core/somaxconn", "/proc/sys/net/core/somaxconn"),
            ("net.core//somaxconn", "/proc/sys/net/core/somaxconn"),
        ] {
            assert_eq!(sysctl_file(name, "eth0.5").unwrap(), Path::new(expected));
        }
        for name in ["kernel.msgmax", "net", "network.core", ""] {
            let error = sysctl_file(name, "eth0").unwrap_err();
            assert!(error.msg.starts_with("invalid net sysctl key"), "{error}");
        }
        let error = sysctl_file("net.IFNAME.msgmax", "..").unwrap_err();
        assert_eq!(error.msg, "invalid net sysctl key: \"net/../msgmax\"");
    }

    #[test]
    fn sysctls_twice_are_found_in_the_text() {
        for (config, expected) in [
            (
                r#"{"sysctl": {"a": "1", "b": "2"}, "args": {"sysctl": {"a": "1"}}}"#,
                false,
            ),
            (r#"{"sysctl": {"a": "1", "a": "1"}}"#, true),
            (r#"{"sysctl": {"a": "1"}, "SysCtl": {"a": "2"}}"#, true),
            (r#"{"sysctl": {"a": "1", "A": "1"}}"#, false),
            (r#"{"sysctl": 5}"#, false),
            ("[]", false),
        ] {
            assert_eq!(
                has_duplicate_sysctls(config.as_bytes()),
                expected,
                "{config}"
            );
        }
    }

    #[test]
    fn allow_list_has_patterns() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("allowlist.conf");
        let sysctl = |name: &str| [(name.to_owned(), "1".to_owned())];
        check_allowed(&sysctl("net.core.x"), &file).unwrap();
        fs::write(
            &file,
            "\n ^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]*$ \nnet.core\n",
        )
        .unwrap();
        check_allowed(&sysctl("net.ipv4.conf.IFNAME.log_martians"), &file).unwrap();
        check_allowed(&sysctl("net.core.somaxconn"), &file).unwrap();
        let error = check_allowed(&sysctl("net.ipv4.conf.all.x"), &file).unwrap_err();
        assert_eq!(
            error.msg,
            "Sysctl net.ipv4.conf.all.x is not allowed. Only the following sysctls are allowed: \
             [^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]*$ net.core]"
        );
        fs::write(&file, "(\n").unwrap();
        let error = check_allowed(&sysctl("net.core.x"), &file).unwrap_err();
        assert!(error.msg.starts_with("error parsing regexp: "), "{error}");
    }

    #[test]
    fn settings_of_args_come_first() {
        let settings = |text| -> Settings { serde_json::from_str(text).unwrap() };
        let mut own = settings(
            r#"{"sysctl": {"a": "1", "b": "1"}, "mac": "02:00:00:00:00:01", "promisc": true, "mtu": 1400, "txqlen": 5}"#,
        );
        own.override_with(settings(
            r#"{"sysctl": {"a": "2"}, "mac": "", "promisc": false, "allmulti": false, "txqlen": 0}"#,
        ));
        let own = own.normalise();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(own.sysctl, [pair("b", "1"), pair("a", "2")]);
        assert_eq!((own.mac.as_deref(), own.promisc), (None, None));
        assert_eq!(
            (own.mtu, own.allmulti, own.txqlen),
            (Some(1400), Some(false), Some(0))
        );
        assert!(!Settings::default().changes_link());
    }

    #[test]
    fn backup_has_what_changes() {
        let settings = Settings {
            mac: Some("02:00:00:00:00:01".to_owned()),
            promisc: Some(true),
            txqlen: Some(20),
            ..Settings::default()
        };
        let link = Link {
            name: "eth0".to_owned(),
            mac: vec![2, 0, 0, 0, 0, 9],
            tx_queue: 1000,
            ..Link::default()
        };
        let backup = Backup::of(&link, &settings);
        let text = backup.to_text().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&text),
            "{\n \"mac\": \"02:00:00:00:00:09\",\n \"promisc\": false,\n \"txQLen\": 1000\n}"
        );
        assert_eq!(serde_json::from_slice::<Backup>(&text).unwrap(), backup);
    }

    #[test]
    fn check_names_the_first_difference() {
        let link = Link {
            name: "eth0".to_owned(),
            mac: vec![2, 0, 0, 0, 0, 0xa],
            mtu: 1500,
            ..Link::default()
        };
        let check = |settings: Settings, expected: Option<&str>| {
            assert_eq!(difference(&settings, &link).as_deref(), expected);
        };
        check(
            Settings {
                mac: Some("02-00-00-00-00-0A".to_owned()),
                mtu: Some(1500),
                allmulti: Some(false),
                txqlen: Some(0),
                ..Settings::default()
            },
            None,
        );
        check(
            Settings {
                promisc: Some(true),
                ..Settings::default()
            },
            Some("link eth0 configured promisc is true, current value is 0"),
        );
        check(
            Settings {
                mtu: Some(1400),
                ..Settings::default()
            },
            Some("configured MTU of eth0 is 1400, current value is 1500"),
        );
        check(
            Settings {
                allmulti: Some(true),
                ..Settings::default()
            },
            Some("configured all-multicast mode of eth0 is true, current value is false"),
        );
    }
}
