//! A packed chart that anybody may have made, read as Helm reads it: gzip headers of any kind, `Chart.yaml` in any place,
//! apiVersion v1 and v2. Nothing is unpacked to a disk, everything is bounded, and what two readers could read in two ways is refused.

use archive::{
    gzip,
    read::{self, Limits},
    tar::{self, Entry, Kind},
};

use crate::{
    about::{About, Dependency},
    version::{ParseError, Version},
};

/// Helm's own limits.
const LIMITS: Limits = Limits {
    entries: 10_000,
    total: 100 << 20,
    links: false,
};
/// Helm's own limit for one file.
const MAX_FILE: usize = 5 << 20;
/// What tar adds around files, at most.
const MAX_TAR: u64 = LIMITS.total + (LIMITS.entries as u64 + 2) * 1024;
/// A chart's description of itself.
pub const CHART_YAML: &str = "Chart.yaml";
/// Where charts of apiVersion v1 name their subcharts.
pub const REQUIREMENTS: &str = "requirements.yaml";

/// A packed chart as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// What it says of itself.
    pub about: About,
    /// Its files in the archive's order; their paths are below the chart's folder.
    pub files: Vec<File>,
}

/// A file of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Below the chart's folder.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Why an archive is no chart.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be decompressed.
    #[error(transparent)]
    Gzip(#[from] gzip::Error),
    /// It is no tar archive that is safe to read.
    #[error(transparent)]
    Tar(#[from] read::Error),
    /// A file lies outside the chart's folder.
    #[error("`{0}` lies in no folder, or in another one than `{1}`: a chart has one folder")]
    Folder(String, String),
    /// A file is larger than Helm takes.
    #[error("`{0}` is larger than the {MAX_FILE} bytes that Helm takes")]
    Large(String),
    /// It does not describe itself.
    #[error("it has no {CHART_YAML}: this is no chart")]
    NoDescription,
    /// One of its own files does not parse.
    #[error("its {path} does not parse")]
    Parse {
        /// Which.
        path: &'static str,
        /// Why.
        #[source]
        source: serde_yaml::Error,
    },
    /// `Chart.yaml` lacks what every chart has.
    #[error("its {CHART_YAML} names no {0}")]
    Lacks(&'static str),
    /// The generation of `Chart.yaml`.
    #[error("its {CHART_YAML} is of apiVersion `{0}`: v1 and v2 are known")]
    Generation(String),
    /// Its version is none.
    #[error("its {CHART_YAML}: {0}")]
    Version(#[from] ParseError),
    /// The folder and the name differ.
    #[error("its folder is `{folder}`, its {CHART_YAML} says `{name}`")]
    Name {
        /// In the archive.
        folder: String,
        /// In the description.
        name: String,
    },
}

#[derive(serde::Deserialize)]
struct Requirements {
    #[serde(default)]
    dependencies: Option<Vec<Dependency>>,
}

impl Package {
    /// Reads a `.tgz`.
    pub fn read(tgz: &[u8]) -> Result<Self, Error> {
        let entries = read::entries(&gzip::decompress(tgz, MAX_TAR)?, &LIMITS)?;
        let mut folder = None;
        let mut files = Vec::new();
        for entry in entries {
            let Kind::File(bytes) = entry.kind else {
                continue;
            };
            let (top, path) = entry.path.split_once('/').unwrap_or(("", &entry.path));
            let folder = folder.get_or_insert_with(|| top.to_owned());
            if top.is_empty() || top != folder {
                return Err(Error::Folder(entry.path.clone(), folder.clone()));
            }
            if bytes.len() > MAX_FILE {
                return Err(Error::Large(entry.path.clone()));
            }
            files.push(File {
                path: path.to_owned(),
                mode: entry.mode,
                bytes,
            });
        }
        let package = Self::from_files(files)?;
        let folder = folder.unwrap_or_default();
        if folder != package.about.name {
            let name = package.about.name;
            return Err(Error::Name { folder, name });
        }
        Ok(package)
    }

    /// Takes the files of a chart.
    pub fn from_files(files: Vec<File>) -> Result<Self, Error> {
        let about = describe(&files)?;
        Ok(Self { about, files })
    }

    /// Packs the files again, in their order: the same value gives the same bytes, wherever and whenever.
    pub fn pack(&self) -> Result<Vec<u8>, tar::Error> {
        let entry = |file: &File| {
            let path = format!("{}/{}", self.about.name, file.path);
            Entry::file(path, file.mode, file.bytes.clone())
        };
        let entries: Vec<_> = self.files.iter().map(entry).collect();
        Ok(gzip::compress(&tar::write_in_order(&entries)?))
    }

    /// Its version, which Helm itself reads as leniently as that.
    pub fn version(&self) -> Result<Version, Error> {
        Ok(self.about.version.parse()?)
    }

    /// A file's content.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        find(&self.files, path)
    }
}

fn find<'a>(files: &'a [File], path: &str) -> Option<&'a [u8]> {
    let file = files.iter().find(|file| file.path == path)?;
    Some(&file.bytes)
}

/// What the chart says of itself; files below `charts/` are other charts' own.
pub(crate) fn describe(files: &[File]) -> Result<About, Error> {
    let bytes = find(files, CHART_YAML).ok_or(Error::NoDescription)?;
    let mut about = About::read(bytes).map_err(|source| Error::Parse {
        path: CHART_YAML,
        source,
    })?;
    for (value, name) in [(&about.name, "name"), (&about.version, "version")] {
        if value.is_empty() {
            return Err(Error::Lacks(name));
        }
    }
    match about.api_version.as_str() {
        "v2" => {}
        "v1" => {
            if let Some(bytes) = find(files, REQUIREMENTS) {
                let found: Requirements =
                    serde_yaml::from_slice(bytes).map_err(|source| Error::Parse {
                        path: REQUIREMENTS,
                        source,
                    })?;
                about.dependencies = found.dependencies.unwrap_or_default();
            }
        }
        other => return Err(Error::Generation(other.to_owned())),
    }
    Ok(about)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A chart of these files, packed by a writer that refuses nothing that the format allows.
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
    fn the_description_is_found_in_last_place() {
        let package = Package::read(&packed(&[
            ("a/values.yaml", "x: y\n"),
            ("a/charts/b/Chart.yaml", "name: b\n"),
            ("a/Chart.yaml", V2),
        ]));
        let package = package.unwrap();
        assert_eq!(package.about.version, "v4.3.017");
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
    fn older_charts_name_their_subcharts_elsewhere() {
        let requirements = "dependencies:\n- name: b\n  condition: b.enabled\n";
        let v1 = V2.replace("v2", "v1");
        let files = [
            ("a/Chart.yaml", v1.as_str()),
            ("a/requirements.yaml", requirements),
        ];
        let package = Package::read(&packed(&files)).unwrap();
        assert_eq!(package.about.dependencies[0].condition, "b.enabled");
        let files = [("a/Chart.yaml", V2), ("a/requirements.yaml", requirements)];
        let package = Package::read(&packed(&files)).unwrap();
        assert_eq!(package.about.dependencies, []);
    }

    #[test]
    fn what_is_no_chart_is_told() {
        check_refused(&[], "no Chart.yaml");
        check_refused(&[("a/values.yaml", "")], "no Chart.yaml");
        check_refused(&[("Chart.yaml", V2)], "`Chart.yaml` lies in no folder");
        check_refused(&[("a/Chart.yaml", V2), ("b/x", "")], "`b/x` lies in no");
        check_refused(&[("b/Chart.yaml", V2)], "folder is `b`");
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
    fn headers_of_any_kind_are_read() {
        let mut tgz = packed(&[("a/Chart.yaml", V2)]);
        let plain = Package::read(&tgz).unwrap();
        // An extra field and a comment, as Helm writes them.
        tgz[3] = 0x14;
        tgz.splice(10..10, *b"\x04\0extrHelm\0");
        assert_eq!(Package::read(&tgz).unwrap(), plain);
    }

    #[test]
    fn tricks_are_refused() {
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
