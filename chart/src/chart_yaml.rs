//! Writes `Chart.yaml` of our charts: the metadata that Helm, Artifact Hub and Rancher's catalog show, and the clusters that they support.

use crate::{Chart, Identity, settings::BuildSettings, values::ARCHITECTURES};

/// The first version of Kubernetes in which rolling updates of a `DaemonSet` with `maxSurge` are stable. The `-0` includes versions with a vendor's
/// suffix.
const KUBE_VERSION: &str = ">= 1.25.0-0";
/// The same for Rancher's catalog. `scripts/validate-charts` of rancher/rke2 reads an annotation of this form alone, compares major, minor and
/// patch each by itself, and skips a check without a word where a number is not between its bounds.
const CATALOG_KUBE_VERSION: &str = ">= 1.25.0-0 < 1.99.99-0";

const HOME: &str = env!("CARGO_PKG_REPOSITORY");
const ICON: &str = "https://raw.githubusercontent.com/multus-rs/multus-rs/main/docs/icon.svg";
/// The namespace where the distros install their charts.
const NAMESPACE: &str = "kube-system";

/// Returns the text of `Chart.yaml`.
pub(crate) fn chart_yaml(
    chart: Chart,
    identity: Identity,
    settings: &BuildSettings<'_>,
    is_prerelease: bool,
) -> String {
    let version = &settings.version;
    let name = chart.name(identity);
    let description = match chart {
        Chart::Main => "Several network interfaces for pods, on every node of a mixed cluster",
        Chart::Crd => "The CRDs of NetworkAttachmentDefinition and AddressBlock",
    };
    let mut text = format!(
        "apiVersion: v2
name: {name}
version: {version}
appVersion: {version}
kubeVersion: \"{KUBE_VERSION}\"
type: application
description: {description}
home: {HOME}
icon: {ICON}
sources:
- {HOME}
- https://github.com/k8snetworkplumbingwg/multus-cni
keywords: [cni, k3s, multus, network, networking, rke2]
maintainers:
- name: multus-rs
  url: {HOME}
annotations:
"
    );
    for (key, value) in annotations(chart, identity, settings, is_prerelease) {
        // In quotes, since scripts replace what follows `version: ` in any line.
        text.extend(["  \"", key, "\""]);
        text += &value_of(&value);
    }
    text
}

/// Writes a value after its key; lists for Artifact Hub have several lines.
fn value_of(value: &str) -> String {
    if value.contains('\n') {
        return format!(": |\n    {}\n", value.trim_end().replace('\n', "\n    "));
    }
    // Quotes keep values as text that YAML would read as booleans or operators.
    if value.starts_with(|first: char| first.is_ascii_alphabetic())
        && value.parse::<bool>().is_err()
    {
        format!(": {value}\n")
    } else {
        format!(": \"{value}\"\n")
    }
}

/// Returns the annotations, sorted by key.
fn annotations(
    chart: Chart,
    identity: Identity,
    settings: &BuildSettings<'_>,
    is_prerelease: bool,
) -> Vec<(&'static str, String)> {
    let name = chart.name(identity);
    let mut found = vec![
        ("artifacthub.io/category", "networking".to_owned()),
        (
            "artifacthub.io/license",
            env!("CARGO_PKG_LICENSE").to_owned(),
        ),
        (
            "artifacthub.io/links",
            format!(
                "- name: Documentation\n  url: {HOME}#readme\n- name: Issues\n  url: {HOME}/issues\n"
            ),
        ),
        ("artifacthub.io/prerelease", is_prerelease.to_string()),
        (
            "catalog.cattle.io/kube-version",
            CATALOG_KUBE_VERSION.to_owned(),
        ),
        ("catalog.cattle.io/namespace", NAMESPACE.to_owned()),
        ("catalog.cattle.io/os", "linux".to_owned()),
        ("catalog.cattle.io/permits-os", "linux".to_owned()),
        ("catalog.cattle.io/release-name", name),
        ("fleet.cattle.io/bundle-id", identity.cluster().to_owned()),
    ];
    match chart {
        Chart::Main => found.extend([
            ("artifacthub.io/images", images(settings)),
            (
                "catalog.cattle.io/auto-install",
                format!("{}=match", identity.crd_name()),
            ),
            ("catalog.cattle.io/display-name", "Multus".to_owned()),
        ]),
        Chart::Crd => found.extend([
            (
                "artifacthub.io/crds",
                "- kind: NetworkAttachmentDefinition\n  version: v1\n  name: network-attachment-definitions.k8s.cni.cncf.io\n  displayName: Network attachment definition\n  description: A network that pods can request by name\n- kind: AddressBlock\n  version: v1alpha1\n  name: addressblocks.ipam.multus-rs.cni.cncf.io\n  displayName: Address block\n  description: Addresses of secondary networks that one node gives, or all nodes share\n"
                    .to_owned(),
            ),
            ("catalog.cattle.io/display-name", "Multus CRD".to_owned()),
            ("catalog.cattle.io/hidden", "true".to_owned()),
        ]),
    }
    found.sort();
    found
}

fn images(settings: &BuildSettings<'_>) -> String {
    let platforms = ARCHITECTURES.join("\n  - linux/");
    format!(
        "- name: multus\n  image: {}\n  platforms:\n  - linux/{platforms}\n",
        settings.image()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CHARTS, IDENTITIES, metadata::Metadata, values::VALUES};

    fn metadata(chart: Chart, version: &str, is_prerelease: bool) -> Metadata {
        let text = chart_yaml(chart, IDENTITIES[0], &version.into(), is_prerelease);
        Metadata::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn every_field_that_catalogs_show_is_set() {
        for chart in CHARTS {
            let metadata = metadata(chart, "5.0.0", false);
            for field in [&metadata.home, &metadata.icon, &metadata.description] {
                assert!(!field.is_empty(), "{metadata:?}");
            }
            assert_eq!(metadata.kube_version, KUBE_VERSION);
            assert_eq!(metadata.sources.len(), 2);
            assert_eq!(metadata.maintainers[0].name, "multus-rs");
            assert!(metadata.keywords.contains(&"multus".to_owned()));
            assert_eq!(metadata.annotations["artifacthub.io/prerelease"], "false");
            assert_eq!(
                metadata.annotations["catalog.cattle.io/release-name"],
                chart.name(IDENTITIES[0])
            );
        }
    }

    #[test]
    fn the_catalog_installs_the_crd_chart_first() {
        let main = metadata(Chart::Main, "5.0.0", false);
        assert_eq!(
            main.annotations["catalog.cattle.io/auto-install"],
            "rke2-multus-crd=match"
        );
        let crd = metadata(Chart::Crd, "5.0.0-rc.1", true);
        assert_eq!(crd.annotations["catalog.cattle.io/hidden"], "true");
        assert_eq!(crd.annotations["artifacthub.io/prerelease"], "true");
    }

    #[test]
    fn listed_images_equal_those_of_the_values() {
        let main = metadata(Chart::Main, "5.1.2", false);
        let listed: serde_json::Value =
            serde_yaml::from_str(&main.annotations["artifacthub.io/images"]).unwrap();
        let repository = VALUES.iter().find(|row| row.path == "image.repository");
        let repository = repository.unwrap().default_value().unwrap();
        let repository = BuildSettings::from("5.1.2").fill_value(repository);
        let expected = format!("docker.io/{}:v5.1.2", repository.as_str().unwrap());
        assert_eq!(listed[0]["image"], expected);
        assert_eq!(listed[0]["platforms"][0], "linux/amd64");
    }
}
