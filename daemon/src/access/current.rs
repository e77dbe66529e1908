//! One client for the whole life of the daemon, whatever certificate it has at the moment: each request goes through the newest, so
//! that nothing that asks or watches has to start again.

use std::sync::Arc;

use tokio::sync::watch;

use crate::access::Client;

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
    /// A client whose requests wait until there is a certificate and always go out with the newest.
    pub fn client(self: &Arc<Self>) -> Client {
        Client::newest(Arc::clone(self))
    }

    /// From now on requests go out with this one; connections of the last one end with their requests.
    pub(crate) fn replace(&self, client: Client) {
        self.newest.send_modify(|newest| {
            let number = newest.as_ref().map_or(1, |old| old.number + 1);
            *newest = Some(Numbered { number, client });
        });
    }

    /// Returns when the API server does not accept the certificate of the newest one.
    pub(crate) async fn refused(&self) {
        let number = self.newest.borrow().as_ref().map(|newest| newest.number);
        let mut refused = self.refused.subscribe();
        // It ends with us at the earliest.
        let _ = refused.wait_for(|refused| Some(*refused) == number).await;
    }

    /// Waits for the first client; returns the newest and its number.
    pub(crate) async fn newest(&self) -> (u64, Client) {
        let mut newest = self.newest.subscribe();
        let found = newest
            .wait_for(Option::is_some)
            .await
            .map(|found| found.clone());
        let Numbered { number, client } = found
            .ok()
            .flatten()
            .expect("the sender is ours, and somebody was waited for");
        (number, client)
    }

    /// The API server did not accept the certificate of this client.
    pub(crate) fn unauthorized(&self, number: u64) {
        self.refused.send_replace(number);
    }
}
