//! A kubeconfig, as far as programs on nodes use one: clusters, users and contexts with certificates or tokens.

use std::path::{Path, PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::http::Uri;
use serde::Deserialize;

use super::{Access, Credential, Server};

/// Why a kubeconfig cannot be used; `E` is how reading a file that it names fails.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError<E: std::error::Error + 'static> {
    /// Itself, or a file that it names.
    #[error("cannot read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: E,
    },
    /// What it says.
    #[error(transparent)]
    Content(#[from] ParseError),
}

/// What is wrong in a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// It is no YAML of that shape.
    #[error("it is no kubeconfig: {0}")]
    Shape(#[from] serde_yaml::Error),
    /// There is no context.
    #[error("it names no current-context")]
    NoContext,
    /// An entry that another one names is not there.
    #[error("there is no {0} `{1}` in it")]
    Missing(&'static str, String),
    /// The address of the API server.
    #[error("server `{0}` is no address: write `https://<host>:<port>`")]
    Server(String),
    /// Data that is not in base64.
    #[error("{0} is not base64")]
    Base64(&'static str),
    /// Something that is not done here.
    #[error("`{0}` is not supported: give a certificate and its key, or a token")]
    Unsupported(&'static str),
    /// A certificate without its key, or the other way round.
    #[error("client-certificate and client-key go together")]
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

/// Each entry has its name beside one key for what it is.
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

/// Reads a kubeconfig; certificates that it names are read by `read`, whose paths are as they stand in it, and so is that of a token's
/// file. Data wins over a file, a token over its file, as for every other client.
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
    /// The cluster and the user of the current context.
    fn current(self) -> Result<(Cluster, User), ParseError> {
        let name = self.current_context.filter(|name| !name.is_empty());
        let name = name.ok_or(ParseError::NoContext)?;
        let of = |list: Vec<Named>, name: &str| list.into_iter().find(|one| one.name == name);
        let missing = |kind, name: &str| ParseError::Missing(kind, name.to_owned());
        let context = of(self.contexts, &name).and_then(|one| one.context);
        let context = context.ok_or_else(|| missing("context", &name))?;
        let cluster = of(self.clusters, &context.cluster).and_then(|one| one.cluster);
        let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?;
        if context.user.is_empty() {
            return Ok((cluster, User::default()));
        }
        let user = of(self.users, &context.user);
        let user = user.ok_or_else(|| missing("user", &context.user))?;
        Ok((cluster, user.user.unwrap_or_default()))
    }
}

/// Reads what the kubeconfig names.
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
        for (key, is_there) in [
            ("exec", user.exec.is_some()),
            ("auth-provider", user.auth_provider.is_some()),
            ("username", user.username.is_some()),
        ] {
            if is_there {
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
        Ok(file.map_or(Credential::Nobody, Credential::TokenFile))
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
    fn files_and_data_are_taken() {
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
    fn what_cannot_be_used_is_told() {
        for (context, text) in [
            ("e", "`exec` is not supported"),
            ("half", "go together"),
            ("nobody", "there is no user `missing` in it"),
            ("other", "there is no context `other` in it"),
            ("''", "it names no current-context"),
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
        assert!(parse("- a").contains("it is no kubeconfig"));
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
