//! `*.lock`: third-party files by digest, version and address, one per line; further addresses on the line are mirrors.

use std::{fs, path::Path};

use anyhow::{Context as _, bail, ensure};
use archive::digest::Digest;
use cmdline::counted;
use registry::http::download::Address;

/// A file to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// The name in the directory of downloads: the last part of the first address.
    pub(crate) name: String,
    pub(crate) version: String,
    /// In the order in which they are tried; never empty.
    pub(crate) addresses: Vec<String>,
    pub(crate) sha256: Digest,
}

/// Reads lock files; a name means the same file in all of them.
pub(crate) fn read(paths: &[impl AsRef<Path>]) -> anyhow::Result<Vec<Item>> {
    let mut items: Vec<Item> = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        for item in parse(&path.display().to_string(), &text)? {
            match items.iter().find(|other| other.name == item.name) {
                None => items.push(item),
                Some(other) => ensure!(
                    other.sha256 == item.sha256,
                    "{}: {} is in another lock file with another sha256: give one of them another name",
                    path.display(),
                    item.name
                ),
            }
        }
    }
    Ok(items)
}

/// Parses the text of a lock file; `file` is its name in errors.
pub(crate) fn parse(file: &str, text: &str) -> anyhow::Result<Vec<Item>> {
    let mut items: Vec<Item> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let position = || format!("{file}:{}", index + 1);
        let item = item(line).with_context(position)?;
        if items.iter().any(|other| other.name == item.name) {
            bail!(
                "{}: {} is in this file twice: remove a line",
                position(),
                item.name
            );
        }
        items.push(item);
    }
    Ok(items)
}

fn item(line: &str) -> anyhow::Result<Item> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let [sha256, version, addresses @ ..] = &fields[..] else {
        bail!(
            "{}: write sha256, version and address",
            counted(fields.len(), "field")
        );
    };
    ensure!(
        !addresses.is_empty(),
        "{}: write sha256, version and address",
        counted(fields.len(), "field")
    );
    let sha256 = Digest::from_hex(sha256)
        .map_err(|_| anyhow::anyhow!("`{sha256}` is not a digest: write 64 hexadecimal digits"))?;
    for address in addresses {
        ensure!(
            is_address(address),
            "`{address}` is not an address: write https://…"
        );
    }
    let name = addresses[0].rsplit('/').next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    let is_name = !name.starts_with('.') && !name.is_empty() && name.bytes().all(is_plain);
    ensure!(is_name, "`{}` does not end in a file name", addresses[0]);
    Ok(Item {
        name: name.to_owned(),
        version: (*version).to_owned(),
        addresses: addresses.iter().map(|&one| one.to_owned()).collect(),
        sha256,
    })
}

/// Returns whether downloads may come from this address.
pub(crate) fn is_address(text: &str) -> bool {
    let schemes = ["https://", "http://"];
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(is_plain)
    }) && Address::parse(text).is_some()
}

/// Fuzz target of a lock file; `docs/contributing/testing.md` says how it runs.
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz {
    use super::parse;

    /// A name stays in the directory of downloads, and an address cannot be taken for an option.
    pub(crate) fn locks(input: &[u8]) -> bool {
        let text = String::from_utf8_lossy(input);
        let Ok(items) = parse("x.lock", &text) else {
            return false;
        };
        for item in &items {
            assert!(archive::tar::is_plain(&item.name) && !item.name.contains('/'));
            assert!(item.addresses.iter().all(|one| one.starts_with("http")));
            let same = items.iter().filter(|other| other.name == item.name);
            assert_eq!(same.count(), 1);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "f35ac1980f8b8e47b7c7ab1fdf00038f2be0567a85b4d803256ec53b0631fecd";

    #[test]
    fn line_is_parsed() {
        let item = item(&format!("{DIGEST} v1  https://a.example/b/c-v1.tgz")).unwrap();
        assert_eq!(
            (item.name.as_str(), item.version.as_str()),
            ("c-v1.tgz", "v1")
        );
        assert_eq!(item.sha256.hex(), DIGEST);
        assert_eq!(item.addresses, ["https://a.example/b/c-v1.tgz"]);
    }

    #[test]
    fn further_addresses_are_mirrors() {
        let item = item(&format!("{DIGEST} v1 https://a/b http://c/d/?e")).unwrap();
        assert_eq!(item.name, "b");
        assert_eq!(item.addresses, ["https://a/b", "http://c/d/?e"]);
    }

    #[test]
    fn malformed_lines_are_refused() {
        let (address, name) = ("is not an address", "does not end in a file name");
        for (line, expected) in [
            ("a b", "2 fields: write sha256"),
            ("a b c", "`a` is not a digest"),
            ("abc v1 https://a/b", "is not a digest"),
            (&format!("{DIGEST} v1"), "2 fields"),
            (&format!("{DIGEST} v1 https://"), address),
            (&format!("{DIGEST} v1 https:///b"), address),
            (&format!("{DIGEST} v1 https://a/b --output"), address),
            (&format!("{DIGEST} v1 ftp://a/b"), address),
            (&format!("{DIGEST} v1 https://a/"), name),
            (&format!("{DIGEST} v1 https://a/.."), name),
        ] {
            let error = item(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn name_means_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let line = format!("{DIGEST} v1 https://a/b\n");
        let one = write("one", &format!("# text\n\n{line}"));
        assert_eq!(read(&[&one]).unwrap().len(), 1);
        // Two files may lock the same.
        let same = write("same", &line);
        assert_eq!(read(&[&one, &same]).unwrap().len(), 1);
        let twice = write("twice", &line.repeat(2));
        let error = read(&[&twice]).unwrap_err().to_string();
        assert!(error.contains(":2: b is in this file twice"), "{error}");
        let other = write("other", &line.replace("f35", "f36"));
        let error = read(&[&one, &other]).unwrap_err().to_string();
        assert!(
            error.contains("other: b is in another lock file"),
            "{error}"
        );
    }

    #[test]
    fn fuzz_locks() {
        testkit::fuzz::corpus::run("xtask_locks", super::fuzz::locks);
    }
}
