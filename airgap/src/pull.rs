//! Third-party images by the digest in the lock: fetched into a store of blobs, and read from there without a network.

use std::{io, path::PathBuf};

use archive::{
    digest::{Digest, sha256},
    durable,
    layout::Layout,
    oci::{self, Descriptor, Index, Manifest, Platform},
};
use oci_spec::distribution::Reference;

use crate::{
    names,
    registry::{self, Registry},
};

pub mod sources;
mod store;

pub use store::Store;
use store::io_error;

/// Why an image cannot be fetched, or read from the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is not the name of an image")]
    Name(String),
    #[error("cannot use {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("no registry provides {reference}")]
    Registry {
        reference: String,
        /// The error of the last registry.
        #[source]
        source: registry::Error,
    },
    #[error("{reference}: blob {digest} is damaged")]
    Damaged { reference: String, digest: Digest },
    #[error("{reference} is not made for {architecture}")]
    Platform {
        reference: String,
        architecture: String,
    },
    #[error("{reference}: blob {digest} is not in {store}")]
    Absent {
        reference: String,
        digest: Digest,
        store: PathBuf,
    },
}

/// The bytes of an image: fetched, and in the store already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PullStats {
    pub fetched: u64,
    pub present: u64,
}

/// Returns the digest that a name has at the first registry that knows it.
pub fn resolve(registries: &[Registry], reference: &str) -> Result<Digest, Error> {
    let name = parse(reference)?;
    let tag = name
        .tag()
        .ok_or_else(|| Error::Name(reference.to_owned()))?;
    first(registries, reference, |registry| {
        let bytes = registry.manifest(name.repository(), tag)?;
        Ok(sha256(&bytes))
    })
}

/// Fetches the blobs of an image for these platforms that are not in the store yet. The registries are tried in their order.
pub fn fetch(
    registries: &[Registry],
    (reference, digest): (&str, Digest),
    platforms: &[Platform],
    store: &Store,
    progress: &dyn Fn(u64),
) -> Result<PullStats, Error> {
    store.make()?;
    let name = parse(reference)?;
    let repository = name.repository();
    let mut stats = PullStats::default();
    let top = json(
        registries,
        repository,
        (reference, digest),
        store,
        &mut stats,
    )?;
    for (manifest, _) in manifests(reference, digest, &top, platforms)? {
        let image = (reference, manifest.digest);
        let bytes = json(registries, repository, image, store, &mut stats)?;
        for blob in blobs(reference, manifest.digest, &bytes)? {
            if store.get(&blob.digest).is_some() {
                stats.present += blob.size;
                progress(blob.size);
                continue;
            }
            let path = store.path(&blob.digest);
            let part = path.with_extension("part");
            first(registries, reference, |registry| {
                registry.pull_blob(repository, (blob.digest, blob.size), &part, progress)
            })?;
            durable::rename(&part, &path).map_err(io_error(&path))?;
            stats.fetched += blob.size;
        }
    }
    Ok(stats)
}

/// Adds an image to a layout from the store alone, reduced to these platforms.
///
/// When the image has no other platforms, its index is the publisher's, byte by byte.
pub fn add_to(
    layout: &mut Layout,
    (reference, digest): (&str, Digest),
    platforms: &[Platform],
    store: &Store,
) -> Result<(), Error> {
    let blob = |digest: Digest| {
        store.get(&digest).ok_or_else(|| Error::Absent {
            reference: reference.to_owned(),
            digest,
            store: store.dir.clone(),
        })
    };
    let top = blob(digest)?;
    let selected = manifests(reference, digest, &top, platforms)?;
    let mut children = Vec::new();
    for (mut manifest, platform) in selected {
        let bytes = blob(manifest.digest)?;
        for one in blobs(reference, manifest.digest, &bytes)? {
            layout.blobs.insert(one.digest, blob(one.digest)?);
        }
        manifest.size = bytes.len() as u64;
        manifest.platform = Some(platform);
        manifest.annotations.clear();
        layout.blobs.insert(manifest.digest, bytes);
        children.push(manifest);
    }
    let published = oci::from_bytes::<Index>(&top).ok();
    let published = published.filter(|index| index.manifests.len() == children.len());
    let index = match published {
        Some(index) if !index.manifests.is_empty() => {
            layout.add(kind(&index.media_type, oci::INDEX), top)
        }
        _ => layout.add(oci::INDEX, oci::to_bytes(&Index::of(children))),
    };
    layout.images.push(index.named(reference));
    Ok(())
}

fn kind(media_type: &str, otherwise: &'static str) -> &'static str {
    oci::manifest_kind(media_type).unwrap_or(otherwise)
}

/// Returns the manifest of each platform. An image without an index is made for one platform, which its configuration names; it is
/// assumed to be the requested one here, and `verify` compares it with the configuration.
fn manifests(
    reference: &str,
    digest: Digest,
    top: &[u8],
    platforms: &[Platform],
) -> Result<Vec<(Descriptor, Platform)>, Error> {
    let damaged = || Error::Damaged {
        reference: reference.to_owned(),
        digest,
    };
    if let Ok(index) = oci::from_bytes::<Index>(top) {
        let find = |platform: &Platform| {
            let fits =
                |one: &&Descriptor| one.platform.as_ref().is_some_and(|is| serves(is, platform));
            let found = index.manifests.iter().find(fits);
            let found = found.ok_or_else(|| Error::Platform {
                reference: reference.to_owned(),
                architecture: platform.architecture.clone(),
            })?;
            Ok((found.clone(), found.platform.clone().ok_or_else(damaged)?))
        };
        return platforms.iter().map(find).collect();
    }
    let manifest: Manifest = oci::from_bytes(top).map_err(|_| damaged())?;
    let [platform] = platforms else {
        return Err(Error::Platform {
            reference: reference.to_owned(),
            architecture: "more than one architecture".to_owned(),
        });
    };
    let media_type = kind(&manifest.media_type, oci::MANIFEST);
    let mut descriptor = Descriptor::of(media_type, top);
    descriptor.platform = Some(platform.clone());
    Ok(vec![(descriptor, platform.clone())])
}

/// Returns whether a platform in an index is the requested one; a missing variant means the default one.
fn serves(named: &Platform, requested: &Platform) -> bool {
    let is_same = named.architecture == requested.architecture && named.os == requested.os;
    let variant = |platform: &Platform| {
        let default = match platform.architecture.as_str() {
            "arm" => Some("v7"),
            "arm64" => Some("v8"),
            _ => None,
        };
        platform
            .variant
            .clone()
            .or_else(|| default.map(str::to_owned))
    };
    is_same && variant(named) == variant(requested)
}

fn blobs(reference: &str, digest: Digest, manifest: &[u8]) -> Result<Vec<Descriptor>, Error> {
    let manifest: Manifest = oci::from_bytes(manifest).map_err(|_| Error::Damaged {
        reference: reference.to_owned(),
        digest,
    })?;
    Ok([vec![manifest.config], manifest.layers].concat())
}

fn json(
    registries: &[Registry],
    repository: &str,
    (reference, digest): (&str, Digest),
    store: &Store,
    stats: &mut PullStats,
) -> Result<Vec<u8>, Error> {
    if let Some(bytes) = store.get(&digest) {
        stats.present += bytes.len() as u64;
        return Ok(bytes);
    }
    let bytes = first(registries, reference, |registry| {
        registry.manifest(repository, &digest.to_string())
    })?;
    store.put(&digest, &bytes)?;
    stats.fetched += bytes.len() as u64;
    Ok(bytes)
}

/// Returns the result of the first registry that succeeds.
fn first<T>(
    registries: &[Registry],
    reference: &str,
    request: impl Fn(&Registry) -> Result<T, registry::Error>,
) -> Result<T, Error> {
    let mut last = None;
    for registry in registries {
        match request(registry) {
            Ok(found) => return Ok(found),
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(source) => Error::Registry {
            reference: reference.to_owned(),
            source,
        },
        None => Error::Name(reference.to_owned()),
    })
}

fn parse(reference: &str) -> Result<Reference, Error> {
    names::reference(reference).ok_or_else(|| Error::Name(reference.to_owned()))
}

/// Returns the hosts to try for an image: the mirrors of its registry, then the registry itself.
pub fn hosts(reference: &str, mirrors: &[(String, String)]) -> Result<Vec<String>, Error> {
    let name = parse(reference)?;
    let own = name.registry();
    let mut hosts: Vec<_> = mirrors
        .iter()
        .filter(|(registry, _)| registry == own || registry == "*")
        .map(|(_, mirror)| mirror.clone())
        .collect();
    hosts.push(own.to_owned());
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn platform(architecture: &str, variant: Option<&str>) -> Platform {
        Platform {
            architecture: architecture.into(),
            os: "linux".into(),
            variant: variant.map(str::to_owned),
        }
    }

    /// Stores an image for these platforms.
    fn stored(dir: &Path, platforms: &[Platform]) -> (Store, Digest) {
        let store = Store::new(dir);
        store.make().unwrap();
        let put = |media_type: &str, bytes: &[u8]| {
            let descriptor = Descriptor::of(media_type, bytes);
            store.put(&descriptor.digest, bytes).unwrap();
            descriptor
        };
        let mut manifests = Vec::new();
        for platform in platforms {
            let config = put(oci::CONFIG, platform.architecture.as_bytes());
            let layer = put(oci::LAYER, b"layer");
            let manifest = oci::to_bytes(&Manifest::of(config, vec![layer]));
            let mut manifest = put(oci::MANIFEST, &manifest);
            manifest.platform = Some(platform.clone());
            manifests.push(manifest);
        }
        let index = put(oci::INDEX, &oci::to_bytes(&Index::of(manifests)));
        (store, index.digest)
    }

    #[test]
    fn index_is_kept_or_reduced_to_the_platforms() {
        let dir = tempfile::tempdir().unwrap();
        let all = [platform("amd64", None), platform("arm", Some("v7"))];
        let (store, digest) = stored(dir.path(), &all);
        let load = |platforms: &[Platform]| {
            let mut layout = Layout::default();
            add_to(&mut layout, ("r/x:1", digest), platforms, &store).map(|()| layout)
        };
        assert_eq!(load(&all).unwrap().images[0].digest, digest);
        let reduced = load(&all[1..]).unwrap();
        assert_ne!(reduced.images[0].digest, digest);
        assert_eq!(reduced.blobs.len(), 4);
        let error = load(&[platform("riscv64", None)]).unwrap_err().to_string();
        assert_eq!(error, "r/x:1 is not made for riscv64");
    }

    #[test]
    fn damaged_blob_counts_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let amd64 = [platform("amd64", None)];
        let (store, digest) = stored(dir.path(), &amd64);
        std::fs::write(store.path(&sha256(b"layer")), "lay").unwrap();
        let outcome = add_to(&mut Layout::default(), ("r/x:1", digest), &amd64, &store);
        assert!(matches!(outcome, Err(Error::Absent { .. })));
    }

    #[test]
    fn default_variant_may_be_left_out() {
        assert!(serves(
            &platform("arm64", Some("v8")),
            &platform("arm64", None)
        ));
        assert!(serves(&platform("arm", None), &platform("arm", Some("v7"))));
        assert!(!serves(
            &platform("arm", Some("v6")),
            &platform("arm", Some("v7"))
        ));
    }

    #[test]
    fn mirrors_come_first() {
        let mirrors = [("docker.io", "m:1"), ("else", "m:2"), ("*", "m:3")];
        let mirrors = mirrors.map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(
            hosts("a/b:1", &mirrors).unwrap(),
            ["m:1", "m:3", "docker.io"]
        );
        assert_eq!(
            hosts("r.example/b:1", &mirrors).unwrap(),
            ["m:3", "r.example"]
        );
    }
}
