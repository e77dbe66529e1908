//! The protocol between shim and daemon, the journal of DELs, and the table of options for the daemon and the chart's schema.

pub mod wire;

pub mod cause;

pub mod journal;

pub mod presence;

pub mod options;

pub mod plugins;

pub mod network_report;

pub mod node_labels;

pub mod pod_report;

pub mod rules;

pub mod time;

pub mod version;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use self::wire::{InterfaceAttributes, Request, Response};

/// The endpoint of the verbs.
pub const PATH_CNI: &str = "/cni";
/// The endpoint of single delegates (hot plug).
pub const PATH_DELEGATE: &str = "/delegate";
/// The endpoint that succeeds while the process runs.
pub const PATH_HEALTHZ: &str = "/healthz";
/// The endpoint that succeeds while ADD can be served; older daemons without it answer 404.
pub const PATH_READYZ: &str = "/readyz";
/// The endpoint of recent failures, as JSON; older daemons without it answer 404.
pub const PATH_FAILURES: &str = "/failures";
/// The endpoint of metrics in the format of Prometheus; older daemons without it answer 404.
pub const PATH_METRICS: &str = "/metrics";
/// The endpoint of the daemon's state and counts, as JSON; older daemons without it answer 404.
pub const PATH_STATUS: &str = "/status";

/// The endpoint of the definitions that the node can serve, as JSON; older daemons without it answer 404.
pub const PATH_NETWORKS: &str = "/networks";

/// Header of a request to [`PATH_CNI`]: for how many milliseconds the daemon may hold the request until it can begin. A client that
/// sends it also understands [`HEADER_NOT_BEGUN`]; daemons that do not know it ignore it.
pub const HEADER_HOLD: &str = "multus-hold-ms";
/// Header of a response with status [`STATUS_NOT_BEGUN`]: the daemon began nothing of the request, so the client may send it again, to
/// any daemon.
pub const HEADER_NOT_BEGUN: &str = "multus-not-begun";
/// The status of a response with [`HEADER_NOT_BEGUN`].
pub const STATUS_NOT_BEGUN: u16 = 503;

/// The file name of the shim in the runtime's plugin directory.
pub const SHIM_NAME: &str = "multus-shim";
/// The file name of the configuration that the daemon installs for the runtime.
pub const CONF_NAME: &str = "00-multus.conf";
/// The file name of the socket.
pub const SOCKET_NAME: &str = "multus.sock";
/// The directory of the socket, as the node sees it.
pub const DEFAULT_SOCKET_DIR: &str = "/run/multus/";
/// The directory of the state, as the node sees it.
pub const DEFAULT_CNI_DIR: &str = "/var/lib/cni/multus";
/// The directory below the state directory that only this implementation writes.
pub const PRIVATE_DIR: &str = ".multus-rs";
/// The most bytes of one request or response.
pub const MAX_MESSAGE: usize = 16 << 20;
