//! `THIRD-PARTY.txt`: the licences of everything that is linked into a program of a release, with their texts as the crates have them.
//! The same file goes into the release and the images, whatever architectures are built.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, ensure};

use super::{
    bom::licence_expression,
    graph::{CrateFacts, CrateId},
};

/// The notice that the licence requires with every copy of the programs.
const NOTICE: &str = include_str!("../../../NOTICE");
/// The texts of licences whose crates forgot their file, by SPDX identifier.
const TEMPLATES: [(&str, &str); 2] = [
    ("Apache-2.0", include_str!("../../../LICENSE")),
    ("MIT", include_str!("texts/MIT.txt")),
];
/// The place of the names in the text of a template.
const HOLDERS: &str = "@HOLDERS@";
/// The beginnings of the names of files with licences and notices, in lower case.
const NAMES: [&str; 6] = [
    "license",
    "licence",
    "copying",
    "copyright",
    "notice",
    "unlicense",
];
/// The endings of files that are code or data, whatever their name is.
const OTHER_FILES: [&str; 8] = [".rs", ".c", ".h", ".py", ".json", ".toml", ".html", ".spdx"];
/// Directories whose files are not built.
const OTHER_DIRECTORIES: [&str; 5] = ["tests", "test", "benches", "examples", "target"];
/// The largest file, and the deepest directory, that is read.
const MAX_FILE: u64 = 256 << 10;
const MAX_DEPTH: usize = 6;

/// One work with its licences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) title: String,
    pub(super) licence: String,
    pub(super) address: Option<String>,
    /// Name and content of each file.
    pub(super) texts: Vec<(String, String)>,
}

/// Returns the works of the toolchain that are in every program.
pub(super) fn toolchain_works(version: &str) -> anyhow::Result<Vec<Work>> {
    let text = |id: &str, holders: &str| {
        let text = template(id, holders);
        text.map(|text| (id.to_owned(), text))
            .with_context(|| format!("there is no text of {id}"))
    };
    let work = |title: &str, licence: &str, address: &str, texts| Work {
        title: title.to_owned(),
        licence: licence.to_owned(),
        address: Some(address.to_owned()),
        texts,
    };
    let verbatim = |name: &str, text: &str| vec![(name.to_owned(), text.to_owned())];
    Ok(vec![
        work(
            &format!("Rust {version}: the standard library and the crates in it"),
            "MIT OR Apache-2.0",
            "https://github.com/rust-lang/rust",
            vec![
                text("MIT", "The Rust Project Developers")?,
                text("Apache-2.0", "")?,
            ],
        ),
        work(
            &format!("Rust {version}: tables of Unicode in the standard library"),
            "Unicode-3.0",
            "https://www.unicode.org",
            verbatim("Unicode-3.0", include_str!("texts/Unicode-3.0.txt")),
        ),
        work(
            "musl, the C library",
            "MIT",
            "https://musl.libc.org",
            vec![text("MIT", "2005-2020 Rich Felker, et al.")?],
        ),
    ])
}

/// Returns the text of a licence with the names of its holders.
fn template(id: &str, holders: &str) -> Option<String> {
    let found = TEMPLATES.iter().find(|(known, _)| *known == id);
    found.map(|(_, text)| text.replace(HOLDERS, holders))
}

/// Reads a crate's licences from its sources.
pub(super) fn crate_work(id: &CrateId, facts: &CrateFacts) -> anyhow::Result<Work> {
    let CrateId { name, version } = id;
    let mut texts = Vec::new();
    collect(&facts.directory, "", MAX_DEPTH, &mut texts)
        .with_context(|| format!("cannot read the licences of {name} {version}"))?;
    if let Some(file) = &facts.licence_file {
        let file_name = file.to_string_lossy().into_owned();
        if !texts.iter().any(|(known, _)| *known == file_name) {
            let path = facts.directory.join(file);
            let text =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            texts.push((file_name, String::from_utf8_lossy(&text).into_owned()));
        }
    }
    texts.sort();
    let licence = facts.licence.as_deref().map(licence_expression);
    if texts.is_empty() {
        texts = without_files(licence.as_deref().unwrap_or_default(), &facts.authors);
    }
    ensure!(
        !texts.is_empty(),
        "the crate {name} {version} has no file with its licence {}, whose text is not known here: \
         add the text to xtask/src/sbom/notices.rs",
        licence.as_deref().unwrap_or("(none)")
    );
    Ok(Work {
        title: format!("{name} {version}"),
        licence: licence.unwrap_or_else(|| "see its text".to_owned()),
        address: facts.repository.clone(),
        texts,
    })
}

/// Returns the text of the first licence of an expression that is known, for a crate whose archive has none.
fn without_files(licence: &str, authors: &[String]) -> Vec<(String, String)> {
    let alternatives = licence.split(" OR ");
    let known = alternatives.filter_map(|id| {
        let text = template(id, &authors.join(", "))?;
        Some((id.to_owned(), text))
    });
    known.take(1).collect()
}

/// Adds the files with licences below a directory, with their paths in it.
fn collect(
    dir: &Path,
    prefix: &str,
    depth: usize,
    texts: &mut Vec<(String, String)>,
) -> anyhow::Result<()> {
    let context = || format!("cannot read {}", dir.display());
    for entry in fs::read_dir(dir).with_context(context)? {
        let entry = entry.with_context(context)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let (kind, path) = (entry.file_type()?, format!("{prefix}{name}"));
        if kind.is_dir() && depth > 0 && !OTHER_DIRECTORIES.contains(&name.as_str()) {
            collect(&entry.path(), &format!("{path}/"), depth - 1, texts)?;
        } else if kind.is_file() && is_licence(&name) && entry.metadata()?.len() <= MAX_FILE {
            let bytes = fs::read(entry.path())
                .with_context(|| format!("cannot read {}", entry.path().display()))?;
            texts.push((path, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(())
}

fn is_licence(name: &str) -> bool {
    let name = name.to_lowercase();
    NAMES.iter().any(|start| name.starts_with(start))
        && !OTHER_FILES.iter().any(|end| name.ends_with(end))
}

/// Returns the whole file: the works with the numbers of their texts, then each text once.
pub(super) fn write(works: &[Work]) -> String {
    let mut texts: Vec<(String, BTreeSet<&str>)> = Vec::new();
    let mut numbers = BTreeMap::new();
    let mut list = String::new();
    for work in works {
        let mut own = BTreeSet::new();
        for (name, text) in &work.texts {
            // The same text may have other line ends and widths elsewhere.
            let content = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let number = *numbers.entry(content).or_insert_with(|| {
                texts.push((tidy(text), BTreeSet::new()));
                texts.len()
            });
            texts[number - 1].1.insert(name);
            own.insert(number);
        }
        let own: Vec<_> = own.iter().map(ToString::to_string).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            list,
            "{}\n    {}, text {}",
            work.title,
            work.licence,
            own.join(", ")
        );
        if let Some(address) = &work.address {
            let _ = writeln!(list, "    {address}");
        }
    }
    let mut out = format!(
        "{NOTICE}\nEach work is followed by its licence and the numbers of its texts, which are at the end.\n\n{list}"
    );
    for (number, (text, names)) in texts.iter().enumerate() {
        let names: Vec<_> = names.iter().copied().collect();
        let line = "=".repeat(78);
        let _ = write!(
            out,
            "\n{line}\nText {}: {}\n{line}\n{text}\n",
            number + 1,
            names.join(", ")
        );
    }
    out
}

/// Returns a text without blanks at the ends of its lines, and without empty lines around it.
fn tidy(text: &str) -> String {
    let lines = text.trim_start_matches('\u{feff}').lines();
    let lines: Vec<_> = lines.map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(dir: &Path, licence: &str) -> CrateFacts {
        CrateFacts {
            licence: Some(licence.to_owned()),
            licence_file: None,
            authors: vec!["A B <a@b>".to_owned(), "C".to_owned()],
            repository: Some("https://x/y".to_owned()),
            checksum: Some("ab".to_owned()),
            directory: dir.to_owned(),
        }
    }

    fn id() -> CrateId {
        CrateId {
            name: "x".into(),
            version: "1.2.3".into(),
        }
    }

    #[test]
    fn licences_of_a_crate_are_found_wherever_they_are() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("LICENSE-MIT", "m"),
            ("COPYING.md", "c"),
            ("third_party/fiat/LICENSE", "f"),
            ("src/license.rs", "code"),
            ("tests/data/LICENSE", "of a test"),
            ("README.md", "r"),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let work = crate_work(&id(), &facts(dir.path(), "MIT/Apache-2.0")).unwrap();
        let names: Vec<_> = work.texts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["COPYING.md", "LICENSE-MIT", "third_party/fiat/LICENSE"]
        );
        assert_eq!(work.licence, "MIT OR Apache-2.0");
        let mut other = facts(dir.path(), "X");
        other.licence_file = Some("README.md".into());
        let work = crate_work(&id(), &other).unwrap();
        assert!(work.texts.contains(&("README.md".into(), "r".into())));
    }

    #[test]
    fn crate_without_a_file_gets_the_text_of_its_licence() {
        let dir = tempfile::tempdir().unwrap();
        let texts = |licence| crate_work(&id(), &facts(dir.path(), licence)).map(|work| work.texts);
        let mit = texts("MIT OR Apache-2.0").unwrap();
        assert_eq!(mit.len(), 1);
        assert!(mit[0].1.contains("Copyright (c) A B <a@b>, C\n"), "{mit:?}");
        let apache = texts("Apache-2.0").unwrap();
        assert!(apache[0].1.contains("Version 2.0, January 2004"));
        let error = texts("BUSL-1.1").unwrap_err().to_string();
        let expected = "the crate x 1.2.3 has no file with its licence BUSL-1.1";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn each_text_is_there_once() {
        let work = |title: &str, texts: &[(&str, &str)]| Work {
            title: title.into(),
            licence: "MIT".into(),
            address: None,
            texts: texts
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect(),
        };
        let works = [
            work(
                "a 1",
                &[("LICENSE", "one\r\n  two \n"), ("NOTICE", "three")],
            ),
            work("b 2", &[("LICENSE-MIT", "one two")]),
        ];
        let text = write(&works);
        assert_eq!(text.matches("one").count(), 1, "{text}");
        assert!(text.contains("a 1\n    MIT, text 1, 2\n"), "{text}");
        assert!(text.contains("b 2\n    MIT, text 1\n"), "{text}");
        assert!(text.contains("Text 1: LICENSE, LICENSE-MIT\n"), "{text}");
        assert!(text.contains("=\none\n  two\n"), "{text}");
    }

    #[test]
    fn toolchain_has_its_texts() {
        let works = toolchain_works("1.95.0").unwrap();
        let text = write(&works);
        for expected in [
            "Copyright (c) The Rust Project Developers\n",
            "Rich Felker",
            "UNICODE LICENSE V3",
        ] {
            assert!(text.contains(expected), "{expected}");
        }
    }
}
