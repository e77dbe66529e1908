//! The identity that certificates are asked for with, and where the API server is. Read anew each time, since both may change.

use std::path::{Path, PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use node::root::{Root, RootError};

/// A kubeconfig and what it names have far less.
const MAX_SIZE: u64 = 1 << 20;

/// There is nothing to ask with.
#[derive(Debug, thiserror::Error)]
pub(super) enum BootstrapError {
    /// The kubeconfig, or a file that it names.
    #[error("bootstrapKubeconfig: {0}")]
    File(#[from] RootError),
    /// The kubeconfig itself.
    #[error("bootstrapKubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// No kubeconfig was named, and this is no pod.
    #[error(
        "there is no service account to ask for a certificate with, name a kubeconfig in bootstrapKubeconfig"
    )]
    NoAccount(#[from] InferConfigError),
}

/// Reads the kubeconfig on the node; without one it is what the daemon would use if it had no certificate.
pub(super) async fn config(
    root: &Root,
    path: Option<&Path>,
) -> Result<kube::Config, BootstrapError> {
    let Some(path) = path else {
        return Ok(kube::Config::infer().await?);
    };
    let unusable = |source| BootstrapError::Kubeconfig {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let text = root.read(path, MAX_SIZE)?;
    let kubeconfig = Kubeconfig::from_yaml(&String::from_utf8_lossy(&text)).map_err(unusable)?;
    let dir = path.parent().unwrap_or(path);
    let kubeconfig = inline(kubeconfig, |file| root.read(dir.join(file), MAX_SIZE))?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(unusable)
}

/// Puts the files that it names into it: they are the node's, and would be looked for in our own image.
fn inline<E>(
    mut kubeconfig: Kubeconfig,
    read: impl Fn(&Path) -> Result<Vec<u8>, E>,
) -> Result<Kubeconfig, E> {
    let data = |file: Option<String>| {
        let bytes = file.map(|file| read(Path::new(&file))).transpose()?;
        Ok(bytes.map(|bytes| BASE64_STANDARD.encode(bytes)))
    };
    for cluster in kubeconfig
        .clusters
        .iter_mut()
        .filter_map(|named| named.cluster.as_mut())
    {
        if let Some(text) = data(cluster.certificate_authority.take())? {
            cluster.certificate_authority_data.get_or_insert(text);
        }
    }
    for user in kubeconfig
        .auth_infos
        .iter_mut()
        .filter_map(|named| named.auth_info.as_mut())
    {
        if let Some(text) = data(user.client_certificate.take())? {
            user.client_certificate_data.get_or_insert(text);
        }
        if let Some(text) = data(user.client_key.take())? {
            user.client_key_data.get_or_insert(text.into());
        }
        if let Some(file) = user.token_file.take() {
            let token = String::from_utf8_lossy(&read(Path::new(&file))?)
                .trim()
                .to_owned();
            user.token.get_or_insert(token.into());
        }
    }
    Ok(kubeconfig)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBELETS: &str = r"
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443', certificate-authority: ca.crt}}]
users: [{name: u, user: {client-certificate: /pki/kubelet.pem, client-key: /pki/kubelet.pem}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
";

    #[test]
    fn files_are_those_of_the_node() {
        let kubeconfig = Kubeconfig::from_yaml(KUBELETS).unwrap();
        let read = |path: &Path| Ok::<_, ()>(path.to_str().unwrap().as_bytes().to_vec());
        let config = serde_json::to_value(inline(kubeconfig, read).unwrap()).unwrap();
        let cluster = &config["clusters"][0]["cluster"];
        let user = &config["users"][0]["user"];
        let data = |text: &str| serde_json::Value::String(BASE64_STANDARD.encode(text));
        assert_eq!(cluster["certificate-authority-data"], data("ca.crt"));
        assert_eq!(user["client-certificate-data"], data("/pki/kubelet.pem"));
        assert_eq!(user["client-key-data"], data("/pki/kubelet.pem"));
        assert_eq!(user.get("client-key"), None);
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error() {
        let kubeconfig = Kubeconfig::from_yaml(KUBELETS).unwrap();
        assert_eq!(inline(kubeconfig, |_| Err("gone")).unwrap_err(), "gone");
    }
}
