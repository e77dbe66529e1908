//! `lint`: checks formatting, clippy, tidiness of files, the pages for people, the chart and the workflows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use cmdline::counted;
use xshell::{Shell, cmd};

use crate::{
    charts,
    cmd::fuzz,
    project::{self, Project},
    ui,
};

/// Check formatting, clippy, tidiness, pages, the chart and the workflows
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask lint --install\n  cargo xtask lint --arm --install"
)]
pub(crate) struct Args {
    /// Install what is missing: actionlint, with Go, and the standard library for `--arm`
    #[arg(long)]
    pub(crate) install: bool,
    /// Instead of all this, check that the programs of nodes compile for arm, whose types have 32 bits
    #[arg(long)]
    pub(crate) arm: bool,
}

const ACTIONLINT: &str = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7";
/// A longer file may hold a second idea; one idea may have any length.
const LONG_FILE: usize = 800;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let shell = project.shell()?;
    if args.arm {
        return check_arm(&shell, args.install);
    }
    ui::note("fmt");
    cmd!(shell, "cargo fmt --all --check").quiet().run()?;
    cmd!(shell, "cargo fmt --manifest-path fuzz/Cargo.toml --check")
        .quiet()
        .run()?;
    fuzz::check_lock(&shell)?;
    ui::note("tidy");
    tidy(&project.root)?;
    ui::note("pages");
    pages(&project.root)?;
    ui::note("chart");
    charts::check(project.settings())?;
    workflows(&project, &shell, args.install)?;
    ui::note("clippy");
    cmd!(
        shell,
        "cargo clippy --locked --workspace --all-targets -- --deny warnings"
    )
    .quiet()
    .run()?;
    Ok(())
}

/// A target with 32 bits whose standard library rustup has everywhere.
const ARM: &str = "armv7-unknown-linux-gnueabihf";

/// Checks that the programs of nodes compile where types have 32 bits, long before a release is built for arm.
fn check_arm(shell: &Shell, install: bool) -> anyhow::Result<()> {
    ui::note("arm");
    if install {
        cmd!(shell, "rustup target add {ARM}").quiet().run()?;
    }
    let variable = |name: &str| format!("{name}_{}", ARM.replace('-', "_"));
    // Nothing is linked, so parts in C are not needed: their compiler is a program that writes nothing.
    cmd!(
        shell,
        "cargo check --locked --target {ARM} --package shim --package plugins --package daemon --package distro"
    )
    .env(variable("CC"), "true")
    .env(variable("AR"), "true")
    .quiet()
    .run()
    .with_context(|| {
        format!("programs of nodes do not compile for arm; if the target is missing: rustup target add {ARM}")
    })
}

fn workflows(project: &Project, shell: &Shell, install: bool) -> anyhow::Result<()> {
    let own = project.cache_dir().join("tools/actionlint");
    let found = match cmd!(shell, "actionlint --version")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run()
    {
        Ok(()) => PathBuf::from("actionlint"),
        Err(_) if own.exists() => own,
        Err(_) if install => {
            ui::note("installing actionlint");
            let dir = own.parent().context("the tool is in a directory")?;
            cmd!(shell, "go install {ACTIONLINT}")
                .env("GOBIN", dir)
                .quiet()
                .run()
                .context("cannot get actionlint; is Go installed?")?;
            own
        }
        Err(_) => {
            ui::note("actionlint is not installed, workflows NOT checked: --install installs it");
            return Ok(());
        }
    };
    ui::note("actionlint");
    cmd!(shell, "{found}").quiet().run()?;
    Ok(())
}

/// Notes every complaint about every file, and fails if there is one.
fn tidy(root: &Path) -> anyhow::Result<()> {
    let mut complaints = Vec::new();
    for name in project::files(root)? {
        let path = root.join(&name);
        if let Ok(text) = fs::read_to_string(&path) {
            complaints.extend(complaints_about(&name, &text));
            if let Some(warning) = length_warning(&name, &text) {
                ui::note(&warning);
            }
        }
    }
    if complaints.is_empty() {
        return Ok(());
    }
    for complaint in &complaints {
        ui::note(complaint);
    }
    bail!(
        "files are not tidy: {}",
        counted(complaints.len(), "complaint")
    )
}

/// Notes every complaint about the pages for people, fails if there is one, and counts their blocks by check.
fn pages(root: &Path) -> anyhow::Result<()> {
    let pages = docs::Pages::read(root).context("cannot read the pages")?;
    let complaints = docs::check::complaints(&pages);
    for complaint in &complaints {
        ui::note(complaint);
    }
    let counts = docs::check::counts(&pages);
    let counts = counts
        .iter()
        .map(|(check, count)| format!("{count} {check}"));
    ui::note(&format!(
        "blocks of {} by check: {}",
        counted(pages.for_people().count(), "page"),
        counts.collect::<Vec<_>>().join(", ")
    ));
    if !complaints.is_empty() {
        bail!("pages: {}", counted(complaints.len(), "complaint"));
    }
    Ok(())
}

fn complaints_about(name: &str, text: &str) -> Vec<String> {
    let is_fixture = ["/fixtures/", "/testdata/", "fuzz/corpus/"]
        .iter()
        .any(|dir| name.contains(dir));
    let is_listing = name.ends_with("Cargo.lock") || name.ends_with("go.sum");
    let mut complaints = Vec::new();
    if is_fixture || is_listing {
        return complaints;
    }
    let is_rust = name.rsplit_once('.').is_some_and(|(_, end)| end == "rs");
    if is_rust && !text.starts_with("//!") {
        complaints.push(format!("{name}: does not open with //! and its purpose"));
    }
    let mut is_test = name.ends_with("tests.rs") || name.contains("/tests/");
    // The one place of the version, and what was released.
    let may_have_version =
        ["Cargo.toml", "CHANGELOG.md"].contains(&name) || name.ends_with("go.mod");
    for (number, line) in text.lines().enumerate() {
        let at = format!("{name}:{}", number + 1);
        is_test |= line == "mod tests {";
        if line.ends_with([' ', '\t']) {
            complaints.push(format!("{at}: blanks at the end of the line"));
        }
        let marker = concat!("TO", "DO");
        if line.contains(marker) || line.contains(concat!("todo", "!(")) {
            complaints.push(format!("{at}: {marker} left"));
        }
        if !may_have_version && !is_test && has_version(line, env!("CARGO_PKG_VERSION")) {
            complaints.push(format!(
                "{at}: the workspace's version, which changes in Cargo.toml alone: derive it, or write X.Y.Z"
            ));
        }
        let is_release_code = ["airgap/src/", "distro/src/", "release/src/", "xtask/src/"]
            .iter()
            .any(|dir| name.starts_with(dir));
        if is_release_code && line.contains(concat!("fs::ren", "ame(")) && !is_test {
            complaints.push(format!(
                "{at}: a rename without a sync: use archive::durable::rename"
            ));
        }
        if name.starts_with(".github/workflows/") && !is_pinned(line) {
            complaints.push(format!(
                "{at}: an action stands by a tag, which can be moved: pin its commit, with the version in a comment"
            ));
        }
    }
    complaints
}

/// Returns whether a line has this version, and not as a part of another one.
fn has_version(line: &str, version: &str) -> bool {
    line.match_indices(version).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let mut after = line[at + version.len()..].chars();
        let next = after.next();
        let is_longer = match next {
            Some('.') => after.next().is_some_and(|c| c.is_ascii_digit()),
            other => other.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-' || c == '+'),
        };
        !is_longer && before.is_none_or(|c| !c.is_ascii_digit() && c != '.')
    })
}

/// Returns whether a line of a workflow names no action, or one by its commit.
fn is_pinned(line: &str) -> bool {
    let Some(action) = line.trim().trim_start_matches("- ").strip_prefix("uses: ") else {
        return true;
    };
    let pin = action
        .split_once('@')
        .and_then(|(_, pin)| pin.split_once(" # v"));
    pin.is_some_and(|(commit, _)| {
        commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Warns of a long source file; length alone is not a failure.
fn length_warning(name: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    let is_long = Path::new(name).extension() == Some("rs".as_ref()) && lines > LONG_FILE;
    is_long.then(|| format!("warning: {name} has {lines} lines: does it hold a second idea?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: &[&str]) {
        assert_eq!(complaints_about(name, text), expected, "{name}: {text}");
    }

    #[test]
    fn untidy_files_are_named() {
        check("a.rs", "//! X.\nfn f() {}\n", &[]);
        let header = "a.rs: does not open with //! and its purpose";
        check("a.rs", "fn f() {}\n", &[header]);
        check("a.md", "x \n", &["a.md:1: blanks at the end of the line"]);
        let text = format!("//! X.\n// {}\n", concat!("TO", "DO"));
        check("a.rs", &text, &[concat!("a.rs:2: TO", "DO left")]);
        check("a/fixtures/x.rs", "x ", &[]);
    }

    #[test]
    fn renames_without_a_sync_are_named() {
        let rename = concat!("    fs::ren", "ame(from, to)?;\n");
        let text = format!("//! X.\n{rename}mod tests {{\n{rename}");
        let complaint = "distro/src/x.rs:2: a rename without a sync: use archive::durable::rename";
        check("distro/src/x.rs", &text, &[complaint]);
        check("archive/src/x.rs", &text, &[]);
        check("airgap/src/x/tests.rs", &text, &[]);
    }

    #[test]
    fn version_of_the_workspace_is_in_one_place() {
        let version = env!("CARGO_PKG_VERSION");
        let complaint = |name: &str| {
            format!(
                "{name}:1: the workspace's version, which changes in Cargo.toml alone: derive it, or write X.Y.Z"
            )
        };
        for line in [
            format!("helm install x-{version}.tgz"),
            format!("image: multus:v{version}"),
            format!("release {version}."),
        ] {
            check("README.md", &line, &[&complaint("README.md")]);
            for name in [
                "Cargo.toml",
                "CHANGELOG.md",
                "x/tests/it/a.md",
                "Cargo.lock",
            ] {
                check(name, &line, &[]);
            }
        }
        let test = format!("//! X.\nmod tests {{\n    \"{version}\"\n");
        check("a.rs", &test, &[]);
        for other in [
            format!("1{version}"),
            format!("{version}1"),
            format!("{version}.1"),
            format!("{version}-rc.1"),
        ] {
            check("README.md", &other, &[]);
        }
    }

    #[test]
    fn actions_are_pinned() {
        let name = ".github/workflows/x.yaml";
        let pinned = format!("  - uses: actions/checkout@{} # v4.2.2\n", "0a".repeat(20));
        check(name, &pinned, &[]);
        for line in [
            "      - uses: actions/checkout@v4",
            "    uses: a/b@0a0a # v1",
        ] {
            let complaints = complaints_about(name, line);
            assert_eq!(complaints.len(), 1, "{line}");
            assert!(complaints[0].contains("pin its commit"), "{complaints:?}");
        }
    }

    #[test]
    fn release_workflow_has_the_least_rights_that_suffice() {
        let text = include_str!("../../../.github/workflows/release.yaml");
        let (head, jobs) = text.split_once("\njobs:\n").unwrap();
        assert!(head.ends_with("\npermissions: {}"), "{head}");
        let (dist, rest) = jobs.split_once("\n  e2e:\n").unwrap();
        let (e2e, rest) = rest.split_once("\n  sign:\n").unwrap();
        let (sign, rest) = rest.split_once("\n  registry:\n").unwrap();
        let (registry, publish) = rest.split_once("\n  publish:\n").unwrap();
        for (job, after) in [
            (e2e, "dist"),
            (sign, "e2e"),
            (registry, "sign"),
            (publish, "registry"),
        ] {
            assert!(job.contains(&format!("    needs: {after}\n")), "{after}");
        }
        let rights = |job: &str| {
            let lines = job.lines().map(|line| line.trim().to_owned());
            lines
                .filter(|line| line.ends_with(": write"))
                .collect::<Vec<_>>()
        };
        let none: Vec<String> = Vec::new();
        for job in [dist, e2e, sign] {
            assert_eq!(rights(job), none);
        }
        assert_eq!(rights(registry), ["packages: write"]);
        assert_eq!(rights(publish), ["contents: write"]);
        // The one that may write to the repository checks out the branch with charts, and runs nothing.
        let checkouts = |job: &str| job.matches("checkout@").count();
        let chart_branches = publish.matches("          ref: charts\n").count();
        assert_eq!((checkouts(publish), chart_branches), (1, 1));
        assert!(!publish.contains("cargo"));
        // No other job keeps credentials of a checkout.
        for job in [dist, e2e, sign, registry] {
            let without = job.matches("persist-credentials: false\n").count();
            assert_eq!(checkouts(job), without);
        }
        // Root does nothing: what builds need is pinned, and belongs to the user who builds.
        assert!(!dist.contains("sudo "));
    }

    /// The private key is in one step of a job without rights that compiles nothing, the token of the registry in one step of another one,
    /// after the program was built.
    #[test]
    fn release_workflow_shows_its_secrets_to_single_steps() {
        let text = include_str!("../../../.github/workflows/release.yaml");
        let steps = |job: &str| -> Vec<String> {
            let (_, rest) = text.split_once(&format!("\n  {job}:\n")).unwrap();
            let end = rest.match_indices("\n  ").find(|(at, _)| {
                let next = rest[at + 3..].chars().next();
                next.is_some_and(|c| c.is_ascii_lowercase())
            });
            let job = end.map_or(rest, |(at, _)| &rest[..at]);
            job.split("\n      - ").map(str::to_owned).collect()
        };
        let position = |steps: &[String], part: &str| {
            let found = steps.iter().position(|step| step.contains(part));
            found.unwrap_or_else(|| panic!("no step has {part}: {steps:?}"))
        };
        assert_eq!(text.matches("secrets.").count(), 1);
        let sign = steps("sign");
        let signs = position(&sign, "RELEASE_KEY: ${{ secrets.RELEASE_KEY }}\n");
        // Nothing of others runs beside the key: the job compiles nothing, and what reads the key has no network.
        assert!(!sign.concat().contains("cargo "), "{sign:?}");
        let step = &sign[signs];
        let [file, without, apart, signed, files, removed] = [
            "(umask 077; printf '%s\\n' \"${RELEASE_KEY:?",
            "unset RELEASE_KEY\n",
            "sudo unshare --net --pid --fork --kill-child --mount-proc ",
            "/tmp/release/xtask sign --key \"$1\" ",
            "/tmp/release/xtask release publish --dist \"$2\" --signing-key \"$1\" --files /tmp/signed/files\n",
            "trap 'rm --force \"$RUNNER_TEMP/release.key\"' EXIT\n",
        ]
        .map(|part| {
            step.find(part)
                .unwrap_or_else(|| panic!("no {part}: {step}"))
        });
        assert!(removed < file && file < without && without < apart);
        assert!(apart < signed && signed < files);
        let check = "/tmp/release/xtask release check --tag \"$GITHUB_REF_NAME\" --dist \"/tmp/release/multus-rs-$GITHUB_REF_NAME\" --key ";
        let checked = position(&sign, check);
        let published = position(&sign, "/tmp/release/xtask release publish --dist \"/tmp/");
        assert!(signs < checked && checked < published);
        let registry = steps("registry");
        let token = position(&registry, "MULTUS_REGISTRY_PASSWORD: ${{ github.token }}\n");
        assert!(position(&registry, "cargo xtask release check --tag") < token);
        assert!(registry[token].contains("--key /tmp/signed/release.pub\n"));
        assert!(!sign.concat().contains("github.token"));
        // Every job that publishes has the public key that was announced.
        assert!(sign.concat().contains("${{ vars.RELEASE_PUBLIC_KEY }}\n"));
    }

    #[test]
    fn dependencies_are_checked_on_changes_and_each_night() {
        for (text, check) in [
            (
                include_str!("../../../.github/workflows/ci.yaml"),
                "cargo deny --locked check",
            ),
            (
                include_str!("../../../.github/workflows/nightly.yaml"),
                "cargo deny --locked check advisories",
            ),
        ] {
            let (_, job) = text.split_once("\n  deny:\n").unwrap();
            let runs: Vec<_> = job
                .lines()
                .filter_map(|line| line.trim().strip_prefix("- run: "))
                .collect();
            let [install, run, targets] = runs[..] else {
                panic!("{runs:?}");
            };
            assert!(install.starts_with("cargo install --locked cargo-deny@"));
            assert_eq!(run, check);
            let there = "--locked --manifest-path fuzz/Cargo.toml";
            assert_eq!(targets, check.replace("--locked", there));
        }
    }

    /// The modes and the programs that were tested are those that are published.
    #[test]
    fn release_is_tested_and_published_as_one_archive() {
        let text = include_str!("../../../.github/workflows/release.yaml");
        let (dist, rest) = text.split_once("\n  e2e:\n").unwrap();
        let (e2e, rest) = rest.split_once("\n  sign:\n").unwrap();
        let (sign, publish) = rest.split_once("\n  publish:\n").unwrap();
        let position = |job: &str, step: &str| {
            let found = job.find(step);
            found.unwrap_or_else(|| panic!("there is no {step}: {job}"))
        };
        let check = "- run: cargo xtask release check --tag \"$GITHUB_REF_NAME\"";
        let checked = position(dist, &format!("{check}\n"));
        let made = position(dist, "- run: cargo xtask dist --install\n");
        let sound = position(dist, &format!("{check} --dist dist\n"));
        let files = position(
            dist,
            "- run: cargo xtask release publish --files \"$RUNNER_TEMP/release/files\" ",
        );
        let upload = position(dist, "actions/upload-artifact@");
        assert!(checked < made && made < sound && sound < files && files < upload);
        assert!(
            dist[upload..].contains("path: ${{ runner.temp }}/release\n"),
            "{dist}"
        );
        let archive = "multus-rs-$GITHUB_REF_NAME";
        let unpacked = position(e2e, "- run: tar --extract --directory /tmp/release ");
        let line = e2e[unpacked..].lines().next().unwrap_or_default();
        assert!(line.ends_with(&format!("/files/{archive}.tar\"")), "{line}");
        let verified = position(e2e, &format!("{check} --dist \"/tmp/release/{archive}\"\n"));
        let tested = format!("cargo xtask e2e \"$suite\" --dist \"/tmp/release/{archive}\" ");
        let tested = position(e2e, &tested);
        assert!(unpacked < verified && verified < tested);
        // The same archive is signed, and what is published comes from that.
        let from = position(sign, &format!("/tmp/release/files/{archive}.tar\"\n"));
        let signed = position(sign, "/tmp/release/xtask sign ");
        let files = position(sign, "--files /tmp/signed/files ");
        let program = position(
            dist,
            "- run: cp target/debug/xtask \"$RUNNER_TEMP/release\"\n",
        );
        assert!(made < program && program < upload);
        assert!(from < signed && signed < files);
        let checked = position(publish, "- run: sha256sum --check SHA256SUMS\n");
        let published = position(publish, "gh release create ");
        assert!(checked < published);
        assert!(publish[published..].contains(" signed/files/*\n"));
        // Each program runs on the kind of machine that it is for; there is none for arm.
        let runners = e2e
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- runner: "));
        assert_eq!(
            runners.collect::<Vec<_>>(),
            ["ubuntu-24.04", "ubuntu-24.04-arm"]
        );
        assert!(e2e.contains("\n    runs-on: ${{ matrix.runner }}\n"));
        assert!(e2e.contains("\n            emulated: arm\n"));
    }

    #[test]
    fn long_files_are_a_warning() {
        let text = format!("//! X.\n{}", "\n".repeat(LONG_FILE));
        check("a.rs", &text, &[]);
        assert!(length_warning("a.rs", &text).is_some_and(|text| text.contains("801 lines")));
        assert_eq!(length_warning("a.md", &text), None);
        assert_eq!(length_warning("a.rs", "//! X.\n"), None);
    }
}
