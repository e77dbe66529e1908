//! The helm-controller, the image of its jobs, and the servers whose manifests it installs.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::{
    cluster::k3s_server::{Addons, DeployController, serve_static},
    programs::image::Image,
    sh,
    suites::cluster::ClusterFixture,
};

/// The data directories of the servers.
pub(super) const K3S: &str = "/var/lib/rancher/k3s";
pub(super) const RKE2: &str = "/var/lib/rancher/rke2";
/// The image of the jobs, which an argument sets.
const IMAGE: &str = "e2e.invalid/helm-job:1";
/// The entry point of the jobs.
const SCRIPT: &str = include_str!("job.sh");

/// The servers with their manifests directories: K3s on both nodes, RKE2 on the second.
pub(super) struct Servers {
    addons: Addons,
    servers: Vec<(usize, &'static str, DeployController)>,
}

const SERVERS: [(usize, &str); 3] = [(0, K3S), (1, K3S), (1, RKE2)];

impl Servers {
    /// Starts the parts of a server: static files and helm-controller.
    pub(super) fn start(fixture: &ClusterFixture<'_>) -> anyhow::Result<Self> {
        let (cluster, env) = (&fixture.cluster, fixture.env);
        let server = cluster.server();
        fs::create_dir_all(server.path(&format!("{K3S}/server")))?;
        let address = serve_static(cluster, server, K3S)?;
        let [script, address_file] = ["job.sh", "static-server"].map(|name| env.dir.join(name));
        fs::write(&script, SCRIPT)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        fs::write(&address_file, address)?;
        let image = Image {
            name: "helm-job",
            references: &[IMAGE.to_owned()],
            programs: &[
                (env.bin.join("helm"), "/bin/helm"),
                (script, "/bin/job"),
                (address_file, "/static-server"),
            ],
            entrypoint: &["/bin/job"],
            user: "1000",
        };
        let archive = image.archive(env)?;
        fixture.each(|member| member.runtime.import(&member.node, &archive))?;
        // Jobs run on nodes with this label, which servers have.
        let label = "node-role.kubernetes.io/control-plane=true";
        cluster.kubectl(&["label", "node", &server.name, label])?;
        server.serve("helm-controller", "helm-controller", |command| {
            command
                .arg("--kubeconfig")
                .arg(cluster.control.admin())
                .arg(format!("--default-job-image={IMAGE}"))
        })?;
        sh::until(60, "the kind HelmChart is served", || {
            cluster.kubectl(&["get", "helmcharts,helmchartconfigs"])
        })?;
        Ok(Self {
            addons: Addons::default(),
            servers: servers(),
        })
    }

    /// Scans the manifests of all servers with this data directory; returns what was done to which files.
    pub(super) fn scan(
        &mut self,
        fixture: &ClusterFixture<'_>,
        data_dir: &str,
        disabled: &[String],
    ) -> anyhow::Result<Vec<String>> {
        let mut done = Vec::new();
        for (index, of, server) in &mut self.servers {
            if *of == data_dir {
                let node = &fixture.cluster.members[*index].node;
                done.extend(server.scan((&fixture.cluster, node), &mut self.addons, disabled)?);
            }
        }
        Ok(done)
    }

    /// Restarts all servers, which then apply every manifest.
    pub(super) fn restart(&mut self) {
        self.servers = servers();
    }
}

fn servers() -> Vec<(usize, &'static str, DeployController)> {
    let servers = SERVERS.into_iter();
    servers
        .map(|(index, dir)| (index, dir, DeployController::new(dir)))
        .collect()
}
