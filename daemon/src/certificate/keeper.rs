//! Keeps a usable certificate: loads the stored one, requests the next one in time, and passes each to the daemon's client.

use std::{path::Path, sync::Arc, time::Duration};

use cmdline::error_line;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node::root::Root;
use tracing::{info, warn};

use super::{ClientCertificate, Settings, bootstrap, obtain::obtain, store::Store};
use crate::{
    access::{Access, Client, Credential, CurrentClient, Server, client_with},
    backoff::doubled,
    readiness::{Gate, Readiness},
};

/// The longest time between two checks of the clock, the API server's address and its authority.
const PERIOD: Duration = Duration::from_mins(1);
/// The longest pause after a failure. It is long, since each try leaves a request in the cluster.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The keeper's environment.
pub struct Keeper {
    /// The node's file tree.
    pub root: Arc<Root>,
    /// The node's name in the cluster.
    pub node: String,
    /// The settings from the daemon's file.
    pub settings: Settings,
    /// Gets the reason while there is no usable certificate.
    pub readiness: Arc<Readiness>,
    /// Gets each new client.
    pub current: Arc<CurrentClient>,
}

#[derive(Default)]
struct State {
    certificate: Option<ClientCertificate>,
    /// The API server of the current client; `None` when a newer certificate needs a new client.
    server: Option<Server>,
}

impl Keeper {
    /// Runs for ever.
    pub async fn run(self) {
        let mut state = State {
            certificate: self.stored(),
            server: None,
        };
        let (mut failures, mut refusals) = (0, 0);
        loop {
            let pause = match self.update(&mut state).await {
                Ok(pause) => {
                    failures = 0;
                    self.readiness.open(Gate::Certificate);
                    pause
                }
                Err(reason) => {
                    failures += 1;
                    let certificate = state
                        .certificate
                        .as_ref()
                        .filter(|certificate| !certificate.is_expired(Timestamp::now()));
                    match certificate {
                        Some(certificate) => {
                            warn!(reason, until = %certificate.not_after(), "cannot renew the certificate");
                        }
                        None => self.readiness.close(Gate::Certificate, reason),
                    }
                    doubled(failures, FIRST_PAUSE, LONGEST_PAUSE)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => refusals = 0,
                () = self.current.refused(), if failures == 0 => {
                    refusals += 1;
                    self.readiness.close(Gate::Certificate, "the API server refused the certificate: requesting another one");
                    state = State::default();
                    tokio::time::sleep(doubled(refusals, FIRST_PAUSE, LONGEST_PAUSE)).await;
                }
            }
        }
    }

    /// Renews certificate and client where they are due. Returns the time until the next check.
    async fn update(&self, state: &mut State) -> Result<Duration, String> {
        let access = bootstrap::access(&self.root, self.settings.bootstrap.as_deref())
            .map_err(|error| error_line(&error))?;
        let now = Timestamp::now();
        state
            .certificate
            .take_if(|certificate| certificate.is_expired(now));
        let due = state
            .certificate
            .as_ref()
            .is_none_or(|certificate| now >= certificate.renew_at());
        if let Some(certificate) = &state.certificate {
            let client = self.use_certificate(certificate, &access, &mut state.server)?;
            if !due {
                return Ok(until(certificate.renew_at()).min(PERIOD));
            }
            match self.obtain(client, false).await {
                Ok(next) => return self.adopt(state, next, &access),
                Err(reason) => warn!(reason, "cannot renew the certificate by its own identity"),
            }
        }
        let client = client_with(&access).map_err(|error| error_line(&error))?;
        let next = self.obtain(client, state.certificate.is_none()).await?;
        self.adopt(state, next, &access)
    }

    async fn obtain(&self, client: Client, is_needed: bool) -> Result<ClientCertificate, String> {
        let report = |waiting: &str| {
            if is_needed {
                self.readiness.close(Gate::Certificate, waiting);
            }
        };
        let obtained = obtain(client, &self.node, self.settings.duration, report).await;
        obtained.map_err(|error| error.to_string())
    }

    /// Stores a new certificate and then uses it.
    fn adopt(
        &self,
        state: &mut State,
        certificate: ClientCertificate,
        access: &Access,
    ) -> Result<Duration, String> {
        info!(until = %certificate.not_after(), "the node has a new certificate");
        if let Err(error) = self.store().save(certificate.pem(), Timestamp::now()) {
            warn!(%error, "cannot store the certificate: the next start will request another one");
        }
        state.server = None;
        self.use_certificate(&certificate, access, &mut state.server)?;
        // A certificate whose validity is so short that renewal is always due must not cause one request after the other.
        let pause = until(certificate.renew_at())
            .max(until(certificate.not_after()) / 2)
            .min(PERIOD);
        state.certificate = Some(certificate);
        Ok(pause)
    }

    /// Gives the daemon a client with this certificate, unless it has one for the same server. Returns such a client.
    fn use_certificate(
        &self,
        certificate: &ClientCertificate,
        access: &Access,
        server_in_use: &mut Option<Server>,
    ) -> Result<Client, String> {
        // The bootstrap's server, with the certificate as the only identity.
        let credential = Credential::Certificate {
            chain: certificate.chain().into(),
            key: certificate.key().into(),
        };
        let own = Access::new(access.server.clone(), credential);
        let client = client_with(&own).map_err(|error| error_line(&error))?;
        if server_in_use.as_ref() != Some(&own.server) {
            self.current.replace(client.clone());
            *server_in_use = Some(own.server);
        }
        Ok(client)
    }

    /// Returns the stored certificate, if it is usable.
    fn stored(&self) -> Option<ClientCertificate> {
        let checked = match self.store().load() {
            Ok(None) => return None,
            Ok(Some(pem)) => ClientCertificate::validate(&pem, &self.node, Timestamp::now())
                .map_err(|why| why.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match checked {
            Ok(certificate) => {
                info!(until = %certificate.not_after(), "using the stored certificate");
                Some(certificate)
            }
            Err(reason) => {
                warn!(reason, "the stored certificate cannot be used");
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
