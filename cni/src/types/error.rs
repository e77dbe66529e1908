//! The typed error of the specification.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fields::{FieldError, Object, as_object, number, put, put_text, text};

/// A typed CNI error: what a plugin prints when it fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct CniError {
    /// Well-known below 100, a plugin's own from there on.
    pub code: u32,
    /// One line for whoever reads the pod's event.
    pub msg: String,
    /// The long form.
    pub details: String,
}

impl CniError {
    /// The version of configuration and plugin do not meet.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// The configuration holds a field that is not supported.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is not known or does not exist.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A variable is missing or invalid.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Reading or writing failed.
    pub const IO_FAILURE: u32 = 5;
    /// Input does not parse.
    pub const DECODING_FAILURE: u32 = 6;
    /// The configuration is not valid.
    pub const INVALID_NETWORK_CONFIG: u32 = 7;
    /// The namespace is not one that may be used.
    pub const INVALID_NETNS: u32 = 8;
    /// A transient condition; the runtime should retry later.
    pub const TRY_AGAIN_LATER: u32 = 11;
    /// STATUS: no ADD can be served.
    pub const PLUGIN_NOT_AVAILABLE: u32 = 50;
    /// STATUS: no ADD can be served and existing containers may have lost their network.
    pub const LIMITED_CONNECTIVITY: u32 = 51;
    /// Anything without a code of its own.
    pub const INTERNAL: u32 = 999;

    /// An error without details.
    pub fn new(code: u32, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// The same with details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// The same with `context: ` before its message; the code stays.
    #[must_use]
    pub fn context(mut self, context: &str) -> Self {
        self.msg = format!("{context}: {}", self.msg);
        self
    }

    /// The error as a plugin prints it: the only document on its stdout.
    pub fn to_pretty(&self) -> Vec<u8> {
        super::pretty(&Value::from(self.clone()))
    }

    /// Reads an error from a plugin's or a daemon's output: a JSON object with a message. Anything else is `None`.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let error = Self::try_from(value).ok()?;
        if error.msg.is_empty() {
            None
        } else {
            Some(error)
        }
    }
}

impl From<CniError> for Value {
    fn from(error: CniError) -> Self {
        let mut object = Object::new();
        put(&mut object, "code", error.code);
        put(&mut object, "msg", error.msg);
        put_text(&mut object, "details", &error.details);
        Self::Object(object)
    }
}

/// A missing code is 999, so that no error looks like none.
impl TryFrom<Value> for CniError {
    type Error = FieldError;

    fn try_from(value: Value) -> Result<Self, FieldError> {
        let object = as_object(&value, "error")?;
        let code = number(object, "code")?
            .and_then(|code| u32::try_from(code).ok())
            .filter(|code| *code != 0);
        Ok(Self {
            code: code.unwrap_or(Self::INTERNAL),
            msg: text(object, "msg")?,
            details: text(object, "details")?,
        })
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.msg)?;
        if !self.details.is_empty() {
            write!(formatter, "; {}", self.details)?;
        }
        Ok(())
    }
}

impl std::error::Error for CniError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_print_as_the_reference_skeleton_does() {
        let error = CniError::new(CniError::TRY_AGAIN_LATER, "daemon is starting");
        assert_eq!(
            String::from_utf8(error.to_pretty()).unwrap(),
            "{\n    \"code\": 11,\n    \"msg\": \"daemon is starting\"\n}\n"
        );
        let error = error.with_details("socket is absent");
        assert_eq!(error.to_string(), "daemon is starting; socket is absent");
        assert_eq!(CniError::parse(&error.to_pretty()), Some(error));
    }

    #[test]
    fn only_an_object_with_a_message_is_an_error() {
        assert_eq!(CniError::parse(b"boom"), None);
        assert_eq!(CniError::parse(b"{}"), None);
        assert_eq!(CniError::parse(br#"[1,"boom"]"#), None);
        assert_eq!(CniError::parse(br#"{"code":3,"msg":""}"#), None);
        assert_eq!(
            CniError::parse(br#"{"msg":"x","cniVersion":"0.4.0"}"#),
            Some(CniError::new(999, "x"))
        );
    }
}
