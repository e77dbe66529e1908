//! Plugins of the node, asked what they speak.

use std::path::PathBuf;

use cni::exec::Exec;
use cni::version::Version;
use plan::{Plugins, Spoken};
use serde::Deserialize;
use serde_json::json;

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
                }),
                Ok(Err(error)) => Err(format!(
                    "plugin {plugin} answers VERSION with what cannot be read: {error}"
                )),
                Err(error) => Err(format!("plugin {plugin} does not answer VERSION: {error}")),
            },
        )
    }
}
