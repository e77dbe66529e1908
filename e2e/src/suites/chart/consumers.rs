//! The sources that a distro adds to its tree, used as by its release engineer: `make download && go generate && go build`, and the built
//! program, which stages and serves the charts.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};

use crate::{
    file_server::FileServer,
    sh,
    test_env::{TestEnv, sha256},
};

const REGISTRY: &str = "registry.example:5000";

/// The tree, and the server of the release from which it downloads files.
pub(super) struct Tree {
    dir: PathBuf,
    release: FileServer,
}

/// Builds a tree that pins this release.
pub(super) fn build(env: &TestEnv) -> anyhow::Result<Tree> {
    let dir = env.dir.join("distro");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chart/consumers");
    sh::copy_directory(source, &dir)?;
    let release = FileServer::serve(&env.dist)?;
    let tree = Tree { dir, release };
    let url = format!("MULTUS_URL={}", tree.release.url);
    let version = format!("MULTUS_VERSION={}", env.version()?);
    tree.run("make", &["multus-lock", &url, &version])?;
    tree.run("make", &["download"])?;
    let requests = tree.release.requests();
    ensure!(
        requests == 8,
        "{requests} requests for the sums and seven files"
    );
    tree.run("make", &["download"])?;
    ensure!(
        tree.release.requests() == requests,
        "make download requests existing files again"
    );
    tree.run("go", &["generate"])?;
    let unformatted = tree.run("gofmt", &["-l", "."])?;
    ensure!(unformatted.is_empty(), "gofmt would change {unformatted}");
    tree.run("go", &["vet", "./..."])?;
    tree.run("go", &["build"])?;
    tree.run("go", &["build", "-tags=no_stage", "-o", "no-stage"])?;
    Ok(tree)
}

impl Tree {
    fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(program);
        command
            .current_dir(&self.dir)
            .env("GOFLAGS", "-buildvcs=false");
        sh::run(command.args(args))
    }

    /// Runs the program with a new data directory; returns the staged files with their digests.
    fn stage(
        &self,
        program: &str,
        to: &str,
        args: &[&str],
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let args = [&["--data-dir", to], args].concat();
        self.run(&format!("./{program}"), &args)?;
        let mut found = BTreeMap::new();
        let root = self.dir.join(to);
        let mut open = vec![root.clone()];
        while let Some(dir) = open.pop() {
            let mode = fs::metadata(&dir)?.permissions().mode() & 0o777;
            ensure!(mode == 0o700, "{}: mode {mode:o}", dir.display());
            for entry in fs::read_dir(&dir)? {
                let path = entry?.path();
                if path.is_dir() {
                    open.push(path);
                    continue;
                }
                let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
                ensure!(mode == 0o600, "{}: mode {mode:o}", path.display());
                let name = path.strip_prefix(&root)?.display().to_string();
                found.insert(name, sha256(&fs::read(&path)?));
            }
        }
        Ok(found)
    }

    /// Both the embed tree and the bindata stage the bytes of the packed charts.
    pub(super) fn stages(&self, env: &TestEnv) -> anyhow::Result<()> {
        let version = env.version()?;
        let chart = |name: &str| {
            let path = format!("server/static/charts/{name}-{version}.tgz");
            Ok((path, sha256(&fs::read(env.chart(name)?)?)))
        };
        let charts = |names: &[&str]| {
            names
                .iter()
                .map(|name| chart(name))
                .collect::<anyhow::Result<BTreeMap<_, _>>>()
        };
        let manifest = String::from_utf8(env.read("manifests/k3s/multus.yaml")?)?;
        let variable = "%{SYSTEM_DEFAULT_REGISTRY_RAW}%";
        ensure!(
            manifest.contains(variable),
            "the manifest names no registry"
        );
        let manifest = manifest.replace(variable, REGISTRY);
        let manifest = (
            "server/manifests/multus.yaml".to_owned(),
            sha256(manifest.as_bytes()),
        );
        let own = ["k3s-multus", "k3s-multus-crd"];
        for from in ["embed", "bindata"] {
            let args = [
                "--multus",
                "--from",
                from,
                "--system-default-registry",
                REGISTRY,
            ];
            let found = self.stage("consumer", &format!("data-{from}"), &args)?;
            let mut expected = charts(&own)?;
            expected.extend([manifest.clone()]);
            ensure!(
                found == expected,
                "{from}: staged {found:?}, not {expected:?}"
            );
        }
        let disable = ["--multus", "--disable", "traefik,multus"];
        for (to, args) in [("disabled", &disable[..]), ("not-asked-for", &[])] {
            let staged = self.stage("consumer", to, args)?;
            ensure!(staged == charts(&own)?, "{args:?} stages {staged:?}");
        }
        let args = ["--multus", "--from", "bindata", "--disable-agent"];
        self.stage("consumer", "no-agent", &args)?;
        let manifest = self.dir.join("no-agent/server/manifests/multus.yaml");
        let manifest = fs::read_to_string(manifest)?;
        ensure!(
            manifest.contains("failurePolicy") && !manifest.contains("bootstrap"),
            "--disable-agent stages {manifest}"
        );
        let nothing = self.stage("no-stage", "nothing", &["--from", "bindata"]);
        ensure!(nothing.is_err(), "no_stage stages {nothing:?}");
        Ok(())
    }

    /// The program serves the charts, and no other files.
    pub(super) fn serves(&self, env: &TestEnv) -> anyhow::Result<()> {
        let mut server = Command::new(self.dir.join("consumer"))
            .current_dir(&self.dir)
            .args(["--data-dir", "served", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(server.stdout.take().context("its output is piped")?).lines();
        let checked = self.fetch(env, lines);
        server.kill()?;
        server.wait()?;
        checked
    }

    fn fetch(
        &self,
        env: &TestEnv,
        lines: impl Iterator<Item = std::io::Result<String>>,
    ) -> anyhow::Result<()> {
        let mut url = None;
        for line in lines {
            if let Some(found) = line?.strip_prefix("serving ") {
                url = Some(found.to_owned());
                break;
            }
        }
        let url = url.context("the program printed no address")?;
        let to = self.dir.join("fetched");
        let get = |path: &str| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--fail", "--output"]);
            sh::run(curl.arg(&to).arg(format!("{url}{path}")))
        };
        for name in ["k3s-multus", "k3s-multus-crd"] {
            get(&format!("charts/{name}-{}.tgz", env.version()?))?;
            ensure!(
                fs::read(&to)? == fs::read(env.chart(name)?)?,
                "{name} is served with different bytes"
            );
        }
        ensure!(
            get("../manifests/multus.yaml").is_err(),
            "manifests are served"
        );
        Ok(())
    }

    /// A file with another digest than the lock does not reach the tree.
    pub(super) fn refuses(&self) -> anyhow::Result<()> {
        let lock = self.dir.join("multus.lock");
        let text = fs::read_to_string(&lock)?;
        let line = text.lines().find(|line| line.ends_with("multus.yaml"));
        let sum = line
            .and_then(|line| line.split(' ').next())
            .context("the lock has no manifest")?;
        fs::write(&lock, text.replace(sum, &sha256(b"another")))?;
        let outcome = self.run("make", &["download"]);
        fs::write(&lock, &text)?;
        let Err(error) = outcome else {
            bail!("make download accepts another digest than the lock");
        };
        let error = error.to_string();
        ensure!(
            error.contains("multus.yaml has another sha256 than multus.lock requires"),
            "{error}"
        );
        self.run("make", &["download"]).map(drop)
    }

    /// Sums that are not those of the pinned release leave the lock as it is; RKE2's tree gets RKE2's files.
    pub(super) fn checks_sums(&self, env: &TestEnv) -> anyhow::Result<()> {
        let version = format!("MULTUS_VERSION={}", env.version()?);
        let lock = self.dir.join("multus.lock");
        let before = fs::read(&lock)?;
        let sums = String::from_utf8(env.read("SHA256SUMS")?)?;
        let outside = format!("{}  ../outside\n", sha256(b"outside"));
        let within = format!("{}  charts/../../outside\n", sha256(b"outside"));
        let page = "<html><body>Sign in</body></html>\n".to_owned();
        for (text, version, expected) in [
            (&page, version.as_str(), "is not a sha256"),
            (
                &sums,
                "MULTUS_VERSION=4.9.9",
                "-4.9.9.tgz: correct MULTUS_VERSION",
            ),
            (
                &(sums.clone() + &outside),
                &version,
                "'../outside' is not a path below",
            ),
            (
                &(sums.clone() + &within),
                &version,
                "is not a path below the release",
            ),
        ] {
            let dir = env.dir.join("sums");
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("SHA256SUMS"), text)?;
            let server = FileServer::serve(&dir)?;
            let url = format!("MULTUS_URL={}", server.url);
            let error = self.run("make", &["multus-lock", &url, version]);
            let error = error
                .err()
                .context("make multus-lock accepts it")?
                .to_string();
            ensure!(error.contains(expected), "no `{expected}` in {error}");
            ensure!(
                fs::read(&lock)? == before,
                "{expected}: the lock has changed"
            );
        }
        // A lock that was edited by hand writes nothing outside of the tree either.
        let text = String::from_utf8(before.clone())?;
        let url = &self.release.url;
        let line = format!("{} 1 {url}/../outside\n", sha256(b"outside"));
        fs::write(&lock, text + &line)?;
        let outcome = self.run("make", &["download"]);
        fs::write(&lock, &before)?;
        let error = outcome
            .err()
            .context("make download accepts it")?
            .to_string();
        ensure!(error.contains("is not a path below the release"), "{error}");

        let url = format!("MULTUS_URL={url}");
        let rke2 = ["MULTUS_DISTRO=rke2", "MULTUS_LOCK=rke2.lock"];
        let args = [&["multus-lock", &url, &version], &rke2[..]].concat();
        self.run("make", &args)?;
        let text = fs::read_to_string(self.dir.join("rke2.lock"))?;
        let files = text.lines().filter(|line| !line.starts_with('#'));
        for line in files.clone() {
            let is_of_rke2 =
                line.contains("/charts/assets/rke2-multus") || line.contains("/manifests/rke2/");
            ensure!(is_of_rke2, "rke2.lock has {line}");
        }
        let count = files.count();
        ensure!(count >= 3, "rke2.lock has {count} files: {text}");
        Ok(())
    }
}
