//! `release bump`, `check`, `rehearse` and `publish` on a checkout of the test's own.

use std::{fs, path::PathBuf, process::Command};

use crate::bad_input::{FAILED, output, refused, xtask};

const CHANGELOG: &str = "# Changelog\n\n## Unreleased\n\n- First.\n";

/// A checkout with a commit of each step.
struct Checkout {
    dir: tempfile::TempDir,
}

impl Checkout {
    fn new() -> Self {
        let checkout = Self {
            dir: tempfile::tempdir().expect("a directory of the test"),
        };
        let manifest = "[workspace.package]\nversion = \"5.0.0\"\n";
        let lock = "version = 4\n\n[[package]]\nname = \"own\"\nversion = \"5.0.0\"\n";
        checkout.write("Cargo.toml", manifest);
        checkout.write("Cargo.lock", lock);
        checkout.write("fuzz/Cargo.lock", lock);
        checkout.write("fuzz/Cargo.toml", "");
        checkout.write("CHANGELOG.md", CHANGELOG);
        checkout.write("rust-toolchain.toml", "channel = \"1.0.0\"\n");
        checkout.write(".gitignore", "/target\n");
        checkout.git("init --quiet --initial-branch=main");
        checkout.commit("first");
        checkout
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("a directory");
        fs::write(path, text).expect("a directory of the test");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file of the test")
    }

    fn git(&self, args: &str) -> String {
        let mut git = Command::new("git");
        let settings =
            "-c user.name=a -c user.email=a@b -c commit.gpgSign=false -c tag.gpgSign=false";
        let words = settings.split(' ').chain(args.split(' '));
        let output = git
            .current_dir(self.dir.path())
            .args(words)
            .output()
            .expect("git starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("git writes UTF-8")
    }

    fn commit(&self, message: &str) {
        self.git("add --all");
        self.git(&format!("commit --quiet --message={message}"));
    }

    fn xtask(&self, args: &[&str]) -> Command {
        let mut command = xtask(self.dir.path(), args);
        command.env("CARGO_MANIFEST_DIR", self.path("xtask"));
        command
    }

    #[track_caller]
    fn succeeds(&self, args: &[&str]) -> String {
        let (status, stderr) = output(self.xtask(args));
        assert_eq!(status, 0, "{stderr}");
        stderr
    }

    #[track_caller]
    fn bump(&self, version: &str) {
        self.succeeds(&["release", "bump", version]);
    }

    #[track_caller]
    fn bump_refused(&self, version: &str, expected: &str) {
        let before = self.git("status --porcelain");
        refused(
            self.xtask(&["release", "bump", version]),
            FAILED,
            &[expected],
        );
        assert_eq!(self.git("status --porcelain"), before);
    }

    fn unreleased(&self, entry: &str) {
        let text = self.read("CHANGELOG.md");
        let with = format!("## Unreleased\n\n- {entry}.\n");
        let text = text.replacen("## Unreleased\n", &with, 1);
        self.write("CHANGELOG.md", &text);
        self.commit("change");
    }
}

#[test]
fn version_is_cut_in_one_commit_of_three_files() {
    let checkout = Checkout::new();
    checkout.write("more", "");
    checkout.bump_refused("5.0.0", "has uncommitted changes");
    fs::remove_file(checkout.path("more")).unwrap();
    checkout.bump_refused("4.9.9", "4.9.9 is not greater than 5.0.0");
    let next = checkout.succeeds(&["release", "bump", "5.0.0"]);
    assert!(next.contains("'release: 5.0.0'"), "{next}");
    assert_eq!(checkout.git("status --porcelain"), " M CHANGELOG.md\n");
    let changelog = checkout.read("CHANGELOG.md");
    let (head, tail) = changelog.split_once("## 5.0.0 - 20").unwrap();
    assert!(head.ends_with("## Unreleased\n\n") && tail.ends_with("\n\n- First.\n"));
    checkout.commit("release");
    checkout.bump_refused("5.0.0", "5.0.0 is released already");
    checkout.bump_refused("5.1.0", "has no entry");
    checkout.unreleased("Second");
    checkout.bump("5.1.0-rc.1");
    let status = checkout.git("status --porcelain");
    assert_eq!(
        status,
        " M CHANGELOG.md\n M Cargo.lock\n M Cargo.toml\n M fuzz/Cargo.lock\n"
    );
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let text = checkout.read(lock);
        assert!(text.ends_with("\nversion = \"5.1.0-rc.1\"\n"), "{text}");
    }
}

#[test]
fn check_names_everything_that_is_wrong_before_and_after_the_tag() {
    let checkout = Checkout::new();
    let check = |args: &[&str]| {
        let mut command = checkout.xtask(&[&["release", "check"], args].concat());
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.success(),
            text(output.stdout) + &text(output.stderr),
        )
    };
    checkout.write("more", "");
    let (is_sound, text) = check(&["--tag", "v5.0.1"]);
    assert!(!is_sound);
    for expected in [
        "checkout: files differ",
        "changelog: CHANGELOG.md has no section `## 5.0.0",
        "version: sound",
        "tag: the tag is v5.0.1, the version is 5.0.0",
        "5.0.0 cannot be published: 3 findings",
    ] {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
    fs::remove_file(checkout.path("more")).unwrap();
    checkout.bump("5.0.0");
    checkout.commit("release");
    let (is_sound, text) = check(&[]);
    assert!(is_sound && text.contains("git tag --sign"), "{text}");
    let (is_sound, text) = check(&["--tag", "v5.0.0"]);
    assert!(!is_sound && text.contains("has no tag v5.0.0"), "{text}");
    checkout.git("tag v5.0.0");
    let (is_sound, text) = check(&["--tag", "v5.0.0"]);
    assert!(is_sound, "{text}");
    // The branch goes on, and the tag is of another commit.
    checkout.unreleased("Second");
    let (is_sound, text) = check(&["--tag", "v5.0.0"]);
    assert!(
        !is_sound && text.contains("the tag v5.0.0 is at commit"),
        "{text}"
    );
    assert!(text.contains("`## Unreleased` has entries"), "{text}");
}

#[test]
fn backports_are_made_on_the_branch_of_their_line() {
    let checkout = Checkout::new();
    let release = |version: &str| {
        checkout.bump(version);
        checkout.commit("release");
        let (status, stderr) = output(checkout.xtask(&["release", "check"]));
        assert_eq!(status, 0, "{stderr}");
        checkout.git(&format!("tag v{version}"));
    };
    release("5.0.0");
    checkout.git("branch release-5.0");
    checkout.unreleased("Second");
    release("5.1.0");
    checkout.unreleased("Third");
    checkout.bump_refused("5.0.1", "switch to its branch release-5.0");
    checkout.git("switch --quiet release-5.0");
    checkout.unreleased("Repaired");
    checkout.bump_refused("5.1.1", "is for the versions 5.0.*, not for 5.1.1");
    release("5.0.1");
    let (status, stderr) = output(checkout.xtask(&["release", "check", "--tag", "v5.0.1"]));
    assert_eq!(status, 0, "{stderr}");
    // The tag is checked out without a branch, as in CI.
    checkout.git("checkout --quiet v5.0.1");
    let (status, stderr) = output(checkout.xtask(&["release", "check", "--tag", "v5.0.1"]));
    assert_eq!(status, 0, "{stderr}");
}

#[test]
fn publication_needs_a_place_and_a_release() {
    let checkout = Checkout::new();
    let publish = |args: &[&str]| checkout.xtask(&[&["release", "publish"], args].concat());
    refused(
        publish(&[]),
        2,
        &["name a place: --registry, --charts or --files"],
    );
    refused(publish(&["--images-only"]), 2, &["--registry"]);
    let args = ["--files", "files"];
    refused(publish(&args), FAILED, &["dist does not exist"]);
    assert!(!checkout.path("files").exists());
}

/// Runs the last step of the release workflow, which pushes the charts, in a clone of the repository with them; `head` is the commit that
/// they were merged into, and `index` what they became.
fn push_charts(origin: &Checkout, head: &str, version: &str, index: &str) -> bool {
    let workflow = include_str!("../../../.github/workflows/release.yaml");
    let (_, step) = workflow.rsplit_once("      - run: |\n").expect("a step");
    let script = step
        .lines()
        .take_while(|line| line.starts_with("          "));
    let script: Vec<_> = script.map(str::trim).collect();
    let run = tempfile::tempdir().expect("a directory of the test");
    let signed = run.path().join("signed/charts");
    fs::create_dir_all(&signed).expect("a directory of the test");
    fs::write(signed.join("index.yaml"), index).expect("a directory of the test");
    fs::write(run.path().join("signed/charts-head"), head).expect("a directory of the test");
    let charts = run.path().join("charts");
    origin.git(&format!("clone --quiet . {}", charts.display()));
    let mut shell = Command::new("bash");
    shell.args(["-ec", &script.join("\n")]).current_dir(charts);
    shell
        .env("GITHUB_ACTOR", "a")
        .env("GITHUB_REF_NAME", version);
    shell.output().expect("bash starts").status.success()
}

#[test]
fn charts_of_a_run_do_not_replace_those_of_a_later_one() {
    let origin = Checkout::new();
    origin.git("config receive.denyCurrentBranch ignore");
    let head = origin.git("rev-parse HEAD");
    let published = || origin.git("show HEAD:index.yaml");
    // Both were signed before either was published.
    assert!(push_charts(&origin, &head, "v5.1.0", "5.1.0\n"));
    assert!(!push_charts(&origin, &head, "v5.0.1", "5.0.1\n"));
    assert_eq!(published(), "5.1.0\n");
    // A run that is repeated has nothing to do, and one that was signed again goes on.
    assert!(push_charts(&origin, &head, "v5.1.0", "5.1.0\n"));
    let head = origin.git("rev-parse HEAD");
    assert!(push_charts(&origin, &head, "v5.0.1", "5.1.0\n5.0.1\n"));
    assert_eq!(published(), "5.1.0\n5.0.1\n");
}
