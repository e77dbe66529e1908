//! The pages for people, as far as Helm, kubectl and an API server suffice: commands that move a release over and back, the manifest for
//! people without Helm, and the options of every command that only has to be known.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::{Context as _, bail, ensure};
use docs::Pages;

use super::{
    render,
    server::Server,
    upgrade::{RoundTrip, THICK_WITH_CRD_CHART},
};
use crate::{
    pages::Reader,
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

const MAIN: &str = "rke2-multus";
const MANIFEST: &str = "manifests/kubernetes/multus.yaml";
/// The manifest as the sources have it, which is the chart rendered by real Helm.
const RENDERED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../chart/rendered/multus.yaml");

pub(super) fn run(env: &TestEnv, server: &Server, report: &mut Report) -> Checked {
    let reader = report.check("helm and kubectl know the options of the pages", || {
        let pages = Pages::of_checkout().context("cannot read the pages")?;
        for program in ["helm", "kubectl"] {
            options(env, &pages, program)?;
        }
        Reader::new(env, "chart")
    })?;
    let follow = |page: &str, step: &str| {
        reader.follow(page, step, || {
            let mut shell = server.node.command("bash");
            shell.env("KUBECONFIG", server.control.admin());
            // The home directory has Helm's cache and its logins.
            shell.env("HOME", &server.node.dir);
            shell
        })
    };
    report.check(
        "the manifest for people without Helm is what Helm renders",
        || manifest(env),
    )?;
    report.check(
        "docs/first-network.md, docs/values.md: helm template",
        || {
            follow("docs/first-network.md", "kubeadm-template")?;
            follow("docs/values.md", "values")
        },
    )?;
    report.check("docs/moving.md: from rke2-multus and back", || {
        let journey = RoundTrip::begin(env, server, &THICK_WITH_CRD_CHART)?;
        let theirs = journey.names()?;
        follow("docs/moving.md", "moving")?;
        ensure!(journey.names()? != theirs, "nothing was upgraded");
        journey.ensure_same("the page's upgrade")?;
        follow("docs/moving.md", "back")?;
        ensure!(journey.names()? == theirs, "the rollback left something");
        follow("docs/moving.md", "moving")?;
        journey.ensure_same("the page's second upgrade")?;
        journey.remove()
    })?;
    report.check("README.md: the manifest, then Helm takes it over", || {
        follow("README.md", "readme-manifest")?;
        follow("README.md", "readme")?;
        let ours = server.existing("DaemonSet/rke2-multus")?;
        let owner = &ours["metadata"]["annotations"]["meta.helm.sh/release-name"];
        ensure!(*owner == MAIN, "the DaemonSet belongs to {owner}");
        for release in [MAIN, "rke2-multus-crd"] {
            server.helm(&["uninstall", release])?;
        }
        Ok(())
    })?;
    report.check("every step of the pages was followed", || {
        reader.ensure_all_followed()
    })
}

/// Fails unless a program's help names every option of its commands on pages.
fn options(env: &TestEnv, pages: &Pages, program: &str) -> anyhow::Result<()> {
    let run = |args: &[String]| sh::run(Command::new(env.bin.join(program)).args(args));
    // Subcommands with the options that pages give them, and where.
    let mut wanted: BTreeMap<Vec<String>, Vec<(String, String)>> = BTreeMap::new();
    for command in pages.commands(program) {
        // The words after it belong to the program in the pod.
        let own = command.args.split(|arg| arg == "--").next().unwrap_or(&[]);
        let options = own
            .iter()
            .filter(|arg| arg.starts_with('-') && *arg != "-")
            .map(|arg| arg.split('=').next().unwrap_or(arg).to_owned());
        wanted
            .entry(subcommand(program, own))
            .or_default()
            .extend(options.map(|option| (command.at.clone(), option)));
    }
    let global = match program {
        "kubectl" => run(&["options".to_owned()])?,
        _ => String::new(),
    };
    for (mut words, options) in wanted {
        words.push("--help".to_owned());
        let help = run(&words)? + &global;
        for (at, option) in options {
            let mut known = help.split(|char: char| char.is_whitespace() || ",=:[]".contains(char));
            ensure!(
                known.any(|word| word == option),
                "{at}: {program} {} has no option {option}",
                words[..words.len() - 1].join(" ")
            );
        }
    }
    Ok(())
}

/// Returns the words of the subcommand; a namespace may stand before it.
fn subcommand(program: &str, args: &[String]) -> Vec<String> {
    let words = args
        .iter()
        .skip_while(|arg| arg.starts_with('-') || *arg == "kube-system");
    let groups = [("helm", "get"), ("kubectl", "rollout")];
    let has_two = |first: &String| groups.contains(&(program, first));
    let count = words
        .clone()
        .next()
        .map_or(0, |first| 1 + usize::from(has_two(first)));
    words.take(count).cloned().collect()
}

/// Renders the chart and its CRD as the manifest has them. `UPDATE_EXPECT=1` writes the sources' file.
fn manifest(env: &TestEnv) -> anyhow::Result<()> {
    let crd = render::text(env, "rke2-multus-crd", &env.chart("rke2-multus-crd")?, &[])?;
    let main = render::text(env, MAIN, &env.chart(MAIN)?, &[])?;
    let rendered = format!("{}{}", crd.trim_start(), main.trim_start());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let text = rendered.replace(&env.version()?, "@VERSION@");
        return Ok(fs::write(RENDERED, text)?);
    }
    let text = String::from_utf8(env.read(MANIFEST)?)?;
    let (_, found) = text
        .split_once("---\n")
        .context("the manifest has a head")?;
    let found = format!("---\n{found}");
    if found != rendered {
        let differs = found
            .lines()
            .zip(rendered.lines())
            .find(|(one, other)| one != other);
        bail!(
            "{MANIFEST} is not what Helm renders, first at {differs:?}: run this suite with UPDATE_EXPECT=1, then build the release again"
        );
    }
    Ok(())
}
