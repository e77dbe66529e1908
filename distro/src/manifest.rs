//! Manifests as the distros' own programs treat them: which they remove, which they ignore, and what RKE2 writes into them.
//! Functions over text.

use serde::Deserialize as _;
use serde_yaml::{Mapping, Value};

/// RKE2 writes the cluster's settings into a HelmChart with this annotation.
const INJECTED: &str = "rke2.cattle.io/inject-cluster-config";
/// The beginning of a file of only comments, for which the distro removes what it installed from the file's former content.
const REMOVED: &str = "# removed by multus-distro: ";

/// Returns whether the distro's disable list names a path below the manifests directory: by a directory, or by the manifest without its
/// ending.
pub(crate) fn is_disabled(path: &str, disabled: &[String]) -> bool {
    let has = |name: &str| disabled.iter().any(|item| item.trim_matches('/') == name);
    let dirs = path.match_indices('/').map(|(end, _)| &path[..end]);
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = ["yaml", "yml", "json"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.'));
    dirs.into_iter().any(has) || stem.is_some_and(has)
}

/// Returns the name of the Addon that the distro makes of a file: up to the first dot.
pub(crate) fn addon_name(file: &str) -> &str {
    file.split('.').next().unwrap_or(file)
}

/// Returns kind and name of each HelmChart and DaemonSet that installs Multus, by the names that charts and manifests of it have in public.
pub(crate) fn multus(bytes: &[u8]) -> Vec<String> {
    // Each start of a server comes here, and charts inside of manifests are long.
    if !bytes.windows(6).any(|word| word == b"multus") {
        return Vec::new();
    }
    let documents = serde_yaml::Deserializer::from_slice(bytes);
    let documents = documents.map_while(|document| Value::deserialize(document).ok());
    documents
        .filter_map(|document| {
            let text = |keys: [&str; 2]| document.get(keys[0])?.get(keys[1])?.as_str();
            let kind = document.get("kind")?.as_str()?;
            let name = text(["metadata", "name"])?;
            let chart = text(["spec", "chart"]).unwrap_or_default();
            let file = chart.rsplit('/').next().unwrap_or_default();
            let is_multus = match kind {
                "HelmChart" => {
                    let is = |name: &str| name.contains("multus") && !name.contains("multus-crd");
                    is(name) || is(file)
                }
                "DaemonSet" => name.contains("multus"),
                _ => false,
            };
            is_multus.then(|| format!("{kind} {name}"))
        })
        .collect()
}

/// Returns a file of only comments, for which the distro removes what it installed from the file's former content.
pub(crate) fn removal(name: &str) -> Vec<u8> {
    format!("{REMOVED}{name}\n").into_bytes()
}

pub(crate) fn is_removal(bytes: &[u8]) -> bool {
    bytes.starts_with(REMOVED.as_bytes())
}

/// Returns what two equal files have in common: the bytes, or for a manifest into which RKE2 writes, its content without RKE2's part.
pub(crate) fn canonical(path: &str, bytes: &[u8]) -> Vec<u8> {
    let is_manifest = [".yaml", ".yml"].iter().any(|end| path.ends_with(end));
    let found = is_manifest.then(|| serde_yaml::from_slice(bytes).ok());
    match found.flatten() {
        Some(Value::Mapping(mut document)) if wants_settings(&document) => {
            without_settings(&mut document);
            // Sorted by key, as RKE2 writes them.
            let sorted = sorted(Value::Mapping(document));
            serde_json::to_vec(&sorted).unwrap_or_else(|_| bytes.to_vec())
        }
        _ => bytes.to_vec(),
    }
}

fn wants_settings(document: &Mapping) -> bool {
    let annotation = document
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations")?.get(INJECTED)?.as_str());
    annotation == Some("true")
}

/// Removes what RKE2 sets: globals, in older releases the image of the job, and the empty fields of its types.
fn without_settings(document: &mut Mapping) {
    document.remove("status");
    if let Some(Value::Mapping(metadata)) = document.get_mut("metadata") {
        metadata.remove("creationTimestamp");
    }
    let Some(Value::Mapping(spec)) = document.get_mut("spec") else {
        return;
    };
    spec.remove("jobImage");
    if let Some(Value::Mapping(set)) = spec.get_mut("set") {
        set.retain(|key, _| {
            let name = key.as_str().unwrap_or_default();
            !name.starts_with("global.")
        });
        if set.is_empty() {
            spec.remove("set");
        }
    }
}

/// Returns the value with sorted keys and without nulls.
fn sorted(value: Value) -> serde_json::Value {
    match value {
        Value::Mapping(map) => {
            let mut entries: Vec<(String, serde_json::Value)> = map
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .filter_map(|(key, value)| Some((key.as_str()?.to_owned(), sorted(value))))
                .collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            serde_json::Value::Object(entries.into_iter().collect())
        }
        Value::Sequence(list) => list.into_iter().map(sorted).collect(),
        other => serde_json::to_value(other).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_are_disabled_by_name() {
        let is = |path: &str, disabled: &str| {
            let disabled: Vec<String> = disabled.split(' ').map(str::to_owned).collect();
            is_disabled(path, &disabled)
        };
        assert!(is("multus.yaml", "traefik multus"));
        assert!(is("multus.json", "multus") && is("multus.yml", "multus"));
        assert!(is("net/multus.yaml", "net") && is("a/net/multus.yaml", "a/net"));
        // The name up to the last dot counts, and only the name of a manifest.
        assert!(is("multus.v1.yaml", "multus.v1"));
        assert!(!is("multus.v1.yaml", "multus"));
        assert!(!is("multus.txt", "multus") && !is("multus", "multus"));
        assert!(!is("multus-crd.yaml", "multus"));
        assert!(!is("net/multus.yaml", "multus.yaml"));
        assert!(!is("a/net/multus.yaml", "net"));
    }

    #[test]
    fn multus_of_others_is_found_in_manifests() {
        let text = "kind: HelmChart\nmetadata: {name: cni}\nspec: {chart: https://example.com/rke2-multus-v4.3.017.tgz}\n---\n\
            kind: HelmChart\nmetadata: {name: multus-crd}\nspec: {chart: rke2-multus-crd}\n---\n\
            # nothing\n---\nkind: DaemonSet\nmetadata: {name: kube-multus-ds}\n---\nkind: Service\nmetadata: {name: multus}\n";
        let expected = ["HelmChart cni", "DaemonSet kube-multus-ds"];
        assert_eq!(multus(text.as_bytes()), expected);
        for other in ["", "kind: HelmChart", "- a", "kind: [", "a: b"] {
            assert!(multus(other.as_bytes()).is_empty(), "{other}");
        }
    }

    #[test]
    fn addon_has_the_name_up_to_the_first_dot() {
        assert_eq!(addon_name("multus.v1.yaml"), "multus");
        assert_eq!(addon_name("multus"), "multus");
    }

    const OURS: &str = "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  name: rke2-multus\n  annotations:\n    rke2.cattle.io/inject-cluster-config: \"true\"\nspec:\n  chartContent: YWJj\n  bootstrap: false\n";
    const THEIRS: &str = "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  annotations:\n    rke2.cattle.io/inject-cluster-config: \"true\"\n  creationTimestamp: null\n  name: rke2-multus\nspec:\n  bootstrap: false\n  chartContent: YWJj\n  jobImage: r/klipper-helm:1\n  set:\n    global.clusterCIDR: 10.42.0.0/16\n    global.systemDefaultRegistry: r\nstatus: {}\n";

    #[test]
    fn settings_that_rke2_writes_are_ignored() {
        let content = |text: &str| canonical("a.yaml", text.as_bytes());
        assert_eq!(content(OURS), content(THEIRS));
        assert_ne!(content(OURS), content(&THEIRS.replace("YWJj", "YWJk")));
        let edited = THEIRS.replace("    global.clusterCIDR", "    image.tag");
        assert_ne!(content(OURS), content(&edited));
        // Without the annotation every byte counts.
        let bare = OURS.replace("\"true\"", "\"false\"");
        assert_eq!(content(&bare), bare.as_bytes());
        assert_eq!(canonical("a.tgz", OURS.as_bytes()), OURS.as_bytes());
    }

    #[test]
    fn removals_are_recognised() {
        let text = removal("multus.yaml");
        assert!(is_removal(&text));
        assert!(text.starts_with(b"# ") && !is_removal(OURS.as_bytes()));
    }
}
