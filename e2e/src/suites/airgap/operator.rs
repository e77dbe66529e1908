//! An operator without a checkout: a copy of `airgap/` and the program in it are all there is. It checks, explains and pushes to the
//! registry.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{
    fixture::{AirgapFixture, PASSWORD, REGISTRY, USER, text},
    stores::release_images,
};
use crate::{
    pages::Reader,
    report::{CheckFailed, Report},
    sh,
    test_env::{TestEnv, arch, sha256},
};

/// The program on a medium, which runs on the node.
struct Operator<'a> {
    fixture: &'a AirgapFixture,
    program: PathBuf,
}

impl Operator<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.fixture.node.command(&self.program);
        command
            .args(args)
            .env("DOCKER_CONFIG", self.fixture.node.dir.join("no-logins"))
            .env("MULTUS_REGISTRY_PASSWORD", PASSWORD);
        if args.first() == Some(&"push") {
            command.args(["--plain-http", &format!("--user={REGISTRY}={USER}")]);
        }
        command
    }

    fn run(&self, args: &[&str]) -> anyhow::Result<String> {
        sh::run(&mut self.command(args))
    }

    fn ensure_refused(&self, args: &[&str], expected: &str) -> anyhow::Result<()> {
        self.fixture.ensure_fails(&mut self.command(args), expected)
    }
}

pub(super) fn run(
    env: &TestEnv,
    fixture: &AirgapFixture,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let (operator, medium) = report.check("the program on the medium starts", || {
        let own = env.dir.join("medium");
        let mut copy = Command::new("cp");
        sh::run(
            copy.arg("--recursive")
                .args([&env.dist.join("airgap"), &own]),
        )?;
        let program = own.join(format!("multus-airgap-{}", arch()));
        let operator = Operator { fixture, program };
        let version = operator.run(&["--version"])?;
        let expected = format!("multus-airgap v{} ({}, ", env.version()?, env.commit()?);
        ensure!(version.starts_with(&expected), "{version}");
        Ok((operator, own))
    })?;
    check_and_explain(env, &operator, &medium, report)?;
    refuse(env, &operator, &medium, report)?;
    push(env, &operator, &medium, report)?;
    page(env, &operator, &medium, report)
}

/// The medium's directory and the registry, in place of those of the page.
const PAGE_VALUES: &[(&str, &str)] = &[
    ("/media/airgap", "medium"),
    (
        "registry.example:5000/team --user me",
        "127.0.0.1:5000/team --user e2e --plain-http",
    ),
];

/// Follows docs/airgap.md as its reader does.
fn page(
    env: &TestEnv,
    operator: &Operator<'_>,
    medium: &Path,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    report.check("docs/airgap.md: medium and registry", || {
        let reader = Reader::new(env, "airgap")?.with_values(PAGE_VALUES);
        reader.link("medium", medium)?;
        for step in ["medium", "push"] {
            reader.follow("docs/airgap.md", step, || {
                let mut shell = operator.fixture.node.command("bash");
                shell
                    .env("DOCKER_CONFIG", operator.fixture.node.dir.join("no-logins"))
                    .env("MULTUS_REGISTRY_PASSWORD", PASSWORD);
                shell
            })?;
        }
        reader.ensure_all_followed()
    })
}

fn check_and_explain(
    env: &TestEnv,
    operator: &Operator<'_>,
    medium: &Path,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let archive = format!("multus-airgap-images-{}.tar", arch());
    report.check("multus-airgap verifies the medium and the release", || {
        let checked = operator.run(&["verify", text(medium)?])?;
        ensure!(
            checked.contains(&format!("{archive}: 1 image")),
            "{checked}"
        );
        let release = text(&env.dist)?;
        let checked = operator.run(&["verify", "--allow-dirty", release])?;
        ensure!(checked.trim().ends_with("is undamaged"), "{checked}");
        Ok(())
    })?;
    report.check("multus-airgap explains medium, archive and release", || {
        let explained = operator.run(&["explain", text(medium)?])?;
        for reference in release_images(env)? {
            let (name, _) = reference.split_once('@').unwrap_or_default();
            ensure!(explained.contains(name), "{explained} lacks {name}");
        }
        ensure!(
            explained.contains(&format!("{archive}: archive of 1 image for {}", arch()))
                && explained.contains(&format!("static program for {}", arch())),
            "{explained}"
        );
        let file = medium.join(&archive);
        let json = operator.run(&["explain", "--json", text(&file)?])?;
        let json: Value = serde_json::from_str(&json)?;
        let size = fs::metadata(&file)?.len();
        ensure!(
            json[0]["kind"] == "archive" && json[0]["size"] == size,
            "{json}"
        );
        let release = operator.run(&["explain", text(&env.dist)?])?;
        let head = format!("release {} of commit ", env.version()?);
        ensure!(release.contains(&head), "{release}");
        Ok(())
    })
}

type Harm = fn(&Path) -> anyhow::Result<()>;

/// Harms copies of the medium, each of which is refused by name before anything is sent or written.
fn refuse(
    env: &TestEnv,
    operator: &Operator<'_>,
    medium: &Path,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let archive = format!("multus-airgap-images-{}.tar", arch());
    let mut refused = |what: &str, args: &[&str], expected: &str, harm: Harm| {
        report.check(&format!("multus-airgap refuses {what}"), || {
            let copy = env.dir.join("harmed");
            if copy.exists() {
                fs::remove_dir_all(&copy)?;
            }
            sh::run(Command::new("cp").arg("--recursive").args([medium, &copy]))?;
            harm(&copy)?;
            let args: Vec<_> = args
                .iter()
                .map(|arg| match *arg {
                    "MEDIUM" => text(&copy),
                    arg => Ok(arg),
                })
                .collect::<anyhow::Result<_>>()?;
            let before = operator.fixture.logged_requests(&["PUT /v2/"])?;
            operator.ensure_refused(&args, expected)?;
            let sent = operator.fixture.logged_requests(&["PUT /v2/"])? - before;
            ensure!(sent == 0, "{sent} uploads reached the registry");
            Ok(())
        })
    };
    let cut: Harm = |dir| {
        let file = dir.join(format!("multus-airgap-images-{}.tar", arch()));
        let bytes = fs::read(&file)?;
        Ok(fs::write(file, &bytes[..bytes.len() / 2])?)
    };
    let expected = format!(
        "{archive} is not the file that sha256sum-{}.txt names",
        arch()
    );
    refused(
        "to verify a truncated archive",
        &["verify", "MEDIUM"],
        &expected,
        cut,
    )?;
    refused(
        "to push a truncated archive",
        &["push", "MEDIUM", REGISTRY],
        &expected,
        cut,
    )?;
    refused(
        "a program that is not the release's",
        &["verify", "MEDIUM"],
        &format!("multus-airgap-{} is not the file that", arch()),
        |dir| {
            let program = dir.join(format!("multus-airgap-{}", arch()));
            let mut bytes = fs::read(&program)?;
            bytes.push(0);
            Ok(fs::write(program, bytes)?)
        },
    )?;
    refused(
        "a list of other images",
        &["push", "MEDIUM", REGISTRY],
        "multus-images.txt is not the file that",
        |dir| {
            Ok(fs::write(
                dir.join("multus-images.txt"),
                "docker.io/x/y:1\n",
            )?)
        },
    )
}

fn push(
    env: &TestEnv,
    operator: &Operator<'_>,
    medium: &Path,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    report.check(
        "multus-airgap pushes the medium with the digests of its list, and only once",
        || {
            let to = format!("{REGISTRY}/operator");
            let push = || -> anyhow::Result<Value> {
                let answer = operator.run(&["push", text(medium)?, &to, "--json"])?;
                Ok(serde_json::from_str(&answer)?)
            };
            let sent = push()?["sent"].as_u64().context("no number of bytes")?;
            ensure!(sent > 1_000_000, "{sent} bytes were sent");
            for reference in release_images(env)? {
                let (name, digest) = reference.split_once('@').context("a digest is named")?;
                let name = name.trim_start_matches("docker.io/");
                let target = format!("docker://{to}/{name}");
                let login = format!("{USER}:{PASSWORD}");
                let raw = operator.fixture.skopeo(&[
                    "inspect",
                    "--raw",
                    "--tls-verify=false",
                    "--creds",
                    &login,
                    &target,
                ])?;
                let found = format!("sha256:{}", sha256(raw.as_bytes()));
                ensure!(found == digest, "{name} is {found}");
            }
            let again = push()?;
            ensure!(again["sent"] == 0, "{again}");
            Ok(())
        },
    )?;
    report.check("multus-airgap says how to log in", || {
        let mut wrong = operator.command(&["push", text(medium)?, REGISTRY]);
        wrong.env("MULTUS_REGISTRY_PASSWORD", "wrong");
        operator
            .fixture
            .ensure_fails(&mut wrong, "with this password")?;
        let mut anonymous = operator.fixture.node.command(&operator.program);
        anonymous
            .args(["push", text(medium)?, REGISTRY, "--plain-http"])
            .env("DOCKER_CONFIG", operator.fixture.node.dir.join("no-logins"));
        let expected = "give --user and MULTUS_REGISTRY_PASSWORD";
        operator.fixture.ensure_fails(&mut anonymous, expected)
    })
}
