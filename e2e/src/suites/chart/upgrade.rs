//! From the published charts to ours, back again, and away: what must stay is the same object all along.

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::{render, server::Server};
use crate::{
    control_plane::objects,
    programs::published_charts::{self, NEW, NEW_CRD, OLD},
    report::{CheckFailed, Report},
    sh,
    test_env::TestEnv,
};

const MAIN: &str = "rke2-multus";
const CRD: &str = "rke2-multus-crd";
const DEFINITION: &str = "CustomResourceDefinition/network-attachment-definitions.k8s.cni.cncf.io";
const DAEMON: &str = "DaemonSet/rke2-multus";

/// One way that a user may have come.
struct UpgradePath {
    name: &'static str,
    archive: &'static str,
    /// Since v4.3.009 the definition has a chart of its own.
    has_crd_chart: bool,
    values: &'static [&'static str],
    /// Whether ours is installed before the chart of its definition, as two jobs of a distro may do.
    main_first: bool,
}

const THICK: &[&str] = &["--set=thickPlugin.enabled=true"];

const UPGRADE_PATHS: &[UpgradePath] = &[
    UpgradePath {
        name: "v4.3.008, thin",
        archive: OLD,
        has_crd_chart: false,
        values: &[],
        main_first: false,
    },
    UpgradePath {
        name: "v4.3.008, thick, main chart first",
        archive: OLD,
        has_crd_chart: false,
        values: THICK,
        main_first: true,
    },
    UpgradePath {
        name: "v4.3.017, thin",
        archive: NEW,
        has_crd_chart: true,
        values: &[],
        main_first: false,
    },
    UpgradePath {
        name: "v4.3.017, thick with dhcp and hot plug, main chart first",
        archive: NEW,
        has_crd_chart: true,
        values: &[
            "--set=thickPlugin.enabled=true",
            "--set=manifests.dhcpDaemonSet=true",
            "--set=dynamicNetworksController.enabled=true",
        ],
        main_first: true,
    },
];

pub(super) fn run(env: &TestEnv, server: &Server, report: &mut Report) -> Result<(), CheckFailed> {
    for way in UPGRADE_PATHS {
        report.check(
            &format!("from {} to ours, back, forth and away", way.name),
            || RoundTrip::begin(env, server, way)?.travel(),
        )?;
    }
    report.check(
        "values that were reused are refused with the cure, and accepted with it",
        || reused(env, server),
    )?;
    report.check(
        "what helm installed can be applied on the server from then on",
        || gitops(env, server),
    )?;
    report.check("definitions of whereabouts stay", || {
        whereabouts(env, server)
    })
}

struct RoundTrip<'a> {
    env: &'a TestEnv,
    server: &'a Server,
    way: &'a UpgradePath,
    /// Who must stay who they are.
    uids: Vec<(&'static str, Value)>,
}

const STAYING: [&str; 3] = [DEFINITION, DAEMON, "net-attach-def/storage"];

impl<'a> RoundTrip<'a> {
    /// Installs what the user has.
    fn begin(env: &'a TestEnv, server: &'a Server, way: &'a UpgradePath) -> anyhow::Result<Self> {
        if way.has_crd_chart {
            server.release("install", CRD, &published_charts::archive(NEW_CRD)?, &[])?;
        }
        server.release(
            "install",
            MAIN,
            &published_charts::archive(way.archive)?,
            way.values,
        )?;
        let mut storage = objects::storage();
        storage["metadata"]["namespace"] = json!(render::NAMESPACE);
        sh::until(30, "network definitions can be made", || {
            server
                .control
                .apply(&server.node, std::slice::from_ref(&storage))
        })?;
        let mut journey = Self {
            env,
            server,
            way,
            uids: Vec::new(),
        };
        journey.uids = journey.present()?;
        Ok(journey)
    }

    fn present(&self) -> anyhow::Result<Vec<(&'static str, Value)>> {
        let uid = |name| Ok((name, self.server.there(name)?["metadata"]["uid"].clone()));
        STAYING.into_iter().map(uid).collect()
    }

    fn travel(&self) -> anyhow::Result<()> {
        let Self {
            env, server, way, ..
        } = self;
        let theirs = self.names()?;
        self.forth().context("there")?;
        let ours = self.names()?;
        // What the published release made and ours does not has gone.
        let rendered = render::ours(env, MAIN, &[])?;
        for object in &rendered {
            let identity = render::identity(object);
            ensure!(ours.contains(&identity), "{identity} is not in the release");
        }
        for gone in theirs
            .iter()
            .filter(|name| !ours.contains(name) && *name != DEFINITION)
        {
            ensure!(server.get(gone)?.is_none(), "{gone} is left");
        }
        self.same("there")?;
        let back = server.helm(&["rollback", MAIN, "1"]);
        if way.has_crd_chart {
            back.context("back")?;
            ensure!(
                self.names()? == theirs,
                "rolled back are {:?}",
                self.names()?
            );
        } else {
            // Helm cannot roll back to who owned the definition; README names the other way, and nothing is lost.
            let error = back
                .err()
                .context("helm rolls back: README says otherwise")?;
            ensure!(error.to_string().contains("cannot patch"), "{error:#}");
        }
        self.same("back")?;
        self.forth().context("there again")?;
        self.same("there again")?;
        // An operator who goes back by hand says so where we took the definition over.
        let archive = published_charts::archive(way.archive)?;
        server
            .release(
                "upgrade",
                MAIN,
                &archive,
                &[way.values, &["--take-ownership"]].concat(),
            )
            .context("back by hand")?;
        self.same("back by hand")?;
        self.forth().context("there once more")?;
        self.away()
    }

    /// As README says.
    fn forth(&self) -> anyhow::Result<()> {
        let mut charts = [CRD, MAIN];
        if self.way.main_first {
            charts.reverse();
        }
        for name in charts {
            let words = ["--install", "--take-ownership", "--reset-values"];
            self.server
                .release("upgrade", name, &self.env.chart(name)?, &words)?;
        }
        let owner =
            self.server.there(DEFINITION)?["metadata"]["annotations"]["meta.helm.sh/release-name"]
                .clone();
        ensure!(owner == CRD, "the definition belongs to {owner}");
        let (rendered, there) = (
            render::ours(self.env, MAIN, &[])?,
            self.server.there(DAEMON)?,
        );
        let (wanted, found) = (parts(render::find(&rendered, DAEMON)?), parts(&there));
        ensure!(
            found == wanted,
            "the DaemonSet has {found:?}, rendered are {wanted:?}"
        );
        Ok(())
    }

    fn same(&self, place: &str) -> anyhow::Result<()> {
        let found = self.present().with_context(|| place.to_owned())?;
        ensure!(
            found == self.uids,
            "{place}: {found:?} were {:?}",
            self.uids
        );
        let selector = &self.server.there(DAEMON)?["spec"]["selector"];
        ensure!(
            *selector == json!({"matchLabels": {"app": MAIN}}),
            "{place}: {selector}"
        );
        Ok(())
    }

    /// Objects of the main release.
    fn names(&self) -> anyhow::Result<Vec<String>> {
        let text = self.server.helm(&["get", "manifest", MAIN])?;
        Ok(render::parse(&text)?.iter().map(render::identity).collect())
    }

    /// Both releases go, and definitions stay.
    fn away(&self) -> anyhow::Result<()> {
        let ours = self.names()?;
        for name in [MAIN, CRD] {
            self.server.helm(&["uninstall", name])?;
        }
        for name in ours {
            ensure!(self.server.get(&name)?.is_none(), "{name} is left");
        }
        for name in [DEFINITION, "net-attach-def/storage"] {
            let uid = self.server.there(name)?["metadata"]["uid"].clone();
            ensure!(self.uids.contains(&(name, uid)), "{name} is another");
        }
        self.server.kubectl(&["delete", DEFINITION]).map(drop)
    }
}

/// Names of containers and volumes, so that nothing of another chart is left between ours.
fn parts(daemon: &Value) -> Vec<&str> {
    let pod = &daemon["spec"]["template"]["spec"];
    ["initContainers", "containers", "volumes"]
        .into_iter()
        .filter_map(|key| pod[key].as_array())
        .flatten()
        .filter_map(|part| part["name"].as_str())
        .collect()
}

/// `--reuse-values` lays the published chart's defaults over ours, thin mode and images included.
fn reused(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    server.release("install", CRD, &env.chart(CRD)?, &[])?;
    server.release("install", MAIN, &published_charts::archive(NEW)?, &[])?;
    let before = server.there(DAEMON)?["metadata"]["resourceVersion"].clone();
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
    let after = server.there(DAEMON)?["metadata"]["resourceVersion"].clone();
    ensure!(before == after, "the DaemonSet has changed");
    // With what the cures name they are accepted: templates have defaults for values that the published chart does not know.
    let cured = [
        "--reuse-values",
        "--set=thickPlugin.enabled=true",
        "--set=thickPlugin.image.repository=,thickPlugin.image.tag=",
        "--set=image.repository=multusrs/multus,image.tag=v5.0.0",
    ];
    server.release("upgrade", MAIN, &env.chart(MAIN)?, &cured)?;
    let spec = &server.there(DAEMON)?["spec"];
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

/// Helm's objects, given to another tool.
fn gitops(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    let uid = server.there(DAEMON)?["metadata"]["uid"].clone();
    let debug = ["--set=config.daemon_conf.logLevel=debug"];
    for (name, more) in [(CRD, &[][..]), (MAIN, &debug)] {
        server.apply_on_server(&render::text(env, name, &env.chart(name)?, more)?)?;
    }
    ensure!(
        server.there(DAEMON)?["metadata"]["uid"] == uid,
        "the DaemonSet is another"
    );
    let config =
        server.there("ConfigMap/rke2-multus-config")?["data"]["daemon-config.json"].to_string();
    ensure!(config.contains("debug"), "{config}");
    server.helm(&["uninstall", MAIN])?;
    server.helm(&["uninstall", CRD])?;
    server.kubectl(&["delete", DEFINITION]).map(drop)
}

/// The published definition's chart brought them where it was told to.
fn whereabouts(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    let pools = "CustomResourceDefinition/ippools.whereabouts.cni.cncf.io";
    server.release(
        "install",
        CRD,
        &published_charts::archive(NEW_CRD)?,
        &["--set=rke2-whereabouts.enabled=true"],
    )?;
    let uid = server.there(pools)?["metadata"]["uid"].clone();
    server.release("upgrade", CRD, &env.chart(CRD)?, &[])?;
    ensure!(
        server.there(pools)?["metadata"]["uid"] == uid,
        "ippools are others"
    );
    server.helm(&["uninstall", CRD])?;
    ensure!(
        server.there(pools)?["metadata"]["uid"] == uid,
        "ippools are others"
    );
    server.kubectl(&["delete", "crd", "--all"]).map(drop)
}
