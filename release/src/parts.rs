//! The parts of a release: one row for each kind of file says what it is, for whom, and how it is used. The `README.md` of a release,
//! `explain`, the kinds in `release.json`, and the names on a forge all come from this table, which is `parts.txt`.

use std::{fmt::Write as _, sync::LazyLock};

use serde::Serialize;

use crate::{
    description::{self, Release},
    tree::Tree,
};

/// The file of a release that has the table.
pub const README: &str = "README.md";
/// The kind of files that have no row.
pub const OTHER: &str = "other";

/// A row: the files of one kind.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The path, with `<…>` for what varies in a name; everything below it where it ends with a slash.
    pub path: &'static str,
    /// The kind in `release.json`; empty for signatures, which it does not describe.
    pub kind: &'static str,
    /// The form of the name on a forge; empty for files that are only in the archive of everything.
    #[serde(skip)]
    flat: &'static str,
    /// What the files are.
    pub what: &'static str,
    /// Who uses them.
    #[serde(rename = "for")]
    pub audience: &'static str,
    /// How they are used, in the directory of the release.
    pub usage: &'static str,
}

/// All rows. Of several that fit, the first counts.
pub static PARTS: LazyLock<Vec<Part>> = LazyLock::new(|| {
    let lines = include_str!("parts.txt").lines();
    lines.filter_map(parse).collect()
});

/// Returns the row of a line, or `None` for a comment.
fn parse(line: &'static str) -> Option<Part> {
    let cells = line
        .split(" | ")
        .map(|cell| if cell == "-" { "" } else { cell });
    let cells: [_; 6] = cells.collect::<Vec<_>>().try_into().ok()?;
    let [path, kind, flat, what, audience, usage] = cells;
    (!path.starts_with('#')).then_some(Part {
        path,
        kind,
        flat,
        what,
        audience,
        usage,
    })
}

impl Part {
    /// Returns whether a file of a release has this path.
    fn is_of(&self, path: &str) -> bool {
        match self.path.strip_suffix('/') {
            Some(dir) => path
                .strip_prefix(dir)
                .is_some_and(|rest| rest.starts_with('/')),
            None => fits(self.path, path),
        }
    }

    /// Returns the last name of the path.
    fn name(&self) -> &'static str {
        let (_, name) = self.path.rsplit_once('/').unwrap_or(("", self.path));
        name
    }

    /// Returns whether a file outside of a release has this name, which must be one of ours: many files are called `index.yaml`.
    fn is_named(&self, name: &str) -> bool {
        let own = self.name();
        (own.contains("multus") || own.contains("cni-plugins")) && fits(own, name)
    }

    fn is_signature(&self) -> bool {
        self.kind.is_empty()
    }
}

/// Returns the row of a file of a release.
pub fn of(path: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.is_of(path))
}

/// Returns the row of a file by its name alone, unless several rows have this name.
pub fn named(name: &str) -> Option<&'static Part> {
    let part = PARTS.iter().find(|part| part.is_named(name))?;
    let same = PARTS.iter().filter(|other| other.name() == part.name());
    (same.count() == 1).then_some(part)
}

/// Returns whether the directory of a release may have an entry of this name.
pub fn is_top_level(name: &str) -> bool {
    let mut tops = PARTS.iter().map(|part| part.path.split('/').next());
    tops.any(|top| top.is_some_and(|top| fits(top, name)))
}

/// Returns the name that a file has on a forge, next to all others, or `None` when it is in the archive of everything alone.
pub fn flat_name(path: &str) -> Option<String> {
    let part = of(path).filter(|part| !part.flat.is_empty())?;
    let file = path.rsplit('/').next().unwrap_or(path);
    let rest = path.strip_prefix(part.path).unwrap_or_default();
    let name = part.flat.replace("<file>", file);
    let name = name.replace("<rest>", &rest.replace('/', "-"));
    let words = part.path.split('/').zip(path.split('/'));
    let whole = words.filter(|(form, _)| form.starts_with('<') && form.ends_with('>'));
    Some(whole.fold(name, |name, (form, word)| name.replace(form, word)))
}

/// Returns the kind of a file of a release.
pub fn kind(path: &str) -> &'static str {
    of(path).map_or(OTHER, |part| part.kind)
}

/// Returns whether a text has the form of a pattern, in which `<…>` stands for at least one character of a name.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((literal, rest)) = pattern.split_once('<') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(literal) else {
        return false;
    };
    let rest = rest.split_once('>').map_or("", |(_, rest)| rest);
    let name = text.split('/').next().unwrap_or_default();
    let ends = name.char_indices().map(|(at, char)| at + char.len_utf8());
    ends.into_iter().any(|end| fits(rest, &text[end..]))
}

/// Returns the text of a release's [`README`]: the rows of the files that the release has, and those of its signatures.
pub fn readme(release: &Release, tree: &Tree) -> String {
    let described = [README, description::FILE, description::SUMS];
    let has = |part: &Part| {
        let mut paths = tree.0.keys().map(String::as_str).chain(described);
        paths.any(|path| of(path).is_some_and(|found| found.path == part.path))
    };
    let mut text = format!(
        "# multus-rs {}\n\n\
         This release is of commit {} and for {}.\n\
         `multus-airgap verify .` checks all of it, and `sha256sum --check SHA256SUMS` its files.\n\
         The pages are at <{}>.\n\n",
        release.version,
        release.commit,
        release.architectures.join(", "),
        env!("CARGO_PKG_REPOSITORY"),
    );
    let mut table = |title: &str, parts: &mut dyn Iterator<Item = &'static Part>| {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{title}| file | what it is | for | how it is used |\n|---|---|---|---|"
        );
        for part in parts {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                part.path, part.what, part.audience, part.usage
            );
        }
    };
    table(
        "",
        &mut PARTS
            .iter()
            .filter(|part| !part.is_signature() && has(part)),
    );
    table(
        "\nA signed release also has:\n\n",
        &mut PARTS.iter().filter(|part| part.is_signature()),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_stand_for_parts_of_one_name() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(of(path).map(|part| part.path), expected, "{path}");
        };
        let archive = "airgap/multus-airgap-images-<arch>.tar";
        check("airgap/multus-airgap-images-arm64.tar", Some(archive));
        check(
            "airgap/multus-airgap-arm64",
            Some("airgap/multus-airgap-<arch>"),
        );
        let chart = "charts/assets/<name>/<name>-<version>.tgz";
        check("charts/assets/k3s-multus/k3s-multus-5.0.0.tgz", Some(chart));
        check("oci/blobs/sha256/ab", Some("oci/"));
        check("sbom/vex.cdx.json", Some("sbom/vex.cdx.json"));
        check("sbom/arm/multus-shim.cdx.json", Some("sbom/"));
        for path in [
            "oci",
            "ocix/a",
            "bin/arm/x/multus-shim",
            "bin//multus-shim",
            "notes",
        ] {
            check(path, None);
        }
    }

    #[test]
    fn names_of_ours_are_known_outside_of_a_release() {
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(named(name).map(|part| part.kind), expected, "{name}");
        };
        check("cni-plugins-linux-arm64-v5.0.0.tgz", Some("plugin-archive"));
        check(
            "kubectl-multus-v5.0.0-linux-arm64.tar.gz",
            Some("kubectl-archive"),
        );
        check("multus-airgap-images-arm64.tar", Some("image-archive"));
        check("multus-airgap-arm64", Some("program"));
        for name in ["index.yaml", "README.md", "multus.yaml", "any-1.0.0.tgz"] {
            check(name, None);
        }
    }

    #[test]
    fn every_signature_has_a_row_and_no_other_file_has_it() {
        let hex = "0".repeat(64);
        for path in [
            "SHA256SUMS.sig",
            "SHA256SUMS.sigstore.json",
            "airgap/sha256sum-arm64.txt.sig",
            "charts/assets/k3s-multus/k3s-multus-5.0.0.tgz.prov",
            "charts/keyring.gpg",
            &format!("provenance/{hex}.sigstore.json"),
            &format!("signatures/{hex}.json.sig"),
        ] {
            assert!(crate::signatures::is_signature(path), "{path}");
            assert!(of(path).is_some_and(Part::is_signature), "{path}");
        }
        assert!(!of("airgap/sha256sum-arm64.txt").unwrap().is_signature());
    }

    #[test]
    fn rows_are_cells_of_a_table() {
        let lines = include_str!("parts.txt").lines();
        let rows = lines.filter(|line| !line.starts_with('#')).count();
        assert_eq!(PARTS.len(), rows, "a row has too few or too many cells");
        for part in PARTS.iter() {
            for cell in [part.path, part.what, part.audience, part.usage] {
                let is_cell = !cell.is_empty() && !cell.contains(['|', '\n']);
                assert!(is_cell && cell.matches('`').count() % 2 == 0, "{cell}");
            }
        }
    }
}
