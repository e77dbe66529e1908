//! The parts of a release: one row for each kind of file says what it is, for whom, and how it is used. The `README.md` of a release,
//! `explain`, and the kinds in `release.json` all come from this table.

use std::fmt::Write as _;

use serde::Serialize;

use crate::{
    release::{self, Release},
    sbom::{LICENCE, NOTICES},
    tree::Tree,
};

/// The file of a release that has the table.
pub const README: &str = "README.md";
/// The kind of files that have no row.
pub const OTHER: &str = "other";

/// A row: the files of one kind.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The path, with `<…>` for what varies in a name; everything below it where it ends with a slash.
    pub path: &'static str,
    /// The kind in `release.json`; empty for signatures, which it does not describe.
    pub kind: &'static str,
    /// What the files are.
    pub what: &'static str,
    /// Who uses them.
    #[serde(rename = "for")]
    pub audience: &'static str,
    /// How they are used, in the directory of the release.
    pub usage: &'static str,
}

const fn part(
    path: &'static str,
    kind: &'static str,
    what: &'static str,
    audience: &'static str,
    usage: &'static str,
) -> Part {
    Part {
        path,
        kind,
        what,
        audience,
        usage,
    }
}

/// All rows. Of several that fit, the first counts.
pub const PARTS: &[Part] = &[
    part(
        README,
        "readme",
        "this list",
        "everybody",
        "`multus-airgap explain FILE` prints its row",
    ),
    part(
        "charts/assets/<name>/<name>-<version>.tgz",
        "chart",
        "Helm charts, and charts of the CRD",
        "cluster administrators",
        "`helm upgrade --install`, the chart of the CRD first",
    ),
    part(
        "charts/index.yaml",
        "chart-index",
        "the index of a charts repository",
        "web servers",
        "serve `charts/`, then `helm repo add`",
    ),
    part(
        "manifests/kubernetes/multus.yaml",
        "manifest",
        "both charts with default values, without Helm",
        "cluster administrators",
        "`kubectl apply --server-side --filename manifests/kubernetes/multus.yaml`",
    ),
    part(
        "manifests/k3s/multus.yaml",
        "manifest",
        "HelmChart objects of K3s",
        "servers of K3s",
        "`multus-distro` writes it; by hand: into `server/manifests/`, with the charts in `server/static/charts/`",
    ),
    part(
        "manifests/rke2/multus.yaml",
        "manifest",
        "HelmChart objects of RKE2, with the charts in them",
        "servers of RKE2",
        "`multus-distro` writes it; by hand: into `server/manifests/`",
    ),
    part(
        "bin/<arch>/multus-distro",
        "program",
        "starts K3s or RKE2 with Multus, with a VPN, or both",
        "nodes of K3s and RKE2",
        "copy it to `/usr/local/bin`, then `multus-distro install`",
    ),
    part(
        "bin/<machine>/kubectl-multus",
        "program",
        "the kubectl plugin",
        "workstations",
        "copy it into PATH, then `kubectl multus status`",
    ),
    part(
        "bin/<machine>/kubectl-multus.exe",
        "program",
        "the kubectl plugin for Windows",
        "workstations",
        "copy it into PATH, then `kubectl multus status`",
    ),
    part(
        "bin/<arch>/multus-airgap",
        "program",
        "checks, explains and pushes releases",
        "workstations",
        "`multus-airgap verify .`, `multus-airgap push . REGISTRY`",
    ),
    part(
        "bin/<arch>/multus-cni-plugins",
        "program",
        "the common CNI plugins as one program",
        "the image",
        "the chart installs it; without a cluster take the archive in `plugins/`",
    ),
    part(
        "bin/<arch>/multus-daemon",
        "program",
        "the daemon of each node",
        "the image",
        "the chart starts it",
    ),
    part(
        "bin/<arch>/multus-shim",
        "program",
        "the CNI plugin that container runtimes start",
        "the image",
        "the daemon installs it",
    ),
    part(
        "oci/",
        "image-layout",
        "the image for all architectures as an OCI layout",
        "registries",
        "`multus-airgap push . REGISTRY`, or any tool that reads OCI layouts",
    ),
    part(
        "airgap/multus-airgap-images-<arch>.tar",
        "image-archive",
        "the image for one architecture",
        "nodes without a registry",
        "`multus-distro images install airgap`, or into `agent/images/` of K3s and RKE2",
    ),
    part(
        "airgap/multus-airgap-<arch>",
        "program",
        "multus-airgap for a medium",
        "air-gapped sites",
        "`airgap/multus-airgap-<arch> verify airgap`",
    ),
    part(
        "airgap/sha256sum-<arch>.txt",
        "checksums",
        "the checksums of an architecture's files in `airgap/`",
        "nodes",
        "`multus-distro images verify airgap`",
    ),
    part(
        "airgap/multus-images.txt",
        "image-list",
        "the names of the images",
        "mirrors of registries",
        "as input of skopeo and of scripts",
    ),
    part(
        "airgap/multus-images.linux-<arch>.txt",
        "image-list",
        "the same for one architecture",
        "mirrors of registries",
        "as input of skopeo and of scripts",
    ),
    part(
        "airgap/multus-images-digests.txt",
        "image-list",
        "the names of the images with their digests",
        "mirrors of registries",
        "to compare with what a registry has",
    ),
    part(
        "airgap/multus-images-digests.linux-<arch>.txt",
        "image-list",
        "the same with the digests of one architecture's archive",
        "mirrors of registries",
        "to compare with what a node has",
    ),
    part(
        "airgap/k3s/image-list-multus.txt",
        "image-list",
        "the names of the images, under the name of K3s' tree",
        "builders of K3s",
        "next to the list of K3s",
    ),
    part(
        "airgap/rke2/rke2-images-multus.linux-<arch>.txt",
        "image-list",
        "the names of the images, under the name of RKE2's tree",
        "builders of RKE2",
        "next to the lists of RKE2",
    ),
    part(
        "plugins/cni-plugins-linux-<arch>-v<version>.tgz",
        "plugin-archive",
        "the common CNI plugins",
        "nodes without Multus",
        "unpack it into a new directory, then `./multus-cni-plugins install /opt/cni/bin` there",
    ),
    part(
        "krew/multus.yaml",
        "krew-manifest",
        "the manifest of krew",
        "workstations",
        "`kubectl krew install --manifest=krew/multus.yaml --archive=FILE`",
    ),
    part(
        "krew/kubectl-multus-v<version>-<os>-<arch>.tar.gz",
        "kubectl-archive",
        "the kubectl plugin with its licences",
        "workstations",
        "with the manifest of krew, or unpacked into PATH",
    ),
    part(
        "exports/rancher-images.txt",
        "export",
        "the list of images for Rancher's scripts",
        "Rancher",
        "`rancher-save-images.sh --image-list exports/rancher-images.txt`",
    ),
    part(
        "exports/hauler.yaml",
        "export",
        "the release for Hauler",
        "Hauler",
        "`hauler store sync --filename exports/hauler.yaml`",
    ),
    part(
        "exports/zarf.yaml",
        "export",
        "the definition of a package for Zarf",
        "Zarf",
        "`zarf package create exports --flavor rke2`",
    ),
    part(
        "exports/registries.yaml",
        "export",
        "mirrors of the image's registry",
        "nodes of K3s and RKE2",
        "name your registry in it, then into `/etc/rancher/k3s/` or `/etc/rancher/rke2/`",
    ),
    part(
        "bindata/go/",
        "bindata",
        "charts and manifest of K3s as Go sources",
        "builders of K3s",
        "copy them into its tree",
    ),
    part(
        "bindata/embed/",
        "bindata",
        "charts and manifest of K3s for `go:embed`",
        "builders of K3s",
        "copy them into its tree",
    ),
    part(
        "completions/",
        "completion",
        "completions for bash, fish and zsh",
        "workstations and nodes",
        "copy them to where the shell looks for them",
    ),
    part(
        "man/",
        "man-page",
        "manual pages",
        "workstations and nodes",
        "`man -l man/multus-distro.1`, or copy them to `/usr/local/share/man/man1`",
    ),
    part(
        "sbom/vex.cdx.json",
        "vex",
        "advisories that do not apply, with reasons",
        "scanners of vulnerabilities",
        "together with the lists in `sbom/`",
    ),
    part(
        "sbom/",
        "sbom",
        "what is inside each program, image and archive, in CycloneDX",
        "scanners of vulnerabilities, auditors",
        "as input of a scanner",
    ),
    part(
        LICENCE,
        "licence",
        "the licence",
        "everybody",
        "pass it on with any program",
    ),
    part(
        NOTICES,
        "licence",
        "the licences of the libraries in the programs",
        "everybody",
        "pass it on with any program",
    ),
    part(
        release::FILE,
        "description",
        "the release as data: commit, tools, images, charts, and every file with its digest",
        "programs, and who makes the release again",
        "`multus-airgap explain .`",
    ),
    part(
        release::SUMS,
        "checksums",
        "the checksums of every other file",
        "everybody",
        "`sha256sum --check SHA256SUMS`; `multus-airgap verify .` also follows the digests in images and archives",
    ),
    part(
        "SHA256SUMS.<form>",
        "",
        "signatures of the checksums",
        "everybody",
        "`multus-airgap verify . --key release.pub`",
    ),
    part(
        "airgap/sha256sum-<arch>.txt.sig",
        "",
        "the signature of an architecture's checksums",
        "nodes",
        "`multus-distro images install airgap --key release.pub`",
    ),
    part(
        "charts/assets/<name>/<name>-<version>.tgz.prov",
        "",
        "the signature of a chart",
        "cluster administrators",
        "`helm verify --keyring charts/keyring.gpg`",
    ),
    part(
        "charts/keyring.gpg",
        "",
        "the public key for Helm",
        "cluster administrators",
        "compare it with the key that you trust",
    ),
    part(
        "signatures/",
        "",
        "the signatures of images and charts",
        "registries",
        "`multus-airgap push` sends them, cosign checks them",
    ),
    part(
        "provenance/",
        "",
        "statements of builders, by whom and how the release was made",
        "who trusts several builders",
        "`multus-airgap verify . --attested-by builder.pub`",
    ),
];

impl Part {
    /// Returns whether a file of a release has this path.
    fn is_of(&self, path: &str) -> bool {
        match self.path.strip_suffix('/') {
            Some(dir) => path
                .strip_prefix(dir)
                .is_some_and(|rest| rest.starts_with('/')),
            None => fits(self.path, path),
        }
    }

    /// Returns the last name of the path.
    fn name(&self) -> &'static str {
        let (_, name) = self.path.rsplit_once('/').unwrap_or(("", self.path));
        name
    }

    /// Returns whether a file outside of a release has this name, which must be one of ours: many files are called `index.yaml`.
    fn is_named(&self, name: &str) -> bool {
        let own = self.name();
        (own.contains("multus") || own.contains("cni-plugins")) && fits(own, name)
    }

    fn is_signature(&self) -> bool {
        self.kind.is_empty()
    }
}

/// Returns the row of a file of a release.
pub fn of(path: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.is_of(path))
}

/// Returns the row of a file by its name alone, unless several rows have this name.
pub fn named(name: &str) -> Option<&'static Part> {
    let part = PARTS.iter().find(|part| part.is_named(name))?;
    let same = PARTS.iter().filter(|other| other.name() == part.name());
    (same.count() == 1).then_some(part)
}

/// Returns the kind of a file of a release.
pub fn kind(path: &str) -> &'static str {
    of(path).map_or(OTHER, |part| part.kind)
}

/// Returns whether a text has the form of a pattern, in which `<…>` stands for at least one character of a name.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((literal, rest)) = pattern.split_once('<') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(literal) else {
        return false;
    };
    let rest = rest.split_once('>').map_or("", |(_, rest)| rest);
    let name = text.split('/').next().unwrap_or_default();
    let ends = name.char_indices().map(|(at, char)| at + char.len_utf8());
    ends.into_iter().any(|end| fits(rest, &text[end..]))
}

/// Returns the text of a release's [`README`]: the rows of the files that the release has, and those of its signatures.
pub fn readme(release: &Release, tree: &Tree) -> String {
    let described = [README, release::FILE, release::SUMS];
    let has = |part: &Part| {
        let mut paths = tree.0.keys().map(String::as_str).chain(described);
        paths.any(|path| of(path).is_some_and(|found| found.path == part.path))
    };
    let mut text = format!(
        "# multus-rs {}\n\n\
         This release is of commit {} and for {}.\n\
         `multus-airgap verify .` checks all of it, and `sha256sum --check SHA256SUMS` its files.\n\
         The pages are at <{}>.\n\n",
        release.version,
        release.commit,
        release.architectures.join(", "),
        env!("CARGO_PKG_REPOSITORY"),
    );
    let mut table = |title: &str, parts: &mut dyn Iterator<Item = &'static Part>| {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{title}| file | what it is | for | how it is used |\n|---|---|---|---|"
        );
        for part in parts {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                part.path, part.what, part.audience, part.usage
            );
        }
    };
    table(
        "",
        &mut PARTS
            .iter()
            .filter(|part| !part.is_signature() && has(part)),
    );
    table(
        "\nA signed release also has:\n\n",
        &mut PARTS.iter().filter(|part| part.is_signature()),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_stand_for_parts_of_one_name() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(of(path).map(|part| part.path), expected, "{path}");
        };
        let archive = "airgap/multus-airgap-images-<arch>.tar";
        check("airgap/multus-airgap-images-arm64.tar", Some(archive));
        check(
            "airgap/multus-airgap-arm64",
            Some("airgap/multus-airgap-<arch>"),
        );
        let chart = "charts/assets/<name>/<name>-<version>.tgz";
        check("charts/assets/k3s-multus/k3s-multus-5.0.0.tgz", Some(chart));
        check("oci/blobs/sha256/ab", Some("oci/"));
        check("sbom/vex.cdx.json", Some("sbom/vex.cdx.json"));
        check("sbom/arm/multus-shim.cdx.json", Some("sbom/"));
        for path in [
            "oci",
            "ocix/a",
            "bin/arm/x/multus-shim",
            "bin//multus-shim",
            "notes",
        ] {
            check(path, None);
        }
    }

    #[test]
    fn names_of_ours_are_known_outside_of_a_release() {
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(named(name).map(|part| part.kind), expected, "{name}");
        };
        check("cni-plugins-linux-arm64-v5.0.0.tgz", Some("plugin-archive"));
        check(
            "kubectl-multus-v5.0.0-linux-arm64.tar.gz",
            Some("kubectl-archive"),
        );
        check("multus-airgap-images-arm64.tar", Some("image-archive"));
        check("multus-airgap-arm64", Some("program"));
        for name in ["index.yaml", "README.md", "multus.yaml", "any-1.0.0.tgz"] {
            check(name, None);
        }
    }

    #[test]
    fn every_signature_has_a_row_and_no_other_file_has_it() {
        let hex = "0".repeat(64);
        for path in [
            "SHA256SUMS.sig",
            "SHA256SUMS.sigstore.json",
            "airgap/sha256sum-arm64.txt.sig",
            "charts/assets/k3s-multus/k3s-multus-5.0.0.tgz.prov",
            "charts/keyring.gpg",
            &format!("provenance/{hex}.sigstore.json"),
            &format!("signatures/{hex}.json.sig"),
        ] {
            assert!(crate::signatures::is_signature(path), "{path}");
            assert!(of(path).is_some_and(Part::is_signature), "{path}");
        }
        assert!(!of("airgap/sha256sum-arm64.txt").unwrap().is_signature());
    }

    #[test]
    fn rows_are_cells_of_a_table() {
        for part in PARTS {
            for cell in [part.path, part.what, part.audience, part.usage] {
                let is_cell = !cell.is_empty() && !cell.contains(['|', '\n']);
                assert!(is_cell && cell.matches('`').count() % 2 == 0, "{cell}");
            }
        }
    }
}
