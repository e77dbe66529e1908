//! The files to stage: a function from distro and server to paths below the data directory, with their bytes.
//!
//! The published manifests have `bootstrap: true`: the jobs that install the charts run on the network of a node with the control-plane
//! label and talk to its own API server, so that they can repair and remove a Multus that keeps pods from starting. A K3s server without
//! an agent registers no such node, and its jobs would wait for ever. For it the key is left out: the jobs then run on any node as
//! ordinary pods, whose default network does not need Multus. RKE2's servers are pods of their own agent, so they always have one.
//! Where the servers of a cluster differ in this, the leader's manifest counts: its own node runs the jobs, or any node does.

use clap::ValueEnum;

use crate::assets;

/// The distro for which charts are staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distro {
    /// K3s: charts among the static files, a manifest that names their address.
    K3s,
    /// RKE2: a manifest that carries the charts.
    Rke2,
}

impl Distro {
    /// Returns the distro's own name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::K3s => "k3s",
            Self::Rke2 => "rke2",
        }
    }
}

/// The settings that the files depend on besides the distro.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Server<'a> {
    /// The default registry; empty for none.
    pub(crate) registry: &'a str,
    /// The server runs an agent, so the cluster has a node with the control-plane label.
    pub(crate) runs_agent: bool,
}

/// A file to stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    /// Below the data directory.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// A manifest holds a variable that neither this program nor the distro replaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the manifest holds the unknown variable %{{{0}}}%")]
pub(crate) struct UnknownVariable(String);

/// The directory of manifests below the distro's data directory.
pub(crate) const MANIFESTS: &str = "server/manifests";

/// The line of a HelmChart by which its job runs on a server's own network.
const BOOTSTRAP: &str = "  bootstrap: true\n";

/// The variable that is replaced later, inside the job that installs the chart.
const LEFT_ALONE: &str = "KUBERNETES_API";

/// Returns the files, the manifest last, since the distro acts on it as soon as it is there.
pub(crate) fn files(distro: Distro, server: Server<'_>) -> Result<Vec<File>, UnknownVariable> {
    let mut files = Vec::new();
    if distro == Distro::K3s {
        let own = assets::charts()
            .into_iter()
            .filter(|chart| chart.name().starts_with("k3s-"));
        files.extend(own.map(|chart| File {
            path: format!("server/static/charts/{}", chart.file),
            bytes: chart.bytes.to_vec(),
        }));
    }
    let manifest = assets::manifest(distro.as_str()).unwrap_or_default();
    let mut manifest = substitute(manifest, server.registry)?;
    if distro == Distro::K3s && !server.runs_agent {
        manifest = manifest.replace(BOOTSTRAP, "");
    }
    let documents: Vec<&str> = match distro {
        Distro::K3s => vec![&manifest],
        Distro::Rke2 => manifest.split("---\n").collect(),
    };
    for (name, document) in manifests(distro).iter().zip(documents) {
        files.push(File {
            path: format!("{MANIFESTS}/{name}.yaml"),
            bytes: document.as_bytes().to_vec(),
        });
    }
    Ok(files)
}

/// Accepts a registry as images name it: host, port and path.
pub(crate) fn registry(text: &str) -> Result<String, String> {
    if let Some((scheme, _)) = text.split_once("://") {
        return Err(format!(
            "a registry is named without a scheme, and this one is {text}: leave {scheme}:// out"
        ));
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "][._:/-".contains(c);
    if !text.chars().all(is_allowed) {
        return Err(format!(
            "the registry is {text}, a template that was not filled in: set host and port of the registry, or leave it out"
        ));
    }
    Ok(text.to_owned())
}

/// Returns the names of the manifests, which are also those of the distro's Addons and of its disable list.
///
/// RKE2 writes the cluster's settings into HelmChart files, and its older releases keep only the first document of one.
pub(crate) fn manifests(distro: Distro) -> &'static [&'static str] {
    match distro {
        Distro::K3s => &["multus"],
        Distro::Rke2 => &["multus-crd", "multus"],
    }
}

/// Replaces the distro's variables in one pass, so that no value is taken for a variable.
fn substitute(text: &str, registry: &str) -> Result<String, UnknownVariable> {
    let registry = registry.trim_end_matches('/');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("%{") {
        let Some((name, after)) = after.split_once("}%") else {
            break;
        };
        out.push_str(before);
        match name {
            "SYSTEM_DEFAULT_REGISTRY_RAW" => out.push_str(registry),
            "SYSTEM_DEFAULT_REGISTRY" if registry.is_empty() => {}
            "SYSTEM_DEFAULT_REGISTRY" => {
                out.push_str(registry);
                out.push('/');
            }
            LEFT_ALONE => {
                out.push_str("%{");
                out.push_str(name);
                out.push_str("}%");
            }
            other => return Err(UnknownVariable(other.to_owned())),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::*;

    fn with_agent(registry: &str) -> Server<'_> {
        Server {
            registry,
            runs_agent: true,
        }
    }

    #[test]
    fn jobs_run_on_servers_unless_a_k3s_server_has_no_agent() {
        let manifests = |distro, runs_agent| {
            let server = Server {
                registry: "",
                runs_agent,
            };
            let mut manifests = files(distro, server).unwrap();
            manifests.retain(|file| file.path.starts_with(MANIFESTS));
            let texts = manifests.iter();
            let texts: Vec<String> = texts
                .map(|file| String::from_utf8(file.bytes.clone()).unwrap())
                .collect();
            texts.join("---\n")
        };
        let bootstraps = |text: &str| -> Vec<Option<bool>> {
            serde_yaml::Deserializer::from_str(text)
                .map(|document| serde_yaml::Value::deserialize(document).unwrap())
                .map(|document| document["spec"].get("bootstrap")?.as_bool())
                .collect()
        };
        let k3s = manifests(Distro::K3s, true);
        assert_eq!(bootstraps(&k3s), [Some(true); 2]);
        let without_agent = manifests(Distro::K3s, false);
        assert_eq!(bootstraps(&without_agent), [None; 2]);
        let lines = |text: &str| text.lines().count();
        assert_eq!(lines(&k3s), lines(&without_agent) + 2);
        let rke2 = manifests(Distro::Rke2, true);
        assert_eq!(bootstraps(&rke2), [Some(true); 2]);
        assert_eq!(manifests(Distro::Rke2, false), rke2);
    }

    #[test]
    fn k3s_gets_its_charts_first_and_the_manifest_last() {
        let files = files(Distro::K3s, with_agent("reg.example:5000/")).unwrap();
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            paths,
            [
                format!("server/static/charts/k3s-multus-{version}.tgz"),
                format!("server/static/charts/k3s-multus-crd-{version}.tgz"),
                "server/manifests/multus.yaml".to_owned(),
            ]
        );
        let manifest = String::from_utf8(files[2].bytes.clone()).unwrap();
        assert!(
            manifest.contains("systemDefaultRegistry: \"reg.example:5000\"")
                && manifest.contains("%{KUBERNETES_API}%"),
            "{manifest}"
        );
    }

    #[test]
    fn rke2_gets_one_document_per_file_with_the_chart_inside() {
        let files = files(Distro::Rke2, with_agent("")).unwrap();
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "server/manifests/multus-crd.yaml",
                "server/manifests/multus.yaml"
            ]
        );
        for (file, name) in files.iter().zip(["rke2-multus-crd", "rke2-multus"]) {
            let document: serde_yaml::Value = serde_yaml::from_slice(&file.bytes).unwrap();
            assert_eq!(document["metadata"]["name"], *name);
            assert!(document["spec"]["chartContent"].is_string());
        }
    }

    #[test]
    fn unknown_variables_are_refused_and_values_are_not_substituted_again() {
        assert_eq!(
            substitute("a %{CLUSTER_DNS}% b", ""),
            Err(UnknownVariable("CLUSTER_DNS".into()))
        );
        assert_eq!(
            substitute("%{SYSTEM_DEFAULT_REGISTRY}%x 100%{", "%{Y}%").unwrap(),
            "%{Y}%/x 100%{"
        );
    }
}
