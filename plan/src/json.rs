//! Looks keys up as Go's decoder does: the case of keys does not matter, the last of several keys wins, and `null` counts as absent.
//! Nothing here changes a document.

use serde_json::{Map, Value};

/// A key has a value of another type than expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key \"{key}\" must be {expected}")]
pub struct WrongType {
    /// The key as this program spells it.
    pub key: String,
    /// The expected type.
    pub expected: &'static str,
}

/// Returns the value of `key`, in whatever case the document spells it.
pub(crate) use api::options::get;

/// Returns a string, empty when the key is absent.
pub(crate) fn string(map: &Map<String, Value>, key: &str) -> Result<String, WrongType> {
    match get(map, key) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(wrong_type(key, "a string")),
    }
}

/// Returns a string, or `None` when it is absent or empty.
pub(crate) fn non_empty(map: &Map<String, Value>, key: &str) -> Result<Option<String>, WrongType> {
    Ok(Some(string(map, key)?).filter(|text| !text.is_empty()))
}

/// Returns a Boolean, `false` when the key is absent.
pub(crate) fn boolean(map: &Map<String, Value>, key: &str) -> Result<bool, WrongType> {
    match get(map, key) {
        None => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(_) => Err(wrong_type(key, "true or false")),
    }
}

/// Returns a Boolean, or `None` when the key is absent.
pub(crate) fn optional_boolean(
    map: &Map<String, Value>,
    key: &str,
) -> Result<Option<bool>, WrongType> {
    get(map, key).map(|_| boolean(map, key)).transpose()
}

/// Returns a list of strings, or `None` when the key is absent.
pub(crate) fn strings(
    map: &Map<String, Value>,
    key: &str,
) -> Result<Option<Vec<String>>, WrongType> {
    let Some(value) = get(map, key) else {
        return Ok(None);
    };
    let items = value
        .as_array()
        .ok_or_else(|| wrong_type(key, "a list of strings"))?;
    items
        .iter()
        .map(|item| item.as_str().map(str::to_owned))
        .collect::<Option<Vec<_>>>()
        .map(Some)
        .ok_or_else(|| wrong_type(key, "a list of strings"))
}

/// Returns an object, or `None` when the key is absent.
pub(crate) fn object<'a>(
    map: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a Map<String, Value>>, WrongType> {
    match get(map, key) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(wrong_type(key, "an object")),
    }
}

/// Returns a list, or `None` when the key is absent.
pub(crate) fn list<'a>(
    map: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a Vec<Value>>, WrongType> {
    match get(map, key) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(wrong_type(key, "a list")),
    }
}

/// Returns the error for a value of `key` with another type.
pub(crate) fn wrong_type(key: &str, expected: &'static str) -> WrongType {
    WrongType {
        key: key.to_owned(),
        expected,
    }
}
