//! The environment of one CNI call, parsed and validated.

use std::path::PathBuf;

use api::Request;
use cni::{
    args,
    env::{Command, ContainerId, IfName},
    types::CniError,
};

use crate::{
    engine::{self, Cancellation},
    state::PodRef,
};

/// A parsed CNI call: the verb, and the container and pod that it is about.
pub(crate) struct CniCall {
    pub(crate) command: Command,
    pub(crate) request: Option<engine::ContainerRequest>,
    pub(crate) path: Vec<PathBuf>,
    pub(crate) pod: Option<PodName>,
}

pub(crate) struct PodName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
}

impl PodName {
    /// Returns the pod for an event. Without a uid, any pod of that name is meant.
    pub(crate) fn pod_ref(&self) -> PodRef {
        PodRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone().unwrap_or_default(),
        }
    }
}

impl CniCall {
    /// Parses the environment of a request. The shim has checked it already, but any process that reaches the socket may send
    /// anything.
    pub(crate) fn parse(raw_request: &Request) -> Result<Self, CniError> {
        let variable = |name: &str| {
            raw_request
                .env
                .get(name)
                .map(String::as_str)
                .unwrap_or_default()
        };
        let verb = variable("CNI_COMMAND");
        let command = [
            Command::Add,
            Command::Del,
            Command::Check,
            Command::Gc,
            Command::Status,
        ]
        .into_iter()
        .find(|command| command.as_str() == verb)
        .ok_or_else(|| {
            let text = if verb.is_empty() {
                "unexpected or missing CNI_COMMAND".to_owned()
            } else {
                format!("unknown cmd type: {verb}")
            };
            CniError::new(CniError::INVALID_ENVIRONMENT, text)
        })?;
        let path: Vec<PathBuf> = std::env::split_paths(variable("CNI_PATH"))
            .filter(|path| path.is_absolute())
            .collect();
        let args = args::parse(variable("CNI_ARGS"));
        let pod = match (
            args::get(&args, "K8S_POD_NAMESPACE"),
            args::get(&args, "K8S_POD_NAME"),
        ) {
            (Some(namespace), Some(name)) if !namespace.is_empty() && !name.is_empty() => {
                Some(PodName {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    uid: args::get(&args, "K8S_POD_UID")
                        .filter(|uid| !uid.is_empty())
                        .map(str::to_owned),
                })
            }
            _ => None,
        };
        let request = if command.is_about_attachment() {
            let ifname = Some(variable("CNI_IFNAME"))
                .filter(|name| !name.is_empty())
                .unwrap_or("eth0");
            let invalid = |error: cni::env::EnvError| {
                CniError::new(CniError::INVALID_ENVIRONMENT, error.to_string())
            };
            Some(engine::ContainerRequest {
                container_id: ContainerId::parse(variable("CNI_CONTAINERID")).map_err(invalid)?,
                netns: Some(variable("CNI_NETNS"))
                    .filter(|netns| !netns.is_empty())
                    .map(str::to_owned),
                ifname: IfName::parse(ifname).map_err(invalid)?,
                args,
                path: path.clone(),
                cancellation: Cancellation::default(),
                replayed: false,
            })
        } else {
            None
        };
        Ok(Self {
            command,
            request,
            path,
            pod,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pairs: &[(&str, &str)]) -> Request {
        let mut request = Request::default();
        request.env.extend(
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        );
        request
    }

    #[test]
    fn container_id_with_path_is_refused() {
        let error = CniCall::parse(&request(&[
            ("CNI_COMMAND", "DEL"),
            ("CNI_CONTAINERID", "../evil"),
        ]))
        .err()
        .unwrap();
        assert_eq!(error.code, 4);
    }

    #[test]
    fn absent_netns_is_none_and_ifname_defaults_to_eth0() {
        let call = CniCall::parse(&request(&[
            ("CNI_COMMAND", "DEL"),
            ("CNI_CONTAINERID", "a"),
            ("CNI_PATH", "/x:rel:/y"),
            ("CNI_ARGS", "K8S_POD_NAMESPACE=n;K8S_POD_NAME=p;"),
        ]))
        .unwrap();
        let request = call.request.unwrap();
        assert_eq!((request.netns, request.ifname.as_str()), (None, "eth0"));
        assert_eq!(call.path, [PathBuf::from("/x"), PathBuf::from("/y")]);
        assert_eq!(call.pod.unwrap().name, "p");
    }

    #[test]
    fn unknown_command_is_named_in_the_error() {
        assert!(
            CniCall::parse(&request(&[]))
                .err()
                .unwrap()
                .msg
                .contains("missing CNI_COMMAND")
        );
        assert!(
            CniCall::parse(&request(&[("CNI_COMMAND", "JUMP")]))
                .err()
                .unwrap()
                .msg
                .contains("JUMP")
        );
    }
}
