//! Looking keys up the way Go's decoder does: without regard to case, the last of several wins, `null` counts as absent.
//! It reads values only; nothing here changes a document.

use serde_json::{Map, Value};

/// What kind of value a key had to have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key \"{key}\" must be {expected}")]
pub struct WrongType {
    /// The key as this program spells it.
    pub key: String,
    /// What was expected there.
    pub expected: &'static str,
}

/// The value of `key`, in whatever case it was written.
pub use api::options::get;

/// A text; absent is empty.
pub fn text(map: &Map<String, Value>, key: &str) -> Result<String, WrongType> {
    match get(map, key) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(wrong(key, "a string")),
    }
}

/// A text that is `None` when absent or empty.
pub fn non_empty(map: &Map<String, Value>, key: &str) -> Result<Option<String>, WrongType> {
    Ok(Some(text(map, key)?).filter(|text| !text.is_empty()))
}

/// A switch; absent is off.
pub fn switch(map: &Map<String, Value>, key: &str) -> Result<bool, WrongType> {
    match get(map, key) {
        None => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(_) => Err(wrong(key, "true or false")),
    }
}

/// A switch that is `None` when absent.
pub fn decided(map: &Map<String, Value>, key: &str) -> Result<Option<bool>, WrongType> {
    get(map, key).map(|_| switch(map, key)).transpose()
}

/// A list of texts, `None` when absent.
pub fn texts(map: &Map<String, Value>, key: &str) -> Result<Option<Vec<String>>, WrongType> {
    let Some(value) = get(map, key) else {
        return Ok(None);
    };
    let items = value
        .as_array()
        .ok_or_else(|| wrong(key, "a list of strings"))?;
    items
        .iter()
        .map(|item| item.as_str().map(str::to_owned))
        .collect::<Option<Vec<_>>>()
        .map(Some)
        .ok_or_else(|| wrong(key, "a list of strings"))
}

/// An object, `None` when absent.
pub fn object<'a>(
    map: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a Map<String, Value>>, WrongType> {
    match get(map, key) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(wrong(key, "an object")),
    }
}

/// A list, `None` when absent.
pub fn list<'a>(
    map: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a Vec<Value>>, WrongType> {
    match get(map, key) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(wrong(key, "a list")),
    }
}

/// The error for `key`.
pub fn wrong(key: &str, expected: &'static str) -> WrongType {
    WrongType {
        key: key.to_owned(),
        expected,
    }
}
