//! Images built without a registry: busybox, and further programs.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::{sh, test_env::TestEnv};

/// Names of busybox in the image.
const APPLETS: &[&str] = &["ash", "sh", "sleep", "ip", "ping", "cat", "true"];

/// The contents of an image.
pub(crate) struct Image<'a> {
    /// The name of its files in the run's directory.
    pub(crate) name: &'a str,
    /// Its image references; at least one.
    pub(crate) references: &'a [String],
    /// Programs with their paths in the image.
    pub(crate) programs: &'a [(PathBuf, &'a str)],
    pub(crate) entrypoint: &'a [&'a str],
    /// The user of its containers; root when empty.
    pub(crate) user: &'a str,
}

impl Image<'_> {
    /// Builds the image once in a run; returns its archive.
    pub(crate) fn archive(&self, env: &TestEnv) -> anyhow::Result<PathBuf> {
        let name = self.name;
        let archive = env.dir.join(format!("{name}.tar"));
        if archive.exists() {
            return Ok(archive);
        }
        let root = env.dir.join(name);
        self.fill(&root)?;
        let (layout, tagged) = (format!("{name}.oci"), format!("{name}.oci:1"));
        let umoci = |args: &[&str]| sh::run(Command::new("umoci").current_dir(&env.dir).args(args));
        umoci(&["init", "--layout", &layout])?;
        umoci(&["new", "--image", &tagged])?;
        umoci(&["insert", "--image", &tagged, name, "/"])?;
        let mut config = vec![
            "config".to_owned(),
            format!("--image={tagged}"),
            "--config.env=PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            format!("--config.user={}", self.user),
        ];
        config.extend(
            self.entrypoint
                .iter()
                .map(|word| format!("--config.entrypoint={word}")),
        );
        umoci(&config.iter().map(String::as_str).collect::<Vec<_>>())?;
        let (first, further) = self
            .references
            .split_first()
            .context("an image has a name")?;
        let mut skopeo = Command::new("skopeo");
        skopeo.current_dir(&env.dir).args(["copy", "--quiet"]);
        for reference in further {
            skopeo.args(["--additional-tag", reference]);
        }
        skopeo.args([
            format!("oci:{tagged}"),
            format!("docker-archive:{name}.tar:{first}"),
        ]);
        sh::run(&mut skopeo)?;
        Ok(archive)
    }

    fn fill(&self, root: &Path) -> anyhow::Result<()> {
        let bin = root.join("bin");
        fs::create_dir_all(&bin)?;
        fs::copy("/bin/busybox", bin.join("busybox"))?;
        for applet in APPLETS {
            symlink("busybox", bin.join(applet))?;
        }
        // As in the images of distributions: runtimes use the path /var/run for namespaces.
        for directory in ["run", "var"] {
            fs::create_dir_all(root.join(directory))?;
        }
        symlink("../run", root.join("var/run"))?;
        // Go programs that are built without cgo look up their user in this file.
        fs::create_dir_all(root.join("etc"))?;
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
        for (program, path) in self.programs {
            let file = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(
                file.parent()
                    .context("the path of a program has no directory")?,
            )?;
            fs::copy(program, &file)
                .with_context(|| format!("cannot read {}", program.display()))?;
        }
        Ok(())
    }
}
