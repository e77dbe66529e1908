//! Holding a request that came before its time, as at a start, so that the shim needs to ask only once.

use std::time::Duration;

use cni::{env::Command, types::CniError};
use hyper::HeaderMap;

use super::Path;
use crate::{
    call::Call,
    journal::About,
    readiness::{Part, Readiness},
    serving::service::Service,
};

/// How long a request of a shim that says nothing of it is held; a runtime gives it minutes.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// No request is held longer, whatever it says.
const MOST_PATIENCE: Duration = Duration::from_mins(2);

/// What the caller understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// It waits as long as it says, and sends what was not begun again.
    Holding(Duration),
    /// It has asked `/readyz` before, or nothing at all, as upstream's shim: it wants an answer to what it sends.
    Polling,
}

impl Caller {
    /// From the headers of its request.
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

/// What has to be there before a verb begins.
#[derive(Debug, PartialEq, Eq)]
enum Needs {
    /// Whatever `/readyz` tells of.
    Readiness,
    /// These parts, at some time.
    Once(&'static [Part]),
}

fn needs(path: Path, command: Command, caller: Caller) -> Needs {
    const KNOWN: &[Part] = &[Part::Discovery];
    const START: &[Part] = &[Part::Discovery, Part::Journal, Part::Watches];
    match (path, command, caller) {
        // STATUS tells what is missing, and a DEL of the runtime is done or written down in any case.
        (_, Command::Status | Command::Version, _) | (Path::Cni, Command::Del, _) => {
            Needs::Once(&[])
        }
        (Path::Cni, _, Caller::Holding(_)) => Needs::Readiness,
        (Path::Cni, Command::Add, Caller::Polling)
        | (Path::Delegate, Command::Add | Command::Del, _) => Needs::Once(START),
        (_, Command::Check | Command::Gc, _) => Needs::Once(KNOWN),
    }
}

/// Returns when the verb may begin, or why it does not: nothing of it was begun then.
pub(super) async fn hold(
    service: &Service,
    path: Path,
    call: &Call,
    caller: Caller,
) -> Result<(), CniError> {
    let readiness = &*service.readiness;
    let needs = needs(path, call.command, caller);
    let ready = async {
        match &needs {
            Needs::Readiness => readiness.wait_for_all().await,
            Needs::Once(parts) => readiness.wait_for_once(parts).await,
        }
        if call.command == Command::Add {
            service.journal.wait_for(&About::of(call)).await;
        }
    };
    let reason = || {
        let reason = missing(readiness, &needs);
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

/// Returns when another daemon serves this one's callers; those who cannot ask again are served here.
pub(super) async fn withdrawn(service: &Service, caller: Caller) {
    match caller {
        Caller::Holding(_) => {
            let mut withdrawn = service.withdrawn.subscribe();
            // The sender lives in the service.
            let _ = withdrawn.wait_for(|withdrawn| *withdrawn).await;
        }
        Caller::Polling => std::future::pending().await,
    }
}

/// What of it is not there.
fn missing(readiness: &Readiness, needs: &Needs) -> Option<String> {
    let parts = match needs {
        Needs::Readiness => return readiness.problem(),
        Needs::Once(parts) => parts,
    };
    let missing = |part: &Part| readiness.once_well(*part).err().map(|why| (*part, why));
    let (part, reason) = parts.iter().find_map(missing)?;
    Some(match part {
        Part::Discovery => format!("this node is not known yet: {reason}"),
        Part::Journal => format!("earlier deletions come first: {reason}"),
        _ => format!("pods and networks are not known yet: {reason}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_say_how_long_they_wait() {
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
    fn del_and_status_need_nothing_and_polling_shims_what_a_start_brings() {
        let holding = Caller::Holding(Duration::ZERO);
        for caller in [holding, Caller::Polling] {
            for command in [Command::Del, Command::Status] {
                assert_eq!(needs(Path::Cni, command, caller), Needs::Once(&[]));
            }
        }
        for command in [Command::Add, Command::Check, Command::Gc] {
            assert_eq!(needs(Path::Cni, command, holding), Needs::Readiness);
        }
        let check = needs(Path::Cni, Command::Check, Caller::Polling);
        assert_eq!(check, Needs::Once(&[Part::Discovery]));
    }
}
