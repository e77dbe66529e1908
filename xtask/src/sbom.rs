//! `sbom/`, `LICENSE` and `THIRD-PARTY.txt`: what is inside of each program, image and archive of a release, in CycloneDX, and the
//! licences of it.
//!
//! The crates come from cargo's own resolution for each target ([`graph`]). A bill of materials is a value ([`bom`]) that [`cyclonedx`] turns
//! into a document; it names its subject by the digest that the release has. Nothing here reads a clock or makes a random number.

mod bom;
mod cyclonedx;
mod graph;
mod notices;
mod vex;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use archive::{
    digest::{Digest, sha256},
    lists,
};
use release::{
    image::Definition,
    sbom::{LICENCE, NOTICES, VEX, image_stem, path, stem},
    verify::Checksums,
    workstation::Workstation,
};
use serde_json::Value;

use self::{
    bom::{Bom, Place},
    graph::{CrateFacts, CrateId, Graph},
};
use crate::{
    arch::{Arch, Facts},
    description::{FileEntry, Release},
    project::Project,
    tree::Tree,
    workstations,
};

pub(crate) const LICENCE_TEXT: &str = include_str!("../../LICENSE");
/// The lock that this program was built with, by which it verifies releases of its own commit.
const LOCK: &str = include_str!("../../Cargo.lock");

/// The facts about a checkout from which documents are made.
pub(crate) struct Inventory {
    graphs: BTreeMap<(Arch, String), Graph>,
    /// The graphs of the kubectl plugin.
    workstations: BTreeMap<Workstation, Graph>,
    facts: BTreeMap<CrateId, CrateFacts>,
    /// The release of Rust, whose standard library is in every program.
    toolchain: String,
    /// The programs of each image of this project, and the label with its licence, by its repository.
    images: BTreeMap<String, ImageParts>,
    notices: String,
}

struct ImageParts {
    programs: BTreeSet<String>,
    licence: Option<String>,
}

impl Inventory {
    /// Asks cargo, which fetches nothing. The notices span all architectures and workstations, so that an image has the same file whatever else is built with it.
    pub(crate) fn of(
        project: &Project,
        definitions: BTreeMap<String, Definition>,
    ) -> anyhow::Result<Self> {
        let lock = project.shell()?.read_file("Cargo.lock")?;
        vex::check_is_current(&lock)?;
        let mut graphs = BTreeMap::new();
        for arch in Arch::ALL {
            let programs = graph::arch_graphs(project, arch)?.into_iter();
            graphs.extend(programs.map(|(program, graph)| ((arch, program), graph)));
        }
        let mut workstations = BTreeMap::new();
        for workstation in Workstation::ALL {
            workstations.insert(workstation, graph::workstation_graph(project, workstation)?);
        }
        let facts = graph::facts(project)?;
        let mut works = notices::toolchain_works(&project.toolchain)?;
        for id in linked(graphs.values().chain(workstations.values())) {
            let facts = facts
                .get(id)
                .with_context(|| format!("cargo metadata has no {} {}", id.name, id.version))?;
            if facts.checksum.is_some() {
                works.push(notices::crate_work(id, facts)?);
            }
        }
        let images = definitions.into_values().map(|definition| {
            let label = "org.opencontainers.image.licenses";
            let parts = ImageParts {
                licence: definition.labels.get(label).cloned(),
                programs: definition.binaries.into_values().collect(),
            };
            (definition.repository, parts)
        });
        Ok(Self {
            images: images.collect(),
            toolchain: project.toolchain.clone(),
            notices: notices::write(&works),
            graphs,
            workstations,
            facts,
        })
    }

    /// Returns the files about licences by name, as a release and every image have them.
    pub(crate) fn licences(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (LICENCE.to_owned(), LICENCE_TEXT.to_owned()),
            (NOTICES.to_owned(), self.notices.clone()),
        ])
    }
}

/// Returns the crates that are linked into any program.
fn linked<'a>(graphs: impl Iterator<Item = &'a Graph>) -> BTreeSet<&'a CrateId> {
    let crates = graphs.flat_map(|graph| &graph.crates);
    let linked = crates.filter(|(_, usage)| !usage.is_build_only);
    linked.map(|(id, _)| id).collect()
}

/// The facts about a release that all of its documents have.
struct Header {
    /// The time in RFC 3339.
    created: String,
    version: String,
}

impl Header {
    fn of(version: &str, epoch: u64) -> Self {
        Self {
            created: api::time::rfc3339(epoch),
            version: version.to_owned(),
        }
    }
}

/// Returns the lists of what is inside of a release that has everything else.
pub(crate) fn documents(inventory: &Inventory, release: &Release) -> anyhow::Result<Tree> {
    let header = Header::of(&release.version, release.epoch);
    let mut tree = Tree::default();
    tree.add(VEX, to_bytes(&vex::document(&header)?)?);
    for (stem, bom) in bills(inventory, release)? {
        tree.add(path(&stem), to_bytes(&cyclonedx::write(&bom, &header))?);
    }
    Ok(tree)
}

/// Compares the documents of a release of this commit with the crates that cargo resolves now.
pub(crate) fn check_graph(inventory: &Inventory, release: &Release) -> anyhow::Result<()> {
    let mut documents = documents(inventory, release)?;
    documents.extend(inventory.licences().into_iter().collect());
    for (path, file) in &documents.0 {
        let found = file_entry(release, path)?;
        ensure!(
            found.sha256 == sha256(&file.bytes).hex(),
            "{path} does not follow from the crates of this checkout"
        );
    }
    Ok(())
}

fn file_entry<'a>(release: &'a Release, path: &str) -> anyhow::Result<&'a FileEntry> {
    let found = release.files.iter().find(|file| file.path == path);
    found.with_context(|| format!("{path} is missing"))
}

/// Returns the document about advisories that do not apply to a release.
pub(crate) fn vex(release: &Release) -> anyhow::Result<Vec<u8>> {
    let header = Header::of(&release.version, release.epoch);
    to_bytes(&vex::document(&header)?)
}

/// Returns the crates that the lock has from the registry.
pub(crate) fn locked() -> anyhow::Result<Checksums> {
    let locked = graph::checksums(LOCK)?.into_iter();
    let locked = locked.filter_map(|(id, checksum)| Some(((id.name, id.version), checksum?)));
    Ok(locked.collect())
}

fn to_bytes(document: &Value) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(document)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Returns the bills of all programs, images and archives, by the paths of their documents without endings.
fn bills(inventory: &Inventory, release: &Release) -> anyhow::Result<BTreeMap<String, Bom>> {
    let digest = |path: &str| anyhow::Ok(Digest::from_hex(&file_entry(release, path)?.sha256)?);
    let mut bills = BTreeMap::new();
    for arch in release
        .architectures
        .iter()
        .filter_map(|name| Arch::parse(name))
    {
        let program = |name: &str| {
            let place = Place {
                inventory,
                version: &release.version,
                machine: arch.name(),
                triple: Facts::of(arch).triple,
            };
            let graph = inventory.graphs.get(&(arch, name.to_owned()));
            let graph = graph
                .with_context(|| format!("{name} for {} is none of this checkout", arch.name()))?;
            let file = digest(&format!("bin/{}/{name}", arch.name()))?;
            anyhow::Ok(bom::program_bom(place, name, graph, file))
        };
        let dir = format!("bin/{}/", arch.name());
        let paths = release.files.iter().map(|file| &file.path);
        for name in paths.filter_map(|path| path.strip_prefix(&dir)) {
            bills.insert(stem(arch.name(), name), program(name)?);
        }
        let mut images = Vec::new();
        for image in &release.images {
            let platform = image
                .platforms
                .iter()
                .find(|platform| platform.arch == arch.name());
            let platform =
                platform.with_context(|| format!("{} has no {}", image.reference, arch.name()))?;
            let repository = image.reference.rsplit_once(':').map(|(name, _)| name);
            let own = repository.and_then(|name| inventory.images.get(name));
            let programs = own.into_iter().flat_map(|own| &own.programs);
            let programs = programs.map(|name| program(name));
            let bom = bom::image_bom(
                arch,
                &image.reference,
                platform.manifest,
                own.and_then(|own| own.licence.as_deref()),
                programs.collect::<anyhow::Result<_>>()?,
            );
            if own.is_some() {
                bills.insert(image_stem(arch.name(), &image.reference), bom.clone());
            }
            images.push(bom);
        }
        let name = lists::archive_name(arch.name());
        let file = digest(&format!("airgap/{name}"))?;
        let bom = bom::archive_bom(&release.version, &name, file, images);
        bills.insert(stem(arch.name(), &name), bom);
    }
    for (&workstation, graph) in &inventory.workstations {
        let Ok(file) = digest(&workstation.path()) else {
            // The release was made for nodes alone.
            continue;
        };
        let place = Place {
            inventory,
            version: &release.version,
            machine: workstation.name(),
            triple: workstations::Facts::of(workstation).triple,
        };
        let name = workstation.program();
        let bom = bom::program_bom(place, &name, graph, file);
        bills.insert(stem(workstation.name(), &name), bom);
    }
    Ok(bills)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use chart::BuildSettings;
    use release::sbom;

    use super::{graph::Usage, *};

    /// A library that is linked, and one that a macro needs.
    pub(super) fn crates() -> [(CrateId, String); 2] {
        [("serde", "1.0.229"), ("syn", "3.0.9")].map(|(name, version)| {
            let (name, version) = (name.to_owned(), version.to_owned());
            (CrateId { name, version }, "ab".repeat(32))
        })
    }

    /// Returns the same crates as the lock of this checkout has them.
    fn locked() -> [(CrateId, String); 2] {
        let lock = graph::checksums(LOCK).unwrap();
        ["serde", "syn"].map(|name| {
            let (id, checksum) = lock.iter().find(|(id, _)| id.name == name).unwrap();
            (id.clone(), checksum.clone().unwrap())
        })
    }

    fn graph_of(version: &str, crates: &[(CrateId, String); 2]) -> Graph {
        let root = CrateId {
            name: "shim".into(),
            version: version.into(),
        };
        let [(linked, _), (built, _)] = crates.clone();
        let usage = |is_build_only| Usage {
            is_build_only,
            features: BTreeSet::from(["std".to_owned()]),
        };
        Graph {
            crates: [
                (root.clone(), usage(false)),
                (linked.clone(), usage(false)),
                (built.clone(), usage(true)),
            ]
            .into(),
            edges: [(root.clone(), linked.clone()), (linked, built)].into(),
            root,
        }
    }

    pub(super) fn graph() -> Graph {
        graph_of("9.8.7", &crates())
    }

    /// Returns an inventory in which all programs have the same graph, and one image has all of them.
    fn inventory_of(
        version: &str,
        arches: &[Arch],
        programs: &[&str],
        crates: &[(CrateId, String); 2],
    ) -> Inventory {
        let graph = graph_of(version, crates);
        let facts = |id: &CrateId, checksum: Option<String>| CrateFacts {
            licence: Some("MIT/Apache-2.0".into()),
            licence_file: None,
            authors: Vec::new(),
            repository: None,
            checksum,
            directory: PathBuf::from(&id.name),
        };
        let entries = crates.iter();
        let mut all: BTreeMap<_, _> = entries
            .map(|(id, checksum)| (id.clone(), facts(id, Some(checksum.clone()))))
            .collect();
        all.insert(graph.root.clone(), facts(&graph.root, None));
        let pairs = arches.iter().flat_map(|arch| {
            let programs = programs.iter();
            programs.map(|name| ((*arch, (*name).to_owned()), graph.clone()))
        });
        let (CrateId { name, version }, _) = &crates[0];
        let parts = ImageParts {
            programs: ["multus-cni-plugins", "multus-daemon", "multus-shim"]
                .map(str::to_owned)
                .into(),
            licence: Some("Apache-2.0".into()),
        };
        Inventory {
            workstations: Workstation::ALL
                .map(|workstation| (workstation, graph.clone()))
                .into(),
            graphs: pairs.collect(),
            facts: all,
            toolchain: "1.95.0".into(),
            images: [("docker.io/multusrs/multus".to_owned(), parts)].into(),
            notices: format!("{name} {version}\n    MIT OR Apache-2.0, text 1\n"),
        }
    }

    pub(super) fn inventory(arches: &[Arch], programs: &[&str]) -> Inventory {
        inventory_of("9.8.7", arches, programs, &crates())
    }

    /// Returns an inventory for a release of this version, with crates of the lock.
    pub(crate) fn sample<'a>(settings: impl Into<BuildSettings<'a>>, arches: &[Arch]) -> Inventory {
        let settings = settings.into();
        let programs: Vec<_> = crate::programs::names().collect();
        let inventory = inventory_of(&settings.version, arches, &programs, &locked());
        let images = inventory.images.into_iter();
        let renamed = images.map(|(name, parts)| (settings.images.rename(&name), parts));
        Inventory {
            images: renamed.collect(),
            ..inventory
        }
    }

    fn header() -> Header {
        Header {
            created: "1970-01-01T00:00:00Z".into(),
            version: "9.8.7".into(),
        }
    }

    fn bom() -> Bom {
        let place = Place {
            inventory: &inventory(&[Arch::Arm64], &["multus-shim"]),
            version: "9.8.7",
            machine: "arm64",
            triple: Facts::of(Arch::Arm64).triple,
        };
        bom::program_bom(place, "multus-shim", &graph(), sha256(b"program"))
    }

    #[test]
    fn documents_are_read_as_they_are_written() {
        let one = sbom::cyclonedx::read(&cyclonedx::write(&bom(), &header())).unwrap();
        assert_eq!(one.subject.sha256, Some(sha256(b"program").hex()));
        let names: Vec<_> = one.items.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, ["musl", "rust-std", "serde", "shim", "syn"]);
        let build_only: Vec<_> = one.items.iter().filter(|item| item.is_build_only).collect();
        assert_eq!(build_only.len(), 1);
        assert_eq!(build_only[0].name, "syn");
    }

    #[test]
    fn document_is_the_one_that_is_stored() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sbom");
        let path = PathBuf::from(fixtures).join("program.cdx.json");
        let text = to_bytes(&cyclonedx::write(&bom(), &header())).unwrap();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::create_dir_all(fixtures).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let stored = std::fs::read(&path).unwrap_or_default();
        assert!(stored == text, "{} differs", path.display());
    }

    #[test]
    fn serial_numbers_follow_from_the_subject() {
        let number = |digest| {
            let mut bom = bom();
            let subject = bom.subject.clone();
            bom.components.get_mut(&subject).unwrap().sha256 = Some(sha256(digest).hex());
            let document = cyclonedx::write(&bom, &header());
            document["serialNumber"].as_str().unwrap().to_owned()
        };
        assert_eq!(number(b"a"), number(b"a"));
        assert_ne!(number(b"a"), number(b"b"));
        assert_eq!(number(b"a").len(), "urn:uuid:".len() + 36);
    }
}
