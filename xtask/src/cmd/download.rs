//! `download`: fetches third-party files that lock files name, by digest. A file that is right already costs no connection.

use std::{
    fs::{self, TryLockError},
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use archive::{
    digest::{self, Digest},
    durable,
};
use registry::http::{Http, download::Address};

use crate::{
    fetch,
    lock::{self, Item},
    project::Project,
    ui,
};

/// Fetch the files that lock files name into target/download, unless they are there already
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask download\n  MULTUS_MIRROR=/media/charts cargo xtask download\n  MULTUS_MIRROR=/media/charts,https://mirror.example/charts cargo xtask download\n  HTTPS_PROXY=http://proxy.example:3128 NO_PROXY=.example cargo xtask download --lock charts.lock\n  SSL_CERT_FILE=/etc/ssl/own-ca.pem cargo xtask download\n  cargo xtask download --json | jq -r '.[].path'\n\nA lock file has a file to a line: sha256, version, address, and mirrors' addresses where there are any. An address in MULTUS_MIRROR may have a login, https://USER:PASSWORD@HOST/PATH, which is never printed; write %2C for a comma in it."
)]
pub(crate) struct Args {
    /// Lock file; those of the project unless set
    #[arg(long = "lock", value_name = "FILE")]
    locks: Vec<PathBuf>,
    /// Print the files as JSON
    #[arg(long)]
    json: bool,
}

/// The project's lock files.
const LOCKS: &[&str] = &["e2e/published.lock"];
/// Charts of the time before those, for the long form of a suite.
const OLDER_CHARTS: &str = "e2e/published-older.lock";
/// The variable with directories and addresses to try before those of a lock file.
const MIRROR: &str = "MULTUS_MIRROR";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let files = if args.locks.is_empty() {
        all(&project)?
    } else {
        fetch(&args.locks, &project.download_dir())?
    };
    if args.json {
        ui::json(&files)?;
    }
    Ok(())
}

/// A file with the right digest.
#[derive(Debug, serde::Serialize)]
pub(crate) struct File {
    path: PathBuf,
    version: String,
    sha256: String,
    /// The file was there before this run.
    was_there: bool,
}

/// Fetches the files that the project's lock files name.
pub(crate) fn all(project: &Project) -> anyhow::Result<Vec<File>> {
    let locks: Vec<_> = LOCKS.iter().map(|lock| project.root.join(lock)).collect();
    fetch(&locks, &project.download_dir())
}

/// Fetches the charts that the project's lock does not have because no suite of a change needs them.
pub(crate) fn older_charts(project: &Project) -> anyhow::Result<()> {
    let lock = project.root.join(OLDER_CHARTS);
    fetch(&[lock], &project.download_dir()).map(drop)
}

/// Fetches one file of a lock file into a directory, and returns its path.
pub(crate) fn locked(lock: &Path, name: &Path, dir: &Path) -> anyhow::Result<PathBuf> {
    let items = lock::read(&[lock])?;
    let Some(item) = items.iter().find(|item| Path::new(&item.name) == name) else {
        let names: Vec<_> = items.iter().map(|item| item.name.as_str()).collect();
        bail!(
            "{} does not lock {}: it has {}",
            lock.display(),
            name.display(),
            names.join(", ")
        );
    };
    Ok(one(&fetch::client()?, item, dir, &mirrors()?)?.path)
}

/// Fetches all files of lock files into a directory.
pub(crate) fn fetch(locks: &[PathBuf], dir: &Path) -> anyhow::Result<Vec<File>> {
    let mirrors = mirrors()?;
    let items = lock::read(locks)?;
    let http = fetch::client()?;
    let fetched = items.iter().map(|item| one(&http, item, dir, &mirrors));
    fetched.collect()
}

/// A source to try before those of the lock file.
enum Mirror {
    Dir(PathBuf),
    /// The address of the directory, without a slash at its end.
    Address(String),
}

fn mirrors() -> anyhow::Result<Vec<Mirror>> {
    let Some(value) = std::env::var_os(MIRROR) else {
        return Ok(Vec::new());
    };
    // The name of a single directory may have a comma in it.
    if Path::new(&value).is_dir() {
        return Ok(vec![Mirror::Dir(value.into())]);
    }
    let value = value.to_string_lossy().into_owned();
    let texts = value.split(',').map(str::trim).enumerate();
    texts.map(|(at, text)| mirror(at, text)).collect()
}

fn mirror(at: usize, text: &str) -> anyhow::Result<Mirror> {
    if lock::is_address(text) {
        return Ok(Mirror::Address(text.trim_end_matches('/').to_owned()));
    }
    if Path::new(text).is_dir() {
        return Ok(Mirror::Dir(text.into()));
    }
    // A login with a comma or a wrong character ends up here, so only what has none is printed.
    let is_plain = !text.contains("://") && !text.contains(['@', ':']);
    let shown = if is_plain {
        text.to_owned()
    } else {
        format!("an address in place {}", at + 1)
    };
    bail!(
        "{MIRROR} names {shown}, which is {}: unset it, or name directories or addresses with the files, with commas between",
        if is_plain {
            "not a directory"
        } else {
            "malformed (write %2C for a comma, %40 for @ in a password)"
        }
    )
}

/// Fetches one file, from the first source that has it.
fn one(http: &Http, item: &Item, dir: &Path, mirrors: &[Mirror]) -> anyhow::Result<File> {
    let path = dir.join(&item.name);
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let _lock = locked_dir(dir)?;
    let was_there = digest(&path)? == Some(item.sha256);
    let from = if was_there {
        "up to date".to_owned()
    } else {
        get(http, item, &path, mirrors)?
    };
    ui::note(&format!("{} {}: {from}", item.name, item.version));
    Ok(File {
        path,
        version: item.version.clone(),
        sha256: item.sha256.hex(),
        was_there,
    })
}

fn get(http: &Http, item: &Item, path: &Path, mirrors: &[Mirror]) -> anyhow::Result<String> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut refused = Vec::new();
    let mut addresses = Vec::new();
    for mirror in mirrors {
        match mirror {
            Mirror::Address(base) => addresses.push(format!("{base}/{}", item.name)),
            Mirror::Dir(dir) => {
                let from = dir.join(&item.name);
                let Some(found) = digest(&from)? else {
                    continue;
                };
                if found != item.sha256 {
                    refused.push(format!(
                        "{} has the sha256 {}, its lock says {}: replace it, or unset {MIRROR}",
                        from.display(),
                        found.hex(),
                        item.sha256.hex()
                    ));
                    continue;
                }
                fs::copy(&from, &part)
                    .with_context(|| format!("cannot copy {}", from.display()))?;
                put(&part, path)?;
                return Ok("from the mirror".to_owned());
            }
        }
    }
    addresses.extend(item.addresses.iter().cloned());
    for (at, address) in addresses.iter().enumerate() {
        let address = Address::parse(address).context("a lock has an address without a host")?;
        match from(http, item, &address, &part) {
            Ok(()) => {
                put(&part, path)?;
                for reason in refused {
                    ui::note(&reason);
                }
                let is_first = at == 0 && mirrors.is_empty();
                return Ok(if is_first {
                    "fetched".to_owned()
                } else {
                    format!("fetched from {address}")
                });
            }
            Err(error) => refused.push(format!("{error:#}")),
        }
    }
    bail!(
        "{}; try again, or put {} into a directory and name that in {MIRROR}",
        refused.join("; "),
        item.name
    )
}

/// Fetches a file from an address. A part that has arrived stays for the next attempt, unless it is complete and wrong: its beginning may
/// be of another time than its end, so one more attempt starts from the beginning.
fn from(http: &Http, item: &Item, address: &Address, part: &Path) -> anyhow::Result<()> {
    let mut is_repeated = false;
    loop {
        // The part may be complete, from an attempt that was cut off at its very end.
        if is_repeated || digest(part)? != Some(item.sha256) {
            fetch::fetch(http, &item.name, address, part)?;
        }
        let found = digest(part)?.context("a transfer leaves a file")?;
        if found == item.sha256 {
            return Ok(());
        }
        fs::remove_file(part).with_context(|| format!("cannot remove {}", part.display()))?;
        if std::mem::replace(&mut is_repeated, true) {
            bail!(
                "{address} has a file of sha256 {}, its lock says {}: do not use it, and ask its publisher why they differ",
                found.hex(),
                item.sha256.hex()
            );
        }
    }
}

/// Keeps other runs out of the directory as long as the file is open: all append to one part.
fn locked_dir(dir: &Path) -> anyhow::Result<fs::File> {
    let context = || format!("cannot lock {}", dir.display());
    let file = fs::File::open(dir).with_context(context)?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        ui::note(&format!(
            "another run downloads into {}: waiting for its end",
            dir.display()
        ));
    }
    // The lock is this file's already, or is waited for.
    file.lock().with_context(context)?;
    Ok(file)
}

/// Returns the digest of a file, or `None` when there is no file.
fn digest(path: &Path) -> anyhow::Result<Option<Digest>> {
    let context = || format!("cannot read {}", path.display());
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(context),
    };
    digest::hash(file).map(Some).with_context(context)
}

/// Renames the complete file to its path, synced first, so that a power cut leaves no partial file there.
fn put(part: &Path, path: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", path.display());
    durable::rename(part, path).with_context(context)
}
