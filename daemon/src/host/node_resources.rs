//! Networks as extended resources of the node: a device plugin for each, which offers the kubelet devices that are no more than numbers.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use node::{
    device_plugin::{DIR, Registry, reply},
    grpc,
    root::Root,
};
use sha2::{Digest as _, Sha256};
use tokio::{
    net::UnixListener,
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};
use tracing::warn;

use crate::{
    backoff::doubled,
    host::remove_dead_sockets,
    readiness::{Gate, Readiness},
};

/// The devices of a resource, one of which each pod takes: more than a node has pods.
const DEVICES: usize = 1000;
/// The start of the names of our sockets.
const NAME: &str = "multus-rs-";
/// The subject of the note about a failure.
const SUBJECT: &str = "resources";
/// The time in which a kubelet begins to follow the devices of a plugin that has registered.
const OPENED_WITHIN: Duration = Duration::from_secs(10);
/// The pause after the first failure, doubled with each further one up to the longest pause, after which a new kubelet hears of us.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The resources that this node offers, until it is dropped.
pub(crate) struct Resources {
    kubelet: Arc<Kubelet>,
    offers: BTreeMap<String, Offer>,
}

/// A device plugin in a task of its own.
struct Offer(JoinHandle<()>);

impl Drop for Offer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Kubelet {
    root: Arc<Root>,
    dir: PathBuf,
    readiness: Arc<Readiness>,
}

impl Resources {
    /// No resources yet, for the kubelet with this directory.
    pub(crate) fn new(root: Arc<Root>, kubelet_dir: &Path, readiness: Arc<Readiness>) -> Self {
        let kubelet = Kubelet {
            root,
            dir: kubelet_dir.to_owned(),
            readiness,
        };
        Self {
            kubelet: Arc::new(kubelet),
            offers: BTreeMap::new(),
        }
    }

    /// Offers exactly these resources. The kubelet takes back the devices of one that is not among them any more.
    pub(crate) fn set(&mut self, resources: BTreeSet<String>) {
        self.offers.retain(|name, _| resources.contains(name));
        for name in resources {
            let kubelet = &self.kubelet;
            self.offers.entry(name).or_insert_with_key(|name| {
                let task = Arc::clone(kubelet).keep(name.clone());
                Offer(tokio::spawn(task))
            });
        }
    }
}

/// Removes the sockets of daemons that have ended.
pub(crate) fn sweep(root: &Root, kubelet_dir: &Path) {
    remove_dead_sockets(root, &kubelet_dir.join(DIR), |name| name.starts_with(NAME));
}

impl Kubelet {
    /// Offers the resource to each kubelet that starts.
    async fn keep(self: Arc<Self>, resource: String) {
        let mut failures = 0;
        loop {
            // Another daemon that serves the node offers it itself.
            self.readiness.wait_open(&[Gate::Socket]).await;
            match self.offer(&resource).await {
                Ok(()) => failures = 0,
                Err(reason) => {
                    failures += 1;
                    let note = format!(
                        "cannot offer the kubelet the networks that this node can serve: {reason}"
                    );
                    self.readiness.note(SUBJECT, Some(note));
                }
            }
            tokio::time::sleep(doubled(failures, FIRST_PAUSE, LONGEST_PAUSE)).await;
        }
    }

    /// Registers a plugin, and serves it until the kubelet leaves.
    async fn offer(&self, resource: &str) -> Result<(), String> {
        let mut registry = Registry::connect(&self.root, &self.dir)
            .await
            .map_err(|error| error.to_string())?;
        let listening = self.listen(resource);
        let (listener, socket) = listening.map_err(|error| error.to_string())?;
        let (streams, _) = watch::channel(());
        let (streams, opened) = (Arc::new(streams), Arc::new(Notify::new()));
        let serving = grpc::serve(listener, {
            let (streams, opened) = (Arc::clone(&streams), Arc::clone(&opened));
            move |path, message| {
                reply(DEVICES, path, message, || {
                    opened.notify_one();
                    Box::new(streams.subscribe())
                })
            }
        });
        let registered = async {
            let registered = registry.register(&socket.name, resource).await;
            registered.map_err(|error| error.to_string())?;
            let follows = timeout(OPENED_WITHIN, opened.notified()).await;
            follows
                .map_err(|_| format!("it registered {resource} and does not ask for devices"))?;
            self.readiness.note(SUBJECT, None);
            streams.closed().await;
            Ok(())
        };
        tokio::select! {
            outcome = registered => outcome,
            error = serving => Err(error.to_string()),
        }
    }

    /// Listens under a name that no other daemon uses: a kubelet tells plugins of one resource apart by their sockets.
    fn listen(&self, resource: &str) -> anyhow::Result<(UnixListener, SocketFile<'_>)> {
        let hash = Sha256::digest(resource);
        let hash = hash
            .first_chunk()
            .map_or(0, |start| u64::from_be_bytes(*start));
        let name = format!("{NAME}{hash:016x}-{}.sock", std::process::id());
        let dir = self.dir.join(DIR);
        let path = dir.join(&name);
        let (listener, _) = self.root.directory(&dir)?.listen(&name)?;
        let root = &self.root;
        let file = SocketFile { root, name, path };
        Ok((UnixListener::from_std(listener)?, file))
    }
}

/// A name of a listening socket, which is removed with it.
struct SocketFile<'a> {
    root: &'a Root,
    name: String,
    path: PathBuf,
}

impl Drop for SocketFile<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.root.remove(&self.path) {
            warn!(%error, "cannot remove the socket of a device plugin");
        }
    }
}
