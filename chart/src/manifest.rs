//! Writes HelmChart documents (helm.cattle.io/v1) for each distro's deploy controller: the CRD chart first, then the chart.

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{
    CHARTS, Chart, Distro, Identity,
    pack::{PackError, pack},
    settings::BuildSettings,
};

/// The file's name in the distro's manifests directory.
pub const FILE_NAME: &str = "multus.yaml";
/// The directory of charts below the distro's static files.
pub const STATIC_DIR: &str = "charts";

/// The chart and its CRD as Helm renders them with default values, for a Kubernetes that has every field of them. Suite `chart` compares
/// it with what Helm renders.
const RENDERED: &str = include_str!("../rendered/multus.yaml");
/// Where the version goes.
const VERSION: &str = "@VERSION@";
/// Where the name of the daemon's image goes.
const IMAGE: &str = "multusrs/multus:v@VERSION@";

/// Returns `multus.yaml` for `kubectl apply`: all objects of both charts, with the names of RKE2's, which installations from it have: under
/// other names it would start a second daemon on each of their nodes.
pub fn plain<'a>(settings: impl Into<BuildSettings<'a>>) -> String {
    let settings = settings.into();
    let version = &settings.version;
    let image = settings.image();
    let image = image.strip_prefix("docker.io/").unwrap_or(&image);
    format!(
        "# Multus {version} with default values, for people without Helm: kubectl apply --server-side --filename multus.yaml\n\
         # Deleting the whole file deletes the CRD and all network definitions with it; docs/kubeadm.md says how to keep them.\n{}",
        RENDERED.replace(IMAGE, image).replace(VERSION, version)
    )
}

/// Returns `multus.yaml` of a distro. The distro replaces variables of the form `%{NAME}%`.
pub fn helm_charts<'a>(
    distro: Distro,
    settings: impl Into<BuildSettings<'a>>,
) -> Result<String, PackError> {
    let settings = settings.into();
    let identity = Identity::of(distro);
    let documents: Result<Vec<String>, PackError> = CHARTS
        .into_iter()
        .map(|chart| document(chart, (distro, identity), &settings))
        .collect();
    Ok(documents?.join("---\n"))
}

fn document(
    chart: Chart,
    (distro, identity): (Distro, Identity),
    settings: &BuildSettings<'_>,
) -> Result<String, PackError> {
    let name = chart.name(identity);
    let (annotations, source) = match distro {
        Distro::K3s => {
            let file = chart.file_name(identity, &settings.version);
            (
                String::new(),
                format!("  chart: https://%{{KUBERNETES_API}}%/static/{STATIC_DIR}/{file}\n"),
            )
        }
        Distro::Rke2 => {
            let content = STANDARD.encode(pack(chart, identity, settings)?);
            let annotations =
                "  annotations:\n    rke2.cattle.io/inject-cluster-config: \"true\"\n".to_owned();
            (annotations, format!("  chartContent: {content}\n"))
        }
    };
    // RKE2 injects the registry itself.
    let set = match (chart, distro) {
        (Chart::Main, Distro::K3s) => {
            "  set:\n    global.systemDefaultRegistry: \"%{SYSTEM_DEFAULT_REGISTRY_RAW}%\"\n"
        }
        _ => "",
    };
    // `bootstrap` runs the helm job on the servers' own network, so that an upgrade or removal works where Multus does not.
    // It needs a node with the control-plane label: `multus-distro` leaves it out for a K3s server that runs no agent.
    Ok(format!(
        "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  name: {name}\n  namespace: kube-system\n{annotations}spec:\n\
         {source}  targetNamespace: kube-system\n  bootstrap: true\n  failurePolicy: retry\n  takeOwnership: true\n{set}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    fn documents(distro: Distro) -> Vec<serde_yaml::Value> {
        let text = helm_charts(distro, "5.0.0").unwrap();
        serde_yaml::Deserializer::from_str(&text)
            .map(|document| serde_yaml::Value::deserialize(document).unwrap())
            .collect()
    }

    #[test]
    fn the_crd_chart_comes_first_and_all_take_ownership() {
        for (distro, names) in [
            (Distro::K3s, ["k3s-multus-crd", "k3s-multus"]),
            (Distro::Rke2, ["rke2-multus-crd", "rke2-multus"]),
        ] {
            let documents = documents(distro);
            let found: Vec<&str> = documents
                .iter()
                .map(|one| one["metadata"]["name"].as_str().unwrap())
                .collect();
            assert_eq!(found, names);
            for key in ["takeOwnership", "bootstrap"] {
                assert!(
                    documents.iter().all(|one| one["spec"][key] == true),
                    "{key}"
                );
            }
        }
    }

    #[test]
    fn the_plain_manifest_has_the_crd_first_and_the_version_everywhere() {
        let text = plain("5.6.7");
        let documents: Vec<serde_yaml::Value> = serde_yaml::Deserializer::from_str(&text)
            .map(|document| serde_yaml::Value::deserialize(document).unwrap())
            .collect();
        let kinds: Vec<_> = documents
            .iter()
            .map(|one| one["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds[0], "CustomResourceDefinition");
        assert!(kinds.contains(&"DaemonSet") && kinds.contains(&"ClusterRole"));
        assert!(!text.contains(VERSION) && text.contains("\"multusrs/multus:v5.6.7\""));
        let other = plain(BuildSettings {
            version: "5.6.7".into(),
            images: "r.example/a/".parse().unwrap(),
        });
        assert!(other.contains("\"r.example/a/multus:v5.6.7\"") && !other.contains("multusrs"));
        // `kubectl delete --selector` tells the CRD from all others by this label.
        for document in &documents {
            let label = &document["metadata"]["labels"]["app.kubernetes.io/name"];
            let is_crd = document["kind"] == "CustomResourceDefinition";
            assert_eq!(label == "rke2-multus", !is_crd, "{document:?}");
        }
        // The namespace of every object is written down, since kubectl's own may be another one.
        let in_namespace = [
            "ServiceAccount",
            "ConfigMap",
            "Role",
            "RoleBinding",
            "DaemonSet",
        ];
        for document in &documents {
            let is_in = in_namespace.contains(&document["kind"].as_str().unwrap());
            assert_eq!(
                document["metadata"]["namespace"] == "kube-system",
                is_in,
                "{document:?}"
            );
        }
    }

    #[test]
    fn the_manifest_of_rke2_has_the_published_bytes() {
        let documents = documents(Distro::Rke2);
        let content = STANDARD
            .decode(documents[1]["spec"]["chartContent"].as_str().unwrap())
            .unwrap();
        assert_eq!(
            content,
            pack(Chart::Main, Identity::of(Distro::Rke2), "5.0.0").unwrap()
        );
        assert!(
            content.len() * 4 / 3 < 1 << 20,
            "etcd refuses larger requests"
        );
    }
}
