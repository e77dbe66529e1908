//! Fuzz targets of the readers of untrusted input: chart archives, indexes, YAML that is edited line by line, versions.
//! `docs/contributing/testing.md` says how they run.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use archive::{digest::sha256, tar::is_plain};

use crate::{
    derive::{self, DeriveOptions},
    edit::Document,
    index::{
        check::{self, Repository},
        merge::{Listing, add},
        read::Index,
    },
    metadata::Metadata,
    oci,
    pack::is_stray_file,
    package::{File, Package},
    version::Version,
};

/// A packed chart, given as the tar archive in it.
pub fn archives(tar: &[u8]) -> bool {
    let Ok(package) = Package::from_tar(tar) else {
        return false;
    };
    assert!(package.files.iter().all(|file| is_plain(&file.path)));
    let descriptions = package
        .files
        .iter()
        .filter(|file| file.path == "Chart.yaml");
    assert_eq!(descriptions.count(), 1);
    // Names of 100 bytes and more can be read but not written.
    if let Ok(packed) = package.to_tar() {
        let again = Package::from_tar(&packed).expect("a chart is read as it is packed");
        assert_eq!(again, package);
    }
    if let Ok(artifact) = oci::artifact_of(package, b"archive", None) {
        assert!(!artifact.tag.contains(['+', '/']), "{}", artifact.tag);
        assert_eq!(artifact.blobs[1].1, b"archive");
    }
    true
}

/// A chart from which another one is derived: in the first line the subcharts to leave out, then its files, each a line with its path and
/// the content, ended by a zero byte.
pub fn derivations(input: &[u8]) -> bool {
    let line_of = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        let line = String::from_utf8_lossy(line).into_owned();
        (line, rest.get(1..).unwrap_or_default().to_vec())
    };
    let (drop, files) = line_of(input);
    let files = files.split(|byte| *byte == 0).map(line_of);
    let files = files.map(|(path, bytes)| File {
        path,
        mode: 0o644,
        bytes,
    });
    let Ok(package) = Package::from_files(files.collect()) else {
        return false;
    };
    let drop: Vec<_> = drop.split_whitespace().map(str::to_owned).collect();
    derived(&package, drop)
}

/// Derives a chart and asserts that all other files keep their bytes and their order.
fn derived(package: &Package, drop: Vec<String>) -> bool {
    let dropped = drop.len();
    let options = DeriveOptions {
        name: "b".to_owned(),
        version: "1.0.0".to_owned(),
        drop,
    };
    let Ok((after, _)) = derive::change(package.clone(), &options) else {
        return false;
    };
    let found = (&after.metadata.name[..], &after.metadata.version[..]);
    assert_eq!(found, ("b", "1.0.0"));
    assert!(!after.files.iter().any(|file| is_stray_file(&file.path)));
    let names = |package: &Package| package.metadata.dependencies.len();
    assert!(names(&after) + dropped >= names(package));
    let mut before = package.files.iter();
    for file in &after.files {
        let former = before
            .find(|former| former.path == file.path)
            .expect("files keep their order");
        let is_edited =
            ["Chart.yaml", "values.yaml", "requirements.yaml"].contains(&file.path.as_str());
        assert!(is_edited || former == file, "{} has changed", file.path);
    }
    true
}

/// The index of a repository, alone and with another chart merged into it.
pub fn indexes(input: &[u8]) -> bool {
    let listing = Listing {
        metadata: Metadata {
            name: "a".to_owned(),
            version: "4.2.0".to_owned(),
            ..Metadata::default()
        },
        digest: sha256(b""),
        url: "assets/a/a-4.2.0.tgz".to_owned(),
    };
    let listing = std::slice::from_ref(&listing);
    let text = String::from_utf8_lossy(input);
    let Ok(before) = Index::read(&text) else {
        return false;
    };
    let now = "2026-01-01T00:00:00Z";
    if let Ok((merged, after)) = add(text.into_owned(), before.clone(), listing, now, false) {
        assert_eq!(check::compare(&before, &after).len(), duplicates(&before));
        assert_eq!(
            after.entries().count(),
            before.entries().count() + merged.added.len()
        );
        let again = add(merged.text.clone(), after, listing, now, false);
        let (again, _) = again.expect("an index takes a chart that it has");
        assert_eq!((again.text, again.added.len()), (merged.text, 0));
    }
    let repository = Repository {
        name: "repo".to_owned(),
        index: before,
        assets: [].into(),
        directories: [].into(),
    };
    check::check(&repository);
    true
}

/// Returns the number of contradictions within an index, which a merge neither adds nor removes.
fn duplicates(index: &Index) -> usize {
    check::compare(index, index).len()
}

/// YAML whose keys are removed and set line by line.
pub fn edits(input: &[u8]) -> bool {
    let Ok(document) = Document::read(input) else {
        return false;
    };
    let bytes = document.clone().into_bytes();
    for key in ["a", "b", "d", "name", "entries", "dependencies"] {
        let changes: [&dyn Fn(&mut Document) -> bool; 3] = [
            &|one| one.remove(key).is_ok(),
            &|one| one.set(key, "new").is_ok(),
            &|one| one.remove_item(key, 1).is_ok(),
        ];
        for change in changes {
            let mut copy = document.clone();
            let is_changed = change(&mut copy);
            let content = copy.content().clone();
            let after = copy.into_bytes();
            assert!(is_changed || after == bytes, "refused, but changed");
            let again = Document::read(&after).expect("a changed document is read");
            assert_eq!(*again.content(), content);
        }
    }
    true
}

/// A version as the distros write it.
pub fn versions(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let Ok(version) = text.parse::<Version>() else {
        return false;
    };
    assert_eq!(version.to_string(), text);
    for known in ["v4.3.017", "5.0.0-rc.1", "1.2.3+a", "1.2.3"] {
        let other: Version = known.parse().expect("a version");
        assert_eq!(version.order(&other), other.order(&version).reverse());
        assert_eq!(version.is_same(&other), other.is_same(&version));
        assert_eq!(version.order(&other).is_eq(), text == known);
    }
    assert!(!text.contains(['/', ' ', '\n']) && !text.starts_with('.'));
    true
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::{Random, changed, corpus, run, tar::with_checksums};

    use super::*;

    #[test]
    fn archives_of_the_corpus() {
        corpus::run("chart_archives", |tar| archives(&with_checksums(tar)));
    }

    #[test]
    fn derivations() {
        corpus::run("chart_derivations", super::derivations);
    }

    #[test]
    fn indexes() {
        corpus::run("chart_indexes", super::indexes);
    }

    #[test]
    fn edits() {
        corpus::run("chart_edits", super::edits);
    }

    #[test]
    fn versions() {
        corpus::run("chart_versions", super::versions);
    }

    #[test]
    fn generated_archives() {
        run(
            |random| with_checksums(&archive(random)),
            |tar| {
                for drop in [&[][..], &["sub"], &["other", "two"]] {
                    if let Ok(package) = Package::from_tar(tar) {
                        derived(&package, drop.iter().map(|one| (*one).to_owned()).collect());
                    }
                }
                archives(tar)
            },
        );
    }

    const NAMES: &[&str] = &[
        "a/Chart.yaml",
        "a/values.yaml",
        "a/templates/x.yaml",
        "a/requirements.yaml",
        "a/Chart.lock",
        "a/charts/sub/Chart.yaml",
        "a/charts/sub-1.0.0.tgz",
        "a/charts/sub.tgz",
        "a/x.orig",
        "b/Chart.yaml",
        "Chart.yaml",
        "../x",
        "/x",
        "a/../x",
        "a//x",
        "a/./x",
        "a\\x",
        "a/",
        "a",
        "",
    ];
    const CHART_V2: &str = "apiVersion: v2\nname: a\nversion: v4.3.017\ndependencies:\n- name: sub\n  alias: other\n- name: two\n";
    const CHART_V1: &str = "apiVersion: v1\nname: a\nversion: 4.0.201+upv4.0.2\n";
    const TEXTS: [&str; 8] = [
        CHART_V2,
        CHART_V1,
        "dependencies:\n- name: sub\n",
        "sub:\n  enabled: false\n\nother: 1\n",
        "sub: {a: &x 1}\nother: *x\n",
        "- a\n",
        "a: [",
        "",
    ];
    /// Makes a tar archive, mostly with `Chart.yaml` first: without that file the reader stops early.
    fn archive(random: &mut Random) -> Vec<u8> {
        let mut out = Vec::new();
        if random.below(8) > 0 {
            let text = random.pick(&[CHART_V2, CHART_V1]);
            entry(&mut out, b"a/Chart.yaml", b'0', text.as_bytes(), text.len());
        }
        for _ in 0..random.below(5) {
            let name = random.pick(NAMES).as_bytes();
            let kind = *random.pick(&[
                &b'0', &b'0', &b'0', &b'0', &b'5', &b'2', &b'1', &b'S', &b'x', &b'L', &b'g', &b'\0',
            ]);
            let text = changed(
                &TEXTS.map(str::as_bytes),
                &["\n", " ", "#", ":", "- "],
                random,
            );
            let size = match random.below(12) {
                0 => random.below(1 << 30),
                _ => text.len(),
            };
            entry(&mut out, name, kind, &text, size);
        }
        out.resize(out.len() + 1024 * random.below(2), 0);
        let cut = if random.below(10) == 0 {
            random.below(out.len())
        } else {
            out.len()
        };
        out.truncate(cut);
        out
    }

    /// Appends an entry with a header of this kind and size, and no checksum.
    fn entry(out: &mut Vec<u8>, name: &[u8], kind: u8, bytes: &[u8], size: usize) {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name);
        header[100..107].copy_from_slice(b"0000644");
        header[108..115].copy_from_slice(b"0000000");
        header[116..123].copy_from_slice(b"0000000");
        header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        header[136..147].copy_from_slice(b"00000000000");
        header[156] = kind;
        header[257..265].copy_from_slice(b"ustar\x0000");
        out.extend_from_slice(&header);
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
}
