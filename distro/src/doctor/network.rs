//! What pods meet: the configuration that the runtime takes, the shim, and whether a daemon answers it.

use std::{os::unix::net::UnixStream, path::Path};

use node::{discover::Report, root::Root};

use super::Examination;
use crate::commands::install::below;

const CONFIGURATIONS: [&str; 2] = ["00-multus.conf", "00-multus.conflist"];
const SHIM: &str = "multus-shim";
/// The value that says where the shim goes.
const SHIM_DIR: &str = "config.cni_conf.shimDir";
const SOCKET: &str = "/run/multus/multus.sock";
/// Removals that found no daemon.
const PENDING: &str = "/var/lib/cni/multus/.multus-rs/pending";

pub(super) fn look(root: &Root, report: &Report, found: &mut Examination) {
    let Some(dirs) = &report.dirs else { return };
    let names = root.list(&dirs.conf_dir).unwrap_or_default();
    let is_configuration = |name: &&String| {
        [".conf", ".conflist", ".json"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let first = names.iter().find(is_configuration);
    let own = CONFIGURATIONS
        .iter()
        .find(|own| names.iter().any(|name| name == *own));
    let answers = UnixStream::connect(below(root.name(), Path::new(SOCKET))).is_ok();
    match (own, first) {
        (None, None) => found.note(format!(
            "no network is configured in {}: Multus waits for the primary one",
            dirs.conf_dir.display()
        )),
        (None, Some(_)) => found.fact("multus", "not installed on this node yet: no configuration"),
        (Some(own), Some(first)) => {
            if first != own {
                found.problem(format!(
                    "{}/{first} comes before {own}, and pods get it alone: rename it to come after, or remove it",
                    dirs.conf_dir.display()
                ));
            }
            if !root.is_executable(dirs.install_dir.join(SHIM)) {
                found.problem(format!(
                    "{own} names {SHIM}, which is not in {}: the daemon puts it there as soon as it is ready; remove {SHIM_DIR} from the chart's values where it names another directory",
                    dirs.install_dir.display()
                ));
            }
            let told = if answers {
                "answers"
            } else {
                "does not answer"
            };
            found.fact("multus", format!("{own} is in use, the daemon {told}"));
            if !answers {
                found.problem(format!(
                    "no daemon answers at {SOCKET}, and new pods wait: look at `kubectl --namespace kube-system get pods --output wide` and the logs of the multus pod of this node"
                ));
            }
        }
        (Some(_), None) => {}
    }
    let pending = root.list(PENDING).unwrap_or_default();
    if !pending.is_empty() {
        found.note(format!(
            "{} removals of pods wait for the daemon, which does them before anything else",
            pending.len()
        ));
    }
}
