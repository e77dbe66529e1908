//! Images of a test's own, made without any registry: busybox, and what else belongs into them.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::{sh, test_env::TestEnv};

/// Names under which busybox is called.
const APPLETS: &[&str] = &["sh", "sleep", "ip", "ping", "cat", "true"];

/// What an image is made of.
pub(crate) struct Image<'a> {
    /// The name of its files in the folder of the run.
    pub(crate) name: &'a str,
    /// The names under which runtimes know it; at least one.
    pub(crate) references: &'a [String],
    /// Programs, with their places in the image.
    pub(crate) programs: &'a [(PathBuf, &'a str)],
    /// The command of its containers.
    pub(crate) entrypoint: &'a [&'a str],
    /// Who runs it; root, where nobody is named.
    pub(crate) user: &'a str,
}

impl Image<'_> {
    /// An archive of it, made once in a run.
    pub(crate) fn archive(&self, env: &TestEnv) -> anyhow::Result<PathBuf> {
        let name = self.name;
        let archive = env.dir.join(format!("{name}.tar"));
        if archive.exists() {
            return Ok(archive);
        }
        let root = env.dir.join(name);
        self.fill(&root)?;
        let (layout, tagged) = (format!("{name}.oci"), format!("{name}.oci:1"));
        let umoci =
            |words: &[&str]| sh::run(Command::new("umoci").current_dir(&env.dir).args(words));
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
        // As in every distro's image: runtimes name namespaces by the older path.
        for folder in ["run", "var"] {
            fs::create_dir_all(root.join(folder))?;
        }
        symlink("../run", root.join("var/run"))?;
        // Go's programs look up who they are, where they are built without C.
        fs::create_dir_all(root.join("etc"))?;
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
        for (program, place) in self.programs {
            let place = root.join(place.trim_start_matches('/'));
            fs::create_dir_all(place.parent().context("a program lies in a folder")?)?;
            fs::copy(program, &place)
                .with_context(|| format!("cannot read {}", program.display()))?;
        }
        Ok(())
    }
}
