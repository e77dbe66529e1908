//! A bill of materials as a value, which knows no format: one subject, its components, and how they belong together.

use std::collections::{BTreeMap, BTreeSet};

use archive::digest::Digest;

use super::{
    Inventory,
    graph::{CrateFacts, CrateId, Graph},
};
use crate::arch::Arch;

/// The kind of a component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    Program,
    #[default]
    Library,
    Image,
    Archive,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Component {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) version: Option<String>,
    /// An expression of SPDX licence identifiers.
    pub(super) licence: Option<String>,
    /// The package URL, by which scanners find a component.
    pub(super) purl: Option<String>,
    /// The name in the database of known vulnerabilities, for what no package URL names.
    pub(super) cpe: Option<String>,
    /// The sha256 of the file, of the image's manifest, or of the crate's archive, in hex.
    pub(super) sha256: Option<String>,
    /// The address of its source.
    pub(super) source: Option<String>,
    pub(super) features: BTreeSet<String>,
    /// It took part in the build alone.
    pub(super) is_build_only: bool,
}

/// One subject and all that is in it. Components are named by an identifier of letters, digits, dots and dashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bom {
    pub(super) subject: String,
    pub(super) components: BTreeMap<String, Component>,
    /// From a component to its parts: those that it contains, that are linked into it, or that its build needs.
    pub(super) parts: BTreeSet<(String, String)>,
}

impl Bom {
    fn of(id: String, subject: Component) -> Self {
        Self {
            subject: id.clone(),
            components: BTreeMap::from([(id, subject)]),
            parts: BTreeSet::new(),
        }
    }

    /// Adds other bills, whose subjects are parts of this one's.
    fn with(mut self, others: Vec<Self>) -> Self {
        for other in others {
            self.parts.insert((self.subject.clone(), other.subject));
            self.parts.extend(other.parts);
            for (id, component) in other.components {
                self.add(id, component);
            }
        }
        self
    }

    /// Adds a component. One that another program links, or builds with other features, is in both ways the same component.
    fn add(&mut self, id: String, component: Component) {
        match self.components.get_mut(&id) {
            Some(known) => {
                known.is_build_only &= component.is_build_only;
                known.features.extend(component.features);
            }
            None => drop(self.components.insert(id, component)),
        }
    }
}

/// The release to which subjects belong.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) version: &'a str,
    /// The architecture, or the name of a workstation.
    pub(super) machine: &'a str,
    /// Rust's target.
    pub(super) triple: &'a str,
}

/// Returns the bill of a program.
pub(super) fn program_bom(place: Place<'_>, name: &str, graph: &Graph, file: Digest) -> Bom {
    let Place {
        inventory,
        version,
        machine,
        triple,
    } = place;
    let program = Component {
        kind: Kind::Program,
        name: name.to_owned(),
        version: Some(version.to_owned()),
        licence: Some(env!("CARGO_PKG_LICENSE").to_owned()),
        purl: Some(format!(
            "pkg:generic/multus-rs/{name}@{version}?arch={machine}"
        )),
        sha256: Some(file.hex()),
        source: Some(env!("CARGO_PKG_REPOSITORY").to_owned()),
        ..Component::default()
    };
    let mut bom = Bom::of(identifier("program", name, version), program);
    for (id, usage) in &graph.crates {
        let component = Component {
            features: usage.features.clone(),
            is_build_only: usage.is_build_only,
            ..crate_component(id, inventory.facts.get(id))
        };
        bom.add(crate_identifier(id), component);
    }
    let (subject, root) = (bom.subject.clone(), crate_identifier(&graph.root));
    for (id, component) in toolchain(&inventory.toolchain, triple) {
        bom.parts.insert((subject.clone(), id.clone()));
        bom.add(id, component);
    }
    bom.parts.insert((subject, root));
    let edges = graph.edges.iter();
    let edges = edges.map(|(from, to)| (crate_identifier(from), crate_identifier(to)));
    bom.parts.extend(edges);
    bom
}

/// Returns the bill of an image for one platform, made of those of its programs.
pub(super) fn image_bom(
    arch: Arch,
    reference: &str,
    manifest: Digest,
    licence: Option<&str>,
    programs: Vec<Bom>,
) -> Bom {
    let (repository, tag) = reference.rsplit_once(':').unwrap_or((reference, ""));
    let name = repository.rsplit('/').next().unwrap_or(repository);
    let image = Component {
        kind: Kind::Image,
        name: repository.to_owned(),
        version: Some(tag.to_owned()),
        licence: licence.map(str::to_owned),
        purl: Some(format!(
            "pkg:oci/{name}@sha256%3A{}?arch={}&repository_url={repository}&tag={tag}",
            manifest.hex(),
            arch.name()
        )),
        sha256: Some(manifest.hex()),
        ..Component::default()
    };
    Bom::of(identifier("image", repository, tag), image).with(programs)
}

/// Returns the bill of an archive, made of those of its images.
pub(super) fn archive_bom(version: &str, name: &str, file: Digest, images: Vec<Bom>) -> Bom {
    let archive = Component {
        kind: Kind::Archive,
        name: name.to_owned(),
        version: Some(version.to_owned()),
        purl: Some(format!("pkg:generic/multus-rs/{name}@{version}")),
        sha256: Some(file.hex()),
        ..Component::default()
    };
    Bom::of(identifier("archive", name, version), archive).with(images)
}

/// Returns a crate as a component, without its relation to a program.
pub(super) fn crate_component(id: &CrateId, facts: Option<&CrateFacts>) -> Component {
    let CrateId { name, version } = id;
    let checksum = facts.and_then(|facts| facts.checksum.clone());
    let (purl, source) = if checksum.is_some() {
        let source = format!("https://static.crates.io/crates/{name}/{name}-{version}.crate");
        (format!("pkg:cargo/{name}@{version}"), source)
    } else {
        // The registry has other crates under the short names of this workspace.
        let repository = env!("CARGO_PKG_REPOSITORY");
        let place = repository.trim_start_matches("https://github.com/");
        (
            format!("pkg:github/{place}@v{version}#{name}"),
            repository.to_owned(),
        )
    };
    Component {
        name: name.clone(),
        version: Some(version.clone()),
        licence: facts
            .and_then(|facts| facts.licence.as_deref())
            .map(licence_expression),
        purl: Some(purl.replace('+', "%2B")),
        sha256: checksum,
        source: Some(source),
        ..Component::default()
    }
}

/// Returns what every program gets from the toolchain instead of the registry.
fn toolchain(version: &str, triple: &str) -> Vec<(String, Component)> {
    let library = |name: &str, version: Option<&str>, licence: &str, cpe: String| {
        let purl = version.map_or_else(String::new, |version| format!("@{version}"));
        let component = Component {
            name: name.to_owned(),
            version: version.map(str::to_owned),
            licence: Some(licence.to_owned()),
            purl: Some(format!("pkg:generic/{name}{purl}")),
            cpe: Some(cpe),
            ..Component::default()
        };
        (
            identifier("toolchain", name, version.unwrap_or_default()),
            component,
        )
    };
    let cpe = |product: &str, version: &str| format!("cpe:2.3:a:{product}:{version}:*:*:*:*:*:*:*");
    let libc = if triple.contains("apple") {
        // Programs load the system's.
        None
    } else if triple.contains("windows") {
        let cpe = cpe("mingw-w64:mingw-w64", "*");
        Some(library("mingw-w64", None, "ZPL-2.1", cpe))
    } else {
        let cpe = cpe("musl-libc:musl", "*");
        Some(library("musl", None, "MIT", cpe))
    };
    let std = library(
        "rust-std",
        Some(version),
        "MIT OR Apache-2.0",
        cpe("rust-lang:rust", version),
    );
    [std].into_iter().chain(libc).collect()
}

/// Returns an expression as SPDX writes it: manifests of old crates have a slash for `OR`.
pub(super) fn licence_expression(licence: &str) -> String {
    let alternatives = licence.split('/').map(str::trim);
    alternatives.collect::<Vec<_>>().join(" OR ")
}

fn crate_identifier(id: &CrateId) -> String {
    identifier("crate", &id.name, &id.version)
}

/// Returns an identifier of the accepted characters.
fn identifier(kind: &str, name: &str, version: &str) -> String {
    let text = format!("{kind}-{name}-{version}");
    let is_accepted = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    let text: String = text
        .chars()
        .map(|c| if is_accepted(c) { c } else { '-' })
        .collect();
    text.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;

    use super::*;
    use crate::{
        arch::Facts,
        sbom::tests::{graph, inventory},
    };

    fn place(inventory: &Inventory, arch: Arch) -> Place<'_> {
        Place {
            inventory,
            version: "9.8.7",
            machine: arch.name(),
            triple: Facts::of(arch).triple,
        }
    }

    fn program(arch: Arch) -> Bom {
        let inventory = inventory(&[arch], &["multus-shim"]);
        program_bom(
            place(&inventory, arch),
            "multus-shim",
            &graph(),
            sha256(b"x"),
        )
    }

    #[test]
    fn program_has_its_crates_and_what_the_toolchain_adds() {
        let bom = program(Arch::Amd64);
        let ids: Vec<_> = bom.components.keys().map(String::as_str).collect();
        assert_eq!(
            ids,
            [
                "crate-serde-1.0.229",
                "crate-shim-9.8.7",
                "crate-syn-3.0.9",
                "program-multus-shim-9.8.7",
                "toolchain-musl",
                "toolchain-rust-std-1.95.0",
            ]
        );
        let subject = &bom.components[&bom.subject];
        assert_eq!(subject.sha256, Some(sha256(b"x").hex()));
        let own = bom.components["crate-shim-9.8.7"].purl.clone().unwrap();
        assert_eq!(own, "pkg:github/multus-rs/multus-rs@v9.8.7#shim");
        let serde = &bom.components["crate-serde-1.0.229"];
        assert_eq!(serde.purl.as_deref(), Some("pkg:cargo/serde@1.0.229"));
        assert_eq!(serde.licence.as_deref(), Some("MIT OR Apache-2.0"));
        let arm = program(Arch::Arm);
        assert!(arm.components.contains_key("toolchain-musl"));
    }

    #[test]
    fn crate_that_one_program_links_is_not_build_only() {
        let linked = program(Arch::Amd64);
        let mut other = linked.clone();
        other.subject = "program-other-9.8.7".into();
        let serde = other.components.get_mut("crate-serde-1.0.229").unwrap();
        serde.is_build_only = true;
        serde.features = BTreeSet::from(["alloc".to_owned()]);
        for parts in [vec![linked.clone(), other.clone()], vec![other, linked]] {
            let image = image_bom(Arch::Amd64, "r.example/x/y:v1", sha256(b"m"), None, parts);
            let serde = &image.components["crate-serde-1.0.229"];
            assert!(!serde.is_build_only);
            assert_eq!(serde.features.len(), 2);
            assert!(image.components["crate-syn-3.0.9"].is_build_only);
        }
    }

    #[test]
    fn archive_has_its_images_and_all_that_is_in_them() {
        let part = |reference: &str, programs| {
            image_bom(Arch::Amd64, reference, sha256(b"m"), None, programs)
        };
        let own = part("r.example/x/y:v1", vec![program(Arch::Amd64)]);
        let other = part("r.example/z:v1", Vec::new());
        let archive = archive_bom("9.8.7", "a.tar", sha256(b"a"), vec![own, other]);
        let contains = |id: &str| {
            let part = (archive.subject.clone(), id.to_owned());
            archive.parts.contains(&part)
        };
        assert!(contains("image-r.example-x-y-v1") && contains("image-r.example-z-v1"));
        assert!(archive.components.contains_key("crate-serde-1.0.229"));
    }

    #[test]
    fn licences_are_written_as_spdx_writes_them() {
        for (licence, expected) in [
            ("MIT", "MIT"),
            ("MIT/Apache-2.0", "MIT OR Apache-2.0"),
            ("Apache-2.0 / MIT", "Apache-2.0 OR MIT"),
            ("(A OR B) AND C", "(A OR B) AND C"),
        ] {
            assert_eq!(licence_expression(licence), expected);
        }
    }
}
