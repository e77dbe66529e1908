//! Which file is the primary: a function over values.

use std::path::Path;

use serde_json::{Map, Value};

/// A primary configuration that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Primary {
    /// Its file name.
    pub file: String,
    /// Its content.
    pub value: Map<String, Value>,
}

/// There is no primary configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrimaryError {
    /// The file that was asked for is not there.
    #[error("multusMasterCNI names `{file}`, which is not in {dir}")]
    NoSuchFile {
        /// The name.
        file: String,
        /// The directory.
        dir: String,
    },
    /// There is nothing to be used.
    #[error(
        "no primary CNI configuration in {dir}{}: install a network plugin, or wait for the one that is installed",
        passed_over(rejected)
    )]
    None {
        /// The directory.
        dir: String,
        /// Files that were passed over, with the reason.
        rejected: Vec<String>,
    },
    /// The one that pods have had so far cannot be used now. Another would give them another network.
    #[error(
        "the primary CNI configuration {dir}/{file} cannot be used any more ({reason}): correct it, or remove it so that the next one is taken"
    )]
    Broken {
        /// Its name.
        file: String,
        /// The directory.
        dir: String,
        /// What is wrong with it.
        reason: String,
    },
}

fn passed_over(list: &[String]) -> String {
    if list.is_empty() {
        String::new()
    } else {
        format!(" (passed over: {})", list.join("; "))
    }
}

/// What is known before the directory is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// The only file that may be it.
    pub wanted: Option<&'a str>,
    /// The file that it was so far: as long as it is there, nothing after it takes its place.
    pub present: Option<&'a str>,
}

/// The first usable file by byte order; `names` are sorted, `read` gives a file's content.
pub fn choose(
    dir: &Path,
    names: &[String],
    known: Known<'_>,
    read: impl Fn(&str) -> Result<Vec<u8>, String>,
) -> Result<Primary, PrimaryError> {
    let mut rejected = Vec::new();
    let candidates = names.iter().filter(|name| match known.wanted {
        Some(wanted) => *name == wanted,
        None => is_candidate(name),
    });
    let place = || dir.display().to_string();
    for name in candidates {
        match read(name).and_then(|bytes| usable(&bytes)) {
            Ok(value) => {
                return Ok(Primary {
                    file: name.clone(),
                    value,
                });
            }
            Err(reason) if known.present == Some(name) => {
                return Err(PrimaryError::Broken {
                    file: name.clone(),
                    dir: place(),
                    reason,
                });
            }
            Err(reason) => rejected.push(format!("{name}: {reason}")),
        }
    }
    Err(match known.wanted {
        Some(file) if rejected.is_empty() => PrimaryError::NoSuchFile {
            file: file.to_owned(),
            dir: place(),
        },
        _ => PrimaryError::None {
            dir: place(),
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

/// A configuration that is complete and does not lead back to us.
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

/// The types of all plugins of a configuration, a list or a single one; empty where there is none.
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

    fn pick(files: &[(&str, &str)], known: Known<'_>) -> Result<String, String> {
        let names: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
        let read = |name: &str| {
            let (_, text) = files.iter().find(|(file, _)| *file == name).unwrap();
            Ok(text.as_bytes().to_vec())
        };
        choose(Path::new("/etc/cni/net.d"), &names, known, read)
            .map(|primary| primary.file)
            .map_err(|error| error.to_string())
    }

    fn wanted(name: &str) -> Known<'_> {
        Known {
            wanted: Some(name),
            ..Known::default()
        }
    }

    #[test]
    fn the_first_usable_file_by_name() {
        let files = [
            ("00-multus.conf", FLANNEL),
            ("05-old.conf", r#"{"type":"multus","name":"x"}"#),
            ("07-half.conflist", "{"),
            ("08-odd.conflist", r#"{"plugins":[{"type":"x"},1]}"#),
            ("10-flannel.conflist", FLANNEL),
            ("20-other.conflist", FLANNEL),
            ("99.json", FLANNEL),
        ];
        let first = pick(&files, Known::default());
        assert_eq!(first.unwrap(), "10-flannel.conflist");
        let error = pick(&files[..4], Known::default()).unwrap_err();
        for part in [
            "05-old.conf: it calls multus itself",
            "07-half.conflist: it is not a JSON object",
            "08-odd.conflist: a plugin has no type",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_file_that_is_asked_for_and_no_other() {
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
    fn the_present_one_gives_way_to_those_before_it_alone() {
        let present = Known {
            present: Some("05-cilium.conflist"),
            ..Known::default()
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
            error.contains("/etc/cni/net.d/05-cilium.conflist cannot be used any more"),
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
