//! The versions that plugins on the node support, read by running VERSION.

use std::path::PathBuf;

use cni::exec::Exec;
use cni::version::Version;
use plan::{PluginVersions, Plugins};
use serde::Deserialize;
use serde_json::json;

/// The plugins in the directories that a request searches.
pub(super) struct NodePlugins<'a> {
    pub(super) exec: &'a dyn Exec,
    pub(super) path: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct VersionOutput {
    #[serde(rename = "supportedVersions", default)]
    supported: Vec<String>,
}

impl Plugins for NodePlugins<'_> {
    fn versions(&self, plugin: &str) -> Option<Result<PluginVersions, String>> {
        let program = self.exec.find(plugin, &self.path).ok()?;
        let env = [("CNI_COMMAND".to_owned(), "VERSION".to_owned())];
        let stdin = json!({"cniVersion": Version::LATEST.to_string()}).to_string();
        let stdout = self.exec.run(&program, &env, stdin.as_bytes());
        Some(
            match stdout.map(|bytes| serde_json::from_slice::<VersionOutput>(&bytes)) {
                Ok(Ok(output)) => Ok(PluginVersions {
                    versions: output.supported,
                }),
                Ok(Err(error)) => Err(format!(
                    "plugin {plugin} answers VERSION with invalid output: {error}"
                )),
                Err(error) => Err(format!("plugin {plugin} does not answer VERSION: {error}")),
            },
        )
    }
}
