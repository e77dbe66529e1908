//! The images of a release: `images.toml` has the features to render, `images.lock` the images that were found.
//!
//! The list is never written by hand. The charts are rendered with every combination of the switches in `images.toml`, the images that
//! they would run are collected, and each image belongs to the fewest switches that bring it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use archive::digest::Digest;
use chart::{BuildSettings, ImagePrefix};
use serde::Deserialize;

use crate::names;

pub mod render;

/// The version of `images.toml`.
const SCHEMA: u32 = 1;
/// The feature of images that run with every switch off.
pub const CORE: &str = "core";
/// Stands for the release's version in a lock.
const VERSION: &str = "@VERSION@";

/// The content of `images.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sets {
    schema: u32,
    /// The text before the names of images that the project builds itself.
    pub own: ImagePrefix,
    /// Name of a feature → the value that switches it on, as for Helm's `--set`.
    pub features: BTreeMap<String, String>,
    /// Images that no template names.
    #[serde(default, rename = "image")]
    pub images: Vec<ExtraImage>,
}

/// An image of a release that no template names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtraImage {
    /// The image's name.
    pub reference: String,
    /// The feature that needs it.
    pub feature: String,
}

/// An image of a release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Locked {
    /// The feature that brings it; several are joined by `+` when only all of them together do.
    pub feature: String,
    /// The full name, with a tag.
    pub reference: String,
    /// The digest that the name had when it was locked; `None` for an image that the project builds.
    pub digest: Option<Digest>,
}

/// A fault of image sets or their lock.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("images.toml is damaged")]
    Toml(#[from] Box<toml::de::Error>),
    #[error("images.toml has schema {0}, this program reads {SCHEMA}")]
    Schema(u32),
    #[error("image {reference} is for the feature {feature}, which is not one of images.toml")]
    Feature { reference: String, feature: String },
    #[error("`{0}` is not the name of an image")]
    Name(String),
    #[error("images.lock:{0}: write feature, name and digest or `built`")]
    Line(usize),
    #[error(
        "images.lock:{line}: `{reference}` is not the name of an image: write HOST/REPOSITORY:TAG, or let `cargo xtask airgap update` write the file"
    )]
    LockedName { line: usize, reference: String },
    #[error("images.lock:{line}: {reference} is in this file twice")]
    Twice { line: usize, reference: String },
}

impl Sets {
    /// Reads `images.toml`; unknown keys are refused.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let sets: Self = toml::from_str(text).map_err(Box::new)?;
        if sets.schema != SCHEMA {
            return Err(Error::Schema(sets.schema));
        }
        let unknown =
            |one: &&ExtraImage| one.feature != CORE && !sets.features.contains_key(&one.feature);
        match sets.images.iter().find(unknown) {
            Some(image) => Err(Error::Feature {
                reference: image.reference.clone(),
                feature: image.feature.clone(),
            }),
            None => Ok(sets),
        }
    }

    /// Returns whether the project builds an image itself.
    pub fn is_own(&self, reference: &str) -> bool {
        self.own.is_own(reference)
    }
}

/// Returns the full form of a name, with registry and tag or digest, as runtimes store it.
pub fn normalised(name: &str) -> Result<String, Error> {
    let reference = names::reference(name).ok_or_else(|| Error::Name(name.to_owned()))?;
    Ok(reference.to_string())
}

/// Returns the features that bring each image, from the images of every combination of features.
///
/// An image of several combinations belongs to the smallest; of equally small ones, to the first by name.
pub fn attribute(runs: &[(BTreeSet<String>, BTreeSet<String>)]) -> BTreeMap<String, String> {
    let mut smallest: BTreeMap<&String, &BTreeSet<String>> = BTreeMap::new();
    for (features, images) in runs {
        for image in images {
            let least = smallest.entry(image).or_insert(features);
            if (features.len(), features) < (least.len(), *least) {
                *least = features;
            }
        }
    }
    let label = |features: &BTreeSet<String>| {
        let names: Vec<_> = features.iter().map(String::as_str).collect();
        if names.is_empty() {
            CORE.to_owned()
        } else {
            names.join("+")
        }
    };
    let labelled = smallest.into_iter();
    labelled
        .map(|(image, features)| (image.clone(), label(features)))
        .collect()
}

/// Parses a lock, for a build of this version and with these names of images.
pub fn parse_lock<'a>(
    text: &str,
    settings: impl Into<BuildSettings<'a>>,
) -> Result<Vec<Locked>, Error> {
    let settings = settings.into();
    let mut found: Vec<Locked> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<_> = line.split(' ').collect();
        let [feature, reference, digest] = fields[..] else {
            return Err(Error::Line(at + 1));
        };
        let digest = match digest {
            "built" => None,
            digest => Some(digest.parse().map_err(|_| Error::Line(at + 1))?),
        };
        let mut reference = reference.replace(VERSION, &settings.version);
        if digest.is_none() {
            reference = settings.images.rename(&reference);
        }
        if names::reference(&reference).is_none() {
            let line = at + 1;
            return Err(Error::LockedName { line, reference });
        }
        if found.iter().any(|other| other.reference == reference) {
            let line = at + 1;
            return Err(Error::Twice { line, reference });
        }
        found.push(Locked {
            feature: feature.to_owned(),
            reference,
            digest,
        });
    }
    Ok(found)
}

/// Returns the text that [`parse_lock`] parses: sorted by feature, then by name, with the images that every node needs first.
pub fn write_lock(images: &[Locked], version: &str) -> String {
    let mut images: Vec<_> = images.iter().collect();
    images.sort_by_key(|image| (image.feature != CORE, *image));
    let mut text = String::from(
        "# The images of a release: feature, name, digest. Made from the charts and images.toml by `cargo xtask airgap update`.\n",
    );
    for Locked {
        feature,
        reference,
        digest,
    } in images
    {
        let suffix = format!(":v{version}");
        let own = reference.strip_suffix(&suffix).filter(|_| digest.is_none());
        let name = own.map_or(reference.clone(), |name| format!("{name}:v{VERSION}"));
        let digest = digest.map_or("built".to_owned(), |digest| digest.to_string());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{feature} {name} {digest}");
    }
    text
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;

    use super::*;

    const TOML: &str = "schema = 1\nown = \"docker.io/own/\"\n[features]\na = \"x.enabled=true\"\n";

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn image_belongs_to_the_fewest_switches() {
        let runs = [
            (set(&["a", "b"]), set(&["core", "a", "b", "both"])),
            (set(&["b"]), set(&["core", "b", "either"])),
            (set(&["a"]), set(&["core", "a", "either"])),
            (set(&[]), set(&["core"])),
        ];
        let expected = [
            ("a", "a"),
            ("b", "b"),
            ("both", "a+b"),
            ("core", "core"),
            ("either", "a"),
        ];
        let expected = expected.map(|(image, label)| (image.to_owned(), label.to_owned()));
        assert_eq!(attribute(&runs), expected.into());
    }

    #[test]
    fn names_are_normalised_to_their_full_form() {
        for (name, expected) in [
            ("alpine", "docker.io/library/alpine:latest"),
            ("own/x:v1", "docker.io/own/x:v1"),
            ("r.example:5000/x:1", "r.example:5000/x:1"),
        ] {
            assert_eq!(normalised(name).unwrap(), expected);
        }
        assert!(matches!(normalised("A B"), Err(Error::Name(_))));
    }

    #[test]
    fn written_lock_is_parsed_for_another_version() {
        let images = [
            Locked {
                feature: "a".into(),
                reference: "docker.io/x/y:1".into(),
                digest: Some(sha256(b"y")),
            },
            Locked {
                feature: CORE.into(),
                reference: "docker.io/own/x:v1.2.3".into(),
                digest: None,
            },
        ];
        let text = write_lock(&images, "1.2.3");
        assert!(
            text.contains("\ncore docker.io/own/x:v@VERSION@ built\na "),
            "{text}"
        );
        let [own, other] = &parse_lock(&text, "1.2.4").unwrap()[..] else {
            panic!("two images");
        };
        assert_eq!(own.reference, "docker.io/own/x:v1.2.4");
        assert_eq!(other, &images[0]);
    }

    #[test]
    fn built_images_have_the_names_of_the_build() {
        let text = "core docker.io/multusrs/multus:v@VERSION@ built\n";
        let settings = BuildSettings {
            version: "1.2.3".into(),
            images: "r.example/a/b-".parse().unwrap(),
        };
        let locked = parse_lock(text, &settings).unwrap();
        assert_eq!(locked[0].reference, "r.example/a/b-multus:v1.2.3");
        let pulled = format!("core docker.io/multusrs/multus:v1 {}\n", sha256(b"y"));
        let locked = parse_lock(&pulled, &settings).unwrap();
        assert_eq!(locked[0].reference, "docker.io/multusrs/multus:v1");
    }

    #[test]
    fn files_of_this_project_have_its_prefix() {
        let sets = Sets::parse(include_str!("../images.toml")).unwrap();
        assert!(sets.own.is_default());
        let locked = parse_lock(include_str!("../images.lock"), "1").unwrap();
        let built = locked.iter().filter(|image| image.digest.is_none());
        assert!(built.clone().count() > 0);
        assert!(built.clone().all(|image| sets.is_own(&image.reference)));
        let definition = include_bytes!("../../images/multus/image.json");
        let definition = crate::image::Definition::parse(definition).unwrap();
        assert!(sets.is_own(&definition.repository));
    }

    #[test]
    fn malformed_sets_and_locks_are_refused() {
        for (text, expected) in [
            ("core x", "images.lock:1: write feature"),
            ("core x y", "images.lock:1: write feature"),
            (
                "core x:1 built\ncore r.example/X:1 built",
                "images.lock:2: `r.example/X:1` is not the name of an image",
            ),
            (
                "a x built\nb x built",
                "images.lock:2: x is in this file twice",
            ),
        ] {
            let error = parse_lock(text, "1").unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let sets = Sets::parse(TOML).unwrap();
        assert!(sets.is_own("docker.io/own/x:1") && !sets.is_own("docker.io/owned/x:1"));
        let image = "[[image]]\nreference = \"x\"\nfeature = \"c\"\n";
        for (text, expected) in [
            (format!("{TOML}{image}"), "which is not one of images.toml"),
            (TOML.replace('1', "2"), "has schema 2"),
            (format!("more = 1\n{TOML}"), "is damaged"),
        ] {
            let error = Sets::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
