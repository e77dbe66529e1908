//! Fuzz target of what plugins print. `docs/contributing/testing.md` says how it runs.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use crate::convert::{parse_result, parse_value, result_to};
use crate::version::SUPPORTED;

/// A result, converted to every version.
pub fn results(input: &[u8]) -> bool {
    let Ok(result) = parse_result(input) else {
        return false;
    };
    for version in SUPPORTED {
        let written = result_to(&result, version);
        let again = parse_value(&written, None).expect("a result is read as it is written");
        assert_eq!(again.cni_version, version.to_string());
        assert_eq!(result_to(&again, version), written);
    }
    true
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    #[test]
    fn results() {
        run("cni_results", super::results);
    }
}
