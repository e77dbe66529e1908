//! Fuzz target of the daemon's answers, which the shim reads. `docs/contributing/testing.md` says how it runs.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use crate::Response;

/// The body of an answer to ADD.
pub fn responses(input: &[u8]) -> bool {
    let Ok(response) = Response::from_json(input) else {
        return false;
    };
    let written = response.to_json();
    let again = Response::from_json(&written).expect("an answer is read as it is written");
    assert_eq!(again.to_json(), written);
    assert_eq!(again.result.is_some(), response.result.is_some());
    true
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    #[test]
    fn responses() {
        run("api_responses", super::responses);
    }
}
