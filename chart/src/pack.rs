//! From the template tree to a `.tgz`: the same input gives the same bytes, wherever and whenever.

use archive::{gzip, tar};
use include_dir::{Dir, include_dir};

use crate::{Identity, describe, options, schema, values};

static MAIN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/template/main");
static CRD: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/template/crd");
/// Stands for the version in template files.
const VERSION_MARK: &str = "@VERSION@";

/// Which of an identity's two charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chart {
    /// The definition of `NetworkAttachmentDefinition`.
    Crd,
    /// Everything else.
    Main,
}

/// Both, in the order in which they are installed.
pub const CHARTS: [Chart; 2] = [Chart::Crd, Chart::Main];

/// The chart cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A leftover of an editor or of patch.
    #[error("chart/template/{0} is a leftover of an editor or of patch: remove it")]
    Leftover(String),
    /// A file that is not text.
    #[error("chart/template/{0} is not UTF-8 text: remove or convert it")]
    NotText(String),
    /// The version is none.
    #[error("`{version}` is no strict version (x.y.z): {reason}")]
    Version {
        /// What was given.
        version: String,
        /// Why not.
        reason: String,
    },
    /// The archive was refused.
    #[error(transparent)]
    Tar(#[from] tar::Error),
}

impl Chart {
    /// The chart's name under an identity.
    pub fn name(self, identity: Identity) -> String {
        match self {
            Self::Main => identity.name.to_owned(),
            Self::Crd => identity.crd_name(),
        }
    }

    /// The archive's file name.
    pub fn file_name(self, identity: Identity, version: &str) -> String {
        format!("{}-{version}.tgz", self.name(identity))
    }
}

/// The chart as `<name>-<version>.tgz`.
pub fn pack(chart: Chart, identity: Identity, version: &str) -> Result<Vec<u8>, PackError> {
    let name = chart.name(identity);
    let entries: Vec<tar::Entry> = files(chart, identity, version)?
        .into_iter()
        .map(|(path, bytes)| tar::Entry::file(format!("{name}/{path}"), 0o644, bytes))
        .collect();
    // Helm's own order: its description first, then sorted; no entries for directories.
    Ok(gzip::compress(&tar::write_in_order(&entries)?))
}

/// The chart's files by path below its folder: `Chart.yaml` first, the rest sorted.
pub fn files(
    chart: Chart,
    identity: Identity,
    version: &str,
) -> Result<Vec<(String, Vec<u8>)>, PackError> {
    let not_strict = |reason: String| PackError::Version {
        version: version.to_owned(),
        reason,
    };
    let parsed = semver::Version::parse(version).map_err(|error| not_strict(error.to_string()))?;
    if !parsed.build.is_empty() {
        return Err(not_strict("no image tag can have a `+`".to_owned()));
    }
    let mut files = Vec::new();
    let (folder, tree) = match chart {
        Chart::Main => ("main", &MAIN),
        Chart::Crd => ("crd", &CRD),
    };
    collect(folder, tree, version, &mut files)?;
    if chart == Chart::Main {
        for (name, text) in [
            ("values.yaml", values::values_yaml()),
            ("values.schema.json", schema::values_schema()),
            ("templates/_options.tpl", options::options_template()),
        ] {
            let text = text.replace(VERSION_MARK, version);
            files.push((name.to_owned(), text.into_bytes()));
        }
    }
    files.sort();
    files.insert(
        0,
        (
            "Chart.yaml".to_owned(),
            describe::chart_yaml(chart, identity, version, !parsed.pre.is_empty()).into_bytes(),
        ),
    );
    Ok(files)
}

fn collect(
    folder: &str,
    dir: &Dir<'_>,
    version: &str,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), PackError> {
    for file in dir.files() {
        let path = file.path().to_string_lossy().into_owned();
        if is_leftover(&path) {
            return Err(PackError::Leftover(format!("{folder}/{path}")));
        }
        let text = file
            .contents_utf8()
            .ok_or_else(|| PackError::NotText(format!("{folder}/{path}")))?;
        files.push((path, text.replace(VERSION_MARK, version).into_bytes()));
    }
    dir.dirs()
        .try_for_each(|dir| collect(folder, dir, version, files))
}

/// Whether a file was left by an editor or by patch and must never be shipped.
pub fn is_leftover(path: &str) -> bool {
    [".orig", ".rej", "~"]
        .iter()
        .any(|ending| path.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IDENTITIES;

    #[test]
    fn packing_twice_gives_the_same_bytes_and_they_read_back() {
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
    fn leftovers_are_refused_by_name_wherever_they_lie() {
        use include_dir::{DirEntry, File};

        fn refusal(entries: &[DirEntry<'_>]) -> Option<String> {
            let outcome = collect("main", &Dir::new("", entries), "5.0.0", &mut Vec::new());
            outcome.err().map(|error| error.to_string())
        }
        for name in ["templates/x.yaml.orig", "templates/a.rej", "templates/x~"] {
            let file = [DirEntry::File(File::new(name, b""))];
            let expected = format!(
                "chart/template/main/{name} is a leftover of an editor or of patch: remove it"
            );
            assert_eq!(refusal(&file), Some(expected.clone()));
            assert_eq!(
                refusal(&[DirEntry::Dir(Dir::new("templates", &file))]),
                Some(expected)
            );
        }
        let picture = [DirEntry::File(File::new("icon.png", &[0xff]))];
        assert!(refusal(&picture).unwrap().contains("main/icon.png is not"));
        let sound = [DirEntry::File(File::new("values.yaml", b"a: b"))];
        assert_eq!(refusal(&sound), None);
    }

    #[test]
    fn loose_versions_are_refused() {
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
    fn no_mark_is_left() {
        for (path, bytes) in files(Chart::Main, IDENTITIES[0], "5.1.2").unwrap() {
            assert!(
                !String::from_utf8(bytes).unwrap().contains(VERSION_MARK),
                "{path}"
            );
        }
    }
}
