//! A small cluster in memory: definitions, files and the configuration of multus.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::netconf::Netconf;
use crate::*;

/// The definitions, files, plugins and configuration of a test.
pub(super) struct Fixture {
    pub(super) nads: BTreeMap<(String, String), Arc<Nad>>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    pub(super) netconf: Value,
    plugins: BTreeMap<String, Result<PluginVersions, String>>,
}

impl Plugins for Fixture {
    fn versions(&self, plugin: &str) -> Option<Result<PluginVersions, String>> {
        self.plugins.get(plugin).cloned()
    }
}

impl Definitions for Fixture {
    fn nad(&self, namespace: &str, name: &str) -> Option<Arc<Nad>> {
        self.nads
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }
}

impl Files for Fixture {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files
            .get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let below = self
            .files
            .keys()
            .filter_map(|path| path.strip_prefix(dir).ok());
        let first = below.filter_map(|path| path.iter().next()?.to_str());
        let mut names: Vec<_> = first.map(str::to_owned).collect();
        names.dedup();
        if names.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(names)
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.files
            .keys()
            .any(|file| file != path && file.starts_with(path))
    }

    fn exists(&self, path: &Path) -> bool {
        self.files.contains_key(path) || self.is_dir(path)
    }
}

pub(super) const DEFAULT_NETWORK: &str = r#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"flannel","delegate":{"mtu":9007199254740993}}]}"#;

impl Fixture {
    pub(super) fn new() -> Self {
        let fixture = Self {
            nads: BTreeMap::new(),
            files: BTreeMap::new(),
            plugins: BTreeMap::new(),
            netconf: json!({
                "cniVersion": "1.0.0",
                "name": "multus-cni-network",
                "clusterNetwork": "/etc/cni/net.d/10-flannel.conflist",
            }),
        };
        fixture.file("/etc/cni/net.d/10-flannel.conflist", DEFAULT_NETWORK)
    }

    pub(super) fn file(mut self, path: &str, content: &str) -> Self {
        self.files.insert(path.into(), content.into());
        self
    }

    pub(super) fn nad(mut self, namespace: &str, name: &str, config: &str) -> Self {
        let nad = Nad {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            config: config.to_owned(),
            resource_name: None,
            node_selector: None,
        };
        self.nads
            .insert((namespace.to_owned(), name.to_owned()), Arc::new(nad));
        self
    }

    /// Adds a plugin with the versions that it supports, or with the error of its VERSION.
    pub(super) fn plugin(mut self, name: &str, versions: Result<&[&str], &str>) -> Self {
        let versions = versions
            .map(|versions| PluginVersions {
                versions: versions.iter().map(|&version| version.to_owned()).collect(),
            })
            .map_err(str::to_owned);
        self.plugins.insert(name.to_owned(), versions);
        self
    }

    pub(super) fn bridge(self, namespace: &str, name: &str) -> Self {
        self.nad(namespace, name, r#"{"cniVersion":"1.0.0","type":"bridge"}"#)
    }

    pub(super) fn with(mut self, key: &str, value: Value) -> Self {
        self.netconf[key] = value;
        self
    }

    pub(super) fn plan(&self, pod: Option<&PodView>) -> Result<Vec<Attachment>, PlanError> {
        let netconf =
            Netconf::effective(self.netconf.to_string().as_bytes(), &Map::new(), true).unwrap();
        attachments(
            pod,
            Inputs {
                netconf: &netconf,
                definitions: self,
                files: self,
                plugins: self,
            },
        )
    }

    /// Plans the pod's networks and compares them with `name=interface` of each attachment.
    pub(super) fn check(&self, pod: &PodView, expected: &str) {
        let plan = self.plan(Some(pod)).unwrap();
        let got: Vec<_> = plan
            .iter()
            .enumerate()
            .map(|(index, a)| format!("{}={}", a.name, a.ifname(index, "eth0")))
            .collect();
        assert_eq!(got.join(" "), expected);
        assert!(plan[0].is_default && plan[1..].iter().all(|a| !a.is_default));
    }

    pub(super) fn check_error(&self, pod: &PodView, fragments: &[&str]) {
        let error = self.plan(Some(pod)).unwrap_err().to_string();
        for fragment in fragments {
            assert!(error.contains(fragment), "{fragment:?} not in {error:?}");
        }
    }
}

pub(super) fn pod(networks: &str) -> PodView {
    let mut pod = PodView {
        namespace: "shop".to_owned(),
        name: "cart-0".to_owned(),
        uid: "5b0c".to_owned(),
        ..PodView::default()
    };
    if !networks.is_empty() {
        pod.annotations
            .insert(NETWORKS_ANNOTATION.to_owned(), networks.to_owned());
    }
    pod
}

pub(super) fn with_default(mut pod: PodView, network: &str) -> PodView {
    pod.annotations
        .insert(DEFAULT_NETWORK_ANNOTATION.to_owned(), network.to_owned());
    pod
}

pub(super) fn config(attachment: &Attachment) -> Value {
    serde_json::from_slice(attachment.config.bytes()).unwrap()
}
