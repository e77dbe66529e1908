//! A node whose files fail the daemon: a full disk, a deleted socket directory, files with times far in the past or future.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail, ensure};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::{
    container::{Container, Outcome},
    fixture::{FaultsFixture, Pod},
};
use crate::{
    daemon::STATE_DIR,
    node::inspect,
    report::{Checked, Report},
    single_node::{BIN_DIR, CONF_DIR, TRY_AGAIN_LATER},
};

/// Mount options of the state directory; the size is enough for a few pods.
const SIZE: &str = "size=1m,mode=700";
const PAGE: u64 = 4096;
/// Free pages that are enough for all files of one more pod.
const PLENTY: u64 = 16;
/// No DEL waits for free space.
const DEL_WITHIN: Duration = Duration::from_secs(10);
/// Longer than the validity of any certificate here.
const FAR: Duration = Duration::from_hours(24 * 365 * 10);

pub(super) fn run(fixture: &FaultsFixture, report: &mut Report) -> Checked {
    let [before, after] = &report.check("two pods for failing files", || {
        fixture.create_pods(["before", "after"])
    })?;
    report.check("a state directory that is full", || {
        fixture.with_log(full(fixture, before, after))
    })?;
    report.check("a socket directory that is deleted", || {
        fixture.with_log(deleted_socket_directory(fixture, before, after))
    })?;
    for (name, time) in [
        ("the past", SystemTime::now() - FAR),
        ("the future", SystemTime::now() + FAR),
    ] {
        report.check(&format!("files from {name}"), || {
            fixture.with_log(other_file_times(fixture, before, after, time))
        })?;
    }
    Ok(())
}

/// With each number of free pages, a pod gets all its networks or leaves nothing, and existing pods can be deleted.
fn full(fixture: &FaultsFixture, before: &Pod, after: &Pod) -> anyhow::Result<()> {
    let node = &fixture.single_node.node;
    node.run(&["mount", "-t", "tmpfs", "-o", SIZE, "state", STATE_DIR])?;
    // The mount hides the directory that the running daemon watches.
    fixture.crash()?;
    fixture.wait_for_one_ready_daemon()?;
    let [first, second] = ["first", "second"].map(|name| Container::new(fixture, before, name));
    let (first, second) = (first?, second?);
    first.add_complete()?;
    second.add_complete()?;
    let filler = node.path(&format!("{STATE_DIR}/filler"));
    let length = fill(&filler)?;
    let mut succeeded = 0;
    for pages in 0..=PLENTY {
        let size = length.saturating_sub(pages * PAGE);
        File::options().write(true).open(&filler)?.set_len(size)?;
        let is_attached = add_with_free_pages(fixture, after, pages)
            .with_context(|| format!("{pages} pages free"))?;
        ensure!(
            pages > 0 || !is_attached,
            "ADD succeeded without free space"
        );
        succeeded += u64::from(is_attached);
    }
    ensure!(
        succeeded > 0,
        "no ADD succeeded although there was free space"
    );
    fill(&filler)?;
    let start = Instant::now();
    first.remove()?;
    ensure!(
        start.elapsed() < DEL_WITHIN,
        "DEL took {:?}",
        start.elapsed()
    );
    fill(&filler)?;
    fixture.kill_daemon()?;
    let deleted = second.del()?;
    ensure!(
        matches!(
            &deleted,
            Outcome::Refused {
                code: TRY_AGAIN_LATER,
                ..
            }
        ),
        "DEL without a daemon and without space for the journal gave {deleted:?}"
    );
    fixture.start()?;
    second.remove()?;
    fs::remove_file(&filler)?;
    let last = Container::new(fixture, after, "with space again")?;
    last.add_complete()?;
    last.remove()?;
    fixture.is_clean()?;
    fixture.kill_daemon()?;
    node.run(&["umount", STATE_DIR])?;
    fixture.start()?;
    fixture.wait_for_one_ready_daemon()
}

/// Runs ADD and DEL of one pod with little free space; returns whether ADD succeeded.
fn add_with_free_pages(fixture: &FaultsFixture, pod: &Pod, pages: u64) -> anyhow::Result<bool> {
    let known = inspect::pod_artifacts(&fixture.single_node.node)?;
    let container = Container::new(fixture, pod, &format!("{pages} pages"))?;
    let is_attached = match container.add()? {
        Outcome::Done(result) => container.ensure_complete(&result).map(|()| true)?,
        Outcome::Refused { text, .. } => {
            for part in [pod.name.as_str(), "No space left"] {
                ensure!(
                    text.contains(part),
                    "the error does not contain `{part}`: {text}"
                );
            }
            let left = inspect::pod_artifacts(&fixture.single_node.node)?;
            ensure!(
                left == known,
                "a failed ADD left one of {}",
                left.join(", ")
            );
            false
        }
        Outcome::Lost(output) => bail!("the shim printed no document: {output}"),
    };
    container.remove()?;
    let left = inspect::pod_artifacts(&fixture.single_node.node)?;
    ensure!(left == known, "DEL left one of {}", left.join(", "));
    Ok(is_attached)
}

/// Appends to the file until the disk is full; returns its length.
pub(crate) fn fill(filler: &Path) -> anyhow::Result<u64> {
    let mut file = File::options().create(true).append(true).open(filler)?;
    let page = [0; 4096];
    while let Ok(count) = file.write(&page) {
        ensure!(count > 0, "a write returned 0 bytes without an error");
    }
    Ok(file.metadata()?.len())
}

/// The daemon creates its socket again, and serves pods of before and new ones.
fn deleted_socket_directory(
    fixture: &FaultsFixture,
    before: &Pod,
    after: &Pod,
) -> anyhow::Result<()> {
    let first = Container::new(fixture, before, "with a socket")?;
    first.add_complete()?;
    let sockets = fixture.single_node.node.path("/run/multus");
    fs::remove_dir_all(&sockets).context("the socket's directory")?;
    let second = Container::new(fixture, after, "with another socket")?;
    second.add_complete()?;
    first.remove()?;
    second.remove()?;
    fixture.wait_for_one_ready_daemon()?;
    fixture.is_clean()
}

/// Neither the running daemon nor the next one depends on the modification times of files.
fn other_file_times(
    fixture: &FaultsFixture,
    before: &Pod,
    after: &Pod,
    time: SystemTime,
) -> anyhow::Result<()> {
    let name = |what: &str| format!("{what} {time:?}");
    let first = Container::new(fixture, before, &name("first"))?;
    let second = Container::new(fixture, before, &name("second"))?;
    first.add_complete()?;
    second.add_complete()?;
    let seconds = time.duration_since(UNIX_EPOCH)?.as_secs();
    for directory in [
        "/var/lib/cni",
        CONF_DIR,
        BIN_DIR,
        "/run/multus",
        "/run/secrets",
    ] {
        set_times(
            &fixture.single_node.node.path(directory),
            seconds.try_into()?,
        )?;
    }
    first.remove()?;
    fixture.crash()?;
    fixture.wait_for_one_ready_daemon()?;
    second.remove()?;
    let third = Container::new(fixture, after, &name("third"))?;
    third.add_complete()?;
    third.remove()?;
    fixture.is_clean()
}

/// Sets the times of a file or of everything below a directory.
fn set_times(path: &Path, seconds: i64) -> anyhow::Result<()> {
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
            set_times(&entry?.path(), seconds)?;
        }
    }
    Ok(())
}
