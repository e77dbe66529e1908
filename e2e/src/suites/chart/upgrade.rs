//! Upgrades from the published charts to ours, rollbacks and removal: CRD, DaemonSet and network definitions stay the same objects.

use std::{fs, path::Path};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::{render, server::Server};
use crate::{
    control_plane::objects,
    kubectl_plugin::KubectlPlugin,
    programs::published_charts::{self, NEW, NEW_CRD, OLD},
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

pub(super) const MAIN: &str = "rke2-multus";
pub(super) const CRD: &str = "rke2-multus-crd";
const DEFINITION: &str = "CustomResourceDefinition/network-attachment-definitions.k8s.cni.cncf.io";
const DAEMON: &str = "DaemonSet/rke2-multus";

/// A published release from which a user upgrades.
pub(super) struct UpgradePath {
    name: &'static str,
    archive: &'static str,
    values: &'static [&'static str],
    /// Whether our main chart is installed before that of the CRD, as the two jobs of a distro may do.
    main_first: bool,
}

impl UpgradePath {
    /// Since v4.3.009 the CRD has a chart of its own.
    fn has_crd_chart(&self) -> bool {
        self.archive == NEW
    }
}

const fn path(
    name: &'static str,
    archive: &'static str,
    values: &'static [&'static str],
    main_first: bool,
) -> UpgradePath {
    UpgradePath {
        name,
        archive,
        values,
        main_first,
    }
}

const THICK: &[&str] = &["--set=thickPlugin.enabled=true"];
const THICK_WITH_EVERYTHING: &[&str] = &[
    "--set=thickPlugin.enabled=true",
    "--set=manifests.dhcpDaemonSet=true",
    "--set=dynamicNetworksController.enabled=true",
];

/// The newest published release in thick mode, for the page about moving over.
pub(super) const THICK_WITH_CRD_CHART: UpgradePath = path("v4.3.017, thick", NEW, THICK, false);

const UPGRADE_PATHS: &[UpgradePath] = &[
    path("v4.3.008, thin", OLD, &[], false),
    path("v4.3.008, thick, main chart first", OLD, THICK, true),
    path("v4.3.017, thin", NEW, &[], false),
    path(
        "v4.3.017, thick with dhcp and hot plug, main chart first",
        NEW,
        THICK_WITH_EVERYTHING,
        true,
    ),
];

pub(super) fn run(env: &TestEnv, server: &Server, report: &mut Report) -> Checked {
    for path in UPGRADE_PATHS {
        report.check(
            &format!(
                "{}: upgrade, rollback, second upgrade and removal",
                path.name
            ),
            || RoundTrip::begin(env, server, path)?.run(),
        )?;
    }
    report.check(
        "a main chart whose CRD Helm would delete is replaced only after the chart of the CRD",
        || deletable_crd(env, server),
    )?;
    for (name, title) in [
        (
            MAIN,
            "the steps of preflight keep the networks of a release whose CRD Helm would delete",
        ),
        (
            "multus",
            "the steps of preflight keep the networks of another chart's release, whose uninstall would delete them",
        ),
    ] {
        report.check(title, || {
            let chart = published_charts::deletable(env, name)?;
            preflight_steps(env, server, name, &chart)
        })?;
    }
    report.check(
        "reused values of the published chart are refused with a hint, and accepted when it is followed",
        || reused(env, server),
    )?;
    report.check("objects of helm can be applied server-side later", || {
        gitops(env, server)
    })?;
    report.check("CRDs of whereabouts stay", || whereabouts(env, server))
}

pub(super) struct RoundTrip<'a> {
    env: &'a TestEnv,
    server: &'a Server,
    path: &'a UpgradePath,
    /// The uids of the objects that must stay.
    uids: Vec<(&'static str, Value)>,
}

const STAYING: [&str; 3] = [DEFINITION, DAEMON, "net-attach-def/storage"];

impl<'a> RoundTrip<'a> {
    /// Installs the published release and a network definition.
    pub(super) fn begin(
        env: &'a TestEnv,
        server: &'a Server,
        path: &'a UpgradePath,
    ) -> anyhow::Result<Self> {
        if path.has_crd_chart() {
            server.release("install", CRD, &published_charts::archive(NEW_CRD)?, &[])?;
        }
        server.release(
            "install",
            MAIN,
            &published_charts::archive(path.archive)?,
            path.values,
        )?;
        define_network(server)?;
        let mut journey = Self {
            env,
            server,
            path,
            uids: Vec::new(),
        };
        journey.uids = journey.present()?;
        Ok(journey)
    }

    fn present(&self) -> anyhow::Result<Vec<(&'static str, Value)>> {
        let uid = |name| Ok((name, self.server.existing(name)?["metadata"]["uid"].clone()));
        STAYING.into_iter().map(uid).collect()
    }

    fn run(&self) -> anyhow::Result<()> {
        let Self {
            env, server, path, ..
        } = self;
        let theirs = self.names()?;
        self.upgrade().context("upgrade")?;
        let ours = self.names()?;
        // Objects that only the published release has are deleted.
        let rendered = render::ours(env, MAIN, &[])?;
        for object in &rendered {
            let identity = render::identity(object);
            ensure!(ours.contains(&identity), "{identity} is not in the release");
        }
        for removed in theirs
            .iter()
            .filter(|name| !ours.contains(name) && *name != DEFINITION)
        {
            ensure!(server.get(removed)?.is_none(), "{removed} is still there");
        }
        self.ensure_same("upgrade")?;
        let back = server.helm(&["rollback", MAIN, "1"]);
        if path.has_crd_chart() {
            back.context("rollback")?;
            ensure!(
                self.names()? == theirs,
                "after the rollback there are {:?}",
                self.names()?
            );
        } else {
            // Helm cannot roll back the owner of the CRD. README describes another way, and no object is lost.
            let error = back
                .err()
                .context("helm rolls back, but README says that it cannot")?;
            ensure!(error.to_string().contains("cannot patch"), "{error:#}");
        }
        self.ensure_same("rollback")?;
        self.upgrade().context("second upgrade")?;
        self.ensure_same("second upgrade")?;
        // An operator who goes back by hand needs --take-ownership, because our release owns the CRD.
        let archive = published_charts::archive(path.archive)?;
        server
            .release(
                "upgrade",
                MAIN,
                &archive,
                &[path.values, &["--take-ownership"]].concat(),
            )
            .context("going back by hand")?;
        self.ensure_same("going back by hand")?;
        self.upgrade().context("third upgrade")?;
        self.remove()
    }

    /// Upgrades as README describes.
    fn upgrade(&self) -> anyhow::Result<()> {
        let mut charts = [CRD, MAIN];
        if self.path.main_first {
            charts.reverse();
        }
        for name in charts {
            replace(self.env, self.server, name)?;
        }
        let owner =
            self.server.existing(DEFINITION)?["metadata"]["annotations"]["meta.helm.sh/release-name"]
                .clone();
        ensure!(owner == CRD, "the CRD belongs to {owner}");
        let (rendered, there) = (
            render::ours(self.env, MAIN, &[])?,
            self.server.existing(DAEMON)?,
        );
        let (wanted, found) = (parts(render::find(&rendered, DAEMON)?), parts(&there));
        ensure!(
            found == wanted,
            "the DaemonSet has {found:?}, the chart {wanted:?}"
        );
        Ok(())
    }

    pub(super) fn ensure_same(&self, step: &str) -> anyhow::Result<()> {
        let found = self.present().with_context(|| step.to_owned())?;
        ensure!(
            found == self.uids,
            "{step}: the objects are {found:?}, they were {:?}",
            self.uids
        );
        let selector = &self.server.existing(DAEMON)?["spec"]["selector"];
        ensure!(
            *selector == json!({"matchLabels": {"app": MAIN}}),
            "{step}: the selector is {selector}"
        );
        Ok(())
    }

    /// Returns the objects of the main release.
    pub(super) fn names(&self) -> anyhow::Result<Vec<String>> {
        let text = self.server.helm(&["get", "manifest", MAIN])?;
        Ok(render::parse(&text)?.iter().map(render::identity).collect())
    }

    /// Uninstalls both releases; CRD and network definitions stay.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        let ours = self.names()?;
        for name in [MAIN, CRD] {
            self.server.helm(&["uninstall", name])?;
        }
        for name in ours {
            ensure!(self.server.get(&name)?.is_none(), "{name} is still there");
        }
        for name in [DEFINITION, "net-attach-def/storage"] {
            let uid = self.server.existing(name)?["metadata"]["uid"].clone();
            ensure!(self.uids.contains(&(name, uid)), "{name} is another object");
        }
        self.server.kubectl(&["delete", DEFINITION]).map(drop)
    }
}

/// Makes a network definition, as soon as the API server has the resource.
pub(super) fn define_network(server: &Server) -> anyhow::Result<()> {
    let mut storage = objects::storage();
    storage["metadata"]["namespace"] = json!(render::NAMESPACE);
    sh::until(30, "network definitions can be made", || {
        server
            .control
            .apply(&server.node, std::slice::from_ref(&storage))
    })
}

/// Returns the names of containers and volumes, which show whether parts of another chart are left.
fn parts(daemon: &Value) -> Vec<&str> {
    let pod = &daemon["spec"]["template"]["spec"];
    ["initContainers", "containers", "volumes"]
        .into_iter()
        .filter_map(|key| pod[key].as_array())
        .flatten()
        .filter_map(|part| part["name"].as_str())
        .collect()
}

/// With `--reuse-values` the published chart's defaults override ours, thin mode and images included.
fn reused(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    server.release("install", CRD, &env.chart(CRD)?, &[])?;
    server.release("install", MAIN, &published_charts::archive(NEW)?, &[])?;
    let before = server.existing(DAEMON)?["metadata"]["resourceVersion"].clone();
    let outcome = server.release("upgrade", MAIN, &env.chart(MAIN)?, &["--reuse-values"]);
    let Err(error) = outcome else {
        bail!("values of the published chart are accepted");
    };
    ensure!(
        error
            .to_string()
            .contains("thin mode does not exist in this chart"),
        "{error:#}"
    );
    let after = server.existing(DAEMON)?["metadata"]["resourceVersion"].clone();
    ensure!(before == after, "the DaemonSet has changed");
    // With the values of the hints they are accepted: templates have defaults for values that the published chart lacks.
    let image = format!(
        "--set=image.repository=multusrs/multus,image.tag=v{}",
        env.version()?
    );
    let repaired = [
        "--reuse-values",
        "--set=thickPlugin.enabled=true",
        "--set=thickPlugin.image.repository=,thickPlugin.image.tag=",
        image.as_str(),
    ];
    server.release("upgrade", MAIN, &env.chart(MAIN)?, &repaired)?;
    let spec = &server.existing(DAEMON)?["spec"];
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    let class = &spec["template"]["spec"]["priorityClassName"];
    ensure!(
        spec["updateStrategy"] == strategy && class == "system-node-critical",
        "{}, {class}",
        spec["updateStrategy"]
    );
    server
        .release("upgrade", MAIN, &env.chart(MAIN)?, &["--reset-values"])
        .map(drop)
}

/// Returns the uids of what an upgrade may not lose.
pub(super) fn networks(server: &Server) -> anyhow::Result<Vec<Value>> {
    [DEFINITION, "net-attach-def/storage"]
        .into_iter()
        .map(|name| Ok(server.existing(name)?["metadata"]["uid"].clone()))
        .collect()
}

pub(super) fn remove_ours(server: &Server) -> anyhow::Result<()> {
    remove(server, &[MAIN, CRD])
}

fn remove(server: &Server, releases: &[&str]) -> anyhow::Result<()> {
    for name in releases {
        server.helm(&["uninstall", name])?;
    }
    server.kubectl(&["delete", DEFINITION]).map(drop)
}

/// Installs one of our charts in place of a published one, as the page about moving over says.
pub(super) fn replace(env: &TestEnv, server: &Server, name: &str) -> anyhow::Result<String> {
    let args = ["--install", "--take-ownership", "--reset-values"];
    server.release("upgrade", name, &env.chart(name)?, &args)
}

/// Fails unless our main chart refuses to replace a release that owns a CRD which Helm would delete.
pub(super) fn ensure_refused(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    let Err(error) = replace(env, server, MAIN) else {
        bail!("the main chart replaces a release that owns the CRD");
    };
    ensure!(
        error
            .to_string()
            .contains("install the chart rke2-multus-crd first"),
        "{error:#}"
    );
    Ok(())
}

fn deletable_crd(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    server.release(
        "install",
        MAIN,
        &published_charts::deletable(env, MAIN)?,
        &[],
    )?;
    define_network(server)?;
    let before = networks(server)?;
    ensure_refused(env, server)?;
    ensure!(
        networks(server)? == before,
        "the refused upgrade lost objects"
    );
    for name in [CRD, MAIN] {
        replace(env, server, name)?;
    }
    ensure!(networks(server)? == before, "the upgrade lost objects");
    remove_ours(server)
}

/// Runs what preflight prints for a chart whose CRD Helm would delete, the main chart before that of the CRD, which is the dangerous order.
pub(super) fn preflight_steps(
    env: &TestEnv,
    server: &Server,
    name: &str,
    chart: &Path,
) -> anyhow::Result<()> {
    server.release("install", name, chart, &[])?;
    define_network(server)?;
    let before = networks(server)?;
    let plugin = KubectlPlugin::new(env, &server.node, server.control.admin());
    let (status, answer) = plugin.json(&["preflight"], "")?;
    ensure!(status == 4 && answer["gaps"] == json!([]), "{answer}");
    let steps = answer["steps"].as_array().context("preflight has steps")?;
    let mut steps: Vec<_> = steps.iter().filter_map(Value::as_str).collect();
    let crd = steps.iter().position(|step| step.contains("-crd-"));
    let crd = steps.remove(crd.with_context(|| format!("no step installs the CRD: {answer}"))?);
    let dir = server.node.dir.join(format!("steps-{name}"));
    fs::create_dir_all(&dir)?;
    for chart in [MAIN, CRD] {
        let archive = env.chart(chart)?;
        let file = archive.file_name().context("a chart is a file")?;
        fs::copy(&archive, dir.join(file))?;
    }
    for step in steps.into_iter().chain([crd]) {
        let mut shell = server.node.command("bash");
        shell
            .env("KUBECONFIG", server.control.admin())
            .env("HOME", &server.node.dir);
        let step = format!("cd '{}'; {step}", dir.display());
        shell.args(["-o", "errexit", "-c", &step]);
        sh::run(&mut shell)?;
        ensure!(networks(server)? == before, "{step:?} lost networks");
    }
    let releases = server.helm(&["list", "--short"])?;
    let releases: Vec<_> = releases.lines().collect();
    // A release of the same chart keeps its name.
    let expected = [[MAIN, CRD], [name, CRD]];
    ensure!(
        expected.iter().any(|one| releases == one),
        "the releases are {releases:?}"
    );
    remove(server, &releases)?;
    // What another chart's release leaves: nobody but its owner knows whether something else uses it. The oldest one gave all releases one name.
    for kinds in ["clusterrole,clusterrolebinding", "serviceaccount"] {
        let args = ["delete", kinds, "multus", "--namespace", render::NAMESPACE];
        server.kubectl(&[&args[..], &["--ignore-not-found"]].concat())?;
    }
    Ok(())
}

/// Applies the objects of a release server-side, as another tool does.
fn gitops(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    let uid = server.existing(DAEMON)?["metadata"]["uid"].clone();
    let debug = ["--set=config.daemon_conf.logLevel=debug"];
    for (name, more) in [(CRD, &[][..]), (MAIN, &debug)] {
        server.apply_on_server(&render::text(env, name, &env.chart(name)?, more)?)?;
    }
    ensure!(
        server.existing(DAEMON)?["metadata"]["uid"] == uid,
        "the DaemonSet is another object"
    );
    let config =
        server.existing("ConfigMap/rke2-multus-config")?["data"]["daemon-config.json"].to_string();
    ensure!(config.contains("debug"), "{config}");
    server.helm(&["uninstall", MAIN])?;
    server.helm(&["uninstall", CRD])?;
    server.kubectl(&["delete", DEFINITION]).map(drop)
}

/// The published chart of the CRD installs those of whereabouts when a value requests it.
fn whereabouts(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    let pools = "CustomResourceDefinition/ippools.whereabouts.cni.cncf.io";
    server.release(
        "install",
        CRD,
        &published_charts::archive(NEW_CRD)?,
        &["--set=rke2-whereabouts.enabled=true"],
    )?;
    let uid = server.existing(pools)?["metadata"]["uid"].clone();
    server.release("upgrade", CRD, &env.chart(CRD)?, &[])?;
    ensure!(
        server.existing(pools)?["metadata"]["uid"] == uid,
        "the CRD of ippools is another object"
    );
    server.helm(&["uninstall", CRD])?;
    ensure!(
        server.existing(pools)?["metadata"]["uid"] == uid,
        "the CRD of ippools is another object"
    );
    server.kubectl(&["delete", "crd", "--all"]).map(drop)
}
