//! `passthru`: the plugin that does nothing, as the head of a chain that needs no other first plugin.

use cni::convert::{parse_value, result_to};
use cni::{CniError, CniResult, Command, Version};

use crate::call::Environment;
use crate::output::Document;

/// The versions that have lists of plugins.
pub(crate) const VERSIONS: &[Version] = &[
    Version::V0_3_0,
    Version::V0_3_1,
    Version::V0_4_0,
    Version::V1_0_0,
    Version::V1_1_0,
];

/// ADD returns the previous result, or an empty one; the other verbs succeed.
pub(crate) fn run(environment: Environment, stdin: Vec<u8>) -> Result<Document, CniError> {
    let mut call = environment.with_config(stdin, VERSIONS)?;
    if call.command != Command::Add {
        return Ok(Document::Nothing);
    }
    let previous = call
        .config
        .remove("prevResult")
        .filter(|previous| !previous.is_null());
    let result = match previous {
        None => CniResult::default(),
        Some(previous) => parse_value(&previous, Some(call.version)).map_err(|error| {
            CniError::new(CniError::DECODING_FAILURE, format!("prevResult: {error}"))
        })?,
    };
    Ok(Document::Result(result_to(&result, call.version)))
}
