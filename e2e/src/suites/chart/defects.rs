//! Defects of the published chart, with a check that ours does not have them. What `chart/rendered` or a row of `values` shows has no check here.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::{
    render::{self, identity},
    values,
};
use crate::{
    pool,
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

const NAME: &str = "rke2-multus";

/// Values with which the chart renders every object.
pub(super) const EVERYTHING: &[&str] = &[
    "--set=perNodeCertificate.enabled=true",
    "--set=definitionValidation.enabled=true",
    "--set=definitionSelectors.enabled=true",
    "--set=publish=labels",
    "--set=ipam.enabled=true",
    "--set=ipam.whereabouts=true",
    "--set=podDisruptionBudget.enabled=true",
];

pub(super) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    type Check = fn(&TestEnv) -> anyhow::Result<()>;
    let checks: [(&str, Check); 8] = [
        ("no name contains a version", names),
        ("no two workloads select the same pods", selectors),
        ("a switch may be a string", args),
        ("a changed configuration restarts pods", checksum),
        (
            "every container has resources and a pull policy",
            containers,
        ),
        ("every pod runs on tainted nodes, with priority", placement),
        ("a path in a container is used as the node's", prefixes),
        (
            "no argument and no key is unknown to the program",
            arguments,
        ),
    ];
    for (name, check) in checks {
        report.check(&format!("defect {name}"), || check(env))?;
    }
    Ok(())
}

/// Renders with a version that contains `+`, as those of K3s' charts do.
fn names(env: &TestEnv) -> anyhow::Result<()> {
    let dir = env.dir.join("plus");
    std::fs::create_dir_all(&dir)?;
    sh::run(
        Command::new("tar")
            .args(["--extract", "--gzip", "--file"])
            .arg(env.chart(NAME)?)
            .arg("--directory")
            .arg(&dir),
    )?;
    let destination = format!("--destination={}", dir.display());
    render::helm(
        env,
        &["package", "--version=9.8.7+up1", &destination],
        &dir.join(NAME),
    )?;
    let chart = dir.join(format!("{NAME}-9.8.7+up1.tgz"));
    let objects = render::objects(env, NAME, &chart, EVERYTHING)?;
    for object in &objects {
        let name = object["metadata"]["name"]
            .as_str()
            .context("every object has a name")?;
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        ensure!(
            name.bytes().all(is_plain) && !name.contains("9.8.7"),
            "{}",
            identity(object)
        );
        let labels = object["metadata"]["labels"].to_string();
        ensure!(!labels.contains("9.8.7"), "{}: {labels}", identity(object));
    }
    Ok(())
}

fn selectors(env: &TestEnv) -> anyhow::Result<()> {
    let overlap = |objects: &[Value]| {
        let all: Vec<_> = render::workloads(objects).collect();
        let selects = |one: &Value, other: &Value| {
            let wanted = one["spec"]["selector"]["matchLabels"]
                .as_object()
                .into_iter()
                .flatten();
            let labels = &other["spec"]["template"]["metadata"]["labels"];
            wanted.into_iter().all(|(key, value)| labels[key] == *value)
        };
        all.iter().enumerate().any(|(index, one)| {
            let others = all.iter().enumerate().filter(|(other, _)| *other != index);
            others.into_iter().any(|(_, other)| selects(one, other))
        })
    };
    let ours = render::ours(env, NAME, EVERYTHING)?;
    ensure!(
        render::workloads(&ours).count() > 1,
        "there is only one workload"
    );
    ensure!(!overlap(&ours), "a workload selects another's pods");
    Ok(())
}

fn args(env: &TestEnv) -> anyhow::Result<()> {
    let leaves = values::leaves(env)?;
    let is_switch = |schema: &Value| {
        let allowed = schema["enum"].as_array();
        allowed.is_some_and(|list| list.contains(&json!(true)))
    };
    let switches = leaves.iter().filter(|(_, schema)| is_switch(schema));
    let switches: Vec<_> = switches.collect();
    pool::all(&switches, |(path, _)| {
        for (value, word) in [(json!(true), "true"), (json!(false), "false")] {
            let rendered = |value: Value| {
                let values = render::nested(path, value).to_string();
                render::with_file(env, NAME, &values, &[]).map_err(|error| error.to_string())
            };
            ensure!(
                rendered(value) == rendered(json!(word)),
                "{path}: the string `{word}` has another outcome"
            );
        }
        Ok(())
    })?;
    let count = switches.len();
    ensure!(count > 15, "only {count} switches");
    Ok(())
}

fn checksum(env: &TestEnv) -> anyhow::Result<()> {
    let annotations = |objects: &[Value]| {
        let daemon = render::find(objects, &format!("DaemonSet/{NAME}"))?;
        anyhow::Ok(daemon["spec"]["template"]["metadata"]["annotations"].clone())
    };
    let debug = ["--set=config.daemon_conf.logLevel=debug"];
    let (before, after) = (
        annotations(&render::ours(env, NAME, &[])?)?,
        annotations(&render::ours(env, NAME, &debug)?)?,
    );
    ensure!(before != after, "{before} stays");
    Ok(())
}

fn containers(env: &TestEnv) -> anyhow::Result<()> {
    let lacking = |objects: &[Value]| {
        let all = render::workloads(objects).flat_map(render::containers);
        all.filter(|one| {
            one["imagePullPolicy"].is_null() || !one["resources"]["limits"].is_object()
        })
        .count()
    };
    let ours = render::ours(env, NAME, EVERYTHING)?;
    ensure!(
        lacking(&ours) == 0,
        "{} containers lack a pull policy or limits",
        lacking(&ours)
    );
    Ok(())
}

fn placement(env: &TestEnv) -> anyhow::Result<()> {
    let objects = render::ours(env, NAME, EVERYTHING)?;
    for workload in render::workloads(&objects) {
        let pod = &workload["spec"]["template"]["spec"];
        for key in [
            "priorityClassName",
            "nodeSelector",
            "tolerations",
            "affinity",
        ] {
            ensure!(!pod[key].is_null(), "{} has no {key}", identity(workload));
        }
        let tolerations = pod["tolerations"].as_array().into_iter().flatten();
        let any = json!({"operator": "Exists", "effect": "NoSchedule"});
        ensure!(
            tolerations.into_iter().any(|one| *one == any),
            "{} does not tolerate every NoSchedule taint",
            identity(workload)
        );
    }
    Ok(())
}

fn prefixes(env: &TestEnv) -> anyhow::Result<()> {
    for (value, expected) in [
        ("/host/etc/x", "/etc/x"),
        ("/hostroot/etc/x", "/etc/x"),
        ("/hostile/x", "/hostile/x"),
    ] {
        for (key, name) in [
            ("confDir", "cniConfigDir"),
            ("binDir", "binDir"),
            ("multusAutoconfigDir", "multusAutoconfigDir"),
        ] {
            let argument = format!("--set=config.cni_conf.{key}={value}");
            let config = render::daemon_config(&render::ours(env, NAME, &[&argument])?, NAME)?;
            ensure!(config[name] == expected, "{key} {value}: {config}");
        }
    }
    Ok(())
}

/// Checks arguments with the built program, and configuration keys with the table of options.
fn arguments(env: &TestEnv) -> anyhow::Result<()> {
    let daemon = env.program("multus-daemon");
    let understands = |args: &[String]| {
        let output = sh::output(Command::new(&daemon).args(args).arg("--help"), b"")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            bail!("{args:?}: {}", error.trim());
        }
        Ok(())
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = render::ours(env, NAME, EVERYTHING)?;
    let mut commands = BTreeSet::new();
    for container in render::workloads(&objects).flat_map(render::containers) {
        let list = |value: &Value| {
            value
                .as_array()
                .into_iter()
                .flatten()
                .map(text)
                .collect::<Vec<_>>()
        };
        let main = [list(&container["command"]), list(&container["args"])].concat();
        let probes = ["startupProbe", "readinessProbe", "livenessProbe"]
            .map(|probe| list(&container[probe]["exec"]["command"]));
        for command in [main]
            .into_iter()
            .chain(probes)
            .filter(|command| !command.is_empty())
        {
            ensure!(
                command[0] == "/usr/src/multus-cni/bin/multus-daemon",
                "{command:?}"
            );
            understands(&command[1..])?;
            commands.insert(command);
        }
    }
    ensure!(commands.len() == 3, "{commands:?}");
    ensure!(
        understands(&["run".to_owned(), "--namespace-isolation=true".to_owned()]).is_err(),
        "the program accepts an unknown argument"
    );
    // All accepted values at once.
    let all: Vec<_> = values::accepted_of("config.cni_conf.").collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let objects = render::ours(env, NAME, &[EVERYTHING, &all].concat())?;
    let config = render::daemon_config(&objects, NAME)?;
    for key in config.as_object().context("an object")?.keys() {
        ensure!(
            api::options::find(key).is_some(),
            "key {key} is unknown to the daemon"
        );
    }
    Ok(())
}
