//! A packed chart as an OCI artifact, as Helm pushes it: its metadata as the configuration, the archive as the only layer.
//!
//! The manifest depends on the archive's bytes alone. It has no annotation `created`, which Helm takes from a clock, so that a chart
//! that is pushed from two machines has one digest.

use std::collections::BTreeMap;

use archive::oci::{self, Descriptor, Manifest};

use crate::{
    metadata::{Maintainer, Metadata},
    package::{self, Package},
};

/// Media type of the configuration.
pub const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Media type of the archive.
pub const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// Media type of the archive's signature, which Helm pushes and pulls with the archive.
pub const PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
/// The prefix of the annotations that the OCI image specification defines.
const PREFIX: &str = "org.opencontainers.image";

/// The manifest and the blobs of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The chart's name: the last part of the repository that it is pushed to.
    pub name: String,
    /// The version as a tag, with `_` for `+`, which a tag cannot have.
    pub tag: String,
    /// Describes the manifest.
    pub descriptor: Descriptor,
    /// The manifest's bytes.
    pub manifest: Vec<u8>,
    /// The blobs that the manifest points to: the configuration, the archive, then its signature if there is one.
    pub blobs: Vec<(Descriptor, Vec<u8>)>,
}

/// Makes the artifact of a chart's archive, and of its signature for Helm.
pub fn artifact(tgz: &[u8], provenance: Option<&[u8]>) -> Result<Artifact, package::Error> {
    artifact_of(Package::read(tgz)?, tgz, provenance)
}

/// Makes the artifact of a chart that was read from this archive.
pub(crate) fn artifact_of(
    package: Package,
    tgz: &[u8],
    provenance: Option<&[u8]>,
) -> Result<Artifact, package::Error> {
    // The version becomes a part of addresses, so an invalid one is refused.
    package.version()?;
    let metadata = package.metadata;
    let config = metadata.to_json();
    let mut blobs = vec![
        (Descriptor::of(CONFIG, &config), config),
        (Descriptor::of(CONTENT, tgz), tgz.to_vec()),
    ];
    blobs.extend(provenance.map(|text| (Descriptor::of(PROVENANCE, text), text.to_vec())));
    let mut pointed = blobs.iter().map(|(descriptor, _)| descriptor.clone());
    let config = pointed.next().expect("the first blob is the configuration");
    let mut manifest = Manifest::of(config, pointed.collect());
    manifest.annotations = annotations(&metadata);
    let manifest = oci::to_bytes(&manifest);
    Ok(Artifact {
        descriptor: Descriptor::of(oci::MANIFEST, &manifest),
        tag: metadata.version.replace('+', "_"),
        name: metadata.name,
        manifest,
        blobs,
    })
}

/// Returns the manifest's annotations; the chart's own ones replace all but title and version.
fn annotations(metadata: &Metadata) -> BTreeMap<String, String> {
    let maintainers: Vec<_> = metadata.maintainers.iter().map(author).collect();
    let described = [
        ("description", metadata.description.clone()),
        ("url", metadata.home.clone()),
        (
            "source",
            metadata.sources.first().cloned().unwrap_or_default(),
        ),
        ("authors", maintainers.join(", ")),
    ];
    let fixed = [
        ("title", metadata.name.clone()),
        ("version", metadata.version.clone()),
    ];
    let named = |(key, value): (&str, String)| (format!("{PREFIX}.{key}"), value);
    let mut found: BTreeMap<_, _> = described.into_iter().map(named).collect();
    found.retain(|_, value| !value.trim().is_empty());
    found.extend(metadata.annotations.clone());
    found.extend(fixed.into_iter().map(named));
    found
}

fn author(one: &Maintainer) -> String {
    match one.email.as_str() {
        "" => one.name.clone(),
        email => format!("{} ({email})", one.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CHARTS, IDENTITIES, package::tests::packed};

    #[test]
    fn the_manifest_points_to_metadata_and_archive() {
        for chart in CHARTS {
            let tgz = crate::pack(chart, IDENTITIES[0], "5.0.0").unwrap();
            let unsigned = artifact(&tgz, None).unwrap();
            assert_eq!(unsigned.blobs.len(), 2);
            let artifact = artifact(&tgz, Some(b"signature")).unwrap();
            assert_ne!(artifact.descriptor, unsigned.descriptor);
            assert_eq!(artifact.blobs[2].0.media_type, PROVENANCE);
            assert_eq!(artifact.name, chart.name(IDENTITIES[0]));
            assert_eq!(artifact.tag, "5.0.0");
            assert_eq!(
                artifact.descriptor,
                Descriptor::of(oci::MANIFEST, &artifact.manifest)
            );
            let manifest: Manifest = oci::from_bytes(&artifact.manifest).unwrap();
            let pointed: Vec<_> = std::iter::once(manifest.config)
                .chain(manifest.layers)
                .collect();
            let described: Vec<_> = artifact.blobs.iter().map(|blob| blob.0.clone()).collect();
            assert_eq!(pointed, described);
            for (descriptor, bytes) in &artifact.blobs {
                assert_eq!(*descriptor, Descriptor::of(&descriptor.media_type, bytes));
            }
            assert_eq!(artifact.blobs[1].1, tgz);
        }
    }

    #[test]
    fn annotations_equal_those_of_helm() {
        let tgz = packed(&[(
            "a/Chart.yaml",
            "apiVersion: v2\nname: a\nversion: 4.0.201+upv4.0.2\ndescription: d\nhome: h\nsources: [s, t]\n\
             maintainers: [{name: m, email: e}, {name: n}]\n\
             annotations: {x: y, org.opencontainers.image.title: other, org.opencontainers.image.url: own}\n",
        )]);
        let artifact = artifact(&tgz, None).unwrap();
        assert_eq!(artifact.tag, "4.0.201_upv4.0.2");
        let manifest: serde_json::Value = serde_json::from_slice(&artifact.manifest).unwrap();
        assert_eq!(
            manifest["annotations"],
            serde_json::json!({
                "org.opencontainers.image.authors": "m (e), n",
                "org.opencontainers.image.description": "d",
                "org.opencontainers.image.source": "s",
                "org.opencontainers.image.title": "a",
                "org.opencontainers.image.url": "own",
                "org.opencontainers.image.version": "4.0.201+upv4.0.2",
                "x": "y",
            })
        );
        assert_eq!(manifest["config"]["mediaType"], CONFIG);
        assert_eq!(manifest["layers"][0]["mediaType"], CONTENT);
    }

    #[test]
    fn archives_that_are_not_charts_are_refused() {
        assert!(artifact(b"x", None).is_err());
        let tgz = packed(&[("a/Chart.yaml", "apiVersion: v2\nname: a\nversion: 1/../2\n")]);
        let error = artifact(&tgz, None).unwrap_err().to_string();
        assert!(error.contains("`1/../2` is not a version"), "{error}");
    }
}
