//! `exports/`: the release in the forms that other tools take: Rancher's scripts, Hauler, Zarf, and the registry mirrors of K3s and RKE2.
//!
//! Each file follows from the names of images and charts alone. No tool is called here.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use chart::{CHARTS, Distro, IDENTITIES};

use archive::lists;

use crate::{arch::Arch, description::ChartEntry, tree::Tree};

/// The directory of the files in a release.
pub const DIR: &str = "exports/";
/// The list that `rancher-save-images.sh` and `rancher-load-images.sh` take.
const RANCHER: &str = "exports/rancher-images.txt";
/// The manifest that `hauler store sync` takes, started in the directory of the release.
const HAULER: &str = "exports/hauler.yaml";
/// The definition from which `zarf package create` makes a package.
const ZARF: &str = "exports/zarf.yaml";
/// The file by which nodes of K3s and RKE2 pull from a mirror.
pub const REGISTRIES: &str = "exports/registries.yaml";

/// The registry whose name Rancher's lists leave out.
const DEFAULT_REGISTRY: &str = "docker.io";
/// The registry of [`REGISTRIES`], which its reader replaces.
pub const EXAMPLE_REGISTRY: &str = "registry.example:5000";
/// Zarf replaces it by the architecture of the package.
const ZARF_ARCH: &str = "###ZARF_PKG_ARCH###";
/// Zarf does not change the images of pods in `kube-system`, where the distros put their charts.
const ZARF_NAMESPACE: &str = "multus-system";

/// The parts of a release that are exported.
pub struct Exported<'a> {
    pub version: &'a str,
    pub arches: &'a [Arch],
    /// The names of all images, with tags.
    pub images: &'a [&'a str],
    pub charts: &'a [ChartEntry],
}

/// Returns everything below `exports/`.
pub fn tree(release: &Exported<'_>) -> Tree {
    let mut tree = Tree::default();
    tree.add(RANCHER, rancher(release.images));
    tree.add(HAULER, hauler(release));
    tree.add(ZARF, zarf(release));
    tree.add(REGISTRIES, registries(release.images));
    tree
}

/// Checks that a release has these files as they follow from it. A release of another commit may have others, or none.
pub fn check(
    tree: &Tree,
    release: &Exported<'_>,
    is_checkout: bool,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    if is_checkout {
        for (path, file) in self::tree(release).0 {
            let found = tree
                .get(&path)
                .with_context(|| format!("{path} is missing"))?;
            ensure!(
                found == file.bytes,
                "{path} does not follow from the images and charts"
            );
            claimed.insert(path);
        }
    } else {
        claimed.extend(tree.below(DIR).map(|(name, _)| format!("{DIR}{name}")));
    }
    Ok(())
}

/// Returns one name with its tag per line. The scripts put their registry before each line, so a line has no registry where nodes leave it
/// out of a mirrored name too.
fn rancher(images: &[&str]) -> String {
    let prefix = format!("{DEFAULT_REGISTRY}/");
    let line = |name: &&str| format!("{}\n", name.strip_prefix(&prefix).unwrap_or(name));
    images.iter().map(line).collect()
}

fn hauler(release: &Exported<'_>) -> String {
    let document = |kind: &str, items: String| {
        let list = kind.to_lowercase();
        format!(
            "apiVersion: content.hauler.cattle.io/v1\nkind: {kind}\nmetadata:\n  name: multus-{list}\nspec:\n  {list}:\n{items}"
        )
    };
    let images = release.images.iter();
    let images = images.map(|name| format!("    - name: {name}\n"));
    let charts = release.charts.iter().filter_map(|chart| {
        let (dir, file) = chart.path.rsplit_once('/')?;
        Some(format!("    - name: {file}\n      repoURL: {dir}\n"))
    });
    let files = release.arches.iter().flat_map(|arch| {
        [
            lists::archive_name(arch.name()),
            lists::sums_name(arch.name()),
        ]
    });
    let files = files.map(|name| format!("    - path: airgap/{name}\n"));
    let documents = [
        document("Images", images.collect()),
        document("Charts", charts.collect()),
        document("Files", files.collect()),
    ];
    let head =
        "# In the directory of the release: hauler store sync --filename exports/hauler.yaml\n";
    format!("{head}{}", documents.join("---\n"))
}

/// Returns a package definition with a flavor per kind of cluster. A path in it is seen from its own directory.
fn zarf(release: &Exported<'_>) -> String {
    let version = release.version;
    let head = format!(
        "# zarf package create exports --flavor {}\nkind: ZarfPackageConfig\nmetadata:\n  name: multus\n  description: Several network interfaces for pods on K3s and RKE2\n  version: {version}\ncomponents:\n",
        Distro::Rke2.as_str()
    );
    let archive = lists::archive_name(ZARF_ARCH);
    let mut lines = vec![head];
    for identity in IDENTITIES {
        let cluster = identity.cluster();
        lines.push(format!(
            "  - name: multus-{cluster}\n    required: true\n    only:\n      flavor: {cluster}\n    charts:\n"
        ));
        // Zarf installs charts in this order, in which resources follow their definitions.
        let names = CHARTS.map(|chart| chart.name(identity));
        let of = |name: &String| release.charts.iter().find(|chart| chart.name == *name);
        let charts = names.iter().filter_map(of);
        lines.extend(charts.map(|chart| {
            format!(
                "      - name: {}\n        version: {version}\n        namespace: {ZARF_NAMESPACE}\n        localPath: ../{}\n",
                chart.name, chart.path
            )
        }));
        lines.push(format!(
            "    imageArchives:\n      - path: ../airgap/{archive}\n        images:\n"
        ));
        let images = release.images.iter();
        lines.extend(images.map(|name| format!("          - {name}\n")));
    }
    lines.concat()
}

/// Returns mirrors for the registries of all images, with the host of [`EXAMPLE_REGISTRY`].
fn registries(images: &[&str]) -> String {
    let hosts = images.iter().filter_map(|name| name.split_once('/'));
    let hosts: BTreeSet<_> = hosts.map(|(host, _)| host).collect();
    let mirrors = hosts
        .into_iter()
        .map(|host| format!("  {host}:\n    endpoint:\n      - https://{EXAMPLE_REGISTRY}\n"));
    format!(
        "# /etc/rancher/k3s/registries.yaml or /etc/rancher/rke2/registries.yaml on each node, with your registry in place of {EXAMPLE_REGISTRY}.\n\
         mirrors:\n{}\
         # For a registry with a login or a CA of its own:\n\
         #configs:\n\
         #  {EXAMPLE_REGISTRY}:\n\
         #    auth:\n\
         #      username: NAME\n\
         #      password: PASSWORD\n\
         #    tls:\n\
         #      ca_file: /etc/ssl/own-ca.pem\n",
        mirrors.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;
    use serde_yaml::Value;

    use super::*;

    const IMAGES: [&str; 2] = ["docker.io/a/b:v1", "registry.example/c:v2"];

    fn exported(images: &[&str]) -> Tree {
        let charts = CHARTS.map(|chart| {
            let name = chart.name(IDENTITIES[0]);
            ChartEntry {
                path: format!("charts/assets/{name}/{name}-9.8.7.tgz"),
                name,
                version: "9.8.7".into(),
                digest: sha256(b""),
            }
        });
        tree(&Exported {
            version: "9.8.7",
            arches: &[Arch::Amd64, Arch::Arm],
            images,
            charts: &charts,
        })
    }

    fn text(path: &str) -> String {
        String::from_utf8(exported(&IMAGES).get(path).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn list_of_the_scripts_has_no_default_registry() {
        assert_eq!(text(RANCHER), "a/b:v1\nregistry.example/c:v2\n");
    }

    #[test]
    fn hauler_gets_images_charts_and_files() {
        let text = text(HAULER);
        let documents: Vec<Value> = text
            .split("---\n")
            .map(|document| serde_yaml::from_str(document).unwrap())
            .collect();
        let kinds: Vec<_> = documents.iter().map(|one| one["kind"].as_str()).collect();
        assert_eq!(kinds, [Some("Images"), Some("Charts"), Some("Files")]);
        let [images, charts, files] = &documents[..] else {
            panic!("{text}");
        };
        assert_eq!(images["spec"]["images"][1]["name"], IMAGES[1]);
        let chart = &charts["spec"]["charts"][1];
        assert_eq!(chart["repoURL"], "charts/assets/rke2-multus");
        assert_eq!(chart["name"], "rke2-multus-9.8.7.tgz");
        let path = &files["spec"]["files"][2]["path"];
        assert_eq!(path, "airgap/multus-airgap-images-arm.tar");
    }

    #[test]
    fn zarf_installs_definitions_before_resources() {
        let definition: Value = serde_yaml::from_str(&text(ZARF)).unwrap();
        let component = &definition["components"][0];
        assert_eq!(component["only"]["flavor"], "rke2");
        let charts = component["charts"].as_sequence().unwrap();
        let names: Vec<_> = charts.iter().map(|one| one["name"].as_str()).collect();
        assert_eq!(names, [Some("rke2-multus-crd"), Some("rke2-multus")]);
        let archive = &component["imageArchives"][0];
        assert_eq!(archive["images"][0], IMAGES[0]);
        assert_eq!(
            archive["path"],
            "../airgap/multus-airgap-images-###ZARF_PKG_ARCH###.tar"
        );
    }

    #[test]
    fn every_registry_has_a_mirror_and_the_login_can_be_uncommented() {
        let text = text(REGISTRIES);
        let plain: Value = serde_yaml::from_str(&text).unwrap();
        for host in ["docker.io", "registry.example"] {
            let endpoint = &plain["mirrors"][host]["endpoint"][0];
            assert_eq!(endpoint, "https://registry.example:5000");
        }
        assert!(plain.get("configs").is_none());
        let (mirrors, login) = text.split_once("#configs").unwrap();
        let full = format!("{mirrors}configs{}", login.replace("\n#", "\n"));
        let full: Value = serde_yaml::from_str(&full).unwrap();
        assert_eq!(
            full["configs"][EXAMPLE_REGISTRY]["auth"]["username"],
            "NAME"
        );
    }

    #[test]
    fn files_of_another_release_are_refused_by_name() {
        let charts = [];
        let release = Exported {
            version: "9.8.7",
            arches: &[Arch::Arm],
            images: &IMAGES,
            charts: &charts,
        };
        let mut claimed = BTreeSet::new();
        let sound = tree(&release);
        check(&sound, &release, true, &mut claimed).unwrap();
        assert_eq!(claimed.len(), sound.0.len());
        for path in [RANCHER, HAULER, ZARF, REGISTRIES] {
            let mut harmed = sound.clone();
            harmed.add(path, "docker.io/x/y:1\n");
            let error = check(&harmed, &release, true, &mut claimed).unwrap_err();
            let expected = format!("{path} does not follow from the images and charts");
            assert_eq!(error.to_string(), expected);
            harmed.0.remove(path);
            let error = check(&harmed, &release, true, &mut claimed).unwrap_err();
            assert_eq!(error.to_string(), format!("{path} is missing"));
        }
    }
}
