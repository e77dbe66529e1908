//! Parses a kubeconfig, restricted to what programs on nodes use: clusters, users and contexts with certificates or tokens.

use std::path::{Path, PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::http::Uri;
use serde::Deserialize;

use super::{Access, Credential, Server};

/// Why a kubeconfig cannot be used. `E` is the error of reading a file that it names.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError<E: std::error::Error + 'static> {
    /// The kubeconfig, or a file that it names, cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: E,
    },
    /// The content of the kubeconfig is invalid.
    #[error(transparent)]
    Content(#[from] ParseError),
}

/// The reason why the content of a kubeconfig is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// The text is not a kubeconfig.
    #[error("it is not a kubeconfig: {0}")]
    Shape(#[from] serde_yaml::Error),
    /// There is no current context.
    #[error("it has no current-context")]
    NoContext,
    /// An entry that another one names does not exist.
    #[error("it has no {0} `{1}`")]
    Missing(&'static str, String),
    /// The address of the API server is invalid.
    #[error("server `{0}` is not an address: write `https://<host>:<port>`")]
    Server(String),
    /// A value is not encoded in base64.
    #[error("{0} is not base64")]
    Base64(&'static str),
    /// The kubeconfig uses a feature that programs on nodes lack.
    #[error("`{0}` is not supported: use a certificate with its key, or a token")]
    Unsupported(&'static str),
    /// A certificate without its key, or a key without its certificate.
    #[error("client-certificate and client-key must be set together")]
    HalfACertificate,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    clusters: Vec<Named>,
    #[serde(default)]
    users: Vec<Named>,
    #[serde(default)]
    contexts: Vec<Named>,
    current_context: Option<String>,
}

/// An entry of a list: a name, and one key with the entry's content.
#[derive(Deserialize)]
struct Named {
    name: String,
    cluster: Option<Cluster>,
    user: Option<User>,
    context: Option<Context>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    proxy_url: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    exec: Option<serde::de::IgnoredAny>,
    auth_provider: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}

/// Parses a kubeconfig. `read` reads the certificates that it names; its paths, and that of a token file, are as written in the kubeconfig.
/// Data overrides a file, and a token overrides a token file, as for every other client.
pub(crate) fn parse<E: std::error::Error + 'static>(
    text: &[u8],
    read: impl Fn(&Path) -> Result<Vec<u8>, E>,
) -> Result<Access, KubeconfigError<E>> {
    let kubeconfig: Kubeconfig = serde_yaml::from_slice(text).map_err(ParseError::from)?;
    let (cluster, user) = kubeconfig.current()?;
    if cluster.insecure_skip_tls_verify {
        Err(ParseError::Unsupported("insecure-skip-tls-verify"))?;
    }
    if cluster.proxy_url.is_some() {
        Err(ParseError::Unsupported("proxy-url"))?;
    }
    let files = Files(read);
    let authority = files.either(
        "certificate-authority-data",
        cluster.certificate_authority_data,
        cluster.certificate_authority.as_deref(),
    )?;
    let url: Option<Uri> = cluster.server.parse().ok();
    let is_address =
        |url: &Uri| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some();
    let url = url
        .filter(is_address)
        .ok_or(ParseError::Server(cluster.server))?;
    let server = Server {
        url,
        authority,
        authority_file: None,
        name: cluster.tls_server_name,
    };
    Ok(Access::new(server, files.credential(user)?))
}

impl Kubeconfig {
    /// Returns the cluster and the user of the current context.
    fn current(self) -> Result<(Cluster, User), ParseError> {
        let name = self.current_context.filter(|name| !name.is_empty());
        let name = name.ok_or(ParseError::NoContext)?;
        let find = |list: Vec<Named>, name: &str| list.into_iter().find(|one| one.name == name);
        let missing = |kind, name: &str| ParseError::Missing(kind, name.to_owned());
        let context = find(self.contexts, &name).and_then(|one| one.context);
        let context = context.ok_or_else(|| missing("context", &name))?;
        let cluster = find(self.clusters, &context.cluster).and_then(|one| one.cluster);
        let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?;
        if context.user.is_empty() {
            return Ok((cluster, User::default()));
        }
        let user = find(self.users, &context.user);
        let user = user.ok_or_else(|| missing("user", &context.user))?;
        Ok((cluster, user.user.unwrap_or_default()))
    }
}

/// Reads the files that the kubeconfig names.
struct Files<F>(F);

impl<E: std::error::Error + 'static, F: Fn(&Path) -> Result<Vec<u8>, E>> Files<F> {
    fn read(&self, path: &Path) -> Result<Vec<u8>, KubeconfigError<E>> {
        (self.0)(path).map_err(|source| KubeconfigError::File {
            path: path.to_owned(),
            source,
        })
    }

    fn either(
        &self,
        key: &'static str,
        data: Option<String>,
        file: Option<&Path>,
    ) -> Result<Option<Vec<u8>>, KubeconfigError<E>> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let bytes = BASE64_STANDARD.decode(data.trim());
            return Ok(Some(bytes.map_err(|_| ParseError::Base64(key))?));
        }
        let file = file.filter(|file| !file.as_os_str().is_empty());
        file.map(|file| self.read(file)).transpose()
    }

    fn credential(&self, user: User) -> Result<Credential, KubeconfigError<E>> {
        for (key, is_set) in [
            ("exec", user.exec.is_some()),
            ("auth-provider", user.auth_provider.is_some()),
            ("username", user.username.is_some()),
        ] {
            if is_set {
                Err(ParseError::Unsupported(key))?;
            }
        }
        let chain = self.either(
            "client-certificate-data",
            user.client_certificate_data,
            user.client_certificate.as_deref(),
        )?;
        let key = self.either(
            "client-key-data",
            user.client_key_data,
            user.client_key.as_deref(),
        )?;
        match (chain, key) {
            (Some(chain), Some(key)) => return Ok(Credential::Certificate { chain, key }),
            (None, None) => {}
            _ => Err(ParseError::HalfACertificate)?,
        }
        if let Some(token) = user.token.filter(|token| !token.is_empty()) {
            return Ok(Credential::Token(token));
        }
        let file = user.token_file;
        Ok(file.map_or(Credential::Anonymous, Credential::TokenFile))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const KUBELETS: &str = "
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443', certificate-authority: ca.crt}}]
users:
- {name: u, user: {client-certificate: /pki/kubelet.pem, client-key: /pki/kubelet.pem}}
- {name: t, user: {tokenFile: t.txt}}
- {name: e, user: {exec: {command: x}}}
- {name: half, user: {client-key-data: aw==}}
- {name: both, user: {client-key-data: aw==, client-certificate-data: aw==, client-key: no}}
contexts:
- {name: x, context: {cluster: c, user: u}}
- {name: t, context: {cluster: c, user: t}}
- {name: e, context: {cluster: c, user: e}}
- {name: half, context: {cluster: c, user: half}}
- {name: both, context: {cluster: c, user: both}}
- {name: nobody, context: {cluster: c, user: missing}}
";

    fn read(context: &str) -> Result<Access, String> {
        let text = format!("{KUBELETS}current-context: {context}\n");
        let read = |path: &Path| match path.to_str() {
            Some("no") => Err(io::Error::other("gone")),
            name => Ok(name.unwrap().as_bytes().to_vec()),
        };
        parse(text.as_bytes(), read).map_err(|error| error.to_string())
    }

    #[test]
    fn certificates_may_be_files_or_data() {
        let access = read("x").unwrap();
        assert_eq!(access.server.url, "https://127.0.0.1:6443/");
        assert_eq!(access.server.authority.as_deref(), Some(&b"ca.crt"[..]));
        let Credential::Certificate { chain, key } = access.credential else {
            panic!("no certificate");
        };
        assert_eq!(
            (chain, key),
            (b"/pki/kubelet.pem".to_vec(), b"/pki/kubelet.pem".to_vec())
        );
        let Credential::Certificate { key, .. } = read("both").unwrap().credential else {
            panic!("no certificate");
        };
        assert_eq!(key, b"k");
        let token = read("t").unwrap().credential;
        assert!(matches!(token, Credential::TokenFile(path) if path == Path::new("t.txt")));
    }

    #[test]
    fn unusable_kubeconfigs_are_reported() {
        for (context, text) in [
            ("e", "`exec` is not supported"),
            ("half", "must be set together"),
            ("nobody", "it has no user `missing`"),
            ("other", "it has no context `other`"),
            ("''", "it has no current-context"),
        ] {
            let error = read(context).err().unwrap();
            assert!(error.contains(text), "{error}");
        }
        let parse = |text: &str| {
            let error = parse(text.as_bytes(), |path| {
                Err(io::Error::other(path.display().to_string()))
            });
            error.err().unwrap().to_string()
        };
        assert!(parse("- a").contains("it is not a kubeconfig"));
        let with = |cluster: &str| {
            format!(
                "current-context: x\ncontexts: [{{name: x, context: {{cluster: c}}}}]\nclusters: [{{name: c, cluster: {cluster}}}]"
            )
        };
        assert!(parse(&with("{server: 'no address'}")).contains("server `no address`"));
        assert!(parse(&with("{server: 'https://a', proxy-url: b}")).contains("proxy-url"));
        assert!(
            parse(&with(
                "{server: 'https://a', certificate-authority-data: '%'}"
            ))
            .contains("base64")
        );
        assert!(
            parse(&with("{server: 'https://a', certificate-authority: ca}"))
                .contains("cannot read ca")
        );
    }
}
