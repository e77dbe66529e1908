//! whereabouts: addresses of its pools, for nodes that do not have its program. The service of `multus-daemon` takes and frees them; the plugin
//! asks it for each verb, and reads the file with keys for all networks of the node.

use std::{fs, io};

use cni::CniResult;
use cni::types::IpConfig;
use ipam::wire::{Allocation, Ask};

use crate::call::Call;
use crate::config::whereabouts::{Config, object};
use crate::error::{Context as _, Result};
use crate::ipam::multus_ipam::{attachment, exchange, pod, service};

/// The files of which the first one counts, behind that of the definition's `configuration_path`.
const FILES: [&str; 2] = [
    "/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf",
    "/etc/cni/net.d/whereabouts.d/whereabouts.conf",
];

/// Returns an address of each range, and the fixed ones.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config = load(call)?;
    let granted = if config.has_ranges {
        exchange(&Ask::Allocate(allocation(call, config.ipam)))?
    } else {
        Vec::new()
    };
    let granted = granted
        .into_iter()
        .map(|grant| (grant.address, grant.gateway));
    let fixed = config.addresses.into_iter().map(|(cidr, gateway)| {
        let gateway = gateway.map(|gateway| gateway.to_string());
        (cidr.to_string(), gateway.unwrap_or_default())
    });
    let ips = granted.chain(fixed).map(|(address, gateway)| IpConfig {
        interface: None,
        address,
        gateway,
    });
    Ok(CniResult {
        ips: ips.collect(),
        routes: config.routes,
        dns: config.dns,
        ..CniResult::default()
    })
}

/// Gives the addresses back, also those that the node's former program has taken. Without a service it fails, and the runtime repeats it.
pub(crate) fn del(call: &Call) -> Result<()> {
    let ask = match load(call) {
        Ok(config) if !config.has_ranges => return Ok(()),
        Ok(config) => Ask::ReleaseFrom(allocation(call, config.ipam)),
        // What was taken is on record, whatever became of the configuration.
        Err(_) => Ask::Release(attachment(call)),
    };
    exchange(&ask).map(|_| ())
}

/// Fails unless the attachment has addresses.
pub(crate) fn check(call: &Call) -> Result<()> {
    if load(call)?.has_ranges {
        exchange(&Ask::Check(attachment(call)))?;
    }
    Ok(())
}

/// Fails unless the service accepts requests.
pub(crate) fn status(call: &Call) -> Result<()> {
    if load(call)?.has_ranges {
        service().status()?;
    }
    Ok(())
}

fn allocation(call: &Call, ipam: serde_json::Map<String, serde_json::Value>) -> Allocation {
    Allocation {
        attachment: attachment(call),
        pod: pod(&call.args),
        network: call.network.clone(),
        ipam,
        addresses: Vec::new(),
        claim: String::new(),
    }
}

fn load(call: &Call) -> Result<Config> {
    let object = object(call)?;
    let named = object
        .get("configuration_path")
        .and_then(|path| path.as_str());
    let file = first_file(named.into_iter().chain(FILES))?;
    Config::load(call, file.as_deref())
}

/// Returns the content of the first file that exists. A directory counts as none: the reference's installer writes the path of one.
fn first_file<'a>(paths: impl Iterator<Item = &'a str>) -> Result<Option<Vec<u8>>> {
    for path in paths.filter(|path| !path.is_empty()) {
        match fs::read(path) {
            Ok(content) => return Ok(Some(content)),
            Err(error) if is_none(&error) => {}
            Err(error) => return Err(error).context(|| format!("cannot read {path}")),
        }
    }
    Ok(None)
}

fn is_none(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_file_that_exists_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let [first, second, absent] = ["first", "second", "absent"].map(path);
        fs::write(&first, "1").unwrap();
        fs::write(&second, "2").unwrap();
        let here = dir.path().to_str().unwrap();
        let read = |paths: &[&str]| first_file(paths.iter().copied()).unwrap();
        assert_eq!(
            read(&["", here, &absent, &second, &first]),
            Some(b"2".to_vec())
        );
        assert_eq!(read(&[&absent]), None);
    }
}
