//! Builds the state of a container that has upstream's file alone.

use cni::env::{ContainerId, IfName};
use serde_json::{Map, Value, json};

use super::upstream::Saved;
use super::{Delegate, Progress, Requested, State};

/// Returns the state by upstream's delegates. Interface names are counted as at ADD, and the progress is unknown. A delegate with an invalid
/// name is left out and reported in the second value.
pub(super) fn from_upstream(
    id: &ContainerId,
    ifname: &IfName,
    saved: Vec<(usize, Saved)>,
) -> (State, Option<String>) {
    let mut damage = None;
    let mut delegates = Vec::new();
    for (index, saved) in saved {
        let name = match &saved.requested.interface {
            Some(name) => name.parse::<IfName>(),
            None if index == 0 => Ok(ifname.clone()),
            None => format!("net{index}").parse(),
        };
        match name {
            Ok(ifname) => delegates.push(Delegate {
                ifname,
                capability_args: if index == 0 {
                    Map::new()
                } else {
                    capability_args(&saved.requested)
                },
                args: None,
                name: saved.name,
                config: saved.config,
                requested: saved.requested,
                progress: Progress::Unknown,
                displaced: Vec::new(),
            }),
            Err(error) => damage = Some(format!("delegate {index}: {error}")),
        }
    }
    let state = State {
        delegates,
        ..State::unknown(id, ifname)
    };
    (state, damage)
}

/// Returns the capability arguments that upstream's file holds.
fn capability_args(requested: &Requested) -> Map<String, Value> {
    let mut out = Map::new();
    if !requested.ips.is_empty() {
        out.insert("ips".to_owned(), json!(requested.ips));
    }
    for (key, value) in [
        ("mac", &requested.mac),
        ("infinibandGUID", &requested.infiniband_guid),
        ("deviceID", &requested.device_id),
    ] {
        if let Some(value) = value {
            out.insert(key.to_owned(), json!(value));
        }
    }
    out
}
