//! The VPN's settings with the key, from a file, an argument or a variable. Afterwards the key is in this process' memory alone.
//!
//! K3s reads the same variables, and brings a VPN up by itself then: they count where this program was told to do so. A command that takes settings from here starts the VPN itself, so it starts the distro without
//! [`VARIABLES`]; a command that does not leaves them to the distro.

mod exposed;

use std::{
    convert::Infallible,
    fs::File,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, ensure};
use cmdline::absolute;
use node::root::Root;
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use vpn::{Auth, Secret, provider::Selection};

/// The variables with settings, those that name a file first. K3s reads those of its name, RKE2 none.
pub(crate) const VARIABLES: [&str; 4] = [
    "K3S_VPN_AUTH_FILE",
    "RKE2_VPN_AUTH_FILE",
    "K3S_VPN_AUTH",
    "RKE2_VPN_AUTH",
];
const FILES: [&str; 2] = [VARIABLES[0], VARIABLES[1]];
const TEXTS: [&str; 2] = [VARIABLES[2], VARIABLES[3]];

/// The permissions of all but a file's owner.
const OTHERS: u32 = 0o077;

/// The arguments with settings.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct AuthArgs {
    /// File of mode 0600 with the VPN's settings: name=tailscale,joinKey=KEY[,controlServerURL=URL][,extraArgs=ARGS], or name=wireguard,interface=NAME[,pods=routes|vxlan], or name=interface,interface=NAME
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    vpn_auth_file: Option<PathBuf>,
    /// The VPN's settings themselves, which every user of the node can read: prefer the file
    #[arg(long, value_name = "SETTINGS", value_parser = Text::parse)]
    vpn_auth: Option<Text>,
}

impl AuthArgs {
    /// Returns whether this program is told to put the node on a VPN: by an argument, or by a variable of a distro that reads none.
    pub(crate) fn are_given(&self, variable: impl Fn(&str) -> Option<String>) -> bool {
        let mut names = VARIABLES.iter();
        self.vpn_auth_file.is_some()
            || self.vpn_auth.is_some()
            || names.any(|name| name.starts_with("RKE2_") && variable(name).is_some())
    }
}

/// An argument that is not printed.
#[derive(Debug, Clone)]
struct Text(Arc<Secret>);

impl Text {
    #[expect(clippy::unnecessary_wraps, reason = "the form of a parser of values")]
    fn parse(text: &str) -> Result<Self, Infallible> {
        Ok(Self(Arc::new(Secret::new(text.as_bytes()))))
    }
}

/// Settings, with what the user should know about them.
pub(crate) struct Taken {
    pub(crate) auth: Auth,
    pub(crate) notes: Vec<String>,
}

/// A place with settings.
#[derive(Debug)]
struct Source {
    /// Its name for people.
    from: String,
    content: Content,
}

#[derive(Debug)]
enum Content {
    File(PathBuf),
    Text(Arc<Secret>),
}

/// Takes the settings: as in K3s a file wins over a text, and an argument over a variable. `None` where there are none.
///
/// Texts among the arguments and in the environment of this process are overwritten first, and no core file will hold the key.
pub(crate) fn take(
    args: &AuthArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Taken>> {
    let sources = sources(args, variable);
    if sources.is_empty() {
        return Ok(None);
    }
    let texts = sources.iter().filter_map(|source| match source.content {
        Content::File(_) => None,
        Content::Text(_) => Some(source.from.as_str()),
    });
    let texts: Vec<&str> = texts.collect();
    let mut notes = Vec::new();
    if !texts.is_empty() {
        exposed::overwrite().context(
            "cannot overwrite the VPN's key among this program's arguments and variables: use --vpn-auth-file",
        )?;
        notes.push(format!(
            "the VPN's settings were in {}, where other programs could read the key, and are overwritten now: write them into a file of mode 0600 and name it with --vpn-auth-file",
            texts.join(" and ")
        ));
    }
    notes.extend(unused(&sources));
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context("cannot keep the VPN's key out of core files")?;
    let (from, text) = match &sources[0].content {
        Content::File(path) => {
            let text = read_file(&Root::open("/")?, path)?;
            (path.display().to_string(), Arc::new(text))
        }
        Content::Text(text) => (sources[0].from.clone(), Arc::clone(text)),
    };
    let auth = Auth::parse(text.expose()).with_context(|| format!("cannot use {from}"))?;
    notes.extend(auth.warnings.iter().cloned());
    Ok(Some(Taken { auth, notes }))
}

/// Returns the VPN that a file's settings select; fails unless they can be used.
pub(crate) fn check(root: &Root, path: &Path) -> anyhow::Result<Selection> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context("cannot keep the VPN's key out of core files")?;
    let text = read_file(root, path)?;
    let parsed = Auth::parse(text.expose());
    parsed
        .map(|auth| auth.selection)
        .with_context(|| format!("cannot use {}", path.display()))
}

/// Returns all sources that are set; the first one counts.
fn sources(args: &AuthArgs, variable: impl Fn(&str) -> Option<String>) -> Vec<Source> {
    let argument = |name: &str, content| Source {
        from: name.to_owned(),
        content,
    };
    let variable_source = |name: &str, content: fn(String) -> Content| {
        Some(Source {
            from: format!("the variable {name}"),
            content: content(variable(name)?),
        })
    };
    let file = args.vpn_auth_file.clone();
    let file = file.map(|path| argument("--vpn-auth-file", Content::File(path)));
    let files = FILES
        .iter()
        .filter_map(|name| variable_source(name, |path| Content::File(PathBuf::from(path))));
    let text = args.vpn_auth.as_ref();
    let text = text.map(|text| argument("--vpn-auth", Content::Text(Arc::clone(&text.0))));
    let texts = TEXTS.iter().filter_map(|name| {
        variable_source(name, |text| {
            Content::Text(Arc::new(Secret::new(text.into_bytes())))
        })
    });
    let file = file.into_iter();
    file.chain(files).chain(text).chain(texts).collect()
}

/// Returns a line about the settings that do not count; those that name the same file as the first do.
fn unused(sources: &[Source]) -> Option<String> {
    let (used, others) = sources.split_first()?;
    let is_same = |other: &&Source| match (&used.content, &other.content) {
        (Content::File(path), Content::File(other)) => path == other,
        _ => false,
    };
    let others = others.iter().filter(|other| !is_same(other));
    let names: Vec<&str> = others.map(|other| other.from.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the VPN's settings of {} count, and those of {} do not: take these away",
            used.from,
            names.join(" and ")
        )
    })
}

/// Reads a file of settings, which root or this user alone can read. Links are followed, and the file at their end counts.
fn read_file(root: &Root, path: &Path) -> anyhow::Result<Secret> {
    let name = path.display();
    // A pipe is opened without waiting for its writer, and refused.
    let file = root
        .open_file(path)
        .with_context(|| format!("cannot read the VPN's settings from {name}"))?;
    let found = file
        .metadata()
        .with_context(|| format!("cannot inspect {name}"))?;
    ensure!(
        found.is_file(),
        "{name} is not a regular file: write the VPN's settings into a file of mode 0600"
    );
    let user = geteuid().as_raw();
    ensure!(
        found.uid() == 0 || found.uid() == user,
        "{name} belongs to the user {}, who can replace the VPN's key: chown root {name}",
        found.uid()
    );
    ensure!(
        found.mode() & OTHERS == 0,
        "{name} has mode {:04o}, so others than its owner have the VPN's key: chmod 600 {name}",
        found.mode() & 0o7777
    );
    read_bounded(file).with_context(|| format!("cannot read {name}"))
}

fn read_bounded(file: File) -> anyhow::Result<Secret> {
    // Never grown, so that no copy stays behind.
    let mut bytes = Vec::with_capacity(vpn::auth::MAX + 2);
    file.take(vpn::auth::MAX as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(Secret::new(bytes))
}

/// Returns a line without what may be a key in it, for errors of the command line that repeat an argument.
pub(crate) fn masked(line: &str) -> String {
    let mut masked = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((at, marker)) = ["joinKey", "tskey-"]
        .into_iter()
        .filter_map(|marker| Some((rest.find(marker)?, marker)))
        .min()
    {
        let (before, after) = rest.split_at(at + marker.len());
        masked.push_str(before);
        masked.push('…');
        rest = after.trim_start_matches(|c: char| !c.is_whitespace());
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests;
