//! What the shim and the daemon say to each other, and the table of options that daemon and chart schema are made from.

pub mod wire;

pub mod journal;

pub mod options;

pub mod pod_report;

pub mod rules;

pub use self::wire::{InterfaceAttributes, Request, Response};

/// Endpoint of the verbs.
pub const PATH_CNI: &str = "/cni";
/// Endpoint of single delegates (hot plug).
pub const PATH_DELEGATE: &str = "/delegate";
/// Answers while the process lives.
pub const PATH_HEALTHZ: &str = "/healthz";
/// Answers while ADD can be served; daemons before it existed answer 404.
pub const PATH_READYZ: &str = "/readyz";
/// What went wrong of late, as JSON; daemons before it existed answer 404.
pub const PATH_FAILURES: &str = "/failures";
/// Metrics as Prometheus reads them; daemons before it existed answer 404.
pub const PATH_METRICS: &str = "/metrics";
/// The daemon's state and counts, as JSON; daemons before it existed answer 404.
pub const PATH_STATUS: &str = "/status";

/// Header of a request to [`PATH_CNI`]: how many milliseconds the caller lets the daemon wait until it can begin. Who sends it also
/// understands [`HEADER_NOT_BEGUN`]; daemons that do not know it ignore it.
pub const HEADER_HOLD: &str = "multus-hold-ms";
/// Header of an answer with status [`STATUS_NOT_BEGUN`]: nothing of the request was begun, so it may be sent again, to any daemon.
pub const HEADER_NOT_BEGUN: &str = "multus-not-begun";
/// Status of that answer.
pub const STATUS_NOT_BEGUN: u16 = 503;

/// File name of the shim in the runtime's plugin directory.
pub const SHIM_NAME: &str = "multus-shim";
/// File name of the configuration that the daemon installs for the runtime.
pub const CONF_NAME: &str = "00-multus.conf";
/// File name of the socket.
pub const SOCKET_NAME: &str = "multus.sock";
/// Directory of the socket, as the node sees it.
pub const DEFAULT_SOCKET_DIR: &str = "/run/multus/";
/// Directory of the state, as the node sees it.
pub const DEFAULT_CNI_DIR: &str = "/var/lib/cni/multus";
/// Below the state directory: what only this implementation writes.
pub const PRIVATE_DIR: &str = ".multus-rs";
/// Most bytes of one request or answer.
pub const MAX_MESSAGE: usize = 16 << 20;

/// The line that `-v` and `--version` print.
pub fn version_line(program: &str) -> String {
    format!(
        "{program}: version:v{}(release), commit:none, date:none",
        env!("CARGO_PKG_VERSION")
    )
}
