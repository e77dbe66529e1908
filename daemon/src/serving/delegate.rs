//! `/delegate`, as upstream's controller for running pods asks it: ADD, DEL, CHECK and STATUS of one network whose configuration comes
//! with the request. The daemon's own file is not laid over it: it is the plugin's. Where state lies is said by the configuration that pods are attached by.

use api::{Request, Response};
use cni::{env::Command, types::CniError};
use plan::netconf::Netconf;
use serde_json::{Map, Value};
use tracing::info;

use crate::{
    call::Call,
    engine::{self, AddError},
    errors::failure::Failure,
    serving::service::{Service, tell_of_attached},
};

/// Serves `/delegate`, logged and counted as any verb.
pub(crate) fn delegate(
    service: &Service,
    call: &Call,
    asked: &Request,
) -> Result<Vec<u8>, CniError> {
    service.observed(call, || dispatch(service, call, asked))
}

fn dispatch(service: &Service, call: &Call, asked: &Request) -> Result<Vec<u8>, CniError> {
    let netconf = service.standing_netconf()?;
    let bare = || plan::bare(&asked.config, &netconf).map_err(CniError::from);
    let engine = &service.engine;
    match (call.command, &call.request) {
        (Command::Status, _) => engine
            .status_of(&call.path, &netconf, &bare()?)
            .map(|()| Vec::new()),
        (Command::Check, Some(request)) => {
            service.on_known_node()?;
            engine
                .check_plugged(request, &netconf, &bare()?)
                .map(|()| Vec::new())
        }
        (Command::Del, Some(request)) => {
            service.on_known_node()?;
            let config = bare()?;
            let (_, pod) = service.pod_for_add(call)?;
            engine.unplug(request, &netconf, &pod, &config)?;
            info!(network = config.name, "unplugged");
            Ok(Vec::new())
        }
        (Command::Add, Some(request)) => {
            service.on_known_node()?;
            add(service, call, request, asked, &netconf)
        }
        (command, _) => Err(CniError::new(
            CniError::INVALID_ENVIRONMENT,
            format!("{command} is not served for single networks: ADD, DEL, CHECK and STATUS are"),
        )),
    }
}

fn add(
    service: &Service,
    call: &Call,
    request: &engine::Request,
    asked: &Request,
    netconf: &Netconf,
) -> Result<Vec<u8>, CniError> {
    let (cluster, pod) = service.pod_for_add(call)?;
    let attachment = service
        .engine
        .given(netconf, &pod, &asked.config, &wishes(asked))
        .map_err(CniError::from)?;
    let plugged = service.engine.plug(request, netconf, &pod, &attachment);
    let attached = plugged.map_err(|AddError { error, event }| {
        let failure = Failure::new(call, error);
        let failed = || ("FailedAddNetwork", failure.error.msg.clone());
        let (reason, message) = event.unwrap_or_else(failed);
        cluster.event(&pod, true, reason, failure.for_event(&message));
        failure.error
    })?;
    info!(network = attached.name, ifname = attached.ifname, "plugged");
    tell_of_attached(cluster, &pod, std::slice::from_ref(&attached));
    Ok(Response::new(attached.result).to_json())
}

/// The wishes of the request as an annotation writes them.
fn wishes(asked: &Request) -> Map<String, Value> {
    let mut out = Map::new();
    let Some(attributes) = &asked.interface_attributes else {
        return out;
    };
    if !attributes.ips.is_empty() {
        out.insert("ips".to_owned(), attributes.ips.clone().into());
    }
    if !attributes.mac.is_empty() {
        out.insert("mac".to_owned(), attributes.mac.clone().into());
    }
    if !attributes.cni_args.is_empty() {
        out.insert("cni-args".to_owned(), attributes.cni_args.clone().into());
    }
    out
}
