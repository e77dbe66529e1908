//! Discovery on each kind of node: the runtime's answer and its configuration files must give the same directories.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::fixture::{DiscoverFixture, ROOT};
use crate::{
    node::layout::ContainerdVersion,
    report::{Checked, Report},
    test_env::TestEnv,
};

const K3S: &str = "/var/lib/rancher/k3s";
const K3S_SOCKET: &str = "/run/k3s/containerd/containerd.sock";
const RKE2: &str = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml";
const HASH: &str = "3fa2b8c1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f";
const USUAL: (&str, &str) = ("/opt/cni/bin", "/etc/cni/net.d");

/// A kind of node.
struct Kind {
    name: &'static str,
    containerd_version: ContainerdVersion,
    /// containerd's configuration: its path, and its content besides root, state and socket.
    config: String,
    head: String,
    tables: String,
    /// Further files of the node.
    files: Vec<(String, String)>,
    socket: &'static str,
    /// The expected directories of the shim and of configurations.
    expected: (String, String),
    /// Texts of discover's output; without any, discover must have no notes.
    notes: &'static [&'static str],
}

pub(super) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    for kind in kinds() {
        let name = format!("containerd {}: {}", kind.containerd_version, kind.name);
        report.check(&name, || kind.check(env))?;
    }
    report.check(
        "a read-only plugin directory is skipped when there is another, and noted",
        || read_only(env),
    )?;
    report.check("a runtime without CRI is rejected", || without_cri(env))?;
    report.check(
        "without a runtime, one line says where discover searched",
        || {
            let (json, text) = DiscoverFixture::new(env)?.discover(&["--root", "/"])?;
            ensure!(json["dirs"].is_null(), "{json}");
            ensure_contains(&text, &["nothing is there", "criSocket"])
        },
    )
}

impl Kind {
    /// Returns a node of K3s with these tables in containerd's configuration.
    fn of(
        name: &'static str,
        containerd_version: ContainerdVersion,
        version: u8,
        tables: String,
    ) -> Self {
        Self {
            name,
            containerd_version,
            config: format!("{K3S}/agent/etc/containerd/config.toml"),
            head: format!("version = {version}\n"),
            tables,
            files: Vec::new(),
            socket: K3S_SOCKET,
            expected: (USUAL.0.to_owned(), USUAL.1.to_owned()),
            notes: &[],
        }
    }

    fn expects(mut self, bin: &str, conf: &str) -> Self {
        self.expected = (bin.to_owned(), conf.to_owned());
        self
    }

    /// Adds a drop-in, and the line that imports it.
    fn with(mut self, import: &str, path: &str, text: String) -> Self {
        self.head = format!("{}imports = [\"{import}\"]\n", self.head);
        self.files.push((path.to_owned(), text));
        self
    }

    fn check(&self, env: &TestEnv) -> anyhow::Result<()> {
        let fixture = DiscoverFixture::new(env)?;
        let (bin, conf) = (&self.expected.0, &self.expected.1);
        fixture.plugins(bin)?;
        fixture
            .node
            .write(&format!("{conf}/10-primary.conflist"), "{}")?;
        // K3s leaves these links on nodes that do not use them, or no longer.
        fixture.link(HASH, &format!("{K3S}/data/current"))?;
        fixture.link(
            &format!("{K3S}/data/{HASH}/bin/cni"),
            &format!("{K3S}/data/cni/cni"),
        )?;
        for (path, text) in &self.files {
            fixture.node.write(path, text)?;
        }
        self.start(env, &fixture)?;
        let before = fixture.hashes()?;
        let (json, text) = fixture.discover(&["--root", "/"])?;
        let dirs = &json["dirs"];
        ensure!(
            (&dirs["installDir"], &dirs["confDir"])
                == (&Value::from(bin.as_str()), &Value::from(conf.as_str())),
            "expected {bin} and {conf}: {text}"
        );
        let evidence = |sources: &[&str]| {
            let list = json["evidence"].as_array().context("no evidence")?;
            let found = list.iter().find(|one| {
                let source = one["source"].as_str().unwrap_or_default();
                sources.contains(&source)
            });
            let found = found.with_context(|| format!("no evidence from {sources:?}: {text}"))?;
            anyhow::Ok((found["binDirs"].clone(), found["confDir"].clone()))
        };
        let (used, files) = (evidence(&["cniConfig", "config"])?, evidence(&["file"])?);
        ensure!(
            used == files,
            "the runtime uses {used:?}, its files were read as {files:?}: {text}"
        );
        ensure_contains(&text, self.notes)?;
        ensure!(
            !self.notes.is_empty() || json["notes"] == serde_json::json!([]),
            "discover has notes: {text}"
        );
        let now = fixture.hashes()?;
        now.ensure_equal(&before)
            .context("discover changed the node")
    }

    fn start(&self, env: &TestEnv, fixture: &DiscoverFixture) -> anyhow::Result<()> {
        let state = self.socket.trim_end_matches("/containerd.sock");
        let config = format!(
            "{}root = \"{ROOT}\"\nstate = \"{state}\"\n[grpc]\n  address = \"{}\"\n{}",
            self.head, self.socket, self.tables
        );
        fixture.node.write(&self.config, config)?;
        fixture
            .containerd(env, self.containerd_version, &self.config, self.socket)
            .map(drop)
    }
}

fn kinds() -> Vec<Kind> {
    use ContainerdVersion::{V1, V2};
    let two = |keys: &str| format!("[plugins.\"io.containerd.grpc.v1.cri\".cni]\n{keys}\n");
    let three = |keys: &str| format!("[plugins.'io.containerd.cri.v1.runtime'.cni]\n{keys}\n");
    let keys = |bin: &str, conf: &str| format!("bin_dir = \"{bin}\"\nconf_dir = \"{conf}\"");
    let list = |bins: &str, conf: &str| format!("bin_dirs = [{bins}]\nconf_dir = \"{conf}\"");
    let hash = format!("{K3S}/data/{HASH}/bin");
    let stable = format!("{K3S}/data/cni");
    let agent = format!("{K3S}/agent/etc/cni/net.d");
    let drop_ins = format!("{K3S}/agent/etc/containerd/config.toml.d");
    let drop_in = format!("{drop_ins}/10-own.toml");
    let import = format!("{drop_ins}/*.toml");
    let quoted = |path: &str| format!("\"{path}\"");
    vec![
        Kind::of("k3s of a hash directory", V1, 2, two(&keys(&hash, &agent)))
            .expects(&hash, &agent),
        Kind::of(
            "k3s of the stable directory",
            V1,
            2,
            two(&keys(&stable, &agent)),
        )
        .expects(&stable, &agent),
        Kind {
            config: "/var/lib/rancher/other/agent/etc/containerd/config.toml".to_owned(),
            ..Kind::of(
                "k3s with another data directory",
                V2,
                3,
                three(&list(&quoted(&stable), "/var/lib/rancher/other/cni")),
            )
            .expects(&stable, "/var/lib/rancher/other/cni")
        },
        Kind::of("k3s without flannel", V1, 2, String::new()),
        Kind {
            config: RKE2.to_owned(),
            ..Kind::of("rke2", V2, 3, String::new())
        },
        Kind::of(
            "version 1",
            V1,
            1,
            format!("[plugins.cri.cni]\n{}\n", keys("/opt/cni/v1", &agent)),
        )
        .expects("/opt/cni/v1", &agent),
        Kind::of(
            "version 1",
            V2,
            1,
            format!("[plugins.cri.cni]\n{}\n", keys("/opt/cni/v1", &agent)),
        )
        .expects("/opt/cni/v1", &agent),
        Kind::of("version 2", V2, 2, two(&keys(&hash, &agent))).expects(&hash, &agent),
        Kind::of(
            "two plugin directories, the first of a hash",
            V2,
            3,
            three(&list(
                &format!("{}, \"/opt/cni/own\"", quoted(&hash)),
                &agent,
            )),
        )
        .expects("/opt/cni/own", &agent),
        Kind::of(
            "a drop-in replaces the list",
            V2,
            3,
            three(&list(&quoted(&stable), &agent)),
        )
        .with(
            &import,
            &drop_in,
            format!("version = 3\n{}", three("bin_dirs = [\"/opt/cni/drop\"]")),
        )
        .expects("/opt/cni/drop", &agent),
        Kind::of(
            "a drop-in of an older version",
            V2,
            3,
            three(&list(&quoted(&stable), &agent)),
        )
        .with(
            &import,
            &drop_in,
            format!("version = 2\n{}", two("bin_dir = \"/opt/cni/drop\"")),
        )
        .expects("/opt/cni/drop", &agent),
        Kind::of(
            "a drop-in by a relative pattern",
            V2,
            2,
            two(&keys(&stable, &agent)),
        )
        .with(
            "config.toml.d/*.toml",
            &drop_in,
            format!("version = 2\n{}", two("bin_dir = \"/opt/cni/drop\"")),
        )
        .expects("/opt/cni/drop", &agent),
        Kind {
            notes: &[
                "takes `io.containerd.grpc.v1.cri` only from",
                "does not count",
            ],
            ..Kind::of(
                "a drop-in replaces the whole table",
                V1,
                2,
                two(&keys(&stable, &agent)),
            )
            .with(
                &import,
                &drop_in,
                format!("version = 2\n{}", two("bin_dir = \"/opt/cni/drop\"")),
            )
            .expects("/opt/cni/drop", USUAL.1)
        },
        Kind::of(
            "a relative pattern is not followed",
            V1,
            2,
            two(&keys(&stable, &agent)),
        )
        .with(
            "config.toml.d/*.toml",
            &drop_in,
            format!("version = 2\n{}", two("bin_dir = \"/opt/cni/drop\"")),
        )
        .expects(&stable, &agent),
        Kind {
            notes: &["`bin_dir` means nothing to containerd 2.4"],
            ..Kind::of(
                "`bin_dir` in version 3",
                V2,
                3,
                three(&keys("/opt/cni/old", &agent)),
            )
            .expects(USUAL.0, &agent)
        },
        Kind {
            notes: &[
                "runtime handler kata take their network from /etc/cni/kata.d",
                "loads 2 configurations",
            ],
            ..Kind::of(
                "a runtime handler with a network of its own",
                V2,
                3,
                three("max_conf_num = 2")
                    + "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\n\
                runtime_type = \"io.containerd.runc.v2\"\ncni_conf_dir = \"/etc/cni/kata.d\"\n",
            )
        },
        Kind {
            socket: "/run/elsewhere/containerd.sock",
            config: "/var/lib/rancher/elsewhere.toml".to_owned(),
            ..Kind::of("a socket at an unusual path", V2, 3, String::new())
        },
    ]
}

fn read_only(env: &TestEnv) -> anyhow::Result<()> {
    let fixture = DiscoverFixture::new(env)?;
    let (first, second) = (USUAL.0, "/var/lib/rancher/own");
    fixture.plugins(first)?;
    fixture.node.run(&["mount", "--bind", first, first])?;
    let remount = ["mount", "-o", "remount,bind,ro", first];
    fixture.node.run(&remount)?;
    fixture
        .node
        .write(&format!("{}/10-primary.conflist", USUAL.1), "{}")?;
    let table = format!(
        "[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = [\"{first}\", \"{second}\"]\n"
    );
    let kind = Kind::of("", ContainerdVersion::V2, 3, table);
    kind.start(env, &fixture)?;
    let (json, text) = fixture.discover(&["--root", "/"])?;
    ensure!(json["dirs"]["installDir"] == first, "{text}");
    ensure_contains(&text, &["/opt/cni/bin is read-only", "second directory"])?;
    fixture.plugins(second)?;
    let (json, text) = fixture.discover(&["--root", "/"])?;
    ensure!(json["dirs"]["installDir"] == second, "{text}");
    Ok(())
}

fn without_cri(env: &TestEnv) -> anyhow::Result<()> {
    let fixture = DiscoverFixture::new(env)?;
    let mut kind = Kind::of("", ContainerdVersion::V1, 2, String::new());
    kind.head
        .push_str("disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n");
    kind.start(env, &fixture)?;
    let (json, text) = fixture.discover(&["--root", "/"])?;
    ensure!(
        json["dirs"].is_null() && json["runtime"].is_null(),
        "{text}"
    );
    ensure_contains(
        &text,
        &[
            "refused Version",
            "unknown service runtime.v1.RuntimeService",
        ],
    )
}

fn ensure_contains(text: &str, parts: &[&str]) -> anyhow::Result<()> {
    for part in parts {
        ensure!(text.contains(part), "the output lacks `{part}`: {text}");
    }
    Ok(())
}
