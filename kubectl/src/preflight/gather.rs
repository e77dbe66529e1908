//! Reads a cluster into a snapshot for preflight. Objects that the user may not read are reported; all others are used.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::{
    installation,
    snapshot::{self, ClusterSnapshot},
};
use crate::cluster::Cluster;

/// The largest size of a decompressed release record.
const MAX_RELEASE: u64 = 64 << 20;
/// Controllers that may have no pods at the moment, so that their templates are validated.
const CONTROLLERS: [((&str, &str), &str, &str); 3] = [
    (("apps", "v1"), "Deployment", "deployments"),
    (("apps", "v1"), "StatefulSet", "statefulsets"),
    (("batch", "v1"), "CronJob", "cronjobs"),
];

/// Reads everything that the user may read, and with `with_values` the values of the installed release. Fails only without the right to list pods.
pub(super) async fn read(cluster: &Cluster, with_values: bool) -> anyhow::Result<ClusterSnapshot> {
    let mut snapshot = ClusterSnapshot::default();
    let pods = cluster.all(("", "v1"), "Pod", "pods").await;
    let pods = pods.map_err(|reason| {
        anyhow::anyhow!("cannot list the pods of all namespaces: {reason}; request the right to list pods, or read them from files with --filename")
    })?;
    add(&mut snapshot, "Pod", pods.unwrap_or_default());
    for (group, kind, plural) in CONTROLLERS {
        list(cluster, &mut snapshot, group, kind, plural).await;
    }
    let has_crd = list(
        cluster,
        &mut snapshot,
        ("k8s.cni.cncf.io", "v1"),
        crate::object::DEFINITION,
        "network-attachment-definitions",
    )
    .await;
    snapshot.has_crd = has_crd;
    // Without the right to read definitions, any definition may exist.
    snapshot.known.is_complete = has_crd.is_some();
    let (group, kind) = (("apiextensions.k8s.io", "v1"), "CustomResourceDefinition");
    let crd = cluster.object(group, kind, "customresourcedefinitions", "", snapshot::CRD);
    match crd.await {
        Ok(crd) => add(&mut snapshot, kind, crd.into_iter().collect()),
        Err(reason) => snapshot.unread.push(format!(
            "the CRD was not read, which Helm may delete with all networks: {reason}"
        )),
    }
    list(cluster, &mut snapshot, ("", "v1"), "Node", "nodes").await;
    let group = ("apps", "v1");
    list(cluster, &mut snapshot, group, "DaemonSet", "daemonsets").await;
    let group = ("helm.cattle.io", "v1");
    list(cluster, &mut snapshot, group, "HelmChart", "helmcharts").await;
    snapshot.kubernetes = cluster.version().await.ok();
    let [group_version, kind] = snapshot::BETA_POLICY;
    snapshot.has_beta_policies = cluster.has_kind(group_version, kind).await;
    read_config_maps(cluster, &mut snapshot).await;
    read_releases(cluster, &mut snapshot, with_values).await;
    snapshot.drop_used_templates();
    Ok(snapshot)
}

/// Lists all objects of a kind into the snapshot. Returns whether the cluster has the kind, or `None` when it cannot be listed.
async fn list(
    cluster: &Cluster,
    snapshot: &mut ClusterSnapshot,
    group: (&str, &str),
    kind: &str,
    plural: &str,
) -> Option<bool> {
    match cluster.all(group, kind, plural).await {
        Ok(Some(objects)) => {
            add(snapshot, kind, objects);
            Some(true)
        }
        Ok(None) => Some(false),
        Err(reason) => {
            let unread = format!("{plural} were not read: {reason}");
            snapshot.unread.push(unread);
            None
        }
    }
}

/// Adds objects of a list, which do not repeat their kind.
fn add(snapshot: &mut ClusterSnapshot, kind: &str, objects: Vec<Value>) {
    for mut object in objects {
        object["kind"] = kind.into();
        if let Err(reason) = snapshot.add(&object, "") {
            snapshot.unread.push(reason);
        }
    }
}

/// Reads the installed Multus alone, as far as the user may: its `DaemonSets` and their `ConfigMaps`.
pub(super) async fn installed(cluster: &Cluster) -> ClusterSnapshot {
    let mut snapshot = ClusterSnapshot::default();
    let group = ("apps", "v1");
    list(cluster, &mut snapshot, group, "DaemonSet", "daemonsets").await;
    read_config_maps(cluster, &mut snapshot).await;
    snapshot
}

/// Reads the `ConfigMaps` of the installed Multus.
async fn read_config_maps(cluster: &Cluster, snapshot: &mut ClusterSnapshot) {
    let mut config_maps = BTreeSet::new();
    for one in installation::all(snapshot) {
        if one.kind.is_multus() {
            let names = one.set.config_maps.iter();
            config_maps.extend(names.map(|name| (one.set.namespace.clone(), name.clone())));
        }
    }
    for (namespace, name) in config_maps {
        let config_map = cluster.object(("", "v1"), "ConfigMap", "configmaps", &namespace, &name);
        match config_map.await {
            Ok(Some(object)) => snapshot.add_config_map(&object, &namespace),
            Ok(None) => {}
            Err(reason) => snapshot.unread.push(format!(
                "ConfigMap {namespace}/{name} was not read: {reason}"
            )),
        }
    }
}

/// Reads the Helm releases of the installed Multus; the values of the one that is upgraded only if `with_values`.
async fn read_releases(cluster: &Cluster, snapshot: &mut ClusterSnapshot, with_values: bool) {
    let mut releases = BTreeMap::new();
    for one in installation::all(snapshot) {
        if !one.kind.is_multus() {
            continue;
        }
        let is_upgraded = one.chart.is_some();
        if with_values || !is_upgraded {
            let release = one.set.release.clone();
            releases.extend(release.map(|release| (release, is_upgraded)));
        }
    }
    for ((namespace, name), is_upgraded) in releases {
        let labels = format!("owner=helm,status=deployed,name={name}");
        let found = match cluster.secrets(&namespace, &labels).await {
            Ok(secrets) => newest(&secrets).map(record).transpose(),
            Err(reason) => Err(reason),
        };
        match found {
            Ok(Some(record)) if is_upgraded => {
                let values = explicit_values(&record);
                snapshot.release_values.insert((namespace, name), values);
            }
            Ok(Some(record)) => {
                let leaves = uninstall_leaves_networks(&record);
                let release = leaves.then_some((namespace, name));
                snapshot.uninstallable.extend(release);
            }
            // What deletes nothing is done with a release whose record nobody could read.
            Err(_) if !is_upgraded => {}
            // The release was made by `helm template`, or its record is not in a secret.
            Ok(None) => {}
            Err(reason) => snapshot.unread.push(format!(
                "the values of release {namespace}/{name} were not read: {reason}; write them to a file for --values (`helm get values --namespace {namespace} {name} --output yaml`)"
            )),
        }
    }
}

/// Returns the newest revision of a release.
fn newest(secrets: &[Value]) -> Option<&Value> {
    secrets.iter().max_by_key(|secret| {
        let version = secret.pointer("/metadata/labels/version");
        let version = version.and_then(Value::as_str);
        version.and_then(|text| text.parse::<u64>().ok())
    })
}

/// Returns Helm's record of a release, which is JSON, compressed by gzip and encoded twice by base64.
fn record(secret: &Value) -> Result<Value, String> {
    let unreadable = |reason: &str| format!("Helm's record of it cannot be read: {reason}");
    let text = secret
        .pointer("/data/release")
        .and_then(Value::as_str)
        .ok_or_else(|| unreadable("the secret has no key release"))?;
    let decode = |bytes: &[u8]| {
        STANDARD
            .decode(bytes)
            .map_err(|error| unreadable(&error.to_string()))
    };
    let packed = decode(&decode(text.as_bytes())?)?;
    let bytes = archive::gzip::decompress(&packed, MAX_RELEASE)
        .map_err(|error| unreadable(&error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| unreadable(&error.to_string()))
}

/// Returns the values that the user set for a release.
fn explicit_values(record: &Value) -> Map<String, Value> {
    let values = record.get("config").and_then(Value::as_object);
    values.cloned().unwrap_or_default()
}

/// Returns true when the uninstall of a release surely deletes no network: Helm decides by the objects as the release made them, not as they are.
fn uninstall_leaves_networks(record: &Value) -> bool {
    let Some(manifest) = record["manifest"].as_str() else {
        return false;
    };
    serde_yaml::Deserializer::from_str(manifest).all(|document| {
        Value::deserialize(document).is_ok_and(|object| !snapshot::deletes_networks(&object))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(release: &Value) -> Value {
        let packed = archive::gzip::compress(release.to_string().as_bytes());
        let text = STANDARD.encode(STANDARD.encode(packed));
        json!({"data": {"release": text}})
    }

    #[test]
    fn only_explicit_values_are_read_from_a_release() {
        let release = json!({"name": "m", "config": {"thickPlugin": {"enabled": true}}, "chart": {"values": {"a": 1}}});
        let values = explicit_values(&record(&secret(&release)).unwrap());
        assert_eq!(
            Value::Object(values),
            json!({"thickPlugin": {"enabled": true}})
        );
        let values = explicit_values(&record(&secret(&json!({"config": null}))).unwrap());
        assert!(values.is_empty());
    }

    #[test]
    fn an_uninstall_deletes_the_networks_that_the_release_made() {
        let crd = "kind: CustomResourceDefinition\nmetadata:\n  name: network-attachment-definitions.k8s.cni.cncf.io\n";
        let kept = format!("{crd}  annotations:\n    helm.sh/resource-policy: keep\n");
        let network = "kind: NetworkAttachmentDefinition\nmetadata:\n  name: storage\n";
        let other =
            "kind: CustomResourceDefinition\nmetadata:\n  name: ippools.whereabouts.cni.cncf.io\n";
        for (objects, expected) in [
            (vec![other], true),
            (vec![other, &kept], true),
            (vec![other, crd], false),
            (vec![&kept, network], false),
            (vec!["kind: [unclosed"], false),
        ] {
            let manifest = format!(
                "---\n# Source: multus/templates/a.yaml\n{}",
                objects.join("---\n")
            );
            let record = json!({"manifest": manifest});
            assert_eq!(uninstall_leaves_networks(&record), expected, "{manifest}");
        }
        assert!(!uninstall_leaves_networks(&json!({})));
    }

    #[test]
    fn invalid_release_records_are_refused() {
        for secret in [
            json!({}),
            json!({"data": {"release": "%"}}),
            json!({"data": {"release": STANDARD.encode(STANDARD.encode("x"))}}),
        ] {
            let error = record(&secret).unwrap_err();
            assert!(error.contains("cannot be read"), "{error}");
        }
    }

    #[test]
    fn revisions_are_compared_as_numbers() {
        let of = |version: &str| json!({"metadata": {"labels": {"version": version}}});
        let secrets = [of("2"), of("10"), of("9")];
        assert_eq!(newest(&secrets), Some(&secrets[1]));
    }
}
