//! `bench`: ours beside upstream's programs and the floor, every row with its target.
//!
//! What is measured on real programs is in e2e, which this starts; packing is measured here.

mod pack;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::{cmd::e2e, project::Project};

/// Measure the release beside upstream's programs and the floor; needs root
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  cargo xtask bench --peer ../multus/bin --json bench.json --svg bench.svg\n  cargo xtask bench --cluster --peer ../multus/bin\n  cargo xtask bench --short\n  cargo xtask bench pack\n\ndocs/performance.md says what each row means. On a machine that does something else, only ratios count."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// Release to measure; made unless given
    #[arg(long)]
    dist: Option<PathBuf>,
    /// Upstream's programs to measure beside it
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// How often each side is measured
    #[arg(long)]
    rounds: Option<u32>,
    /// A real node with kubelet and containerd, instead of the daemon alone
    #[arg(long)]
    cluster: bool,
    /// Few rounds, and a verdict only on what is the same on every machine; fails above twice a target
    #[arg(long)]
    short: bool,
    /// The rows in JSON into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A picture of the rows into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Get whatever is missing
    #[arg(long)]
    install: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    Pack(pack::Args),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(Part::Pack(args)) = &args.part {
        return pack::run(args);
    }
    let project = Project::open()?;
    let here = std::env::current_dir()?;
    let dist = match &args.dist {
        Some(dist) => here.join(dist),
        None => e2e::current_dist(&project, args.install)?,
    };
    e2e::bench(&project, &dist, args.install, &words(args, &here))
}

/// What CI measures of a release.
pub(crate) fn short(project: &Project, dist: &Path, install: bool) -> anyhow::Result<()> {
    e2e::bench(project, dist, install, &["--short".into()])
}

/// What CI measures of it on a real node.
pub(crate) fn short_cluster(project: &Project, dist: &Path, install: bool) -> anyhow::Result<()> {
    let words = ["--cluster".into(), "--short".into()];
    e2e::bench(project, dist, install, &words)
}

/// Arguments of the level; folders as they are seen from here.
fn words(args: &Args, here: &Path) -> Vec<OsString> {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| here.join(path).into_os_string());
    let mut words: Vec<OsString> = Vec::new();
    for (name, is_set) in [("--cluster", args.cluster), ("--short", args.short)] {
        words.extend(is_set.then(|| name.into()));
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
        words.extend(value.into_iter().flat_map(|value| [name.into(), value]));
    }
    words
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
        let words = words(&line.args, Path::new("/here"));
        let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn the_level_gets_what_the_command_got() {
        check("", "");
        check("--short", "--short");
        check(
            "--peer ../bin --cluster --rounds 3 --svg a.svg --json /tmp/b",
            "--cluster --peer /here/../bin --rounds 3 --json /tmp/b --svg /here/a.svg",
        );
    }

    #[test]
    fn packing_is_a_part_of_its_own() {
        let line = Line::try_parse_from(["bench", "pack", "--rounds", "3"]).unwrap();
        assert!(matches!(line.args.part, Some(Part::Pack(_))));
        assert!(Line::try_parse_from(["bench", "--short", "pack"]).is_err());
    }
}
