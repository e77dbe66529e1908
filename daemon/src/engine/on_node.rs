//! Plugins of the node, asked what they speak.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cni::exec::Exec;
use cni::version::Version;
use serde::Deserialize;
use serde_json::json;

use crate::plan::{Plugins, Spoken};

/// Plugins where a request finds them.
pub(super) struct OnNode<'a> {
    pub(super) exec: &'a dyn Exec,
    pub(super) path: Vec<PathBuf>,
}

/// The answer to VERSION.
#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "supportedVersions", default)]
    supported: Vec<String>,
    #[serde(default)]
    capabilities: Capabilities,
}

/// Capabilities as configurations write them, or as a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Capabilities {
    Switches(BTreeMap<String, bool>),
    Names(Vec<String>),
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

impl Capabilities {
    /// Those that are switched on.
    fn on(self) -> Vec<String> {
        match self {
            Self::Names(names) => names,
            Self::Switches(switches) => {
                let on = switches.into_iter().filter(|(_, on)| *on);
                on.map(|(name, _)| name).collect()
            }
        }
    }
}

impl Plugins for OnNode<'_> {
    fn ask(&self, plugin: &str) -> Option<Result<Spoken, String>> {
        let program = self.exec.find(plugin, &self.path).ok()?;
        let env = [("CNI_COMMAND".to_owned(), "VERSION".to_owned())];
        let stdin = json!({"cniVersion": Version::LATEST.to_string()}).to_string();
        let said = self.exec.run(&program, &env, stdin.as_bytes());
        Some(
            match said.map(|bytes| serde_json::from_slice::<Answer>(&bytes)) {
                Ok(Ok(answer)) => Ok(Spoken {
                    versions: answer.supported,
                    capabilities: answer.capabilities.on(),
                }),
                Ok(Err(error)) => Err(format!(
                    "plugin {plugin} answers VERSION with what cannot be read: {error}"
                )),
                Err(error) => Err(format!("plugin {plugin} does not answer VERSION: {error}")),
            },
        )
    }
}
