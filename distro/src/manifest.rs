//! Manifests as the distros' own programs treat them: which are removed, which are ignored, and what RKE2 writes into them.
//! Functions over text.

use serde_yaml::{Mapping, Value};

/// A HelmChart with this annotation gets the cluster's settings from RKE2.
const INJECTED: &str = "rke2.cattle.io/inject-cluster-config";
/// What begins a file that stands for "take away what you made from the former one".
const REMOVED: &str = "# removed by multus-distro: ";

/// Whether a path below the manifests directory is disabled by one of these words: a directory's name, or a manifest's without its ending.
pub(crate) fn is_disabled(path: &str, words: &[String]) -> bool {
    let has = |name: &str| words.iter().any(|word| word.trim_matches('/') == name);
    let folders = path.match_indices('/').map(|(end, _)| &path[..end]);
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = ["yaml", "yml", "json"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.'));
    folders.into_iter().any(has) || stem.is_some_and(has)
}

/// The name of the Addon that a file becomes: up to its first dot.
pub(crate) fn addon(file: &str) -> &str {
    file.split('.').next().unwrap_or(file)
}

/// Comments alone: the distro removes what it made of the file's former content.
pub(crate) fn removal(name: &str) -> Vec<u8> {
    format!("{REMOVED}{name}\n").into_bytes()
}

/// Whether a file is one of those.
pub(crate) fn is_removal(bytes: &[u8]) -> bool {
    bytes.starts_with(REMOVED.as_bytes())
}

/// What a file means: its bytes, or for a manifest into which RKE2 writes, its content without what was written.
pub(crate) fn meaning(path: &str, bytes: &[u8]) -> Vec<u8> {
    let is_manifest = [".yaml", ".yml"].iter().any(|end| path.ends_with(end));
    let found = is_manifest.then(|| serde_yaml::from_slice(bytes).ok());
    match found.flatten() {
        Some(Value::Mapping(mut document)) if wants_settings(&document) => {
            without_settings(&mut document);
            // Sorted by key, as RKE2 writes them.
            let sorted = plain(Value::Mapping(document));
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

/// Takes out what RKE2 sets: globals, in older releases the image of the job, and what its types have for nothing.
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

/// The same value with sorted keys and without nulls.
fn plain(value: Value) -> serde_json::Value {
    match value {
        Value::Mapping(map) => {
            let mut entries: Vec<(String, serde_json::Value)> = map
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .filter_map(|(key, value)| Some((key.as_str()?.to_owned(), plain(value))))
                .collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            serde_json::Value::Object(entries.into_iter().collect())
        }
        Value::Sequence(list) => list.into_iter().map(plain).collect(),
        other => serde_json::to_value(other).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_are_disabled_by_name() {
        let is = |path: &str, words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            is_disabled(path, &words)
        };
        assert!(is("multus.yaml", "traefik multus"));
        assert!(is("multus.json", "multus") && is("multus.yml", "multus"));
        assert!(is("net/multus.yaml", "net") && is("a/net/multus.yaml", "a/net"));
        // The name up to the last dot counts, and only of what is a manifest.
        assert!(is("multus.v1.yaml", "multus.v1"));
        assert!(!is("multus.v1.yaml", "multus"));
        assert!(!is("multus.txt", "multus") && !is("multus", "multus"));
        assert!(!is("multus-crd.yaml", "multus"));
        assert!(!is("net/multus.yaml", "multus.yaml"));
        assert!(!is("a/net/multus.yaml", "net"));
    }

    #[test]
    fn an_addon_has_the_name_up_to_the_first_dot() {
        assert_eq!(addon("multus.v1.yaml"), "multus");
        assert_eq!(addon("multus"), "multus");
    }

    const OURS: &str = "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  name: rke2-multus\n  annotations:\n    rke2.cattle.io/inject-cluster-config: \"true\"\nspec:\n  chartContent: YWJj\n  bootstrap: false\n";
    const THEIRS: &str = "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  annotations:\n    rke2.cattle.io/inject-cluster-config: \"true\"\n  creationTimestamp: null\n  name: rke2-multus\nspec:\n  bootstrap: false\n  chartContent: YWJj\n  jobImage: r/klipper-helm:1\n  set:\n    global.clusterCIDR: 10.42.0.0/16\n    global.systemDefaultRegistry: r\nstatus: {}\n";

    #[test]
    fn what_rke2_writes_changes_nothing() {
        let mean = |text: &str| meaning("a.yaml", text.as_bytes());
        assert_eq!(mean(OURS), mean(THEIRS));
        assert_ne!(mean(OURS), mean(&THEIRS.replace("YWJj", "YWJk")));
        let mine = THEIRS.replace("    global.clusterCIDR", "    image.tag");
        assert_ne!(mean(OURS), mean(&mine));
        // Without the annotation every byte counts.
        let bare = OURS.replace("\"true\"", "\"false\"");
        assert_eq!(mean(&bare), bare.as_bytes());
        assert_eq!(meaning("a.tgz", OURS.as_bytes()), OURS.as_bytes());
    }

    #[test]
    fn removals_are_known_again() {
        let text = removal("multus.yaml");
        assert!(is_removal(&text));
        assert!(text.starts_with(b"# ") && !is_removal(OURS.as_bytes()));
    }
}
