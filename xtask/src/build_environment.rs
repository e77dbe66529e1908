//! The environment of cargo when it builds what is shipped: the same whatever the user has set for other builds.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::PathBuf,
};

use anyhow::{Context as _, ensure};
use xshell::{Cmd, cmd};

use crate::project::Project;

/// A directory of this machine, and the name that replaces it in programs.
pub(crate) type Remap = (String, String);

/// The name of the checkout in programs.
const CHECKOUT: &str = "/multus-rs";
/// The name of cargo's home in programs.
const CARGO_HOME: &str = "/cargo";
/// The name of cargo's target directory in programs.
const TARGET: &str = "/target";

/// Returns directories of this machine with the names that replace them in programs. Where two fit, the later one counts.
pub(crate) fn remaps(project: &Project) -> anyhow::Result<Vec<Remap>> {
    let home = cargo_home()?;
    let text = |path: PathBuf| {
        let path = path.into_os_string().into_string();
        path.map_err(|path| anyhow::anyhow!("the path {} is not UTF-8", path.display()))
    };
    let (sources, name) = rust_sources(project)?;
    Ok(vec![
        (text(project.root.clone())?, CHECKOUT.to_owned()),
        (text(home)?, CARGO_HOME.to_owned()),
        (text(project.target.clone())?, TARGET.to_owned()),
        (text(sources)?, name),
    ])
}

/// Returns the directory of cargo's settings and of downloaded crates.
pub(crate) fn cargo_home() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(std::env::home_dir()?.join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")
}

/// Returns the directory in which rustc looks for the sources of the standard library, and the name that they have in a machine without
/// them: rustc puts the paths of sources that it finds into programs.
pub(crate) fn rust_sources(project: &Project) -> anyhow::Result<(PathBuf, String)> {
    let shell = project.shell()?;
    let context = "cannot run rustc; get Rust with rustup from https://rustup.rs";
    let sysroot = cmd!(shell, "rustc --print sysroot").quiet().read();
    let version = cmd!(shell, "rustc -vV").quiet().read().context(context)?;
    let mut lines = version.lines();
    let hash = lines.find_map(|line| line.strip_prefix("commit-hash: "));
    let hash = hash.context("rustc -vV names no commit")?;
    let sources = PathBuf::from(sysroot.context(context)?).join("lib/rustlib/src/rust");
    Ok((sources, format!("/rustc/{hash}")))
}

/// Returns a run of cargo without the variables that a user may have set for other builds, and with those of this build.
pub(crate) fn apply<'a>(command: Cmd<'a>, variables: &[(String, OsString)]) -> Cmd<'a> {
    let names = std::env::vars_os().map(|(name, _)| name);
    let command = names
        .filter(|name| is_foreign(name))
        .fold(command, Cmd::env_remove);
    let command = command
        .env("CARGO_INCREMENTAL", "0")
        // What is compiled carries no time, and a commit that changes no source must not rebuild the parts in C.
        .env("SOURCE_DATE_EPOCH", "0")
        .env("LC_ALL", "C")
        .env("TZ", "UTC");
    let set = |command: Cmd<'a>, (name, value): &(String, OsString)| command.env(name, value);
    variables.iter().fold(command, set)
}

fn is_foreign(name: &OsStr) -> bool {
    const PREFIXES: &[&str] = &[
        "AR_",
        "CARGO_PROFILE_",
        // Cargo joins the flags of such a variable with those of this build.
        "CARGO_TARGET_",
        "CARGO_UNSTABLE_",
        "CARGO_BUILD_RUST",
        "CARGO_ENCODED_RUST",
        "CC_",
        "CFLAGS",
        "CXXFLAGS",
        "HOST_C",
        "TARGET_C",
        "ZIG_",
    ];
    const NAMES: &[&str] = &[
        "AR",
        "CC",
        "CPATH",
        "C_INCLUDE_PATH",
        "CARGO_BUILD_BUILD_DIR",
        "CCC_OVERRIDE_OPTIONS",
        "LIBRARY_PATH",
        api::version::VARIABLE,
        "RING_PREGENERATE_ASM",
        "RUSTC",
        "RUSTC_BOOTSTRAP",
        "RUSTC_LINKER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTFLAGS",
    ];
    let name = name.to_string_lossy();
    let is_foreign =
        PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&&*name);
    is_foreign && name != "CARGO_TARGET_DIR"
}

/// Fails when a file of cargo's settings changes programs: cargo joins the flags in it with those of this build.
pub(crate) fn check_settings(project: &Project, triples: &[&str]) -> anyhow::Result<()> {
    let mut dirs: Vec<_> = project
        .root
        .ancestors()
        .map(|dir| dir.join(".cargo"))
        .collect();
    dirs.push(cargo_home()?);
    for dir in dirs {
        for name in ["config.toml", "config"] {
            let path = dir.join(name);
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            // Cargo itself reports what it cannot read.
            let Ok(settings) = text.parse::<toml::Table>() else {
                continue;
            };
            if path.starts_with(&project.root) {
                continue;
            }
            let foreign = foreign_settings(&settings, triples);
            ensure!(
                foreign.is_empty(),
                "{} sets {}, so that programs would have other bytes: move it aside for this build",
                path.display(),
                foreign.join(", ")
            );
        }
    }
    Ok(())
}

/// Returns the names of the settings that change programs for these targets.
fn foreign_settings(settings: &toml::Table, triples: &[&str]) -> Vec<String> {
    let table = |name: &str| settings.get(name).and_then(toml::Value::as_table);
    let mut found = Vec::new();
    let names = ["rustc", "rustc-wrapper", "rustc-workspace-wrapper"];
    let build = table("build").into_iter().flat_map(toml::Table::keys);
    for key in build.filter(|key| names.contains(&key.as_str())) {
        found.push(format!("build.{key}"));
    }
    for (target, value) in table("target").into_iter().flatten() {
        let keys = value.as_table().into_iter().flat_map(toml::Table::keys);
        let is_ours = target.starts_with("cfg(") || triples.contains(&target.as_str());
        for key in keys.filter(|key| is_ours && *key == "rustflags") {
            found.push(format!("target.{target}.{key}"));
        }
    }
    let profiles = table("profile").into_iter().flat_map(toml::Table::keys);
    let profiles = profiles.filter(|profile| ["release", "shim"].contains(&profile.as_str()));
    found.extend(profiles.map(|profile| format!("profile.{profile}")));
    let variables = table("env").into_iter().flat_map(toml::Table::keys);
    let variables = variables.filter(|name| is_foreign(OsStr::new(name)));
    found.extend(variables.map(|name| format!("env.{name}")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_change_programs_are_named() {
        let triples = ["a-b-musl"];
        let found = |text: &str| foreign_settings(&text.parse().unwrap(), &triples);
        let harmless = "[build]\njobs = 1\n[target.a-b-gnu]\nrustflags = ['-C']\n[target.a-b-musl]\nrunner = 'x'\n\
             [net]\noffline = true\n[profile.dev]\nopt-level = 1\n[env]\nEDITOR = 'vi'\n";
        assert_eq!(found(harmless), Vec::<String>::new());
        let harmful = "[build]\nrustc-wrapper = 'x'\n[target.a-b-musl]\nrustflags = ['-C']\n[profile.release]\nlto = false\n\
             [target.'cfg(unix)']\nrustflags = '-C'\n[env]\nCFLAGS = '-O3'\n";
        assert_eq!(
            found(harmful),
            [
                "build.rustc-wrapper",
                "target.a-b-musl.rustflags",
                "target.cfg(unix).rustflags",
                "profile.release",
                "env.CFLAGS"
            ]
        );
    }

    #[test]
    fn variables_that_change_programs_are_foreign() {
        for name in [
            "RUSTFLAGS",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS",
            "CFLAGS_x86_64",
            "CPATH",
            "CC",
            "ZIG_LIB_DIR",
        ] {
            assert!(is_foreign(OsStr::new(name)), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "CARGO_HOME",
            "HTTPS_PROXY",
            "CARGO_BUILD_JOBS",
        ] {
            assert!(!is_foreign(OsStr::new(name)), "{name}");
        }
    }
}
