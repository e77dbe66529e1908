//! The environment of plugins, mostly what they get in addition to the variables of the CNI specification.
//!
//! As with upstream, plugins get the environment of the daemon's container: proxies, and variables from the chart's values. They do not get
//! variables about the daemon itself, or secrets.

use std::{ffi::OsString, path::Path};

use api::plugins::PLUGIN_DIR;

/// The search path on a node whose runtime has no `PATH`.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The daemon's own variables.
const OWN: &[&str] = &[
    "POD_NAME",
    "POD_NAMESPACE",
    "POD_UID",
    "HOSTNAME",
    "HOME",
    "KUBECONFIG",
    "PATH",
];
const OWN_PREFIXES: &[&str] = &["MULTUS_", "CNI_"];
/// Parts of the names of variables with secrets.
const SECRETS: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "_KEY",
    "APIKEY",
];

/// Returns the variables of the CNI specification for the plugin at this path.
///
/// One of ours finds IPAM plugins in our own directory first: there they are functions of the program that runs, and everywhere else one
/// more program to start.
pub(super) fn call_environment(
    path: &Path,
    variables: &[(String, String)],
) -> Vec<(OsString, OsString)> {
    let is_ours = path.parent() == Some(Path::new(PLUGIN_DIR));
    let value_of = |name: &str, value: &str| match name {
        "CNI_PATH" if is_ours => format!("{PLUGIN_DIR}:{value}").into(),
        _ => value.into(),
    };
    variables
        .iter()
        .map(|(name, value)| (name.into(), value_of(name, value)))
        .collect()
}

/// Selects the variables of the daemon's environment that plugins get.
pub fn plugin_environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    variables
        .filter(|(name, _)| name.to_str().is_some_and(is_passed))
        .collect()
}

fn is_passed(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    !OWN.contains(&name)
        && !OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        && !SECRETS.iter().any(|part| upper.contains(part))
}

/// Returns the runtime's own `PATH`, since K3s and RKE2 ship programs of their own, followed by the usual directories.
pub(super) fn search_path(runtime: Option<&str>) -> String {
    let mut directories: Vec<&str> = Vec::new();
    let runtime = runtime.unwrap_or_default().split(':');
    // A relative path depends on the runtime's working directory.
    for directory in runtime
        .filter(|directory| directory.starts_with('/'))
        .chain(SEARCH_PATH.split(':'))
    {
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    directories.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_get_proxies_but_no_secrets_or_variables_of_the_daemon() {
        let names = [
            "HTTPS_PROXY",
            "no_proxy",
            "KUBERNETES_SERVICE_HOST",
            "EXTRA",
            "PATH",
            "HOME",
            "KUBECONFIG",
            "HOSTNAME",
            "POD_UID",
            "MULTUS_NODE_NAME",
            "CNI_ARGS",
            "K3S_TOKEN",
            "db_password",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_ACCESS_KEY_ID",
            "registry_api_key",
            "APIKEY",
        ];
        let variables = names.iter().map(|name| (name.into(), "x".into()));
        let passed: Vec<_> = plugin_environment(variables)
            .into_iter()
            .map(|one| one.0)
            .collect();
        assert_eq!(
            passed,
            [
                "HTTPS_PROXY",
                "no_proxy",
                "KUBERNETES_SERVICE_HOST",
                "EXTRA"
            ]
        );
    }

    #[test]
    fn plugins_of_ours_find_those_of_our_directory_first() {
        let given = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_PATH", "/opt/cni/bin:/var/lib/multus/bin"),
        ];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let path_of = |plugin: &str| {
            let variables = call_environment(Path::new(plugin), &given);
            assert_eq!(variables[0], ("CNI_COMMAND".into(), "ADD".into()));
            variables[1].1.to_str().unwrap().to_owned()
        };
        assert_eq!(path_of("/opt/cni/bin/macvlan"), given[1].1);
        assert_eq!(
            path_of("/var/lib/multus/bin/macvlan"),
            "/var/lib/multus/bin:/opt/cni/bin:/var/lib/multus/bin"
        );
    }

    #[test]
    fn directories_of_the_runtime_come_first() {
        assert_eq!(search_path(None), SEARCH_PATH);
        assert_eq!(search_path(Some("")), SEARCH_PATH);
        assert_eq!(
            search_path(Some("/data/bin:bin::/usr/bin:/data/bin/aux")),
            "/data/bin:/usr/bin:/data/bin/aux:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"
        );
    }
}
