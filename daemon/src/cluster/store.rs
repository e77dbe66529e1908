//! The stores that the watches fill: this node's pods and the cluster's definitions, reduced to the fields that planning reads.

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use plan::{Nad, PodView};
use tokio::sync::{
    mpsc::{self, UnboundedReceiver, UnboundedSender},
    watch,
};

type Key = (String, String);

/// The pods of this node.
#[derive(Debug, Default)]
pub struct Pods {
    known: Mutex<HashMap<Key, Arc<PodView>>>,
    changed: Condvar,
    /// Receives the pods whose networks annotation has changed.
    listener: OnceLock<UnboundedSender<PodKey>>,
}

/// Namespace and name of a pod.
pub type PodKey = (String, String);

impl Pods {
    /// Returns the receiver of pods whose networks annotation changes from now on. Only the first caller gets any.
    pub fn listen(&self) -> UnboundedReceiver<PodKey> {
        let (sender, receiver) = mpsc::unbounded_channel();
        // A second listener receives nothing.
        let _ = self.listener.set(sender);
        receiver
    }

    /// Sends this pod to the listener.
    pub fn notify_listener(&self, namespace: &str, name: &str) {
        if let Some(listener) = self.listener.get() {
            // The receiver is dropped when the daemon ends.
            let _ = listener.send(key(namespace, name));
        }
    }

    /// Returns one pod.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<PodView>> {
        self.lock().get(&key(namespace, name)).cloned()
    }

    /// Waits for a pod that is as wanted, and returns `None` after `time_limit`.
    pub fn wait(
        &self,
        namespace: &str,
        name: &str,
        time_limit: Duration,
        wanted: impl Fn(&PodView) -> bool,
    ) -> Option<Arc<PodView>> {
        let (key, end) = (key(namespace, name), Instant::now() + time_limit);
        let mut pods = self.lock();
        loop {
            if let Some(pod) = pods.get(&key).filter(|pod| wanted(pod)) {
                return Some(Arc::clone(pod));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            pods = self
                .changed
                .wait_timeout(pods, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Adds or replaces a pod.
    pub fn put(&self, pod: PodView) {
        let pod = Arc::new(pod);
        let before = self
            .lock()
            .insert(key(&pod.namespace, &pod.name), Arc::clone(&pod));
        self.changed.notify_all();
        if before.is_some_and(|before| networks_changed(&before, &pod)) {
            self.notify_listener(&pod.namespace, &pod.name);
        }
    }

    /// Removes a deleted pod.
    pub fn remove(&self, namespace: &str, name: &str) {
        self.lock().remove(&key(namespace, name));
    }

    /// Replaces all pods.
    pub fn replace(&self, pods: Vec<PodView>) {
        let pods: HashMap<Key, Arc<PodView>> = pods
            .into_iter()
            .map(|pod| (key(&pod.namespace, &pod.name), Arc::new(pod)))
            .collect();
        let before = std::mem::replace(&mut *self.lock(), pods.clone());
        self.changed.notify_all();
        for (key, pod) in &pods {
            if before
                .get(key)
                .is_some_and(|before| networks_changed(before, pod))
            {
                self.notify_listener(&pod.namespace, &pod.name);
            }
        }
    }

    /// Returns all pods.
    pub fn all(&self) -> Vec<Arc<PodView>> {
        self.lock().values().map(Arc::clone).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<PodView>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn networks_changed(before: &PodView, now: &PodView) -> bool {
    before.uid == now.uid && before.networks() != now.networks()
}

/// Reads one definition from the API server.
pub(super) type ReadDefinition =
    Box<dyn Fn(&str, &str) -> Result<Option<Arc<Nad>>, String> + Send + Sync>;

/// The definitions of the cluster.
#[derive(Default)]
pub struct Definitions {
    nads: RwLock<HashMap<Key, Arc<Nad>>>,
    /// Decides whether a definition exists that the watch does not show; unset until there is access to the API server.
    reader: OnceLock<ReadDefinition>,
    /// The chart that installs the CRD, for messages.
    crd_chart: String,
    lacks_crd: AtomicBool,
    changed: watch::Sender<()>,
}

impl Definitions {
    /// Creates an empty store.
    pub fn new(crd_chart: String) -> Self {
        Self {
            crd_chart,
            ..Self::default()
        }
    }

    /// Reads definitions that the watch does not show. The first reader stays.
    pub fn read_with(&self, reader: ReadDefinition) {
        let _ = self.reader.set(reader);
    }

    /// Returns a receiver that hears of each change from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Records that the cluster has no such kind.
    pub fn unknown_kind(&self) {
        self.write().clear();
        self.lacks_crd.store(true, Ordering::Relaxed);
        self.changed.send_replace(());
    }

    /// Adds or replaces a definition.
    pub fn put(&self, nad: Arc<Nad>) {
        self.write().insert(key(&nad.namespace, &nad.name), nad);
        self.changed.send_replace(());
    }

    /// Removes a deleted definition.
    pub fn remove(&self, namespace: &str, name: &str) {
        self.write().remove(&key(namespace, name));
        self.changed.send_replace(());
    }

    /// Replaces all definitions.
    pub fn replace(&self, nads: Vec<Arc<Nad>>) {
        *self.write() = nads
            .into_iter()
            .map(|nad| (key(&nad.namespace, &nad.name), nad))
            .collect();
        self.lacks_crd.store(false, Ordering::Relaxed);
        self.changed.send_replace(());
    }

    /// Returns all definitions, sorted by namespace and name.
    pub fn all(&self) -> Vec<Arc<Nad>> {
        let nads = self.nads.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = nads.values().map(Arc::clone).collect();
        all.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        all
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Key, Arc<Nad>>> {
        self.nads.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl plan::Definitions for Definitions {
    fn nad(&self, namespace: &str, name: &str) -> Option<Arc<Nad>> {
        self.nads
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key(namespace, name))
            .cloned()
    }

    /// What is read is not stored: it may be deleted already, and the watch might have said so before.
    fn read(&self, namespace: &str, name: &str) -> Result<Option<Arc<Nad>>, String> {
        let reader = self.reader.get();
        reader.map_or(Ok(None), |read| read(namespace, name))
    }

    fn missing_crd(&self) -> Option<String> {
        let lacks = self.lacks_crd.load(Ordering::Relaxed);
        lacks.then(|| self.crd_chart.clone())
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> PodView {
        PodView {
            namespace: "shop".into(),
            name: "cart".into(),
            uid: uid.into(),
            annotations: std::collections::BTreeMap::new(),
            is_static: false,
        }
    }

    #[test]
    fn wait_returns_a_pod_that_appears_later() {
        let pods = Arc::new(Pods::default());
        pods.put(pod("old"));
        let writer = Arc::clone(&pods);
        let thread = std::thread::spawn(move || writer.put(pod("new")));
        let found = pods.wait("shop", "cart", Duration::from_secs(20), |pod| {
            pod.uid == "new"
        });
        thread.join().unwrap();
        assert_eq!(found.unwrap().uid, "new");
    }

    #[test]
    fn a_missing_crd_is_reported_until_definitions_arrive() {
        let definitions = Definitions::new("rke2-multus-crd".to_owned());
        let missing = || plan::Definitions::missing_crd(&definitions);
        assert_eq!(missing(), None, "no list has arrived yet");
        definitions.unknown_kind();
        assert_eq!(missing().as_deref(), Some("rke2-multus-crd"));
        definitions.replace(Vec::new());
        assert_eq!(missing(), None);
    }

    #[test]
    fn wait_ends_with_its_timeout() {
        let pods = Pods::default();
        assert!(
            pods.wait("shop", "cart", Duration::from_millis(5), |_| true)
                .is_none()
        );
        pods.put(pod("a"));
        pods.replace(vec![]);
        assert!(pods.get("shop", "cart").is_none());
    }
}
