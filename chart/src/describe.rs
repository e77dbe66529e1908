//! `Chart.yaml` of our charts: what Helm, Artifact Hub and the catalog of Rancher show of them, and which clusters they are for.

use crate::{Identity, pack::Chart, values::ARCHITECTURES};

/// Rolling updates of a DaemonSet with `maxSurge` are stable from here on. The `-0` lets versions with a suffix of their vendor pass.
pub const KUBE_VERSION: &str = ">= 1.25.0-0";

const HOME: &str = env!("CARGO_PKG_REPOSITORY");
const ICON: &str = "https://raw.githubusercontent.com/multus-rs/multus-rs/main/docs/icon.svg";
/// Where the distros install charts of this kind.
const NAMESPACE: &str = "kube-system";

/// The text of `Chart.yaml`.
pub fn chart_yaml(chart: Chart, identity: Identity, version: &str, is_prerelease: bool) -> String {
    let name = chart.name(identity);
    let what = match chart {
        Chart::Main => "Several network interfaces for pods, on every node of a mixed cluster",
        Chart::Crd => "The definition of NetworkAttachmentDefinition",
    };
    let mut text = format!(
        "apiVersion: v2
name: {name}
version: {version}
appVersion: {version}
kubeVersion: \"{KUBE_VERSION}\"
type: application
description: {what}
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
    for (key, value) in annotations(chart, identity, version, is_prerelease) {
        text += "  ";
        text += key;
        text += &value_of(&value);
    }
    text
}

/// A value after its key: lists for Artifact Hub have several lines.
fn value_of(value: &str) -> String {
    if value.contains('\n') {
        let lines: String = value.lines().map(|line| format!("    {line}\n")).collect();
        return format!(": |\n{lines}");
    }
    // What YAML would take for a truth value or a comparison stays a text.
    if value.starts_with(|first: char| first.is_ascii_alphabetic())
        && value.parse::<bool>().is_err()
    {
        format!(": {value}\n")
    } else {
        format!(": \"{value}\"\n")
    }
}

/// Annotations, sorted by key.
fn annotations(
    chart: Chart,
    identity: Identity,
    version: &str,
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
        ("catalog.cattle.io/kube-version", KUBE_VERSION.to_owned()),
        ("catalog.cattle.io/namespace", NAMESPACE.to_owned()),
        ("catalog.cattle.io/os", "linux".to_owned()),
        ("catalog.cattle.io/permits-os", "linux".to_owned()),
        ("catalog.cattle.io/release-name", name),
        (
            "fleet.cattle.io/bundle-id",
            identity.distro.as_str().to_owned(),
        ),
    ];
    match chart {
        Chart::Main => found.extend([
            ("artifacthub.io/images", images(version)),
            (
                "catalog.cattle.io/auto-install",
                format!("{}=match", identity.crd_name()),
            ),
            ("catalog.cattle.io/display-name", "Multus".to_owned()),
        ]),
        Chart::Crd => found.extend([
            (
                "artifacthub.io/crds",
                "- kind: NetworkAttachmentDefinition\n  version: v1\n  name: network-attachment-definitions.k8s.cni.cncf.io\n  displayName: Network attachment definition\n  description: A network that pods can ask for by name\n"
                    .to_owned(),
            ),
            ("catalog.cattle.io/display-name", "Multus CRD".to_owned()),
            ("catalog.cattle.io/hidden", "true".to_owned()),
        ]),
    }
    found.sort();
    found
}

fn images(version: &str) -> String {
    let platforms: String = ARCHITECTURES
        .iter()
        .map(|arch| format!("  - linux/{arch}\n"))
        .collect();
    format!(
        "- name: multus\n  image: docker.io/multusrs/multus:v{version}\n  platforms:\n{platforms}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IDENTITIES, about::About, pack::CHARTS, values::VALUES};

    fn about(chart: Chart, version: &str, is_prerelease: bool) -> About {
        let text = chart_yaml(chart, IDENTITIES[0], version, is_prerelease);
        About::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn every_field_that_catalogs_show_is_set() {
        for chart in CHARTS {
            let about = about(chart, "5.0.0", false);
            for field in [&about.home, &about.icon, &about.description] {
                assert!(!field.is_empty(), "{about:?}");
            }
            assert_eq!(about.kube_version, KUBE_VERSION);
            assert_eq!(about.sources.len(), 2);
            assert_eq!(about.maintainers[0].name, "multus-rs");
            assert!(about.keywords.contains(&"multus".to_owned()));
            assert_eq!(about.annotations["artifacthub.io/prerelease"], "false");
            assert_eq!(
                about.annotations["catalog.cattle.io/release-name"],
                chart.name(IDENTITIES[0])
            );
        }
    }

    #[test]
    fn the_catalog_installs_the_definition_first() {
        let main = about(Chart::Main, "5.0.0", false);
        assert_eq!(
            main.annotations["catalog.cattle.io/auto-install"],
            "rke2-multus-crd=match"
        );
        let crd = about(Chart::Crd, "5.0.0-rc.1", true);
        assert_eq!(crd.annotations["catalog.cattle.io/hidden"], "true");
        assert_eq!(crd.annotations["artifacthub.io/prerelease"], "true");
    }

    #[test]
    fn listed_images_are_those_of_the_values() {
        let main = about(Chart::Main, "5.1.2", false);
        let listed: serde_json::Value =
            serde_yaml::from_str(&main.annotations["artifacthub.io/images"]).unwrap();
        let repository = VALUES.iter().find(|row| row.path == "image.repository");
        let repository = repository.unwrap().default_value().unwrap();
        let expected = format!("docker.io/{}:v5.1.2", repository.as_str().unwrap());
        assert_eq!(listed[0]["image"], expected);
        assert_eq!(listed[0]["platforms"][0], "linux/amd64");
    }
}
