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
    world::World,
};
use crate::{
    inspect,
    report::{Ended, Report},
    scene::{BIN_DIR, CONF_DIR},
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
pub(super) fn run(world: &World, report: &mut Report) -> Result<(), Ended> {
    let pods = report.check("two pods", || world.pods(&["before", "after"]))?;
    let [before, after] = pods.as_slice() else {
        return Err(Ended);
    };
    report.check("a state directory that is full", || {
        world.told(full(world, before, after))
    })?;
    report.check("a socket directory that is deleted", || {
        world.told(no_directory(world, before, after))
    })?;
    for (name, time) in [
        ("the past", SystemTime::now() - FAR),
        ("the future", SystemTime::now() + FAR),
    ] {
        report.check(&format!("files from {name}"), || {
            world.told(other_time(world, before, after, time))
        })?;
    }
    Ok(())
}

/// At each size of what is left, a pod comes up whole or leaves no trace; who was there can go.
fn full(world: &World, before: &Pod, after: &Pod) -> anyhow::Result<()> {
    let node = &world.scene.node;
    node.run(&["mount", "-t", "tmpfs", "-o", SIZE, "state", STATE])?;
    // What it watched is covered.
    world.crash()?;
    world.settle()?;
    let [first, second] = ["first", "second"].map(|name| Container::new(world, before, name));
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
            squeezed(world, after, pages).with_context(|| format!("{pages} pages left"))?;
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
    world.halt()?;
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
    world.start()?;
    second.remove()?;
    fs::remove_file(&filler)?;
    let last = Container::new(world, after, "with space again")?;
    last.is_added()?;
    last.remove()?;
    world.is_clean()?;
    world.halt()?;
    node.run(&["umount", STATE])?;
    world.start()?;
    world.settle()
}

/// One pod with little space; whether it came up.
fn squeezed(world: &World, pod: &Pod, pages: u64) -> anyhow::Result<bool> {
    let known = inspect::leftovers(&world.scene.node)?;
    let container = Container::new(world, pod, &format!("{pages} pages"))?;
    let came_up = match container.add()? {
        Outcome::Done(result) => container.is_whole(&result).map(|()| true)?,
        Outcome::Refused { text, .. } => {
            for word in [pod.name.as_str(), "No space left"] {
                ensure!(
                    text.contains(word),
                    "the error does not tell {word}: {text}"
                );
            }
            let left = inspect::leftovers(&world.scene.node)?;
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
    let left = inspect::leftovers(&world.scene.node)?;
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
fn no_directory(world: &World, before: &Pod, after: &Pod) -> anyhow::Result<()> {
    let first = Container::new(world, before, "with a socket")?;
    first.is_added()?;
    let sockets = world.scene.node.path("/run/multus");
    fs::remove_dir_all(&sockets).context("the socket's directory")?;
    let second = Container::new(world, after, "with another socket")?;
    second.is_added()?;
    first.remove()?;
    second.remove()?;
    world.settle()?;
    world.is_clean()
}

/// Everything that lies on the node seems to be of that time: neither the running daemon nor the next one cares.
fn other_time(world: &World, before: &Pod, after: &Pod, time: SystemTime) -> anyhow::Result<()> {
    let name = |what: &str| format!("{what} {time:?}");
    let first = Container::new(world, before, &name("first"))?;
    let second = Container::new(world, before, &name("second"))?;
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
        touch(&world.scene.node.path(folder), seconds.try_into()?)?;
    }
    first.remove()?;
    world.crash()?;
    world.settle()?;
    second.remove()?;
    let third = Container::new(world, after, &name("third"))?;
    third.is_added()?;
    third.remove()?;
    world.is_clean()
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
