//! Certificates and kubeconfigs of a run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::sh::{self, words};

/// The directory of keys and certificates.
pub(crate) struct Pki {
    dir: PathBuf,
    /// The subject alternative names of the API server.
    names: String,
}

/// The configuration of `openssl ca`.
const SIGNING: &str = "[ca]\ndefault_ca=a\n[a]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n\
    x509_extensions=x\n[p]\nO=optional\nCN=supplied\n[x]\nextendedKeyUsage=clientAuth\n";

impl Pki {
    /// Creates a certificate authority, the API server's certificates as server and as client, and the key for service account tokens.
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

    /// Creates an authority of this name and replaces the API server's certificates by ones of this authority.
    pub(crate) fn renew(&self, authority: &str) -> anyhow::Result<()> {
        self.openssl(&words!("req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN={authority} -keyout ca.key -out ca.crt"))?;
        self.sign(
            "apiserver",
            "/CN=kube-apiserver",
            &format!("subjectAltName={}", self.names),
        )?;
        self.sign(
            "client",
            "/O=system:masters/CN=kube-apiserver",
            "extendedKeyUsage=clientAuth",
        )
    }

    /// Returns a certificate signing request in PEM, for a new key.
    pub(crate) fn request(&self, subject: &str) -> anyhow::Result<String> {
        self.openssl(&words!(
            "req -newkey rsa:2048 -nodes -subj {subject} -keyout requested.key -out requested.csr"
        ))?;
        Ok(fs::read_to_string(self.file("requested.csr"))?)
    }

    /// Replaces the certificate in a file that also has its key by one of the same subject and key, valid between two times in the format of
    /// `date`.
    pub(crate) fn reissue(
        &self,
        file: &Path,
        subject: &str,
        from: &str,
        until: &str,
    ) -> anyhow::Result<()> {
        let pem =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let start = pem
            .find("-----BEGIN PRIVATE KEY")
            .context("a stored certificate has its key")?;
        let key = &pem[start..];
        fs::write(self.file("kept.key"), key)?;
        fs::write(self.file("signing.cnf"), SIGNING)?;
        fs::write(self.file("index.txt"), "")?;
        self.openssl(&[
            "req", "-new", "-key", "kept.key", "-subj", subject, "-out", "kept.csr",
        ])?;
        let time = |when: &str| {
            let date = sh::run(Command::new("date").args(["-u", "-d", when, "+%Y%m%d%H%M%SZ"]))?;
            anyhow::Ok(date.trim().to_owned())
        };
        self.openssl(&[
            "ca",
            "-batch",
            "-notext",
            "-preserveDN",
            "-config",
            "signing.cnf",
            "-cert",
            "ca.crt",
            "-keyfile",
            "ca.key",
            "-startdate",
            &time(from)?,
            "-enddate",
            &time(until)?,
            "-in",
            "kept.csr",
            "-out",
            "kept.crt",
        ])?;
        let certificate = fs::read_to_string(self.file("kept.crt"))?;
        Ok(fs::write(file, certificate + key)?)
    }

    /// Returns the path of a file: `ca.crt`, `sa.key`, `apiserver.{crt,key}`, `client.{crt,key}`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes a kubeconfig with a token.
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

    /// Returns a kubeconfig in the form of K3s, with the certificate of this name.
    pub(crate) fn client_kubeconfig(&self, server: &str, name: &str) -> String {
        let [ca, certificate, key] =
            ["ca.crt", &format!("{name}.crt"), &format!("{name}.key")].map(|name| self.file(name));
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "Default", "preferences": {},
            "clusters": [{"name": "local", "cluster": {"server": server, "certificate-authority": ca}}],
            "users": [{"name": "user", "user": {"client-certificate": certificate, "client-key": key}}],
            "contexts": [{"name": "Default", "context": {"cluster": "local", "namespace": "default", "user": "user"}}],
        });
        config.to_string()
    }

    /// Creates `NAME.key` and `NAME.crt`, signed by the authority, with these extensions.
    pub(crate) fn sign(&self, name: &str, subject: &str, extension: &str) -> anyhow::Result<()> {
        let [key, request, certificate, extensions] =
            ["key", "csr", "crt", "ext"].map(|end| format!("{name}.{end}"));
        fs::write(self.file(&extensions), extension)?;
        self.openssl(&words!(
            "req -newkey rsa:2048 -nodes -subj {subject} -keyout {key} -out {request}"
        ))?;
        self.openssl(&words!(
            "x509 -req -in {request} -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile {extensions} -out {certificate}"
        ))
    }

    fn openssl(&self, args: &[&str]) -> anyhow::Result<()> {
        sh::run(Command::new("openssl").current_dir(&self.dir).args(args)).map(drop)
    }
}
