//! Packs the template tree into a `.tgz`: the same input gives the same bytes on every machine and at any time.

use archive::{gzip, tar};
use include_dir::{Dir, include_dir};

use crate::{
    Chart, Identity, chart_yaml::chart_yaml, options, schema, settings::BuildSettings, values,
};

static MAIN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/template/main");
static CRD: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/template/crd");
/// The licence of the project, as every chart carries it.
const LICENCE: &str = include_str!("../../LICENSE");
/// Tells where the licences of the image are, which the chart names and does not hold.
const NOTICE: &str = "\
This chart is a part of multus-rs and licensed under Apache-2.0, see LICENSE. It bundles no other chart.
The image that it runs has the licences of everything in it below /usr/share/doc/multus. A release has the same texts as LICENSE and THIRD-PARTY.txt.
";

/// The reasons why the chart cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The template tree has a stray file.
    #[error("chart/template/{0} is a stray file of an editor or of patch: remove it")]
    StrayFile(String),
    /// A file is not text.
    #[error("chart/template/{0} is not UTF-8 text: remove or convert it")]
    NotText(String),
    /// The version is not a strict semantic version, or has build metadata.
    #[error("`{version}` is not a strict version (x.y.z): {reason}")]
    Version {
        /// The invalid version.
        version: String,
        /// The parser's error.
        reason: String,
    },
    /// The archive cannot be written.
    #[error(transparent)]
    Tar(#[from] tar::Error),
}

/// Packs the chart as `<name>-<version>.tgz`.
pub fn pack<'a>(
    chart: Chart,
    identity: Identity,
    settings: impl Into<BuildSettings<'a>>,
) -> Result<Vec<u8>, PackError> {
    let name = chart.name(identity);
    let entries: Vec<tar::Entry> = files(chart, identity, settings)?
        .into_iter()
        .map(|(path, bytes)| tar::Entry::file(format!("{name}/{path}"), 0o644, bytes))
        .collect();
    // Helm's own order: Chart.yaml first, then sorted; no entries for directories.
    Ok(gzip::compress(&tar::write_in_order(&entries)?))
}

/// Returns the chart's files by their path in the chart's directory: `Chart.yaml` first, the others sorted.
pub fn files<'a>(
    chart: Chart,
    identity: Identity,
    settings: impl Into<BuildSettings<'a>>,
) -> Result<Vec<(String, Vec<u8>)>, PackError> {
    let settings = settings.into();
    let version = &*settings.version;
    let not_strict = |reason: String| PackError::Version {
        version: version.to_owned(),
        reason,
    };
    let parsed = semver::Version::parse(version).map_err(|error| not_strict(error.to_string()))?;
    if !parsed.build.is_empty() {
        return Err(not_strict("an image tag cannot have a `+`".to_owned()));
    }
    let mut files = Vec::new();
    let (directory, tree) = match chart {
        Chart::Main => ("main", &MAIN),
        Chart::Crd => ("crd", &CRD),
    };
    collect(directory, tree, &settings, &mut files)?;
    if chart == Chart::Main {
        for (name, text) in [
            ("values.yaml", values::values_yaml(&settings)),
            ("values.schema.json", schema::values_schema(&settings)),
            ("templates/_options.tpl", options::options_template()),
        ] {
            files.push((name.to_owned(), settings.fill(&text).into_bytes()));
        }
    }
    for (name, text) in [("LICENSE", LICENCE), ("NOTICE", NOTICE)] {
        files.push((name.to_owned(), text.as_bytes().to_vec()));
    }
    files.sort();
    files.insert(
        0,
        (
            "Chart.yaml".to_owned(),
            chart_yaml(chart, identity, &settings, !parsed.pre.is_empty()).into_bytes(),
        ),
    );
    Ok(files)
}

fn collect(
    directory: &str,
    dir: &Dir<'_>,
    settings: &BuildSettings<'_>,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), PackError> {
    for file in dir.files() {
        let path = file.path().to_string_lossy().into_owned();
        if is_stray_file(&path) {
            return Err(PackError::StrayFile(format!("{directory}/{path}")));
        }
        let text = file
            .contents_utf8()
            .ok_or_else(|| PackError::NotText(format!("{directory}/{path}")))?;
        files.push((path, settings.fill(text).into_bytes()));
    }
    dir.dirs()
        .try_for_each(|dir| collect(directory, dir, settings, files))
}

/// Returns true for stray files of editors and of patch, which must never be shipped.
pub fn is_stray_file(path: &str) -> bool {
    [".orig", ".rej", "~"]
        .iter()
        .any(|ending| path.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CHARTS, IDENTITIES};

    #[test]
    fn packing_is_reproducible_and_reads_back() {
        for identity in IDENTITIES {
            for chart in CHARTS {
                let bytes = pack(chart, identity, "5.0.0").unwrap();
                assert_eq!(bytes, pack(chart, identity, "5.0.0").unwrap());
                let tar = gzip::decompress(&bytes, 1 << 20).unwrap();
                let entries = archive::read::entries(
                    &tar,
                    &archive::read::Limits {
                        entries: 100,
                        total: 1 << 20,
                        links: false,
                    },
                )
                .unwrap();
                assert_eq!(
                    entries[0].path,
                    format!("{}/Chart.yaml", chart.name(identity))
                );
                assert!(entries.len() > 2);
            }
        }
    }

    #[test]
    fn every_chart_has_its_licence_and_names_those_of_the_image() {
        for identity in IDENTITIES {
            for chart in CHARTS {
                let files = files(chart, identity, "5.0.0").unwrap();
                let text = |name: &str| {
                    let found = files.iter().find(|(path, _)| path == name);
                    String::from_utf8_lossy(&found.unwrap().1).into_owned()
                };
                assert!(text("LICENSE").contains("Apache License"));
                assert!(text("NOTICE").contains("/usr/share/doc/multus"));
            }
        }
    }

    /// A release has one image, so no value may bring another.
    #[test]
    fn every_container_runs_the_image_of_the_release() {
        let mut containers = 0;
        for chart in CHARTS {
            for (path, bytes) in files(chart, IDENTITIES[0], "5.0.0").unwrap() {
                let text = String::from_utf8_lossy(&bytes);
                let is_template = path.starts_with("templates/");
                for line in text.lines().filter(|_| is_template) {
                    let line = line.trim_start_matches([' ', '-']);
                    if line.starts_with("image:") {
                        assert_eq!(
                            line, "image: {{ include \"multus.image\" . | quote }}",
                            "{path}"
                        );
                        containers += 1;
                    }
                }
            }
        }
        assert!(containers > 2, "{containers}");
    }

    #[test]
    fn stray_files_are_refused_in_all_directories() {
        use include_dir::{DirEntry, File};

        fn refusal(entries: &[DirEntry<'_>]) -> Option<String> {
            let outcome = collect(
                "main",
                &Dir::new("", entries),
                &"5.0.0".into(),
                &mut Vec::new(),
            );
            outcome.err().map(|error| error.to_string())
        }
        for name in ["templates/x.yaml.orig", "templates/a.rej", "templates/x~"] {
            let file = [DirEntry::File(File::new(name, b""))];
            let expected = format!(
                "chart/template/main/{name} is a stray file of an editor or of patch: remove it"
            );
            assert_eq!(refusal(&file), Some(expected.clone()));
            assert_eq!(
                refusal(&[DirEntry::Dir(Dir::new("templates", &file))]),
                Some(expected)
            );
        }
        let binary = [DirEntry::File(File::new("icon.png", &[0xff]))];
        assert!(refusal(&binary).unwrap().contains("main/icon.png is not"));
        let valid = [DirEntry::File(File::new("values.yaml", b"a: b"))];
        assert_eq!(refusal(&valid), None);
    }

    #[test]
    fn versions_that_are_not_strict_are_refused() {
        for version in ["v5.0.0", "4.3.017", "5.0", "5.0.0+up4.3.0"] {
            assert!(
                pack(Chart::Main, IDENTITIES[0], version)
                    .unwrap_err()
                    .to_string()
                    .contains(version)
            );
        }
    }

    #[test]
    fn no_placeholder_remains() {
        for (path, bytes) in files(Chart::Main, IDENTITIES[0], "5.1.2").unwrap() {
            let text = String::from_utf8(bytes).unwrap();
            for placeholder in ["@VERSION@", "@IMAGE_"] {
                assert!(!text.contains(placeholder), "{path} has {placeholder}");
            }
        }
    }

    #[test]
    fn names_of_images_are_those_of_the_build() {
        let text_of = |images: &str, path: &str| {
            let settings = BuildSettings {
                version: "5.1.2".into(),
                images: images.parse().unwrap(),
            };
            let files = files(Chart::Main, IDENTITIES[0], &settings).unwrap();
            let (_, bytes) = files.into_iter().find(|(name, _)| name == path).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let values = text_of("rancher/hardened-", "values.yaml");
        for line in ["registry: ''", "repository: rancher/hardened-multus"] {
            let found = values.lines().any(|one| one.trim() == line);
            assert!(found, "no {line} in {values}");
        }
        let values = text_of("r.example:5000/a/", "values.yaml");
        assert!(values.contains("  registry: r.example:5000\n"), "{values}");
        for path in ["Chart.yaml", "README.md", "values.schema.json"] {
            let text = text_of("r.example:5000/a/", path);
            assert!(text.contains("a/multus"), "{path}");
            assert!(!text.contains("multusrs/multus"), "{path}");
        }
        let listed = "image: r.example:5000/a/multus:v5.1.2\n";
        assert!(text_of("r.example:5000/a/", "Chart.yaml").contains(listed));
    }
}
