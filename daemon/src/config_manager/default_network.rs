//! Chooses the configuration of the default network among the files of a directory, as a function over values.

use std::path::Path;

use serde_json::{Map, Value};

/// A usable configuration of the default network.
#[derive(Debug, Clone, PartialEq)]
pub struct DefaultNetwork {
    /// The file name.
    pub file: String,
    /// The content of the file.
    pub value: Map<String, Value>,
}

/// There is no usable configuration of a default network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefaultNetworkError {
    /// The configured file does not exist.
    #[error("multusMasterCNI names `{file}`, which is not in {dir}")]
    NoSuchFile {
        /// The configured file name.
        file: String,
        /// The directory.
        dir: String,
    },
    /// No file can be used.
    #[error(
        "no CNI configuration of a default network in {dir}{}: install a network plugin, or wait for the one that is installed",
        skipped(rejected)
    )]
    None {
        /// The directory.
        dir: String,
        /// The skipped files, each with the reason.
        rejected: Vec<String>,
    },
    /// The present file can no longer be used. Another file would give pods another network.
    #[error(
        "the default network's CNI configuration {dir}/{file} can no longer be used ({reason}): correct it, or remove it so that the next one is taken"
    )]
    Broken {
        /// The file name.
        file: String,
        /// The directory.
        dir: String,
        /// Why not.
        reason: String,
    },
}

fn skipped(list: &[String]) -> String {
    if list.is_empty() {
        String::new()
    } else {
        format!(" (skipped: {})", list.join("; "))
    }
}

/// The constraints on the choice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Constraints<'a> {
    /// The only file that may be chosen.
    pub wanted: Option<&'a str>,
    /// The file that was chosen so far. As long as it exists, no later file replaces it.
    pub present: Option<&'a str>,
}

/// Returns the first usable file in byte order. `names` are sorted, and `read` returns the content of a file.
pub fn choose(
    dir: &Path,
    names: &[String],
    known: Constraints<'_>,
    read: impl Fn(&str) -> Result<Vec<u8>, String>,
) -> Result<DefaultNetwork, DefaultNetworkError> {
    let mut rejected = Vec::new();
    let candidates = names.iter().filter(|name| match known.wanted {
        Some(wanted) => *name == wanted,
        None => is_candidate(name),
    });
    let dir = || dir.display().to_string();
    for name in candidates {
        match read(name).and_then(|bytes| usable(&bytes)) {
            Ok(value) => {
                return Ok(DefaultNetwork {
                    file: name.clone(),
                    value,
                });
            }
            Err(reason) if known.present == Some(name) => {
                return Err(DefaultNetworkError::Broken {
                    file: name.clone(),
                    dir: dir(),
                    reason,
                });
            }
            Err(reason) => rejected.push(format!("{name}: {reason}")),
        }
    }
    Err(match known.wanted {
        Some(file) if rejected.is_empty() => DefaultNetworkError::NoSuchFile {
            file: file.to_owned(),
            dir: dir(),
        },
        _ => DefaultNetworkError::None {
            dir: dir(),
            rejected,
        },
    })
}

fn is_candidate(name: &str) -> bool {
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    !name.starts_with("00-multus")
        && !name.starts_with('.')
        && matches!(extension, Some("conf" | "conflist"))
}

/// Parses a configuration. It has to be complete and must not call Multus.
fn usable(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let value: Map<String, Value> = serde_json::from_slice(bytes)
        .map_err(|error| format!("it is not a JSON object: {error}"))?;
    let kinds = plugin_types(&value);
    if kinds.is_empty() || kinds.contains(&"") {
        return Err("a plugin has no type".to_owned());
    }
    if kinds.into_iter().any(plan::is_multus) {
        return Err("it calls multus itself".to_owned());
    }
    Ok(value)
}

/// Returns the types of all plugins of a list or single configuration. A missing type is an empty text.
pub(super) fn plugin_types(config: &Map<String, Value>) -> Vec<&str> {
    match config.get("plugins") {
        Some(Value::Array(list)) => list.iter().map(|plugin| text(plugin.get("type"))).collect(),
        _ => vec![text(config.get("type"))],
    }
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLANNEL: &str = r#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"flannel"}]}"#;

    fn pick(files: &[(&str, &str)], known: Constraints<'_>) -> Result<String, String> {
        let names: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
        let read = |name: &str| {
            let (_, text) = files.iter().find(|(file, _)| *file == name).unwrap();
            Ok(text.as_bytes().to_vec())
        };
        choose(Path::new("/etc/cni/net.d"), &names, known, read)
            .map(|default_network| default_network.file)
            .map_err(|error| error.to_string())
    }

    fn wanted(name: &str) -> Constraints<'_> {
        Constraints {
            wanted: Some(name),
            ..Constraints::default()
        }
    }

    #[test]
    fn the_first_usable_file_by_name_is_chosen() {
        let files = [
            ("00-multus.conf", FLANNEL),
            ("05-old.conf", r#"{"type":"multus","name":"x"}"#),
            ("07-half.conflist", "{"),
            ("08-odd.conflist", r#"{"plugins":[{"type":"x"},1]}"#),
            ("10-flannel.conflist", FLANNEL),
            ("20-other.conflist", FLANNEL),
            ("99.json", FLANNEL),
        ];
        let first = pick(&files, Constraints::default());
        assert_eq!(first.unwrap(), "10-flannel.conflist");
        let error = pick(&files[..4], Constraints::default()).unwrap_err();
        for part in [
            "05-old.conf: it calls multus itself",
            "07-half.conflist: it is not a JSON object",
            "08-odd.conflist: a plugin has no type",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_configured_file_is_chosen_and_no_other() {
        let multus = r#"{"type":"multus-shim","name":"x"}"#;
        let files = [
            ("00-multus.conf", multus),
            ("05-a.conf", multus),
            ("10-b.conflist", FLANNEL),
            ("20-c.json", FLANNEL),
        ];
        assert_eq!(pick(&files, wanted("20-c.json")).unwrap(), "20-c.json");
        for own in ["00-multus.conf", "05-a.conf"] {
            let error = pick(&files, wanted(own)).unwrap_err();
            assert!(error.contains("it calls multus itself"), "{error}");
        }
        let error = pick(&files, wanted("30")).unwrap_err();
        assert!(error.contains("multusMasterCNI names `30`"), "{error}");
    }

    #[test]
    fn only_earlier_files_replace_the_present_one() {
        let present = Constraints {
            present: Some("05-cilium.conflist"),
            ..Constraints::default()
        };
        let check = |files: &[(&str, &str)], expected: &str| {
            assert_eq!(pick(files, present).unwrap(), expected);
        };
        let broken = [
            ("05-cilium.conflist", "{"),
            ("10-flannel.conflist", FLANNEL),
        ];
        let error = pick(&broken, present).unwrap_err();
        assert!(
            error.contains("/etc/cni/net.d/05-cilium.conflist can no longer be used"),
            "{error}"
        );
        check(&broken[1..], "10-flannel.conflist");
        check(
            &[("01-a.conf", r#"{"type":"a"}"#), broken[0], broken[1]],
            "01-a.conf",
        );
        check(
            &[("01-a.conf", ""), ("05-cilium.conflist", FLANNEL)],
            "05-cilium.conflist",
        );
    }
}
