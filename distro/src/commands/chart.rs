//! `chart list|get`: the embedded charts.

use std::{io::Write, path::PathBuf};

use anyhow::Context;

use super::print;
use crate::{assets, stage::write_atomic};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the embedded charts
    List,
    /// Write one of them
    Get {
        /// Its name, as `list` prints it
        name: String,
        /// Where to; stdout without it
        #[arg(long)]
        out: Option<PathBuf>,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List => {
            let names: Vec<&str> = assets::charts().iter().map(assets::Chart::name).collect();
            print(&(names.join("\n") + "\n"))
        }
        Command::Get { name, out } => {
            let charts = assets::charts();
            let chart = charts
                .iter()
                .find(|chart| chart.name() == name)
                .with_context(|| {
                    let names: Vec<&str> = charts.iter().map(assets::Chart::name).collect();
                    format!("there is no chart {name}: there are {}", names.join(", "))
                })?;
            match out {
                Some(path) => write_atomic(&std::path::absolute(path)?, chart.bytes)
                    .with_context(|| format!("cannot write {}", path.display())),
                None => std::io::stdout()
                    .write_all(chart.bytes)
                    .context("cannot write to stdout"),
            }
        }
    }
}
