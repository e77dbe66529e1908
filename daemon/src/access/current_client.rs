//! One client for the daemon's lifetime, whatever its current certificate is. Each request uses the newest certificate, so that no watch
//! and no other user of the client has to start again after a renewal.

use std::sync::Arc;

use tokio::sync::watch;

use crate::access::Client;

/// The client with the current certificate; none at first.
#[derive(Default)]
pub struct CurrentClient {
    newest: watch::Sender<Option<Numbered>>,
    /// The number of the last client whose certificate the API server refused.
    refused: watch::Sender<u64>,
}

#[derive(Clone)]
struct Numbered {
    number: u64,
    client: Client,
}

impl CurrentClient {
    /// Returns a client whose requests wait for the first certificate and always use the newest.
    pub fn client(self: &Arc<Self>) -> Client {
        Client::newest(Arc::clone(self))
    }

    /// Makes further requests use this client. The connections of the previous one end with their requests.
    pub(crate) fn replace(&self, client: Client) {
        self.newest.send_modify(|newest| {
            let number = newest.as_ref().map_or(1, |old| old.number + 1);
            *newest = Some(Numbered { number, client });
        });
    }

    /// Waits until the API server refuses the certificate of the newest client.
    pub(crate) async fn refused(&self) {
        let number = self.newest.borrow().as_ref().map(|newest| newest.number);
        let mut refused = self.refused.subscribe();
        // The sender belongs to `self`, so the wait cannot fail.
        let _ = refused.wait_for(|refused| Some(*refused) == number).await;
    }

    /// Waits for the first client and returns the newest with its number.
    pub(crate) async fn newest(&self) -> (u64, Client) {
        let mut newest = self.newest.subscribe();
        let found = newest
            .wait_for(Option::is_some)
            .await
            .map(|found| found.clone());
        let Numbered { number, client } = found
            .ok()
            .flatten()
            .expect("the sender belongs to self, and the wait was for a client");
        (number, client)
    }

    /// Reports that the API server refused the certificate of this client.
    pub(crate) fn unauthorized(&self, number: u64) {
        self.refused.send_replace(number);
    }
}
