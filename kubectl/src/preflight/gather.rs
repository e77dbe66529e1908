//! Reads a cluster for preflight; what may not be read is named, and everything else is judged.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::{installation, snapshot::Snapshot};
use crate::cluster::Cluster;

/// A release that is unpacked has no more bytes than this.
const LARGEST_RELEASE: u64 = 64 << 20;
/// Objects whose pods may be absent now.
const MAKERS: [((&str, &str), &str, &str); 3] = [
    (("apps", "v1"), "Deployment", "deployments"),
    (("apps", "v1"), "StatefulSet", "statefulsets"),
    (("batch", "v1"), "CronJob", "cronjobs"),
];

/// Reads everything that may be read, with the values of the release where nobody gave any. Fails without the pods.
pub(super) async fn read(cluster: &Cluster, with_values: bool) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let pods = cluster.all(("", "v1"), "Pod", "pods").await;
    let pods = pods.map_err(|reason| {
        anyhow::anyhow!("cannot list the pods of all namespaces: {reason}; it takes the right to list pods, or read them from files with --filename")
    })?;
    add(&mut snapshot, "Pod", pods.unwrap_or_default());
    for (group, kind, plural) in MAKERS {
        list(cluster, &mut snapshot, group, kind, plural).await;
    }
    let is_known = list(
        cluster,
        &mut snapshot,
        ("k8s.cni.cncf.io", "v1"),
        crate::object::DEFINITION,
        "network-attachment-definitions",
    )
    .await;
    snapshot.has_crd = is_known;
    // Definitions that may not be read may all be there.
    snapshot.known.is_whole = is_known.is_some();
    list(cluster, &mut snapshot, ("", "v1"), "Node", "nodes").await;
    let group = ("apps", "v1");
    list(cluster, &mut snapshot, group, "DaemonSet", "daemonsets").await;
    let group = ("helm.cattle.io", "v1");
    list(cluster, &mut snapshot, group, "HelmChart", "helmcharts").await;
    snapshot.kubernetes = cluster.version().await.ok();
    read_configuration(cluster, &mut snapshot, with_values).await;
    snapshot.drop_used_templates();
    Ok(snapshot)
}

/// Lists objects of a kind. Returns whether the cluster knows it, or `None` where that cannot be read.
async fn list(
    cluster: &Cluster,
    snapshot: &mut Snapshot,
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

/// Objects of a list do not repeat their kind.
fn add(snapshot: &mut Snapshot, kind: &str, objects: Vec<Value>) {
    for mut object in objects {
        object["kind"] = kind.into();
        if let Err(reason) = snapshot.add(&object, "") {
            snapshot.unread.push(reason);
        }
    }
}

/// The configuration of the Multus that is there: its `ConfigMaps`, and the values of its releases.
async fn read_configuration(cluster: &Cluster, snapshot: &mut Snapshot, with_values: bool) {
    let (mut config_maps, mut releases) = (BTreeSet::new(), BTreeSet::new());
    for one in installation::all(snapshot) {
        if !one.kind.is_multus() {
            continue;
        }
        let names = one.set.config_maps.iter();
        config_maps.extend(names.map(|name| (one.set.namespace.clone(), name.clone())));
        if with_values && one.chart.is_some() {
            releases.extend(one.set.release.clone());
        }
    }
    for (namespace, name) in config_maps {
        match cluster.config_map(&namespace, &name).await {
            Ok(Some(object)) => snapshot.add_config_map(&object, &namespace),
            Ok(None) => {}
            Err(reason) => snapshot.unread.push(format!(
                "ConfigMap {namespace}/{name} was not read: {reason}"
            )),
        }
    }
    for (namespace, name) in releases {
        let labels = format!("owner=helm,status=deployed,name={name}");
        let found = match cluster.secrets(&namespace, &labels).await {
            Ok(secrets) => newest(&secrets).map(release_values).transpose(),
            Err(reason) => Err(reason),
        };
        match found {
            Ok(Some(values)) => drop(snapshot.release_values.insert((namespace, name), values)),
            // Made by `helm template`, or kept elsewhere.
            Ok(None) => {}
            Err(reason) => snapshot.unread.push(format!(
                "the values of release {namespace}/{name} were not read: {reason}; give them with --values (`helm get values --namespace {namespace} {name} --output yaml`)"
            )),
        }
    }
}

/// The revision that was installed last.
fn newest(secrets: &[Value]) -> Option<&Value> {
    secrets.iter().max_by_key(|secret| {
        let version = secret.pointer("/metadata/labels/version");
        let version = version.and_then(Value::as_str);
        version.and_then(|text| text.parse::<u64>().ok())
    })
}

/// The values that a person gave to a release: Helm keeps it as JSON, packed and encoded twice.
pub(super) fn release_values(secret: &Value) -> Result<Map<String, Value>, String> {
    let unreadable = |what: &str| format!("Helm's record of it cannot be read: {what}");
    let text = secret
        .pointer("/data/release")
        .and_then(Value::as_str)
        .ok_or_else(|| unreadable("it holds no release"))?;
    let decode = |bytes: &[u8]| {
        STANDARD
            .decode(bytes)
            .map_err(|error| unreadable(&error.to_string()))
    };
    let packed = decode(&decode(text.as_bytes())?)?;
    let bytes = archive::gzip::decompress(&packed, LARGEST_RELEASE)
        .map_err(|error| unreadable(&error.to_string()))?;
    let release: Value =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(&error.to_string()))?;
    Ok(match release.get("config") {
        Some(Value::Object(values)) => values.clone(),
        _ => Map::new(),
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
    fn values_of_a_release_are_those_that_were_given() {
        let release = json!({"name": "m", "config": {"thickPlugin": {"enabled": true}}, "chart": {"values": {"a": 1}}});
        let values = release_values(&secret(&release)).unwrap();
        assert_eq!(
            Value::Object(values),
            json!({"thickPlugin": {"enabled": true}})
        );
        let values = release_values(&secret(&json!({"config": null}))).unwrap();
        assert!(values.is_empty());
    }

    #[test]
    fn records_that_are_no_release_are_refused() {
        for secret in [
            json!({}),
            json!({"data": {"release": "%"}}),
            json!({"data": {"release": STANDARD.encode(STANDARD.encode("x"))}}),
        ] {
            let error = release_values(&secret).unwrap_err();
            assert!(error.contains("cannot be read"), "{error}");
        }
    }

    #[test]
    fn the_newest_revision_counts() {
        let of = |version: &str| json!({"metadata": {"labels": {"version": version}}});
        let secrets = [of("2"), of("10"), of("9")];
        assert_eq!(newest(&secrets), Some(&secrets[1]));
    }
}
