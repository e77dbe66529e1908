//! Bounded fuzzing of the requests that arrive on the socket. The other untrusted formats are fuzzed in `plan`.
//!
//! A run is short and always the same. `FUZZ_SECONDS=60 cargo test -p daemon fuzz::` runs that long, from another seed.

use std::path::Path;

use plan::netconf::Netconf;
use serde_json::{Map, Value};

use crate::call::CniCall;

#[test]
fn requests() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/request");
    testkit::fuzz::corpus::fuzz(&corpus, |input| {
        let Ok(request) = api::Request::from_json(input) else {
            return false;
        };
        let Ok(call) = CniCall::parse(&request) else {
            return false;
        };
        if let Some(request) = &call.request {
            let id = request.container_id.as_str();
            assert!(!id.is_empty() && !id.contains('/') && !id.starts_with('.'));
        }
        let daemon: Map<String, Value> = Map::new();
        Netconf::effective(&request.config, &daemon, true).is_ok()
    });
}
