//! `--workstations`: builds the kubectl plugin for the machines of operators that are not nodes.

use std::{ffi::OsString, fs};

use anyhow::{Context as _, ensure};
use api::version;
use release::{
    kubectl_archives,
    workstation::{Plugins, Workstation},
};
use xshell::cmd;

use crate::{
    arch::{C_FLAGS, LINKER},
    build_environment::{self, remaps},
    c_compiler::CCompiler,
    elf, macos_sdk, programs,
    project::Project,
    toolchain, ui,
    workstations::{Facts, Linker, OLDEST_MACOS},
};

/// The option `--workstations`, which some commands share.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Workstations {
    /// Build kubectl-multus for macOS and Windows too
    #[arg(long)]
    workstations: bool,
}

impl Workstations {
    /// Returns the workstations to build for.
    pub(crate) fn list(self) -> &'static [Workstation] {
        if self.workstations {
            &Workstation::ALL
        } else {
            &[]
        }
    }

    /// Builds the plugin for each of them.
    pub(crate) fn build(self, project: &Project) -> anyhow::Result<Plugins> {
        let workstations = self.list();
        if workstations.is_empty() {
            return Ok(Plugins::new());
        }
        let compiler = toolchain::ensure_installed_for_workstations(project, workstations)?;
        let plugins = workstations.iter().map(|&workstation| {
            let bytes = compile(project, &compiler, workstation)?;
            check(project, workstation, &bytes)
                .with_context(|| format!("cannot ship {}", workstation.path()))?;
            Ok((workstation, bytes))
        });
        plugins.collect()
    }
}

fn compile(
    project: &Project,
    compiler: &CCompiler,
    workstation: Workstation,
) -> anyhow::Result<Vec<u8>> {
    let facts = Facts::of(workstation);
    let triple = facts.triple;
    build_environment::check_settings(project, &[triple])?;
    let run = programs::run_of(kubectl_archives::PROGRAM)?;
    let mut rustflags: Vec<String> = facts.rustflags.iter().map(|&flag| flag.into()).collect();
    let mut c_flags: Vec<String> = C_FLAGS.iter().map(|&flag| flag.into()).collect();
    for (from, to) in remaps(project)? {
        rustflags.push(format!("--remap-path-prefix={from}={to}"));
        c_flags.push(format!("-ffile-prefix-map={from}={to}"));
    }
    let lower = triple.replace('-', "_");
    let upper = lower.to_uppercase();
    let cc = compiler.cc_for(workstation.name());
    let mut variables: Vec<(String, OsString)> = vec![
        ("CARGO_TARGET_DIR".to_owned(), project.target.clone().into()),
        ("CRATE_CC_NO_DEFAULTS".to_owned(), "1".into()),
        // Not written into the finished program as for nodes: its signature for macOS covers every byte.
        (
            version::VARIABLE.to_owned(),
            super::stamp(project)?.as_str().into(),
        ),
        (format!("CC_{lower}"), cc.clone().into()),
        (format!("AR_{lower}"), compiler.ar().into()),
        (format!("CFLAGS_{lower}"), c_flags.join(" ").into()),
        (
            "CARGO_ENCODED_RUSTFLAGS".to_owned(),
            rustflags.join("\u{1f}").into(),
        ),
    ];
    let linker = format!("CARGO_TARGET_{upper}_LINKER");
    match facts.linker {
        Linker::CCompiler => variables.push((linker, cc.into())),
        Linker::Own => variables.extend([
            (linker, LINKER.into()),
            (
                "SDKROOT".to_owned(),
                macos_sdk::write(project, compiler)?.into(),
            ),
            ("MACOSX_DEPLOYMENT_TARGET".to_owned(), OLDEST_MACOS.into()),
        ]),
    }
    let shell = project.shell()?;
    let (profile, packages) = (run.profile, run.programs.iter());
    let packages: Vec<_> = packages
        .flat_map(|(package, _)| ["--package", package])
        .collect();
    ui::note(&format!(
        "building {} {}",
        workstation.name(),
        packages.join(" ")
    ));
    let build = cmd!(
        shell,
        "cargo build --locked --offline --profile {profile} --target {triple} {packages...} --bins"
    );
    build_environment::apply(build, &variables)
        .quiet()
        .run()
        .with_context(|| format!("cannot build for {}", workstation.name()))?;
    let path = project.target.join(triple).join(profile);
    let path = path.join(workstation.program());
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn check(project: &Project, workstation: Workstation, bytes: &[u8]) -> anyhow::Result<()> {
    workstation.check(bytes)?;
    let paths: Vec<_> = remaps(project)?.into_iter().map(|(from, _)| from).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    elf::check_has_none(bytes, &paths)?;
    let (size, budget) = (bytes.len() as u64, programs::KUBECTL_BUDGET);
    ensure!(
        size <= budget,
        "it has {size} bytes, its budget is {budget}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workstations_are_built_for_on_demand_alone() {
        assert!(Workstations::default().list().is_empty());
        assert_eq!(Workstations { workstations: true }.list(), Workstation::ALL);
    }
}
