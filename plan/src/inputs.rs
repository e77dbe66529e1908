//! The sources of a plan: the configuration, and three traits for definitions, files and plugins. Daemon, kubectl and tests implement
//! them each in their own way.

use std::{io, path::Path, sync::Arc};

use api::node_labels;

use crate::netconf::Netconf;

/// The sources from which a plan is made.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The effective configuration.
    pub netconf: &'a Netconf,
    /// The cluster's network attachment definitions.
    pub definitions: &'a dyn Definitions,
    /// The node's files.
    pub files: &'a dyn Files,
    /// The node's plugins.
    pub plugins: &'a dyn Plugins,
}

/// Annotation of a definition with the resource from which each attachment needs a device.
pub const RESOURCE_ANNOTATION: &str = "k8s.v1.cni.cncf.io/resourceName";

/// Annotation of a definition with the label of the nodes that its pods are for, as `key=value`. Who gives it to pods is not the daemon: a
/// policy of the chart, or network-resources-injector.
pub const SELECTOR_ANNOTATION: &str = "k8s.v1.cni.cncf.io/nodeSelector";

/// A network attachment definition (`NetworkAttachmentDefinition`), as far as planning reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nad {
    pub namespace: String,
    pub name: String,
    /// `spec.config`. When it is empty, the configuration is a file on the node's disk.
    pub config: String,
    /// The value of [`RESOURCE_ANNOTATION`], unless it is a resource that daemons publish, which has no devices.
    pub resource_name: Option<String>,
    /// The value of [`SELECTOR_ANNOTATION`].
    pub node_selector: Option<String>,
}

impl Nad {
    /// Returns key and value of the label of nodes, if the annotation has one of each.
    pub fn node_label(&self) -> Option<(&str, &str)> {
        let (key, value) = self.node_selector.as_deref()?.split_once('=')?;
        let label = (key.trim(), value.trim());
        (!label.0.is_empty() && !label.1.contains('=')).then_some(label)
    }

    /// Returns the faults because of which the scheduler finds no nodes by this definition, each with the reason of its event.
    pub fn scheduling_faults(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let network = format!("{}/{}", self.namespace, self.name);
        let selector = self
            .selector_fault()
            .map(|fault| ("NodeSelectorInvalid", fault));
        let label = node_labels::fault(&network).map(|fault| ("NameTooLong", fault));
        selector.into_iter().chain(label)
    }

    /// Returns what is wrong with the annotation, if it is there and has no label.
    pub fn selector_fault(&self) -> Option<String> {
        let value = self.node_selector.as_deref()?;
        self.node_label().is_none().then(|| {
            format!(
                "the annotation {SELECTOR_ANNOTATION} is \"{value}\", so pods do not get it: write one label as key=value"
            )
        })
    }
}

/// The cluster's definitions, as a watch keeps them.
pub trait Definitions: Send + Sync {
    /// Returns one definition.
    fn nad(&self, namespace: &str, name: &str) -> Option<Arc<Nad>>;

    /// Looks a definition up where they come from, for a name that nothing else resolves: a watch may lag behind. `None` means that there
    /// is none, an error that nobody knows.
    fn read(&self, _namespace: &str, _name: &str) -> Result<Option<Arc<Nad>>, String> {
        Ok(None)
    }

    /// Returns the chart that installs the CRD, where the cluster lacks it.
    fn missing_crd(&self) -> Option<String> {
        None
    }
}

/// Read access to the node's file tree. Paths are those of the node.
pub trait Files: Send + Sync {
    /// Returns the content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns the names in a directory, sorted byte by byte.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Whether the path is a directory or a link to one.
    fn is_dir(&self, path: &Path) -> bool;
    /// Whether the path exists.
    fn exists(&self, path: &Path) -> bool;
}

/// The files of a node of which none can be seen, as on a workstation.
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn list(&self, _dir: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn is_dir(&self, _path: &Path) -> bool {
        false
    }

    fn exists(&self, _path: &Path) -> bool {
        false
    }
}

/// The plugins of a node.
pub trait Plugins: Send + Sync {
    /// Returns the plugin's result of VERSION, or `None` where there is no such plugin.
    fn versions(&self, plugin: &str) -> Option<Result<PluginVersions, String>>;
}

/// A plugin's result of VERSION.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PluginVersions {
    /// The versions of the CNI specification that the plugin supports.
    pub versions: Vec<String>,
}

/// A node without plugins, for plans that are made away from a node.
pub struct NoPlugins;

impl Plugins for NoPlugins {
    fn versions(&self, _plugin: &str) -> Option<Result<PluginVersions, String>> {
        None
    }
}
