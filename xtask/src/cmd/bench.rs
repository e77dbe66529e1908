//! `bench`: compares the release with upstream's programs and with the floor, every row with its target.
//!
//! e2e, which this command starts, measures the real programs.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::{cmd::e2e, project::Project};

/// Measure the release next to upstream's programs and the floor; needs root
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bench --peer ../multus/bin --json bench.json --svg bench.svg\n  cargo xtask bench --cluster --peer ../multus/bin\n  cargo xtask bench --cni-plugins\n  cargo xtask bench --short\n\ndocs/performance.md says what each row means. On a machine that does something else, only ratios count."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Args {
    /// Release to measure; made unless set
    #[arg(long)]
    dist: Option<PathBuf>,
    /// Directory of upstream's programs to compare with
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// How often each side is measured
    #[arg(long)]
    rounds: Option<u32>,
    /// Measure a real node with kubelet and containerd, instead of the daemon alone
    #[arg(long)]
    cluster: bool,
    /// Measure the CNI plugins by themselves, against the reference's
    #[arg(long, conflicts_with = "cluster")]
    cni_plugins: bool,
    /// Few rounds, and targets only for what is the same on every machine; fails above twice a target
    #[arg(long)]
    short: bool,
    /// Write the rows as JSON into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a picture of the rows into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Install whatever is missing
    #[arg(long)]
    install: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let here = std::env::current_dir()?;
    let dist = match &args.dist {
        Some(dist) => here.join(dist),
        None => e2e::current_dist(&project, args.install)?,
    };
    e2e::bench(&project, &dist, args.install, &suite_args(args, &here))
}

/// Measures what CI checks of every change.
pub(crate) fn short(project: &Project, dist: &Path, install: bool) -> anyhow::Result<()> {
    e2e::bench(project, dist, install, &["--short".into()])
}

/// Measures on a real node what CI checks each night.
pub(crate) fn short_cluster(project: &Project, dist: &Path, install: bool) -> anyhow::Result<()> {
    let args = ["--cluster".into(), "--short".into()];
    e2e::bench(project, dist, install, &args)
}

/// Measures the CNI plugins by themselves, which CI checks each night.
pub(crate) fn short_cni_plugins(
    project: &Project,
    dist: &Path,
    install: bool,
) -> anyhow::Result<()> {
    let args = ["--cni-plugins".into(), "--short".into()];
    e2e::bench(project, dist, install, &args)
}

/// Returns the arguments for e2e, with paths relative to the current directory made absolute.
fn suite_args(args: &Args, here: &Path) -> Vec<OsString> {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| here.join(path).into_os_string());
    let mut suite_args: Vec<OsString> = Vec::new();
    let switches = [
        ("--cluster", args.cluster),
        ("--cni-plugins", args.cni_plugins),
        ("--short", args.short),
    ];
    for (name, is_set) in switches {
        suite_args.extend(is_set.then(|| name.into()));
    }
    let options = [
        ("--peer", path(&args.peer)),
        (
            "--rounds",
            args.rounds.map(|rounds| rounds.to_string().into()),
        ),
        ("--json", path(&args.json)),
        ("--svg", path(&args.svg)),
    ];
    for (name, value) in options {
        suite_args.extend(value.into_iter().flat_map(|value| [name.into(), value]));
    }
    suite_args
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn check(line: &str, expected: &str) {
        let line = Line::try_parse_from(format!("bench {line}").split_whitespace()).unwrap();
        let args = suite_args(&line.args, Path::new("/here"));
        let args: Vec<_> = args.iter().filter_map(|arg| arg.to_str()).collect();
        assert_eq!(args.join(" "), expected);
    }

    #[test]
    fn options_are_passed_on_with_absolute_paths() {
        check("", "");
        check("--short", "--short");
        check("--cni-plugins --rounds 2", "--cni-plugins --rounds 2");
        check(
            "--peer ../bin --cluster --rounds 3 --svg a.svg --json /tmp/b",
            "--cluster --peer /here/../bin --rounds 3 --json /tmp/b --svg /here/a.svg",
        );
    }
}
