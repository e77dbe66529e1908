//! Reads a packed chart, which is untrusted input, as Helm reads it: gzip headers of any kind, `Chart.yaml` at any place in the archive,
//! apiVersion v1 and v2. Nothing is unpacked to a disk, everything is bounded, and input that two readers could understand differently is refused.

use archive::{
    gzip,
    read::{self, Limits},
    tar::{self, Entry, Kind},
};

use crate::{
    metadata::{Dependency, Metadata},
    version::{ParseError, Version},
};

/// Helm's limits of an archive.
const LIMITS: Limits = Limits {
    entries: 10_000,
    total: 100 << 20,
    links: false,
};
/// Helm's limit for one file.
const MAX_FILE: usize = 5 << 20;
/// The largest tar archive: the files, and for each entry a header and padding.
const MAX_TAR: u64 = LIMITS.total + (LIMITS.entries as u64 + 2) * 1024;
/// The file with a chart's metadata.
pub const CHART_YAML: &str = "Chart.yaml";
/// The file in which charts of apiVersion v1 name their subcharts.
pub const REQUIREMENTS: &str = "requirements.yaml";

/// A packed chart as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// The chart's metadata.
    pub metadata: Metadata,
    /// The files in the archive's order.
    pub files: Vec<File>,
}

/// A file of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The path in the chart's directory.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The reasons why an archive is not a chart.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive cannot be decompressed.
    #[error(transparent)]
    Gzip(#[from] gzip::Error),
    /// It is not a tar archive that is safe to read.
    #[error(transparent)]
    Tar(#[from] read::Error),
    /// A file is outside of the chart's directory.
    #[error("`{0}` is in no directory, or in another one than `{1}`: a chart has one directory")]
    Directory(String, String),
    /// A file is larger than Helm accepts.
    #[error("`{0}` is larger than the {MAX_FILE} bytes that Helm accepts")]
    TooLarge(String),
    /// There is no `Chart.yaml`.
    #[error("it has no {CHART_YAML}: this is not a chart")]
    NoMetadata,
    /// `Chart.yaml` or `requirements.yaml` does not parse.
    #[error("its {path} does not parse")]
    Parse {
        /// The file's path.
        path: &'static str,
        /// The parser's error.
        #[source]
        source: serde_yaml::Error,
    },
    /// `Chart.yaml` lacks a field that every chart has.
    #[error("its {CHART_YAML} has no {0}")]
    MissingField(&'static str),
    /// The `apiVersion` of `Chart.yaml` is unknown.
    #[error("its {CHART_YAML} has apiVersion `{0}`: only v1 and v2 are supported")]
    ApiVersion(String),
    /// The version is invalid.
    #[error("its {CHART_YAML}: {0}")]
    Version(#[from] ParseError),
    /// The directory does not have the chart's name.
    #[error("its directory is `{directory}`, but its {CHART_YAML} has the name `{name}`")]
    Name {
        /// The directory in the archive.
        directory: String,
        /// The name in `Chart.yaml`.
        name: String,
    },
}

#[derive(serde::Deserialize)]
struct Requirements {
    #[serde(default)]
    dependencies: Option<Vec<Dependency>>,
}

impl Package {
    pub fn read(tgz: &[u8]) -> Result<Self, Error> {
        Self::from_tar(&gzip::decompress(tgz, MAX_TAR)?)
    }

    /// Reads the tar archive in a `.tgz`.
    pub(crate) fn from_tar(tar: &[u8]) -> Result<Self, Error> {
        let entries = read::entries(tar, &LIMITS)?;
        let mut directory = None;
        let mut files = Vec::new();
        for entry in entries {
            let Kind::File(bytes) = entry.kind else {
                continue;
            };
            let (top, path) = entry.path.split_once('/').unwrap_or(("", &entry.path));
            let directory = directory.get_or_insert_with(|| top.to_owned());
            if top.is_empty() || top != directory {
                return Err(Error::Directory(entry.path.clone(), directory.clone()));
            }
            if bytes.len() > MAX_FILE {
                return Err(Error::TooLarge(entry.path.clone()));
            }
            files.push(File {
                path: path.to_owned(),
                mode: entry.mode,
                bytes,
            });
        }
        let package = Self::from_files(files)?;
        let directory = directory.unwrap_or_default();
        if directory != package.metadata.name {
            let name = package.metadata.name;
            return Err(Error::Name { directory, name });
        }
        Ok(package)
    }

    /// Makes a package from the files of a chart.
    pub fn from_files(files: Vec<File>) -> Result<Self, Error> {
        let metadata = read_metadata(&files)?;
        Ok(Self { metadata, files })
    }

    /// Packs the files in their order: the same package gives the same bytes on every machine and at any time.
    pub fn pack(&self) -> Result<Vec<u8>, tar::Error> {
        Ok(gzip::compress(&self.to_tar()?))
    }

    /// Returns the tar archive that [`Self::pack`] compresses.
    pub(crate) fn to_tar(&self) -> Result<Vec<u8>, tar::Error> {
        let entry = |file: &File| {
            let path = format!("{}/{}", self.metadata.name, file.path);
            Entry::file(path, file.mode, file.bytes.clone())
        };
        let entries: Vec<_> = self.files.iter().map(entry).collect();
        tar::write_in_order(&entries)
    }

    /// Parses the version as leniently as Helm does.
    pub fn version(&self) -> Result<Version, Error> {
        Ok(self.metadata.version.parse()?)
    }

    /// Returns a file's content.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        find(&self.files, path)
    }
}

fn find<'a>(files: &'a [File], path: &str) -> Option<&'a [u8]> {
    let file = files.iter().find(|file| file.path == path)?;
    Some(&file.bytes)
}

/// Reads the chart's metadata; `Chart.yaml` below `charts/` belongs to subcharts.
pub(crate) fn read_metadata(files: &[File]) -> Result<Metadata, Error> {
    let bytes = find(files, CHART_YAML).ok_or(Error::NoMetadata)?;
    let mut metadata = Metadata::read(bytes).map_err(|source| Error::Parse {
        path: CHART_YAML,
        source,
    })?;
    for (value, name) in [(&metadata.name, "name"), (&metadata.version, "version")] {
        if value.is_empty() {
            return Err(Error::MissingField(name));
        }
    }
    match metadata.api_version.as_str() {
        "v2" => {}
        "v1" => {
            if let Some(bytes) = find(files, REQUIREMENTS) {
                let found: Requirements =
                    serde_yaml::from_slice(bytes).map_err(|source| Error::Parse {
                        path: REQUIREMENTS,
                        source,
                    })?;
                metadata.dependencies = found.dependencies.unwrap_or_default();
            }
        }
        other => return Err(Error::ApiVersion(other.to_owned())),
    }
    Ok(metadata)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Packs these files without validating them as a chart.
    pub(crate) fn packed(files: &[(&str, &str)]) -> Vec<u8> {
        let entry = |&(path, text): &(&str, &str)| Entry::file(path, 0o644, text);
        let entries: Vec<_> = files.iter().map(entry).collect();
        gzip::compress(&tar::write_in_order(&entries).unwrap())
    }

    const V2: &str = "apiVersion: v2\nname: a\nversion: v4.3.017\n";

    fn check_refused(files: &[(&str, &str)], expected: &str) {
        let error = Package::read(&packed(files)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn chart_yaml_may_be_the_last_file() {
        let package = Package::read(&packed(&[
            ("a/values.yaml", "x: y\n"),
            ("a/charts/b/Chart.yaml", "name: b\n"),
            ("a/Chart.yaml", V2),
        ]));
        let package = package.unwrap();
        assert_eq!(package.metadata.version, "v4.3.017");
        assert_eq!(package.get("values.yaml"), Some(&b"x: y\n"[..]));
        let paths: Vec<_> = package
            .files
            .iter()
            .map(|file| file.path.as_str())
            .collect();
        assert_eq!(paths, ["values.yaml", "charts/b/Chart.yaml", "Chart.yaml"]);
        assert_eq!(Package::read(&package.pack().unwrap()).unwrap(), package);
    }

    #[test]
    fn requirements_are_read_for_api_version_v1_only() {
        let requirements = "dependencies:\n- name: b\n  condition: b.enabled\n";
        let v1 = V2.replace("v2", "v1");
        let files = [
            ("a/Chart.yaml", v1.as_str()),
            ("a/requirements.yaml", requirements),
        ];
        let package = Package::read(&packed(&files)).unwrap();
        assert_eq!(package.metadata.dependencies[0].condition, "b.enabled");
        let files = [("a/Chart.yaml", V2), ("a/requirements.yaml", requirements)];
        let package = Package::read(&packed(&files)).unwrap();
        assert_eq!(package.metadata.dependencies, []);
    }

    #[test]
    fn archives_that_are_not_charts_are_refused() {
        check_refused(&[], "no Chart.yaml");
        check_refused(&[("a/values.yaml", "")], "no Chart.yaml");
        check_refused(&[("Chart.yaml", V2)], "`Chart.yaml` is in no directory");
        check_refused(&[("a/Chart.yaml", V2), ("b/x", "")], "`b/x` is in no");
        check_refused(&[("b/Chart.yaml", V2)], "directory is `b`");
        check_refused(&[("a/Chart.yaml", "name: [")], "does not parse");
        check_refused(
            &[("a/Chart.yaml", "apiVersion: v2\nname: a\n")],
            "no version",
        );
        check_refused(&[("a/Chart.yaml", &V2.replace("v2", "v3"))], "`v3`");
        let large = "x".repeat(MAX_FILE + 1);
        check_refused(&[("a/Chart.yaml", V2), ("a/x", &large)], "`a/x` is larger");
    }

    #[test]
    fn gzip_headers_of_any_kind_are_read() {
        let mut tgz = packed(&[("a/Chart.yaml", V2)]);
        let plain = Package::read(&tgz).unwrap();
        // An extra field and a comment, as Helm writes them.
        tgz[3] = 0x14;
        tgz.splice(10..10, *b"\x04\0extrHelm\0");
        assert_eq!(Package::read(&tgz).unwrap(), plain);
    }

    #[test]
    fn malicious_archives_are_refused() {
        let tar = |entry: Entry| tar::write_in_order(&[entry]).unwrap();
        let mut two = tar(Entry::file("a/Chart.yaml", 0o644, V2));
        two.truncate(two.len() - 1024);
        let again = tar(Entry::file("a/Chart.yaml", 0o644, "name: b\n"));
        let link = tar(Entry::link("a/values.yaml", "/etc/passwd"));
        let mut up = again.clone();
        up[..12].copy_from_slice(b"a/../../x.ya");
        // Only the name changes, and the checksum with it.
        let sum: u32 = (0..512)
            .map(|at| {
                if (148..156).contains(&at) {
                    32
                } else {
                    u32::from(up[at])
                }
            })
            .sum();
        up[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        for (second, expected) in [
            (again, "entry `a/Chart.yaml` occurs twice"),
            (
                link,
                "entry `a/values.yaml` is neither a file nor a directory",
            ),
            (up, "entry `a/../../x.ya` would leave the directory"),
        ] {
            let tgz = gzip::compress(&[two.clone(), second].concat());
            let error = Package::read(&tgz).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
