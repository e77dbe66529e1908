//! A container runtime that serves three calls of CRI: `Version`, `ListPodSandbox` and `Status`.

use std::{collections::BTreeMap, path::Path};

use node::{
    cri::{
        ListPodSandboxResponse, PodSandbox, PodSandboxMetadata, StatusResponse, VersionResponse,
    },
    grpc::{Code, Reply},
};
use prost::Message as _;

use crate::grpc::Server;

/// A fake CRI server, which runs until it is dropped.
pub struct CriServer {
    _server: Server,
}

/// The values that a runtime reports.
#[derive(Debug, Clone, Default)]
pub struct RuntimeInfo {
    /// Its name in `Version`.
    pub name: &'static str,
    pub version: &'static str,
    /// The UIDs of its pods.
    pub pods: Vec<&'static str>,
    /// The verbose part of `Status`; without it `Status` is not implemented.
    pub status: Option<BTreeMap<String, String>>,
}

impl CriServer {
    /// A server that reports `runtime`. It listens when this returns; the socket's directory is created.
    pub fn start(socket: &Path, runtime: RuntimeInfo) -> Self {
        let server = Server::start(socket, move |path, _| match runtime.answer(path) {
            Some(answer) => Reply::One(answer),
            None => Reply::Refused(Code::Unimplemented, "not here"),
        });
        Self { _server: server }
    }
}

impl RuntimeInfo {
    fn answer(&self, path: &str) -> Option<Vec<u8>> {
        Some(match path.rsplit('/').next()? {
            "Version" => VersionResponse {
                runtime_name: self.name.to_owned(),
                runtime_version: self.version.to_owned(),
            }
            .encode_to_vec(),
            "ListPodSandbox" => {
                let sandbox = |uid: &&'static str| PodSandbox {
                    id: format!("sandbox-{uid}"),
                    metadata: Some(PodSandboxMetadata {
                        uid: (*uid).to_owned(),
                        ..PodSandboxMetadata::default()
                    }),
                };
                let items = self.pods.iter().map(sandbox).collect();
                ListPodSandboxResponse { items }.encode_to_vec()
            }
            "Status" => StatusResponse {
                info: self.status.clone()?,
            }
            .encode_to_vec(),
            _ => return None,
        })
    }
}
