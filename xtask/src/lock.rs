//! `*.lock`: files of others by address, version and digest, one to a line.

use std::{fs, path::Path};

use anyhow::{Context as _, bail, ensure};
use archive::digest::Digest;

/// A file to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its name in the folder of downloads: the last part of its address.
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) address: String,
    pub(crate) sha256: Digest,
}

/// Reads a lock file.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Item>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut items: Vec<Item> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let place = || format!("{}:{}", path.display(), index + 1);
        let item = item(line).with_context(place)?;
        if items.iter().any(|other| other.name == item.name) {
            bail!(
                "{}: {} stands here twice: remove a line",
                place(),
                item.name
            );
        }
        items.push(item);
    }
    Ok(items)
}

fn item(line: &str) -> anyhow::Result<Item> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [sha256, version, address] = words[..] else {
        bail!("{} words: write sha256, version and address", words.len());
    };
    let sha256 = Digest::from_hex(sha256)
        .map_err(|_| anyhow::anyhow!("`{sha256}` is no digest: write 64 hexadecimal digits"))?;
    let is_web = ["https://", "http://"]
        .iter()
        .any(|scheme| address.starts_with(scheme));
    ensure!(is_web, "`{address}` is no address: write https://…");
    let name = address.rsplit('/').next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    let is_name = !name.starts_with('.') && !name.is_empty() && name.bytes().all(is_plain);
    ensure!(is_name, "`{address}` ends in no file name");
    Ok(Item {
        name: name.to_owned(),
        version: version.to_owned(),
        address: address.to_owned(),
        sha256,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "f35ac1980f8b8e47b7c7ab1fdf00038f2be0567a85b4d803256ec53b0631fecd";

    #[test]
    fn a_line_is_read() {
        let item = item(&format!("{DIGEST} v1  https://a.example/b/c-v1.tgz")).unwrap();
        assert_eq!(
            (item.name.as_str(), item.version.as_str()),
            ("c-v1.tgz", "v1")
        );
        assert_eq!(item.sha256.hex(), DIGEST);
    }

    #[test]
    fn what_is_none_is_named() {
        for (line, expected) in [
            ("a b", "2 words: write sha256"),
            ("abc v1 https://a/b", "is no digest"),
            (&format!("{DIGEST} v1 ftp://a/b"), "is no address"),
            (&format!("{DIGEST} v1 https://a/"), "ends in no file name"),
            (&format!("{DIGEST} v1 https://a/.."), "ends in no file name"),
        ] {
            let error = item(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn a_name_stands_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = format!("{DIGEST} v1 https://a/b\n");
        fs::write(file.path(), format!("# text\n\n{line}")).unwrap();
        assert_eq!(read(file.path()).unwrap().len(), 1);
        fs::write(file.path(), line.repeat(2)).unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        assert!(error.contains(":2: b stands here twice"), "{error}");
    }
}
