//! A configuration that someone made by hand: installed as it is, but only when the runtime can use it.

use std::path::Path;

use cni::config::NetworkConfig;

use crate::plan;

/// What is to be installed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadyMade {
    /// Its file name.
    pub name: String,
    /// Its content, as it was given.
    pub bytes: Vec<u8>,
    /// Whether it sends pods to multus.
    pub calls_multus: bool,
}

/// Checks what runtimes check when they load a file of that name: one that they pass over would leave the node without a network.
pub(super) fn check(path: &Path, bytes: Vec<u8>) -> Result<ReadyMade, String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("it has no file name")?.to_owned();
    let config = NetworkConfig::parse(&bytes).map_err(|error| error.to_string())?;
    match Path::new(&name).extension().and_then(|end| end.to_str()) {
        Some("conflist") if !config.is_list => {
            return Err(
                "it is a single configuration: give it a name that ends in .conf".to_owned(),
            );
        }
        Some("conf") if config.is_list => {
            return Err(
                "it is a list of plugins: give it a name that ends in .conflist".to_owned(),
            );
        }
        Some("conf" | "conflist") => {}
        _ => {
            return Err(
                "runtimes pass over files whose name does not end in .conf or .conflist: rename it"
                    .to_owned(),
            );
        }
    }
    let kinds = config.plugins.iter().map(|plugin| plugin.kind.as_str());
    let calls_multus = kinds.into_iter().any(plan::is_multus);
    Ok(ReadyMade {
        name,
        bytes,
        calls_multus,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINGLE: &str = r#"{"name":"n","type":"multus-shim","clusterNetwork":"/x"}"#;
    const LIST: &str = r#"{"name":"n","plugins":[{"type":"bridge"}]}"#;

    #[test]
    fn what_runtimes_load_is_kept_as_it_is() {
        for (name, text, calls_multus) in [("5-a.conf", SINGLE, true), ("a.conflist", LIST, false)]
        {
            let made = check(&Path::new("/mnt").join(name), text.into()).unwrap();
            assert_eq!(
                (made.name.as_str(), made.calls_multus),
                (name, calls_multus)
            );
            assert_eq!(made.bytes, text.as_bytes());
        }
    }

    #[test]
    fn what_they_would_pass_over_is_refused() {
        for (name, text, expected) in [
            ("a.conf", "", "EOF"),
            ("a.conf", "{}", "name"),
            ("a.conf", r#"{"name":"n"}"#, "type"),
            ("a.conf", r#"{"type":"multus-shim"}"#, "name"),
            ("a.conflist", r#"{"name":"n","plugins":[]}"#, "plugins"),
            ("a.conf", LIST, "ends in .conflist"),
            ("a.conflist", SINGLE, "ends in .conf"),
            ("a.txt", SINGLE, "does not end in .conf or .conflist"),
        ] {
            let error = check(Path::new(name), text.into()).unwrap_err();
            assert!(error.contains(expected), "{name} {text}: {error}");
        }
    }
}
