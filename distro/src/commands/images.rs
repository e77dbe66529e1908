//! `images list`: the images that the charts name, one full reference a line.

use super::print;
use crate::assets::IMAGES;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the images, one full reference a line
    #[command(after_help = "Example:\n  multus-distro images list")]
    List,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List => print(&(IMAGES.join("\n") + "\n")),
    }
}
