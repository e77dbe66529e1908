//! The part of a K3s or RKE2 server that handles staged files: it serves the static files, and applies the manifests.
//!
//! The real code is part of programs that are not available here, so this module follows its rules about names, times and checksums.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context as _, ensure};
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    cluster::{Cluster, pods::Pods},
    node::Node,
    sh,
    test_env::sha256,
};

/// The port of the static files, on the node's address.
const PORT: u16 = 9345;
/// The namespace of every staged object.
const NAMESPACE: &str = "kube-system";

/// The deploy controller of one server: watches its manifests directory.
pub(crate) struct DeployController {
    data_dir: String,
    /// The modification time of each file at its last scan.
    seen: BTreeMap<PathBuf, SystemTime>,
}

/// The Addons of a cluster by the name of their manifest, common to all its servers.
#[derive(Default)]
pub(crate) struct Addons(BTreeMap<String, Addon>);

#[derive(Default)]
struct Addon {
    checksum: String,
    objects: BTreeSet<String>,
}

impl DeployController {
    /// Returns the controller of a server that has just started.
    pub(crate) fn new(data_dir: &str) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            seen: BTreeMap::new(),
        }
    }

    /// Scans the directory once; returns what was done to which files.
    pub(crate) fn scan(
        &mut self,
        (cluster, node): (&Cluster, &Node),
        addons: &mut Addons,
        disabled: &[String],
    ) -> anyhow::Result<Vec<String>> {
        let dir = node.path(&format!("{}/server/manifests", self.data_dir));
        let mut files = Vec::new();
        walk(&dir, &mut files)?;
        files.sort();
        let skips: BTreeSet<_> = files
            .iter()
            .filter_map(|path| Some(name(path).strip_suffix(".skip")?.to_owned()))
            .collect();
        let mut done = Vec::new();
        for path in &files {
            let file = name(path);
            let is_manifest = ["yaml", "yml", "json"]
                .iter()
                .any(|ending| file.ends_with(&format!(".{ending}")));
            let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
            let below = path.strip_prefix(&dir)?.parent().into_iter();
            let mut directories = below.flat_map(Path::ancestors);
            let is_named = |name: &str| disabled.iter().any(|word| word == name);
            if (is_manifest && is_named(stem))
                || directories.any(|directory| is_named(&directory.display().to_string()))
            {
                addons.apply(cluster, file, "")?;
                addons.0.remove(addon(file));
                fs::remove_file(path)?;
                done.push(format!("removed {file}"));
                continue;
            }
            if !is_manifest || file.starts_with('.') || skips.contains(file) {
                continue;
            }
            let time = fs::metadata(path)?.modified()?;
            let former = self.seen.insert(path.clone(), time);
            if former == Some(time) && time != SystemTime::UNIX_EPOCH {
                continue;
            }
            let text = fs::read_to_string(path)?;
            let known = addons.0.get(addon(file)).map(|addon| &addon.checksum);
            // The first scan after a start applies every file, whatever its checksum.
            if former.is_some() && known == Some(&sha256(text.as_bytes())) {
                continue;
            }
            addons.apply(cluster, file, &text)?;
            done.push(format!("applied {file}"));
        }
        Ok(done)
    }
}

impl Addons {
    /// Applies the objects of a manifest, and deletes those that only its former text had.
    fn apply(&mut self, cluster: &Cluster, file: &str, text: &str) -> anyhow::Result<()> {
        let objects = documents(text)?;
        if !objects.is_empty() {
            cluster.apply(&objects)?;
        }
        let identity = |object: &Value| {
            let word = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
            ensure!(
                object["metadata"]["namespace"] == NAMESPACE,
                "{file}: an object is not in namespace {NAMESPACE}"
            );
            Ok(format!(
                "{}/{}",
                word(&object["kind"]),
                word(&object["metadata"]["name"])
            ))
        };
        let now = objects
            .iter()
            .map(identity)
            .collect::<anyhow::Result<BTreeSet<_>>>()?;
        let known = self.0.entry(addon(file).to_owned()).or_default();
        for removed in known.objects.difference(&now) {
            cluster.kubectl(&[
                "delete",
                removed,
                &format!("--namespace={NAMESPACE}"),
                "--wait=false",
                "--ignore-not-found",
            ])?;
        }
        known.objects = now;
        known.checksum = sha256(text.as_bytes());
        Ok(())
    }
}

/// Serves the static files of a data directory with the API server's certificate; returns the address.
pub(crate) fn serve_static(
    cluster: &Cluster,
    node: &Node,
    data_dir: &str,
) -> anyhow::Result<String> {
    let address = format!("{}:{PORT}", node.address());
    let pki = &cluster.control.pki;
    node.serve("static", "sh", |command| {
        command
            .args(["-c", "cd \"$0\" && exec openssl s_server -quiet -WWW -accept \"$1\" -cert \"$2\" -key \"$3\""])
            .arg(format!("{data_dir}/server"))
            .arg(&address)
            .args([pki.file("apiserver.crt"), pki.file("apiserver.key")])
    })?;
    Ok(address)
}

/// Writes the cluster's settings into every HelmChart with the annotation for it, as RKE2 does before its controllers start; returns the
/// number of charts.
pub(crate) fn inject_settings(
    node: &Node,
    data_dir: &str,
    settings: &[(&str, &str)],
) -> anyhow::Result<usize> {
    let dir = node.path(&format!("{data_dir}/server/manifests"));
    let mut files = Vec::new();
    walk(&dir, &mut files)?;
    let mut count = 0;
    let is_yaml = |path: &&PathBuf| path.extension().is_some_and(|end| end == "yaml");
    for path in files.iter().filter(is_yaml) {
        let mut objects = documents(&fs::read_to_string(path)?)?;
        for object in &mut objects {
            let wants =
                object["metadata"]["annotations"]["rke2.cattle.io/inject-cluster-config"] == "true";
            if object["kind"] != "HelmChart" || !wants {
                continue;
            }
            for (key, value) in settings {
                object["spec"]["set"][*key] = (*value).into();
            }
            count += 1;
        }
        let texts = objects
            .iter()
            .map(serde_yaml::to_string)
            .collect::<Result<Vec<_>, _>>()?;
        fs::write(path, texts.join("---\n"))?;
    }
    Ok(count)
}

/// Parses the objects of a manifest.
fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents = serde_yaml::Deserializer::from_str(text).map(Value::deserialize);
    let documents = documents.collect::<Result<Vec<_>, _>>();
    let documents = documents.context("a manifest is not YAML")?;
    Ok(documents.into_iter().filter(|one| !one.is_null()).collect())
}

fn addon(file: &str) -> &str {
    file.split('.').next().unwrap_or(file)
}

fn name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Waits until a Helm release has a revision above `after`; returns the revision.
pub(crate) fn released(cluster: &impl Pods, release: &str, after: u64) -> anyhow::Result<u64> {
    let secrets = format!(
        "/api/v1/namespaces/{NAMESPACE}/secrets?labelSelector=owner%3Dhelm,name%3D{release},status%3Ddeployed"
    );
    sh::until(90, &format!("a job has installed {release}"), || {
        let found = cluster
            .api()
            .request("GET", &secrets, &Value::Null)?
            .json()?;
        let items = found["items"].as_array().into_iter().flatten();
        let versions = items.filter_map(|one| one["metadata"]["labels"]["version"].as_str());
        let newest = versions.filter_map(|text| text.parse().ok()).max();
        let newest = newest.unwrap_or(0);
        ensure!(newest > after, "the newest revision is {newest}");
        Ok(newest)
    })
    .with_context(|| job_log(cluster, release))
}

/// Returns the last lines of the log of a chart's job.
pub(crate) fn job_log(cluster: &impl Pods, release: &str) -> String {
    let job = format!("job/helm-install-{release}");
    let namespace = format!("--namespace={NAMESPACE}");
    let logs = cluster.kubectl(&["logs", &job, &namespace, "--tail=5"]);
    logs.unwrap_or_else(|error| error.to_string())
}
