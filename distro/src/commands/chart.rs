//! `chart list|get`: the embedded charts.

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::builder::PossibleValuesParser;

use super::print;
use node::root::Root;

use crate::{assets, stage::write_atomic};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the embedded charts
    #[command(after_help = "Example:\n  multus-distro chart list")]
    List,
    /// Write one of the embedded charts
    #[command(after_help = "Example:\n  multus-distro chart get rke2-multus --out rke2-multus.tgz")]
    Get {
        /// The chart's name, as `list` prints it
        #[arg(value_parser = PossibleValuesParser::new(names()))]
        name: String,
        /// File to write; stdout unless set
        #[arg(long)]
        out: Option<PathBuf>,
    },
}

fn names() -> impl Iterator<Item = &'static str> {
    assets::charts().into_iter().map(|chart| chart.name())
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List => {
            let names: Vec<&str> = names().collect();
            print(&(names.join("\n") + "\n"))
        }
        Command::Get { name, out } => {
            let charts = assets::charts();
            let chart = charts
                .iter()
                .find(|chart| chart.name() == name)
                .with_context(|| format!("there is no chart {name}"))?;
            match out {
                Some(path) => {
                    write_atomic(&Root::open("/")?, &std::path::absolute(path)?, chart.bytes)
                        .with_context(|| format!("cannot write {}", path.display()))
                }
                None => std::io::stdout()
                    .write_all(chart.bytes)
                    .context("cannot write to stdout"),
            }
        }
    }
}
