//! The identity with which certificates are requested, and the API server's address. Both may change, so they are read again each time.

use std::path::{Path, PathBuf};

use node::root::{Root, RootError};

use crate::access::{self, Access, AccessError, Credential, KubeconfigError};

/// The size limit of a kubeconfig and of the files that it names, which are far smaller.
const MAX_SIZE: u64 = 1 << 20;

/// The reason why there is no identity for requests.
#[derive(Debug, thiserror::Error)]
pub(super) enum BootstrapError {
    /// The kubeconfig or its token file cannot be read.
    #[error("bootstrapKubeconfig: {0}")]
    File(#[from] RootError),
    /// The kubeconfig, or a certificate that it names, cannot be used.
    #[error("bootstrapKubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        /// The path of the kubeconfig.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: KubeconfigError<RootError>,
    },
    /// No kubeconfig is configured, and this process is not in a pod.
    #[error(
        "there is no service account for requesting a certificate: set bootstrapKubeconfig to a kubeconfig"
    )]
    NoAccount(#[source] AccessError),
}

/// Reads the kubeconfig and the files that it names, all of them on the node. Without a kubeconfig it returns the identity that the
/// daemon would use if it had no certificate.
pub(super) fn access(root: &Root, path: Option<&Path>) -> Result<Access, BootstrapError> {
    let Some(path) = path else {
        return access::from_environment().map_err(BootstrapError::NoAccount);
    };
    let dir = path.parent().unwrap_or(path);
    let read = |file: &Path| root.read(dir.join(file), MAX_SIZE);
    let text = root.read(path, MAX_SIZE)?;
    let mut access = access::parse(&text, read).map_err(|source| BootstrapError::Kubeconfig {
        path: path.to_owned(),
        source,
    })?;
    if let Credential::TokenFile(file) = &access.credential {
        let token = read(file)?;
        let token = String::from_utf8_lossy(&token).trim().to_owned();
        access.credential = Credential::Token(token);
    }
    Ok(access)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_from_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let config = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443'}}]\n\
            users: [{name: u, user: {tokenFile: token}}]\n\
            contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::fs::write(dir.path().join("etc/kubeconfig"), config).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let path = Some(Path::new("/etc/kubeconfig"));
        let error = access(&root, path).err().unwrap().to_string();
        assert!(error.contains("/etc/token"), "{error}");
        std::fs::write(dir.path().join("etc/token"), "t\n").unwrap();
        let found = access(&root, path).unwrap();
        assert!(matches!(found.credential, Credential::Token(token) if token == "t"));
    }
}
