//! Suite `chart`: the packed charts with real Helm, compared with the published ones and on a real API server; the bindata with a real Go
//! toolchain.

mod address_policy;
mod admission;
mod bindata;
mod consumers;
mod defects;
mod derived;
mod every_kind;
mod notes;
mod pages;
mod release_test;
pub(super) mod render;
mod rke2_gate;
mod server;
mod standalone;
mod upgrade;
mod values;

use std::collections::BTreeSet;

use anyhow::{bail, ensure};

use crate::{
    options::Options,
    programs::{Module, Needs},
    report::{Checked, Report},
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: "curl etcd ip make openssl sysctl",
    modules: &[Module::Helm, Module::Kubernetes],
};

pub(super) const CHARTS: [&str; 6] = [
    "rke2-multus",
    "rke2-multus-crd",
    "k3s-multus",
    "k3s-multus-crd",
    "multus",
    "multus-crd",
];
/// Invalid values with a text of the hint.
const REFUSED: &[(&str, &str)] = &[
    (
        "image.repository=rancher/hardened-multus-cni",
        "remove image from your values",
    ),
    (
        "image.tag=v4.3.0-build20260819",
        "remove image from your values",
    ),
    (
        "thickPlugin.image.tag=v4.3.0-build20260819",
        "remove thickPlugin.image from your values",
    ),
    (
        "config.daemon_conf.perNodeCertificate.enabled=true",
        "move it to perNodeCertificate",
    ),
    ("imge.tag=v1", "imge"),
    ("config.cni_conf.binDri=/opt", "binDri"),
    ("pod.resources.enabled=perhaps", "enabled"),
    ("serviceAccount.name=null", "name"),
    ("manifests=null", "manifests"),
];

pub(crate) fn run(env: &TestEnv, options: &Options, report: &mut Report) -> Checked {
    rke2_gate::run(env, report)?;
    for name in CHARTS {
        report.check(&format!("helm lint {name}"), || {
            let words = render::helm(env, &["lint", "--strict"], &env.chart(name)?)?;
            ensure!(!words.contains("[WARNING]"), "{words}");
            Ok(())
        })?;
    }
    report.check(
        "helm template: the charts of both distros render the same objects",
        || same_objects(env),
    )?;
    report.check("every value has the outcome of its row", || {
        values::each(env)
    })?;
    report.check("invalid values are refused with a hint", || refused(env))?;
    report.check(
        "the published values file is accepted except for thin mode and images",
        || values::published(env),
    )?;
    report.check("a HelmChartConfig overrides the HelmChart", || {
        values::layers(env)
    })?;
    defects::run(env, report)?;
    report.check(
        "certificates add an approver and reduce the account's rights",
        || certificates(env),
    )?;
    report.check(
        "helm test runs a pod of the release's image with rights of its own, and nothing of it is installed",
        || release_test::objects(env),
    )?;
    report.check(
        "plugins without a multiplexer need one right and two capabilities",
        || standalone::objects(env),
    )?;
    report.check(
        "a Go program reads the packed charts from bindata and embed tree",
        || bindata::consumer(env),
    )?;
    let tree = report.check(
        "a distro's source tree builds: make download, go generate, go build",
        || consumers::build(env),
    )?;
    report.check("the built program stages the charts as K3s does", || {
        tree.stages(env)
    })?;
    report.check("the built program serves the charts", || tree.serves(env))?;
    report.check(
        "make download refuses a file with another digest than the lock",
        || tree.refuses(),
    )?;
    report.check(
        "make multus-lock refuses an error page, another version and paths that lead out, and knows RKE2's files",
        || tree.checks_sums(env),
    )?;
    report.check(
        "a derived chart differs from the published one only as requested",
        || derived::compare(env),
    )?;
    report.check("helm finds every version in a merged repository", || {
        derived::repository(env)
    })?;
    let server = report.check("a real API server starts", || server::Server::start(env))?;
    server.apply_charts(env, report)?;
    report.check(
        "a release is upgraded to plugins without a multiplexer and back, without the CRD",
        || standalone::upgrade(env, &server),
    )?;
    notes::run(env, &server, report)?;
    admission::run(env, &server, report)?;
    address_policy::run(env, &server, report)?;
    upgrade::run(env, &server, report)?;
    if options.long {
        every_kind::run(env, &server, report)?;
    }
    pages::run(env, &server, report)
}

fn same_objects(env: &TestEnv) -> anyhow::Result<()> {
    for end in ["", "-crd"] {
        let everything = if end.is_empty() {
            defects::EVERYTHING
        } else {
            &[]
        };
        let text = |name: &str| {
            let name = format!("{name}{end}");
            render::text(env, &name, &env.chart(&name)?, everything)
        };
        let first = text("rke2-multus")?;
        for other in ["k3s-multus", "multus"] {
            ensure!(
                first.replace("rke2-multus", other) == text(other)?,
                "{other} differs from rke2-multus in more than the name"
            );
        }
    }
    let objects = render::ours(env, "rke2-multus", &[])?;
    let kinds: BTreeSet<_> = objects
        .iter()
        .filter_map(|one| one["kind"].as_str())
        .collect();
    let expected = [
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "DaemonSet",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ];
    ensure!(kinds == expected.into(), "{kinds:?}");
    Ok(())
}

/// Values that an older version of Kubernetes cannot serve, one below the first that can, and a part of the chart's hint.
const REFUSED_BY_VERSION: [(&str, &str, &str); 3] = [
    (
        "definitionValidation.enabled=true",
        "1.29.0",
        "upgrade to 1.30",
    ),
    ("publish=labels", "1.29.0", "upgrade to 1.30"),
    ("publish=resources", "1.25.0", "upgrade to 1.26"),
];

fn refused(env: &TestEnv) -> anyhow::Result<()> {
    for (value, hint) in REFUSED {
        for name in ["rke2-multus", "k3s-multus", "multus"] {
            match render::ours(env, name, &[&format!("--set={value}")]) {
                Ok(_) => bail!("{name} accepts {value}"),
                Err(error) => ensure!(error.to_string().contains(hint), "{value}: {error:#}"),
            }
        }
    }
    for (value, version, hint) in REFUSED_BY_VERSION {
        let options = [
            &*format!("--set={value}"),
            &format!("--kube-version={version}"),
        ];
        match render::ours(env, "rke2-multus", &options) {
            Ok(_) => bail!("Kubernetes {version} accepts {value}"),
            Err(error) => ensure!(error.to_string().contains(hint), "{value}: {error:#}"),
        }
    }
    Ok(())
}

/// Certificates are off by default; the service account keeps its rights unless `exclusive` is set.
fn certificates(env: &TestEnv) -> anyhow::Result<()> {
    let (enabled, exclusive) = (
        "--set=perNodeCertificate.enabled=true",
        "--set=perNodeCertificate.exclusive=true",
    );
    for (values, approvers, groups, accounts) in [
        (&[][..], 0, 0, 3),
        (&[enabled], 1, 3, 5),
        (&[enabled, exclusive], 1, 3, 2),
        (
            &[enabled, "--set=perNodeCertificate.bootstrapKubeconfig=/k"],
            1,
            3,
            4,
        ),
        (
            &[enabled, "--set=perNodeCertificate.approver.enabled=false"],
            0,
            3,
            4,
        ),
    ] {
        let text = render::text(env, "rke2-multus", &env.chart("rke2-multus")?, values)?;
        let count = |line: &str| text.lines().filter(|one| one.trim_end() == line).count();
        let found = (
            count("kind: Deployment"),
            count("  name: system:multus"),
            count("- kind: ServiceAccount"),
        );
        ensure!(
            found == (approvers, groups, accounts),
            "{values:?}: there are {found:?} Deployments, groups and accounts"
        );
    }
    Ok(())
}
