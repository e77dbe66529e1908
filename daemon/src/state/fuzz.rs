//! Fuzz target of the state files.

use cni::env::{ContainerId, IfName};

use super::sidecar::{Sidecar, encode};
use super::{State, upstream};

const BOOT: Option<&str> = Some("boot-1");

/// A state file, read as upstream's and as our sidecar. What either holds is read again from what is written for it.
pub fn states(input: &[u8]) -> bool {
    let id: ContainerId = "c0ffee".parse().expect("an identifier");
    let ifname: IfName = "eth0".parse().expect("a name");
    let file = upstream::decode(input);
    let has_delegates = !file.delegates.is_empty();
    let (state, _) = upstream::from_upstream(&id, &ifname, file.delegates);
    written_again(&state);
    let sidecar = Sidecar::parse(input).and_then(|sidecar| sidecar.into_state(&id, BOOT));
    if let Ok(state) = &sidecar {
        written_again(state);
    }
    has_delegates || sidecar.is_ok()
}

fn written_again(state: &State) {
    let written = encode(state, b"[]", None, BOOT, None);
    let sidecar = Sidecar::parse(&written.bytes).expect("a sidecar is read as it is written");
    assert!(sidecar.belongs_to(&state.container_id, b"[]"));
    let again = sidecar.into_state(&state.container_id, BOOT);
    assert_eq!(again.as_ref(), Ok(state));
}
