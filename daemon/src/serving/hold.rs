//! Holds a request that arrives before the daemon can serve it, as during a start, so that the shim sends it only once.

use std::time::Duration;

use cni::{env::Command, types::CniError};
use hyper::HeaderMap;

use super::Endpoint;
use crate::{
    call::CniCall,
    journal::Subject,
    readiness::{Gate, Readiness},
    serving::service::Service,
};

/// A request without a hold header is held for this long; a runtime waits for minutes.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// The longest time for which a request is held, whatever its header says.
const MOST_PATIENCE: Duration = Duration::from_mins(2);

/// The protocol that the client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// It waits as long as its header says, and sends a request again that was not begun.
    Holding(Duration),
    /// Like upstream's shim it polls `/readyz`, or not even that, and sends a request only once.
    Polling,
}

impl Caller {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let hold = headers.get(api::HEADER_HOLD);
        let hold = hold.and_then(|hold| hold.to_str().ok()?.parse().ok());
        hold.map_or(Self::Polling, |hold| {
            Self::Holding(Duration::from_millis(hold).min(MOST_PATIENCE))
        })
    }

    fn patience(self) -> Duration {
        match self {
            Self::Holding(patience) => patience,
            Self::Polling => START_PATIENCE,
        }
    }
}

/// The gates that must be open before a verb begins.
#[derive(Debug, PartialEq, Eq)]
enum Needs {
    /// The daemon is ready, as `/readyz` reports it.
    Ready,
    /// Each of these gates was open at least once.
    WasOpen(&'static [Gate]),
}

fn needs(endpoint: Endpoint, command: Command, caller: Caller) -> Needs {
    const KNOWN: &[Gate] = &[Gate::Discovery];
    const START: &[Gate] = &[Gate::Discovery, Gate::Journal, Gate::Watches];
    match (endpoint, command, caller) {
        // STATUS reports what is not ready, and a DEL of the runtime is done or journaled in any case.
        (_, Command::Status | Command::Version, _) | (Endpoint::Cni, Command::Del, _) => {
            Needs::WasOpen(&[])
        }
        (Endpoint::Cni, _, Caller::Holding(_)) => Needs::Ready,
        (Endpoint::Cni, Command::Add, Caller::Polling)
        | (Endpoint::Delegate, Command::Add | Command::Del, _) => Needs::WasOpen(START),
        (_, Command::Check | Command::Gc, _) => Needs::WasOpen(KNOWN),
    }
}

/// Returns when the verb may begin, or the reason why it may not; then nothing of it was begun.
pub(super) async fn hold(
    service: &Service,
    endpoint: Endpoint,
    call: &CniCall,
    caller: Caller,
) -> Result<(), CniError> {
    let readiness = &*service.readiness;
    let needs = needs(endpoint, call.command, caller);
    let ready = async {
        match &needs {
            Needs::Ready => readiness.wait_ready().await,
            Needs::WasOpen(gates) => readiness.wait_was_open(gates).await,
        }
        if call.command == Command::Add {
            service.journal.wait_for(&Subject::of(call)).await;
        }
    };
    let reason = || {
        let reason = reason_not_ready(readiness, &needs);
        let reason =
            reason.unwrap_or_else(|| "earlier deletions of this pod come first".to_owned());
        CniError::new(CniError::TRY_AGAIN_LATER, reason)
    };
    tokio::select! {
        biased;
        () = ready => Ok(()),
        () = withdrawn(service, caller) => Err(reason()),
        () = tokio::time::sleep(caller.patience()) => Err(reason()),
    }
}

/// Returns when another daemon serves this one's clients. Never returns for clients that do not send a request again: they are served here.
pub(super) async fn withdrawn(service: &Service, caller: Caller) {
    match caller {
        Caller::Holding(_) => {
            let mut withdrawn = service.withdrawn.subscribe();
            // It cannot fail: the service owns the sender.
            let _ = withdrawn.wait_for(|withdrawn| *withdrawn).await;
        }
        Caller::Polling => std::future::pending().await,
    }
}

fn reason_not_ready(readiness: &Readiness, needs: &Needs) -> Option<String> {
    let gates = match needs {
        Needs::Ready => return readiness.problem(),
        Needs::WasOpen(gates) => gates,
    };
    let never_open = |gate: &Gate| {
        readiness
            .was_open(*gate)
            .err()
            .map(|reason| (*gate, reason))
    };
    let (gate, reason) = gates.iter().find_map(never_open)?;
    Some(match gate {
        Gate::Discovery => format!("this node is not known yet: {reason}"),
        Gate::Journal => format!("earlier deletions come first: {reason}"),
        _ => format!("pods and networks are not known yet: {reason}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_header_limits_the_wait() {
        let check = |value: Option<&str>, expected| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(api::HEADER_HOLD, value.parse().unwrap());
            }
            assert_eq!(Caller::of(&headers), expected, "{value:?}");
        };
        check(None, Caller::Polling);
        check(Some("soon"), Caller::Polling);
        check(Some("0"), Caller::Holding(Duration::ZERO));
        check(Some("1500"), Caller::Holding(Duration::from_millis(1500)));
        check(Some("99999999999"), Caller::Holding(MOST_PATIENCE));
    }

    #[test]
    fn del_and_status_are_never_held_and_polling_clients_need_a_complete_start() {
        let holding = Caller::Holding(Duration::ZERO);
        for caller in [holding, Caller::Polling] {
            for command in [Command::Del, Command::Status] {
                assert_eq!(needs(Endpoint::Cni, command, caller), Needs::WasOpen(&[]));
            }
        }
        for command in [Command::Add, Command::Check, Command::Gc] {
            assert_eq!(needs(Endpoint::Cni, command, holding), Needs::Ready);
        }
        let check = needs(Endpoint::Cni, Command::Check, Caller::Polling);
        assert_eq!(check, Needs::WasOpen(&[Gate::Discovery]));
    }
}
