//! Whether this daemon's DaemonSet goes, and with it all that the daemon has put on the node.

use std::{path::Path, time::Duration};

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Container};
use kube::{Api, Client, api::ListParams};
use tokio::{sync::watch, time::timeout};
use tracing::{debug, info};

use super::request::bounded;

/// The program of every daemon that serves multus-shim, upstream's too.
const DAEMON: &str = "multus-daemon";
/// How long the last look at the DaemonSet may take, and how long the watch is listened to when it came to nothing.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// What is known of our own DaemonSet.
#[derive(Debug, Default)]
pub struct Ownership(watch::Sender<Known>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Known {
    #[default]
    Nothing,
    Seen,
    Goes,
}

impl Ownership {
    /// Whether it was there and is gone, or goes: the next SIGTERM is the end.
    pub fn ends(&self) -> bool {
        *self.0.borrow() == Known::Goes
    }

    /// The same at a SIGTERM, which may be faster than the watch: one more look, and a moment for the watch where our rights
    /// have gone before us.
    pub async fn ends_now(&self, client: Client, namespace: &str, name: &str) -> bool {
        if self.ends() {
            return true;
        }
        let api = Api::<DaemonSet>::namespaced(client, namespace);
        let params = only(name);
        match bounded(LAST_LOOK, api.list(&params)).await {
            Ok(list) => match list.items.first() {
                Some(object) => self.seen(goes(object)),
                None => self.absent(),
            },
            Err(error) => {
                debug!(%error, "cannot look at our DaemonSet");
                let mut known = self.0.subscribe();
                let heard = known.wait_for(|known| *known == Known::Goes);
                // No news within that time is the answer.
                let _ = timeout(LAST_LOOK, heard).await;
            }
        }
        self.ends()
    }

    pub(super) fn seen(&self, goes: bool) {
        let now = if goes { Known::Goes } else { Known::Seen };
        if self.0.send_replace(now) != now && goes {
            tell();
        }
    }

    /// It is not there: that means something only after it was.
    pub(super) fn absent(&self) {
        let goes = self.0.send_if_modified(|known| {
            let is_news = *known == Known::Seen;
            if is_news {
                *known = Known::Goes;
            }
            is_news
        });
        if goes {
            tell();
        }
    }
}

/// Our own, and no other: what our Role allows.
fn only(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

fn tell() {
    info!("our DaemonSet is deleted: the next end takes configuration and shim along");
}

/// Whether it is being deleted, or has become one without a daemon: who comes then serves no shim, so that a configuration which
/// is left to the next one would keep every pod waiting.
pub(super) fn goes(object: &DaemonSet) -> bool {
    let pods = object
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    object.metadata.deletion_timestamp.is_some()
        || pods.is_some_and(|pods| !pods.containers.iter().any(is_daemon))
}

/// An image whose own command runs may be a daemon's.
fn is_daemon(container: &Container) -> bool {
    let command = container.command.as_ref().and_then(|words| words.first());
    command.is_none_or(|program| Path::new(program).file_name() == Some(DAEMON.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_end_is_seen_and_gone() {
        let ownership = Ownership::default();
        ownership.absent();
        assert!(!ownership.ends());
        ownership.seen(false);
        assert!(!ownership.ends());
        ownership.absent();
        assert!(ownership.ends());
        ownership.seen(false);
        assert!(!ownership.ends());
        ownership.seen(true);
        assert!(ownership.ends());
    }

    #[test]
    fn a_set_goes_when_it_is_deleted_or_runs_no_daemon() {
        let with = |containers: Value| json!({"metadata": {}, "spec": {"selector": {}, "template": {"spec": {"containers": containers}}}});
        let daemon = json!({"name": "a", "command": ["/usr/src/multus-cni/bin/multus-daemon"]});
        let other = json!({"name": "b", "command": ["/thin_entrypoint"]});
        for (object, expected) in [
            (json!({"metadata": {}}), false),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                true,
            ),
            (with(json!([daemon])), false),
            (with(json!([other, daemon])), false),
            (with(json!([{"name": "a"}])), false),
            (with(json!([other])), true),
        ] {
            let set = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(goes(&set), expected, "{object}");
        }
    }
}
