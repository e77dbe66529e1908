//! The failure of a verb, as a value. `errors` renders it for the runtime, for events and for the log.

use std::fmt;

use api::cause::Cause;
use cni::chain::ChainError;
use cni::env::Command;
use cni::exec::ExecError;
use cni::types::CniError;
use plan::PlanError;
use serde_json::Value;

use crate::state::{Delegate, PodRef, StateError};

/// Plugins whose interface is a part of an Ethernet interface, their `master`.
const ON_ETHERNET: &[&str] = &["ipvlan", "macvlan"];

/// Why a verb failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The word under which it is reported.
    pub cause: Cause,
    /// Code, text and details of the innermost error.
    pub error: CniError,
    /// What helps; empty when the text ends with it.
    pub hint: String,
    /// The pod, once it is known.
    pub pod: Option<PodRef>,
    /// The step that failed, as in `adding container to`, and its network.
    pub network: Option<(&'static str, String)>,
    /// The call of a plugin that failed.
    pub call: Option<PluginFailure>,
    /// What precedes the text besides pod and network.
    pub context: String,
    /// The text of the error names the pod itself.
    pub names_pod: bool,
    /// The text begins with upstream's words about the pod, which operators search for.
    pub is_about_pod: bool,
    /// The reason of the pod's event, where it is not the verb's.
    pub event: Option<&'static str>,
    /// The failures of which this is the sum.
    pub parts: Vec<Self>,
}

/// A failed call of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginFailure {
    plugin: String,
    network: String,
    command: Command,
}

/// How much a text repeats, from all to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Length {
    /// Everything, as in the log.
    Full,
    /// The pod is named only with the network.
    PodWithNetwork,
    /// The pod has no uid.
    WithoutUid,
    /// Of several failures the first names the pod.
    PodOnce,
    /// The network is not repeated with the plugin.
    NetworkOnce,
    /// The pod without upstream's words.
    Shortest,
}

impl Length {
    /// All lengths, the longest first.
    pub const ALL: [Self; 6] = [
        Self::Full,
        Self::PodWithNetwork,
        Self::WithoutUid,
        Self::PodOnce,
        Self::NetworkOnce,
        Self::Shortest,
    ];
}

impl Failure {
    /// A failure of the daemon itself, or of the node.
    pub fn new(cause: Cause, error: CniError) -> Self {
        Self {
            cause,
            error,
            hint: String::new(),
            pod: None,
            network: None,
            call: None,
            context: String::new(),
            names_pod: false,
            is_about_pod: false,
            event: None,
            parts: Vec::new(),
        }
    }

    /// The failure of a network's plugins.
    pub(super) fn from_chain(
        pod: &PodRef,
        network: &str,
        step: &'static str,
        error: &ChainError,
    ) -> Self {
        let ChainError::Plugin {
            plugin,
            network: called,
            command,
            source,
            ..
        } = error
        else {
            let cause = match error {
                ChainError::NotInVersion { .. } => Cause::DefinitionInvalid,
                ChainError::Cache { .. } => Cause::DaemonFailed,
                _ => Cause::PluginFailed,
            };
            return Self::new(cause, error.to_cni()).on_network(pod, step, network);
        };
        let text = source.to_cni();
        let (cause, msg) = match source {
            ExecError::Plugin(_) | ExecError::Killed(_) => {
                let both = format!("{}; {}", text.msg, text.details);
                (Cause::from_foreign_text(&both), text.msg)
            }
            ExecError::Stopped(_) => (Cause::PluginSlow, text.msg),
            ExecError::NotFound { .. } => (Cause::PluginMissing, source.to_string()),
            ExecError::TimedOut { .. } => (Cause::PluginSlow, source.to_string()),
            _ => (Cause::PluginFailed, source.to_string()),
        };
        let error = CniError::new(text.code, msg).with_details(text.details);
        Self {
            call: Some(PluginFailure {
                plugin: plugin.clone(),
                network: called.clone(),
                command: *command,
            }),
            ..Self::new(cause, error).on_network(pod, step, network)
        }
    }

    /// The same of a network of a pod.
    pub(crate) fn on_network(self, pod: &PodRef, step: &'static str, network: &str) -> Self {
        Self {
            pod: Some(pod.clone()),
            network: Some((step, network.to_owned())),
            ..self
        }
    }

    /// The same, with upstream's words about the pod.
    pub(crate) fn about(mut self, pod: impl Into<PodRef>) -> Self {
        if self.parts.is_empty() {
            self.is_about_pod = true;
            self.pod.get_or_insert_with(|| pod.into());
        }
        self
    }

    /// Joins failures into one, with the code of the first. There has to be one.
    pub(crate) fn sum(mut parts: Vec<Self>) -> Self {
        if parts.len() < 2 {
            return parts.pop().expect("something has failed");
        }
        let details = parts.iter().map(|part| part.error.details.as_str());
        let details: Vec<_> = details.filter(|details| !details.is_empty()).collect();
        let error = CniError::new(parts[0].error.code, "").with_details(details.join(" / "));
        Self {
            pod: parts[0].pod.clone(),
            ..Self::new(parts[0].cause, error)
        }
        .with_parts(parts)
    }

    fn with_parts(self, parts: Vec<Self>) -> Self {
        Self { parts, ..self }
    }

    /// Returns the text in this length.
    pub fn text(&self, length: Length) -> String {
        self.render(length, true)
    }

    /// Returns the text of each part.
    pub fn texts_of_parts(&self, length: Length) -> Vec<String> {
        let parts = self.parts.iter().enumerate();
        let names_pod = |index| index == 0 || length < Length::PodOnce;
        parts
            .map(|(index, part)| part.render(length, names_pod(index)))
            .collect()
    }

    fn render(&self, length: Length, names_pod: bool) -> String {
        if !self.parts.is_empty() {
            return format!("errors: {}", self.texts_of_parts(length).join(" / "));
        }
        let mut text = String::new();
        if let Some(PodRef {
            namespace,
            name,
            uid,
        }) = &self.pod
        {
            let pod = format!("{namespace}/{name}");
            let is_named_again = self.network.is_some() || self.names_pod;
            if self.is_about_pod && !(is_named_again && length > Length::Full) {
                let context = match length {
                    Length::Shortest => format!("pod {pod}: "),
                    _ => format!("error configuring pod [{pod}] networking: "),
                };
                text += &context;
            }
            text += &self.context;
            if let (Some((_, network)), true) = (&self.network, names_pod) {
                let network = match length {
                    Length::Full | Length::PodWithNetwork => format!("[{pod}/{uid}:{network}]: "),
                    _ => format!("[{pod}:{network}]: "),
                };
                text += &network;
            }
        } else {
            text += &self.context;
        }
        if let Some((step, network)) = &self.network {
            text.extend(["error ", step, " network \"", network, "\": "]);
        }
        if let Some(PluginFailure {
            plugin,
            network,
            command,
        }) = &self.call
        {
            let call = match length {
                Length::NetworkOnce | Length::Shortest => {
                    format!("plugin type={plugin:?} failed ({command}): ")
                }
                _ => format!("plugin type={plugin:?} of network {network:?} failed ({command}): "),
            };
            text += &call;
        }
        text += &self.error.msg;
        if !self.hint.is_empty() {
            text += "; ";
            text += &self.hint;
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text(Length::Full))
    }
}

impl std::error::Error for Failure {}

/// An error without a cause of its own: the daemon waits for something, or the node fails.
impl From<CniError> for Failure {
    fn from(error: CniError) -> Self {
        let cause = match error.code {
            CniError::TRY_AGAIN_LATER => Cause::DaemonNotReady,
            CniError::INVALID_NETWORK_CONFIG | CniError::INCOMPATIBLE_VERSION => {
                Cause::DefinitionInvalid
            }
            _ => Cause::DaemonFailed,
        };
        Self::new(cause, error)
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::new(Cause::DaemonFailed, error.into())
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self {
            event: error.event(),
            names_pod: error.names_pod(),
            ..Self::new(error.cause(), error.into())
        }
    }
}

/// The complete error, as for a caller that shortens nothing.
impl From<Failure> for CniError {
    fn from(failure: Failure) -> Self {
        CniError::new(failure.error.code, failure.to_string()).with_details(failure.error.details)
    }
}

/// The step of ADD, as upstream words it.
const ADDING: &str = "adding container to";

/// Returns the failure of a network that is attached.
pub(super) fn failed(pod: &PodRef, delegate: &Delegate, failure: Failure) -> Failure {
    failure.on_network(pod, ADDING, &delegate.config.name)
}

/// Returns the failure of a network's plugins in ADD.
pub(super) fn add_failed(pod: &PodRef, delegate: &Delegate, error: &ChainError) -> Failure {
    let mut failure = Failure::from_chain(pod, &delegate.config.name, ADDING, error);
    if let Some(hint) = master_hint(delegate, &failure.error) {
        failure.hint = hint;
        failure.cause = Cause::MasterUnsuitable;
    }
    failure
}

/// Returns the failure of a plugin that is not installed.
pub(super) fn not_found(pod: &PodRef, delegate: &Delegate, error: &ExecError) -> Failure {
    failed(
        pod,
        delegate,
        Failure::new(Cause::PluginMissing, error.to_cni()),
    )
}

/// Returns the hint for the kernel's refusal of a master that is no Ethernet interface, where the plugin reports only the refusal.
fn master_hint(delegate: &Delegate, error: &CniError) -> Option<String> {
    let plugin = delegate.config.plugins.iter().find(|plugin| {
        let refusal = format!("failed to create {}: invalid argument", plugin.kind);
        ON_ETHERNET.contains(&plugin.kind.as_str()) && error.msg.ends_with(&refusal)
    })?;
    let master = plugin.value.get("master").and_then(Value::as_str);
    let master = master.filter(|name| !name.is_empty());
    let name = master.map_or_else(String::new, |name| format!(" {name}"));
    Some(format!(
        "its master{name} has to be an Ethernet interface, unlike those of VPNs and tunnels: name one that has a MAC address"
    ))
}

/// Returns the failure of two networks of a pod that request one interface name, or of a name that exists already.
pub(super) fn name_taken(pod: &PodRef, delegate: &Delegate) -> Failure {
    let ifname = &delegate.ifname;
    let error = CniError::new(
        CniError::INVALID_NETWORK_CONFIG,
        format!(
            "DelegateAdd: cannot set \"{}\" interface name to \"{ifname}\": interface name {ifname} already exists",
            delegate.config.plugins[0].kind
        ),
    );
    let failure = Failure {
        hint: "ask for another name".to_owned(),
        ..Failure::new(Cause::NetworksConflict, error)
    };
    failed(pod, delegate, failure)
}
