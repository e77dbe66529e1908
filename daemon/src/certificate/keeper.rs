//! Keeps a certificate that serves: takes the stored one, asks for the next one in time, hands each to the daemon's client.

use std::{path::Path, sync::Arc, time::Duration};

use cmdline::causes;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node::root::Root;
use tracing::{info, warn};

use super::{Held, Settings, bootstrap, obtain::obtain, store::Store};
use crate::{
    access::{Access, Client, Credential, Current, Server, client_as},
    readiness::{Part, Readiness},
};

/// How often clock, API server's address and authority are looked at again.
const CHECK: Duration = Duration::from_mins(1);
/// The longest pause after a failure: each try leaves a request in the cluster.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// What it goes by.
pub struct Keeper {
    /// The node's file tree.
    pub root: Arc<Root>,
    /// The node's name in the cluster.
    pub node: String,
    /// The daemon's file's part of it.
    pub settings: Settings,
    /// Where it is told what is missing.
    pub readiness: Arc<Readiness>,
    /// Who gets the clients.
    pub current: Arc<Current>,
}

/// What it has.
#[derive(Default)]
struct State {
    held: Option<Held>,
    /// What the client of the moment was made of; none when there is a newer certificate.
    server: Option<Server>,
}

impl Keeper {
    /// Runs for ever.
    pub async fn run(self) {
        let mut state = State {
            held: self.stored(),
            server: None,
        };
        let (mut failures, mut refusals) = (0, 0);
        loop {
            let pause = match self.turn(&mut state).await {
                Ok(pause) => {
                    failures = 0;
                    self.readiness.well(Part::Certificate);
                    pause
                }
                Err(reason) => {
                    failures += 1;
                    let held = state
                        .held
                        .as_ref()
                        .filter(|held| !held.is_expired(Timestamp::now()));
                    match held {
                        Some(held) => {
                            warn!(reason, until = %held.not_after(), "cannot renew the certificate");
                        }
                        None => self.readiness.missing(Part::Certificate, reason),
                    }
                    backoff(failures)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => refusals = 0,
                () = self.current.refused(), if failures == 0 => {
                    refusals += 1;
                    self.readiness.missing(Part::Certificate, "the API server does not accept the certificate: asking for another");
                    state = State::default();
                    tokio::time::sleep(backoff(refusals)).await;
                }
            }
        }
    }

    /// Brings everything up to date; when to look again.
    async fn turn(&self, state: &mut State) -> Result<Duration, String> {
        let access = bootstrap::access(&self.root, self.settings.bootstrap.as_deref())
            .map_err(|error| causes(&error))?;
        let now = Timestamp::now();
        state.held.take_if(|held| held.is_expired(now));
        let due = state
            .held
            .as_ref()
            .is_none_or(|held| now >= held.renew_at());
        if let Some(held) = &state.held {
            let client = self.show(held, &access, &mut state.server)?;
            if !due {
                return Ok(until(held.renew_at()).min(CHECK));
            }
            match self.obtain(client, false).await {
                Ok(next) => return self.take(state, next, &access),
                Err(reason) => warn!(reason, "cannot renew the certificate with itself"),
            }
        }
        let client = client_as(&access).map_err(|error| causes(&error))?;
        let next = self.obtain(client, state.held.is_none()).await?;
        self.take(state, next, &access)
    }

    async fn obtain(&self, client: Client, is_needed: bool) -> Result<Held, String> {
        let tell = |what: &str| {
            if is_needed {
                self.readiness.missing(Part::Certificate, what);
            }
        };
        let obtained = obtain(client, &self.node, self.settings.duration, tell).await;
        obtained.map_err(|error| error.to_string())
    }

    /// Stores it before it is used.
    fn take(&self, state: &mut State, held: Held, access: &Access) -> Result<Duration, String> {
        info!(until = %held.not_after(), "the node has a new certificate");
        if let Err(error) = self.store().save(held.pem(), Timestamp::now()) {
            warn!(%error, "the certificate is not stored: the next start asks for another");
        }
        state.server = None;
        self.show(&held, access, &mut state.server)?;
        // A life so short that it is always due must not end in one request after the other.
        let pause = until(held.renew_at())
            .max(until(held.not_after()) / 2)
            .min(CHECK);
        state.held = Some(held);
        Ok(pause)
    }

    /// Hands the daemon a client with this certificate, unless it has it; and gives one like it.
    fn show(
        &self,
        held: &Held,
        access: &Access,
        shown: &mut Option<Server>,
    ) -> Result<Client, String> {
        // The same server, and the certificate as the only identity.
        let credential = Credential::Certificate {
            chain: held.certificate().into(),
            key: held.key().into(),
        };
        let own = Access::new(access.server.clone(), credential);
        let client = client_as(&own).map_err(|error| causes(&error))?;
        if shown.as_ref() != Some(&own.server) {
            self.current.replace(client.clone());
            *shown = Some(own.server);
        }
        Ok(client)
    }

    /// The stored one, if it serves.
    fn stored(&self) -> Option<Held> {
        let judged = match self.store().load() {
            Ok(None) => return None,
            Ok(Some(pem)) => {
                Held::judge(&pem, &self.node, Timestamp::now()).map_err(|why| why.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match judged {
            Ok(held) => {
                info!(until = %held.not_after(), "the node has a stored certificate");
                Some(held)
            }
            Err(reason) => {
                warn!(reason, "the stored certificate is of no use");
                None
            }
        }
    }

    fn store(&self) -> Store<'_> {
        let dir: &Path = &self.settings.dir;
        Store {
            root: &self.root,
            dir,
        }
    }
}

fn until(time: Timestamp) -> Duration {
    let left: SignedDuration = time.duration_since(Timestamp::now());
    Duration::try_from(left).unwrap_or_default()
}

/// 2 s, then twice as long each time.
fn backoff(failures: u32) -> Duration {
    let pause = Duration::from_secs(1 << failures.min(20));
    pause.min(LONGEST_PAUSE)
}
