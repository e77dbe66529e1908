//! Certificates and kubeconfigs of a run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::sh;

/// Keys and certificates in one folder.
pub(crate) struct Pki {
    dir: PathBuf,
    /// Where the API server is found, as a certificate has it.
    names: String,
}

impl Pki {
    /// Makes an authority, a certificate for an API server at these names, one for it as a client, and a key for tokens.
    pub(crate) fn new(dir: PathBuf, names: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(&dir)?;
        let pki = Self {
            dir,
            names: names.to_owned(),
        };
        pki.openssl(&["genrsa", "-out", "sa.key", "2048"])?;
        pki.renew("multus-e2e")?;
        Ok(pki)
    }

    /// Makes an authority of that name, and certificates of it in the places of the former ones.
    pub(crate) fn renew(&self, authority: &str) -> anyhow::Result<()> {
        self.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "365",
            "-subj",
            &format!("/CN={authority}"),
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
        ])?;
        self.signed(
            "apiserver",
            "/CN=kube-apiserver",
            &format!("subjectAltName={}", self.names),
        )?;
        self.signed(
            "client",
            "/O=system:masters/CN=kube-apiserver",
            "extendedKeyUsage=clientAuth",
        )
    }

    /// A file of it: `ca.crt`, `sa.key`, `apiserver.{crt,key}`, `client.{crt,key}`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes a kubeconfig that shows a token.
    pub(crate) fn kubeconfig(&self, path: &Path, server: &str, token: &str) -> anyhow::Result<()> {
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": server, "certificate-authority": self.file("ca.crt")}}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        });
        fs::write(path, config.to_string())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn signed(&self, name: &str, subject: &str, extension: &str) -> anyhow::Result<()> {
        let [key, request, certificate, extensions] =
            ["key", "csr", "crt", "ext"].map(|end| format!("{name}.{end}"));
        fs::write(self.file(&extensions), extension)?;
        self.openssl(&[
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", &key, "-out",
            &request,
        ])?;
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "365",
            "-extfile",
            &extensions,
            "-out",
            &certificate,
        ])
    }

    fn openssl(&self, words: &[&str]) -> anyhow::Result<()> {
        sh::run(Command::new("openssl").current_dir(&self.dir).args(words)).map(drop)
    }
}
