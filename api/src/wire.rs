//! Requests and responses on the socket, as JSON.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cni::convert::{ConvertError, parse_value, result_to};
use cni::{CniResult, Version};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// The request of one verb, to `/cni` or `/delegate`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The variables `CNI_*` of the shim as the runtime started it; others are not used.
    #[serde(default, deserialize_with = "or_default")]
    pub env: BTreeMap<String, String>,
    /// The shim's stdin; base64 on the wire.
    #[serde(default, deserialize_with = "from_base64")]
    pub config: Vec<u8>,
    /// Requested attributes of the one interface of a hot plug; only `/delegate` uses them.
    #[serde(default)]
    pub interface_attributes: Option<InterfaceAttributes>,
}

/// Requested attributes of one interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InterfaceAttributes {
    /// The IP addresses, each with a prefix length.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ips: Vec<String>,
    /// The hardware address.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub mac: String,
    /// Keys to merge into `args.cni` of the configuration.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Map::is_empty"
    )]
    pub cni_args: Map<String, Value>,
}

/// The response to ADD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The result, in the newest version.
    pub result: Option<CniResult>,
}

impl Request {
    /// Reads a request; unknown keys are ignored.
    pub fn from_json(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Returns the request as JSON.
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

/// Returns a request as JSON from its parts. It is built by hand to keep the shim small. Of a variable that occurs twice the last
/// value counts.
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
    /// A response with this result, converted to the newest version.
    pub fn new(result: CniResult) -> Self {
        Self {
            result: Some(CniResult {
                cni_version: cni::Version::LATEST.to_string(),
                ..result
            }),
        }
    }

    /// Reads a response with a result of any version, since the daemon may be older than the shim.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ConvertError> {
        let response: Value = serde_json::from_slice(bytes)?;
        let result = response.get("Result").filter(|result| !result.is_null());
        let result = result
            .map(|result| parse_value(result, Some(Version::LATEST)))
            .transpose()?;
        Ok(Self { result })
    }

    /// Returns the response as JSON.
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
    fn request_has_the_form_of_other_clients() {
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
    fn missing_fields_are_empty() {
        assert_eq!(
            Request::from_json(br#"{"env":null,"config":null,"other":1}"#).unwrap(),
            Request::default()
        );
        assert!(Request::from_json(br#"{"config":"!"}"#).is_err());
    }

    #[test]
    fn response_has_the_newest_version() {
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
