//! The daemon's process.

use super::{
    Source::{Ours, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "daemon",
    title: "The daemon's process",
    introduction: "`multus-daemon` runs once on each node. It reads one configuration file, serves a unix socket and writes the CNI configuration that makes the container runtime start the shim.",
    rules: &[
        must(
            "daemon.config-flag",
            "`-config` names the daemon's configuration file.",
            Upstream,
        ),
        should(
            "daemon.version-flag",
            "`-version` prints one line that begins with `multus-daemon`.",
            Upstream,
        ),
        must(
            "daemon.invalid-config",
            "A daemon whose configuration file is missing or is not JSON ends with a failure.",
            Upstream,
        ),
        must(
            "daemon.service-account",
            "The daemon connects to the API server with the service account of its pod.",
            Upstream,
        ),
        must(
            "daemon.socket-dir",
            "`socketDir` names the directory of the daemon's socket.",
            Upstream,
        ),
        must(
            "daemon.config-last",
            "The CNI configuration appears only once the daemon answers on its socket.",
            Upstream,
        ),
        fix(
            "daemon.static-config",
            "With a path in `multusConfigFile` the daemon copies that file as the CNI configuration and keeps serving.",
            Ours,
        ),
        must(
            "daemon.signals",
            "`SIGTERM` and `SIGINT` end the daemon within 20 seconds.",
            Upstream,
        ),
        fix(
            "daemon.keeps-config",
            "The CNI configuration stays in place when the daemon ends.",
            Ours,
        ),
        fix(
            "daemon.drain",
            "The daemon finishes calls in flight after `SIGTERM`.",
            Ours,
        ),
        must(
            "daemon.restart",
            "A daemon that was restarted, also after `SIGKILL`, detaches pods that its predecessor attached.",
            Upstream,
        ),
    ],
};
