//! One client for the whole life of the daemon, whatever certificate it has at the moment: each request goes through the newest, so
//! that nothing that asks or watches has to start again.

use std::sync::Arc;

use hyper::{Request, StatusCode};
use kube::{Client, client::Body};
use tokio::sync::watch;

/// The client of the moment, none at first.
#[derive(Default)]
pub struct Current {
    newest: watch::Sender<Option<Numbered>>,
    /// The last client whose certificate the API server did not accept.
    refused: watch::Sender<u64>,
}

#[derive(Clone)]
struct Numbered {
    number: u64,
    client: Client,
}

impl Current {
    /// A client whose requests wait until there is a certificate and always go out with the newest. Who asks sets the limit.
    pub fn client(self: &Arc<Self>) -> Client {
        let current = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let current = Arc::clone(&current);
            async move { current.send(request).await }
        });
        Client::new(service, "default")
    }

    /// From now on requests go out with this one; connections of the last one end with their requests.
    pub(super) fn replace(&self, client: Client) {
        self.newest.send_modify(|newest| {
            let number = newest.as_ref().map_or(1, |old| old.number + 1);
            *newest = Some(Numbered { number, client });
        });
    }

    /// Returns when the API server does not accept the certificate of the newest one.
    pub(super) async fn refused(&self) {
        let number = self.newest.borrow().as_ref().map(|newest| newest.number);
        let mut refused = self.refused.subscribe();
        // It ends with us at the earliest.
        let _ = refused.wait_for(|refused| Some(*refused) == number).await;
    }

    async fn send(&self, request: Request<Body>) -> kube::Result<hyper::Response<Body>> {
        let mut newest = self.newest.subscribe();
        let found = newest
            .wait_for(Option::is_some)
            .await
            .map(|found| found.clone());
        let Numbered { number, client } = found
            .ok()
            .flatten()
            .expect("the sender is ours, and somebody was waited for");
        let response = client.send(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.refused.send_replace(number);
        }
        Ok(response)
    }
}
