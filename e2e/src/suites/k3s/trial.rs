//! `docs/try.sh` on a machine without Kubernetes: what it prints is what README.md shows, and nothing of it stays.

use std::fs;

use anyhow::{Context as _, ensure};
use docs::{Check, Pages, README};

use super::{
    DistroNode, Role,
    node::{DATA, KUBECONFIG},
};
use crate::{
    node::{inspect::nothing_left, network::NodeNetwork},
    programs::k3s::K3s,
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

const SETTINGS: &str = "/etc/rancher/k3s/config.yaml";

pub(super) fn run(env: &TestEnv, k3s: &K3s, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (member, settings, pages, _network) = report.check("a machine without K3s", || {
        let network = NodeNetwork::new()?;
        let member = DistroNode::install(env, &network, k3s, (1, Role::Server))?;
        // The script runs the installer itself.
        for dir in ["programs", "units"] {
            for entry in fs::read_dir(member.node.dir.join(dir))? {
                fs::remove_file(entry?.path())?;
            }
        }
        let settings = member.node.run(&["cat", SETTINGS])?;
        Ok((member, settings, Pages::of_checkout()?, network))
    })?;
    let script = pages.root.join("docs/try.sh");
    let dir = k3s.program.parent().unwrap_or(&k3s.program);
    let follow = |word: &str| {
        let mut shell = member.shell(env);
        shell.env("DIST", &env.dist).env("MULTUS_K3S", dir);
        sh::run(shell.env_remove("KUBECONFIG").arg(&script).arg(word))
    };

    report.check("docs/try.sh prints what README.md shows", || {
        let shown = transcript(&pages)?;
        let name = format!(" on {},", member.node.name);
        let printed = follow("k3s")?.replace(&name, " on node1,");
        ensure!(
            comparable(&printed) == comparable(shown),
            "it printed {printed}"
        );
        let again = follow("k3s")?;
        ensure!(again.contains("10.60.0.2"), "the second time: {again}");
        Ok(())
    })?;
    report.check("it installs nothing in a cluster with Multus", || {
        let mut shell = member.shell(env);
        let shell = shell.env("DIST", &env.dist).env("KUBECONFIG", KUBECONFIG);
        let error = sh::run(shell.arg(&script).arg("cluster")).err();
        let error = format!("{:#}", error.context("it succeeded")?);
        ensure!(
            error.contains("this cluster has Multus"),
            "it failed with {error}"
        );
        Ok(())
    })?;
    report.check("nothing is left of it, but for the settings of before", || {
        follow("remove")?;
        let node = &member.node;
        let now = node.run(&["cat", SETTINGS])?;
        ensure!(now == settings, "the settings became {now}");
        ensure!(!node.path(DATA).exists(), "{DATA} is still there");
        let dirs = ["/etc/rancher", "/etc/systemd", "/usr/local/bin", "/var/lib/cni", "/var/lib/kubelet", "/var/lib/multus", "/var/lib/rancher", "/var/log/pods", "/run"];
        let ours = "find \"$@\" -xdev '(' -path '*multus*' -o -path '*k3s*' ')' -not -type d -not -path '/etc/rancher/k3s/*'";
        let found = node.run(&[&["sh", "-c", ours, "find"][..], &dirs].concat())?;
        ensure!(found.is_empty(), "there are {found}");
        nothing_left(node)
    })
}

/// Returns the output of the script on the page.
fn transcript(pages: &Pages) -> anyhow::Result<&str> {
    let page = pages.get(README).context("there is no README.md")?;
    let is_it = |block: &&docs::Block| {
        block.check == Ok(Check::Output) && block.text.contains("multus-try/cart")
    };
    let block = page.blocks.iter().find(is_it);
    Ok(&block
        .context("README.md shows no output of docs/try.sh")?
        .text)
}

/// Returns the words of each line, without what differs from run to run: numbers and hardware addresses.
fn comparable(text: &str) -> Vec<Vec<String>> {
    let without_numbers = |word: &str| {
        if word.matches(':').count() == 5 {
            return "MAC".to_owned();
        }
        let mut parts = word.split(|char: char| char.is_ascii_digit());
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| match part {
            // A number of several digits.
            "" if text.ends_with('0') => text,
            part => text + "0" + part,
        })
    };
    let words = |line: &str| line.split_whitespace().map(without_numbers).collect();
    text.trim().lines().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_compared_without_numbers() {
        let one = " 9 s  K3s runs\nnet1   10.60.0.2   ee:46:7a:32:0b:e2   1s\n";
        let same = "117 s K3s runs\nnet1 10.60.0.2 aa:bb:cc:dd:ee:ff 0s";
        assert_eq!(comparable(one), comparable(same));
        assert_ne!(comparable(one), comparable("9 s K3s ran"));
    }

    #[test]
    fn readme_shows_an_output() {
        let pages = Pages::of_checkout().unwrap();
        assert!(transcript(&pages).unwrap().contains("Running"));
    }
}
