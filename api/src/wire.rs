//! Requests and answers on the socket, as JSON.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cni::convert::{ConvertError, parse_value, result_to};
use cni::{CniResult, Version};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// One verb, as it travels to `/cni` and `/delegate`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The environment of the process that the runtime started.
    #[serde(default, deserialize_with = "or_default")]
    pub env: BTreeMap<String, String>,
    /// What it read from stdin; base64 on the wire.
    #[serde(default, deserialize_with = "from_base64")]
    pub config: Vec<u8>,
    /// Wishes for the one interface of a hot plug.
    #[serde(default)]
    pub interface_attributes: Option<InterfaceAttributes>,
}

/// Wishes for one interface; only `/delegate` looks at them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InterfaceAttributes {
    /// Addresses.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ips: Vec<String>,
    /// Hardware address.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub mac: String,
    /// Merged into `args.cni` of the configuration.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Map::is_empty"
    )]
    pub cni_args: Map<String, Value>,
}

/// The answer to ADD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The result, in the newest version.
    pub result: Option<CniResult>,
}

impl Request {
    /// Reads a request.
    pub fn from_json(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Writes a request.
    pub fn to_json(&self) -> Vec<u8> {
        let attributes = self.interface_attributes.as_ref();
        let attributes = attributes
            .map(|attributes| serde_json::to_value(attributes).expect("texts always serialise"));
        let env = self
            .env
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()));
        to_json(env, &self.config, attributes)
    }
}

/// A request from its parts, as the shim sends it; by hand, as the shim is small. Of a variable that comes twice the last one counts.
pub fn to_json(
    env: impl Iterator<Item = (String, String)>,
    config: &[u8],
    interface_attributes: Option<Value>,
) -> Vec<u8> {
    let env = env.map(|(key, value)| (key, Value::String(value)));
    let mut request = Map::new();
    request.insert("env".to_owned(), Value::Object(env.collect()));
    request.insert("config".to_owned(), Value::String(STANDARD.encode(config)));
    if let Some(attributes) = interface_attributes {
        request.insert("interfaceAttributes".to_owned(), attributes);
    }
    serde_json::to_vec(&Value::Object(request))
        .expect("JSON values have string keys and memory takes them")
}

impl Response {
    /// An answer that carries a result; it is raised to the newest version.
    pub fn new(result: CniResult) -> Self {
        Self {
            result: Some(CniResult {
                cni_version: cni::Version::LATEST.to_string(),
                ..result
            }),
        }
    }

    /// Reads an answer, with a result of whichever version: an older daemon is understood, too.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ConvertError> {
        let answer: Value = serde_json::from_slice(bytes)?;
        let result = answer.get("Result").filter(|result| !result.is_null());
        let result = result
            .map(|result| parse_value(result, Some(Version::LATEST)))
            .transpose()?;
        Ok(Self { result })
    }

    /// Writes an answer.
    pub fn to_json(&self) -> Vec<u8> {
        let result = self
            .result
            .as_ref()
            .map(|result| result_to(result, Version::LATEST));
        json!({"Result": result}).to_string().into_bytes()
    }
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_other_clients_send() {
        let text = r#"{"env":{"CNI_COMMAND":"ADD","CNI_CONTAINERID":"0f1e2d"},"config":"eyJuYW1lIjoibiJ9","interfaceAttributes":{"ips":["10.9.0.7/24"],"mac":"02:00:00:00:00:07","cni-args":{"k":"v"}}}"#;
        let request = Request::from_json(text.as_bytes()).unwrap();
        assert_eq!(request.env["CNI_COMMAND"], "ADD");
        assert_eq!(request.config, br#"{"name":"n"}"#);
        assert_eq!(
            request.interface_attributes.as_ref().unwrap().cni_args["k"],
            "v"
        );
        assert_eq!(String::from_utf8(request.to_json()).unwrap(), text);
    }

    #[test]
    fn a_request_may_leave_things_out() {
        assert_eq!(
            Request::from_json(br#"{"env":null,"config":null,"other":1}"#).unwrap(),
            Request::default()
        );
        assert!(Request::from_json(br#"{"config":"!"}"#).is_err());
    }

    #[test]
    fn an_answer_carries_the_newest_version() {
        let response = Response::new(CniResult {
            cni_version: "0.4.0".to_owned(),
            ..CniResult::default()
        });
        let text = r#"{"Result":{"cniVersion":"1.1.0","dns":{}}}"#;
        assert_eq!(String::from_utf8(response.to_json()).unwrap(), text);
        assert_eq!(Response::from_json(text.as_bytes()).unwrap(), response);
        assert_eq!(
            Response::from_json(br#"{"Result":null}"#).unwrap().result,
            None
        );
        assert_eq!(Response::from_json(b"{}").unwrap().result, None);
    }
}
