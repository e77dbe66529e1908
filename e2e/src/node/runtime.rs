//! containerd on a node, and the image of the pods.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use crate::{
    node::{
        Node, Service,
        layout::{self, ContainerdVersion, K3S_PLUGINS, Layout, NodePaths},
    },
    programs::image::Image,
    sh,
    test_env::TestEnv,
};

/// The image of every pod: a static busybox.
pub(crate) const IMAGE: &str = "e2e.invalid/busybox:1";
/// The same image by the name that the pages for people use.
const IMAGE_OF_PAGES: &str = "docker.io/library/busybox:1.37";
/// The program of the release that is every plugin.
pub(crate) const PROGRAM: &str = "multus-cni-plugins";
/// Debian's plugins, with CNI up to 1.0.0.
const DEBIAN_PLUGINS: &str = "/usr/lib/cni";

/// The CNI plugins that a node has before anything is installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodePlugins {
    /// The reference's: Debian's with containerd 1.6, the newest with 2.x.
    Reference,
    /// Those of the release, and no other.
    Release,
}

/// A runtime on a node.
pub(crate) struct Runtime {
    pub(crate) layout: Layout,
    plugins: NodePlugins,
    containerd_version: ContainerdVersion,
    pub(crate) paths: NodePaths,
    pub(crate) containerd: Service,
}

impl Runtime {
    /// Installs plugins and configuration, starts containerd with an empty store, and imports the image of the pods.
    pub(crate) fn start(
        env: &TestEnv,
        node: &Node,
        (layout, containerd_version): (Layout, ContainerdVersion),
        plugins: NodePlugins,
    ) -> anyhow::Result<Self> {
        let paths = layout.paths(&node.name);
        install_files(env, node, (layout, containerd_version), &paths, plugins)?;
        let runtime = Self {
            layout,
            plugins,
            containerd_version,
            containerd: serve(env, node, containerd_version, &paths.config)?,
            paths,
        };
        runtime.answers(node)?;
        runtime.import(node, &busybox(env)?)?;
        Ok(runtime)
    }

    /// Starts containerd with the usual paths and an empty store; another program fills these directories of CNI.
    pub(crate) fn start_alone(
        env: &TestEnv,
        node: &Node,
        conf_dir: &str,
        bin_dir: &str,
    ) -> anyhow::Result<Self> {
        let (layout, containerd_version) = (Layout::Kubeadm, ContainerdVersion::V2);
        let paths = NodePaths {
            conf_dir: conf_dir.to_owned(),
            bin_dir: bin_dir.to_owned(),
            ..layout.paths(&node.name)
        };
        let config = layout::containerd(containerd_version, &paths, IMAGE);
        node.write(&paths.config, config)?;
        let runtime = Self {
            layout,
            plugins: NodePlugins::Release,
            containerd_version,
            containerd: serve(env, node, containerd_version, &paths.config)?,
            paths,
        };
        runtime.answers(node)?;
        Ok(runtime)
    }

    /// Imports every image of an archive into the namespace of Kubernetes, as the agents of K3s and RKE2 do.
    pub(crate) fn import(&self, node: &Node, archive: &Path) -> anyhow::Result<()> {
        sh::run(self.ctr(node).args(["images", "import"]).arg(archive)).map(drop)
    }

    /// Restarts containerd in another version and with other paths, as when a distro is upgraded, rolled back, or started with other
    /// directories. Its content stays. Returns the former paths.
    pub(crate) fn restart_as(
        &mut self,
        env: &TestEnv,
        node: &Node,
        (containerd_version, paths): (ContainerdVersion, NodePaths),
    ) -> anyhow::Result<NodePaths> {
        let kind = (self.layout, containerd_version);
        install_files(env, node, kind, &paths, self.plugins)?;
        node.end(&self.containerd, "TERM")?;
        self.containerd = serve(env, node, containerd_version, &paths.config)?;
        self.containerd_version = containerd_version;
        let left = std::mem::replace(&mut self.paths, paths);
        self.answers(node)?;
        Ok(left)
    }

    fn answers(&self, node: &Node) -> anyhow::Result<()> {
        sh::until(60, "containerd answers", || {
            sh::run(self.ctr(node).args(["version"]))
        })
        .map(drop)
    }

    /// Returns a `ctr` command for this containerd.
    pub(crate) fn ctr(&self, node: &Node) -> Command {
        let mut command = node.command("/usr/bin/ctr");
        command.args(["--address", &self.paths.socket, "--namespace", "k8s.io"]);
        command
    }
}

/// Installs the plugins, the runtime's configuration and the default network.
fn install_files(
    env: &TestEnv,
    node: &Node,
    (layout, containerd_version): (Layout, ContainerdVersion),
    paths: &NodePaths,
    plugins: NodePlugins,
) -> anyhow::Result<()> {
    let NodePaths {
        conf_dir,
        bin_dir,
        state,
        root,
        config,
        ..
    } = paths;
    let home = paths.plugins.as_ref().unwrap_or(bin_dir);
    for directory in [conf_dir, bin_dir, state, root, home] {
        fs::create_dir_all(node.path(directory))?;
    }
    match plugins {
        NodePlugins::Reference => copy_reference(env, node, (layout, containerd_version), paths)?,
        NodePlugins::Release if layout.is_k3s() => link_to_release(env, node, paths)?,
        NodePlugins::Release => {
            let mut install = Command::new(env.program(PROGRAM));
            sh::run(install.arg("install").arg(node.path(home)))?;
        }
    }
    node.write(config, layout::containerd(containerd_version, paths, IMAGE))?;
    node.write(
        &format!("{conf_dir}/10-primary.conflist"),
        layout::default_network("1.0.0", node.number),
    )
}

/// Makes the release's program K3s' own: one file, and a link to it for each of K3s' plugins.
fn link_to_release(env: &TestEnv, node: &Node, paths: &NodePaths) -> anyhow::Result<()> {
    let home = paths.plugins.as_ref().unwrap_or(&paths.bin_dir);
    fs::copy(env.program(PROGRAM), node.path(&format!("{home}/cni")))?;
    for name in K3S_PLUGINS {
        link(node, "cni", &format!("{home}/{name}"))?;
        if *home != paths.bin_dir {
            link(
                node,
                &format!("{home}/cni"),
                &format!("{}/{name}", paths.bin_dir),
            )?;
        }
    }
    Ok(())
}

/// Makes a symbolic link; one that an earlier start of the runtime has made stays.
fn link(node: &Node, target: &str, path: &str) -> anyhow::Result<()> {
    match symlink(target, node.path(path)) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| path.to_owned())
        }
        _ => Ok(()),
    }
}

/// Copies the reference's plugins that a node of this kind has.
fn copy_reference(
    env: &TestEnv,
    node: &Node,
    (layout, containerd_version): (Layout, ContainerdVersion),
    paths: &NodePaths,
) -> anyhow::Result<()> {
    let bin_dir = &paths.bin_dir;
    let home = paths.plugins.as_ref().unwrap_or(bin_dir);
    let source = match containerd_version {
        ContainerdVersion::V1 => PathBuf::from(DEBIAN_PLUGINS),
        ContainerdVersion::V2 => env.plugins.clone(),
    };
    let mut count = 0;
    for plugin in fs::read_dir(&source)? {
        let name = plugin?.file_name().to_string_lossy().into_owned();
        if !layout.has(&name) {
            continue;
        }
        count += 1;
        let plugin_path = format!("{home}/{name}");
        fs::copy(source.join(&name), node.path(&plugin_path))?;
        if home != bin_dir {
            symlink(&plugin_path, node.path(&format!("{bin_dir}/{name}")))?;
        }
    }
    ensure!(count >= 6, "{}: plugins are missing", source.display());
    Ok(())
}

/// Starts a containerd with a configuration file of the node.
pub(crate) fn serve(
    env: &TestEnv,
    node: &Node,
    containerd_version: ContainerdVersion,
    config: &str,
) -> anyhow::Result<Service> {
    let program = match containerd_version {
        ContainerdVersion::V1 => Path::new("/usr/bin/containerd").to_owned(),
        ContainerdVersion::V2 => env.bin.join("containerd"),
    };
    node.serve("containerd", &program, |command| {
        // containerd looks for its shim in the PATH, and needs that of the same release.
        let path = format!(
            "{}:{}",
            program.parent().unwrap_or(Path::new("/")).display(),
            std::env::var("PATH").unwrap_or_default()
        );
        command.env("PATH", path).arg("--config").arg(config)
    })
}

/// Builds the image of the pods; returns its archive.
pub(crate) fn busybox(env: &TestEnv) -> anyhow::Result<PathBuf> {
    let image = Image {
        name: "busybox",
        references: &[IMAGE.to_owned(), IMAGE_OF_PAGES.to_owned()],
        programs: &[],
        entrypoint: &["/bin/busybox", "sleep", "2147483647"],
        user: "",
    };
    image.archive(env)
}
