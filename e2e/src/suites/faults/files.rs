//! A node whose files fail the daemon: no space for its state, no directory for its socket, times that a clock has left behind.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail, ensure};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::{
    container::{Container, Outcome, Pod, STATE, TRY_AGAIN_LATER},
    fixture::FaultsFixture,
};
use crate::{
    node::inspect,
    report::{CheckFailed, Report},
    single_node::{BIN_DIR, CONF_DIR},
};

/// Enough for a few pods.
const SIZE: &str = "size=1m,mode=700";
const PAGE: u64 = 4096;
/// With so many pages one more pod has place for everything that is written about it.
const PLENTY: u64 = 16;
/// No DEL waits for space.
const DEL_WITHIN: Duration = Duration::from_secs(10);
/// Longer than any certificate here is valid, and any clock was ever wrong.
const FAR: Duration = Duration::from_hours(24 * 365 * 10);

/// Runs all of them.
pub(super) fn run(fixture: &FaultsFixture, report: &mut Report) -> Result<(), CheckFailed> {
    let pods = report.check("two pods", || fixture.pods(&["before", "after"]))?;
    let [before, after] = pods.as_slice() else {
        return Err(CheckFailed);
    };
    report.check("a state directory that is full", || {
        fixture.told(full(fixture, before, after))
    })?;
    report.check("a socket directory that is deleted", || {
        fixture.told(no_directory(fixture, before, after))
    })?;
    for (name, time) in [
        ("the past", SystemTime::now() - FAR),
        ("the future", SystemTime::now() + FAR),
    ] {
        report.check(&format!("files from {name}"), || {
            fixture.told(other_time(fixture, before, after, time))
        })?;
    }
    Ok(())
}

/// At each size of what is left, a pod comes up whole or leaves no trace; who was there can go.
fn full(fixture: &FaultsFixture, before: &Pod, after: &Pod) -> anyhow::Result<()> {
    let node = &fixture.single_node.node;
    node.run(&["mount", "-t", "tmpfs", "-o", SIZE, "state", STATE])?;
    // What it watched is covered.
    fixture.crash()?;
    fixture.settle()?;
    let [first, second] = ["first", "second"].map(|name| Container::new(fixture, before, name));
    let (first, second) = (first?, second?);
    first.is_added()?;
    second.is_added()?;
    let filler = node.path(&format!("{STATE}/filler"));
    let length = fill(&filler)?;
    let mut whole = 0;
    for pages in 0..=PLENTY {
        let size = length.saturating_sub(pages * PAGE);
        File::options().write(true).open(&filler)?.set_len(size)?;
        let came_up =
            squeezed(fixture, after, pages).with_context(|| format!("{pages} pages left"))?;
        ensure!(pages > 0 || !came_up, "ADD succeeded with no space at all");
        whole += u64::from(came_up);
    }
    ensure!(whole > 0, "no ADD succeeded although there was space");
    fill(&filler)?;
    let start = Instant::now();
    first.remove()?;
    ensure!(
        start.elapsed() < DEL_WITHIN,
        "DEL took {:?}",
        start.elapsed()
    );
    fill(&filler)?;
    fixture.halt()?;
    let deleted = second.del()?;
    ensure!(
        matches!(
            &deleted,
            Outcome::Refused {
                code: TRY_AGAIN_LATER,
                ..
            }
        ),
        "DEL without a daemon and a journal gave {deleted:?}"
    );
    fixture.start()?;
    second.remove()?;
    fs::remove_file(&filler)?;
    let last = Container::new(fixture, after, "with space again")?;
    last.is_added()?;
    last.remove()?;
    fixture.is_clean()?;
    fixture.halt()?;
    node.run(&["umount", STATE])?;
    fixture.start()?;
    fixture.settle()
}

/// One pod with little space; whether it came up.
fn squeezed(fixture: &FaultsFixture, pod: &Pod, pages: u64) -> anyhow::Result<bool> {
    let known = inspect::leftovers(&fixture.single_node.node)?;
    let container = Container::new(fixture, pod, &format!("{pages} pages"))?;
    let came_up = match container.add()? {
        Outcome::Done(result) => container.is_whole(&result).map(|()| true)?,
        Outcome::Refused { text, .. } => {
            for word in [pod.name.as_str(), "No space left"] {
                ensure!(
                    text.contains(word),
                    "the error does not tell {word}: {text}"
                );
            }
            let left = inspect::leftovers(&fixture.single_node.node)?;
            ensure!(
                left == known,
                "a failed ADD left some of {}",
                left.join(", ")
            );
            false
        }
        Outcome::Lost(words) => bail!("the shim answered with no document: {words}"),
    };
    container.remove()?;
    let left = inspect::leftovers(&fixture.single_node.node)?;
    ensure!(left == known, "DEL left some of {}", left.join(", "));
    Ok(came_up)
}

/// Writes until there is no space; returns how long the file is.
fn fill(filler: &Path) -> anyhow::Result<u64> {
    let mut file = File::options().create(true).append(true).open(filler)?;
    let page = [0; 4096];
    while let Ok(count) = file.write(&page) {
        ensure!(count > 0, "nothing is written, and no error is told");
    }
    Ok(file.metadata()?.len())
}

/// The daemon comes back by itself, for pods from before and new ones.
fn no_directory(fixture: &FaultsFixture, before: &Pod, after: &Pod) -> anyhow::Result<()> {
    let first = Container::new(fixture, before, "with a socket")?;
    first.is_added()?;
    let sockets = fixture.single_node.node.path("/run/multus");
    fs::remove_dir_all(&sockets).context("the socket's directory")?;
    let second = Container::new(fixture, after, "with another socket")?;
    second.is_added()?;
    first.remove()?;
    second.remove()?;
    fixture.settle()?;
    fixture.is_clean()
}

/// Everything that lies on the node seems to be of that time: neither the running daemon nor the next one cares.
fn other_time(
    fixture: &FaultsFixture,
    before: &Pod,
    after: &Pod,
    time: SystemTime,
) -> anyhow::Result<()> {
    let name = |what: &str| format!("{what} {time:?}");
    let first = Container::new(fixture, before, &name("first"))?;
    let second = Container::new(fixture, before, &name("second"))?;
    first.is_added()?;
    second.is_added()?;
    let seconds = time.duration_since(UNIX_EPOCH)?.as_secs();
    for folder in [
        "/var/lib/cni",
        CONF_DIR,
        BIN_DIR,
        "/run/multus",
        "/run/secrets",
    ] {
        touch(&fixture.single_node.node.path(folder), seconds.try_into()?)?;
    }
    first.remove()?;
    fixture.crash()?;
    fixture.settle()?;
    second.remove()?;
    let third = Container::new(fixture, after, &name("third"))?;
    third.is_added()?;
    third.remove()?;
    fixture.is_clean()
}

/// Gives everything below a path that time.
fn touch(path: &Path, seconds: i64) -> anyhow::Result<()> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .with_context(|| format!("cannot set the time of {}", path.display()))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            touch(&entry?.path(), seconds)?;
        }
    }
    Ok(())
}
