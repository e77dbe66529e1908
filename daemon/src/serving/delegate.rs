//! `/delegate`, for upstream's controller of running pods: ADD, DEL, CHECK and STATUS of one network whose configuration is in the request.
//! That configuration is the plugin's, so the daemon's own file does not override its keys. The state directory is that of the configuration
//! by which pods are attached.

use api::{Request, Response};
use cni::{env::Command, types::CniError};
use plan::netconf::Netconf;
use serde_json::{Map, Value};
use tracing::info;

use crate::{
    call::CniCall,
    engine,
    errors::failure::VerbError,
    serving::service::{Answer, Served, Service},
};

/// Serves `/delegate`; logged and counted like any verb.
pub(crate) fn delegate(
    service: &Service,
    call: &CniCall,
    raw_request: &Request,
    answer: Answer<'_>,
) {
    service.observed(call, answer, || dispatch(service, call, raw_request));
}

fn dispatch(service: &Service, call: &CniCall, raw_request: &Request) -> Result<Served, VerbError> {
    let netconf = service.effective_netconf()?;
    let config = || plan::explicit_config(&raw_request.config, &netconf).map_err(CniError::from);
    let engine = &service.engine;
    match (call.command, &call.request) {
        (Command::Status, _) => {
            engine.status_explicit(&call.path, &netconf, &config()?)?;
            Ok(Served::default())
        }
        (Command::Check, Some(request)) => {
            service.on_known_node()?;
            engine.check_explicit(request, &netconf, &config()?)?;
            Ok(Served::default())
        }
        (Command::Del, Some(request)) => {
            service.on_known_node()?;
            let config = config()?;
            let (_, pod) = service.pod_for_add(call)?;
            engine.del_explicit(request, &netconf, &pod, &config)?;
            info!(
                network = config.name,
                "detached a network from a running pod"
            );
            Ok(Served::default())
        }
        (Command::Add, Some(request)) => {
            service.on_known_node()?;
            add(service, call, request, raw_request, &netconf)
        }
        (command, _) => {
            let text = format!(
                "{command} is not served for single networks: ADD, DEL, CHECK and STATUS are"
            );
            Err(CniError::new(CniError::INVALID_ENVIRONMENT, text).into())
        }
    }
}

fn add(
    service: &Service,
    call: &CniCall,
    request: &engine::ContainerRequest,
    raw_request: &Request,
    netconf: &Netconf,
) -> Result<Served, VerbError> {
    let (_, pod) = service.pod_for_add(call)?;
    let attachment = service
        .engine
        .explicit_attachment(
            netconf,
            &pod,
            &raw_request.config,
            &annotation_keys(raw_request),
        )
        .map_err(CniError::from)?;
    let plugged = service
        .engine
        .add_explicit(request, netconf, &pod, &attachment);
    let attached = plugged.map_err(|error| VerbError::add(&pod, error))?;
    info!(
        network = attached.name,
        ifname = attached.ifname,
        "attached a network to a running pod"
    );
    Ok(Served {
        body: Response::new(attached.result.clone()).to_json(),
        attached: Some((pod, vec![attached])),
    })
}

/// Returns the interface attributes of the request as the keys of an annotation's element.
fn annotation_keys(raw_request: &Request) -> Map<String, Value> {
    let mut out = Map::new();
    let Some(attributes) = &raw_request.interface_attributes else {
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
