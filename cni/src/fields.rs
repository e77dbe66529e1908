//! Reading and writing fields of JSON objects by hand.
//!
//! The shim has a size budget on every node and architecture, and derived code for these few types costs tens of kilobytes of it.
//! As in Go, `null` and absence are read as the empty value, and empty values are not written.

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

/// A field has a value of another type than expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is not {expected}")]
pub struct FieldError {
    /// The name of the field.
    pub field: &'static str,
    /// The expected type, in words.
    pub expected: &'static str,
}

/// Returns the field, unless it is absent or `null`.
pub(crate) fn field<'a>(object: &'a Object, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|value| !value.is_null())
}

pub(crate) fn as_object<'a>(
    value: &'a Value,
    field: &'static str,
) -> Result<&'a Object, FieldError> {
    value.as_object().ok_or(FieldError {
        field,
        expected: "an object",
    })
}

pub(crate) fn text(object: &Object, name: &'static str) -> Result<String, FieldError> {
    match field(object, name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(FieldError {
            field: name,
            expected: "a string",
        }),
    }
}

pub(crate) fn number(object: &Object, name: &'static str) -> Result<Option<i64>, FieldError> {
    let wrong = FieldError {
        field: name,
        expected: "a whole number",
    };
    field(object, name)
        .map(|value| value.as_i64().ok_or(wrong))
        .transpose()
}

pub(crate) fn list<T>(
    object: &Object,
    name: &'static str,
    read: fn(&Value) -> Result<T, FieldError>,
) -> Result<Vec<T>, FieldError> {
    match field(object, name) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(read).collect(),
        Some(_) => Err(FieldError {
            field: name,
            expected: "an array",
        }),
    }
}

pub(crate) fn texts(object: &Object, name: &'static str) -> Result<Vec<String>, FieldError> {
    let text = |value: &Value| {
        value.as_str().map(ToOwned::to_owned).ok_or(FieldError {
            field: "an entry",
            expected: "a string",
        })
    };
    list(object, name, text)
}

pub(crate) fn put(object: &mut Object, name: &str, value: impl Into<Value>) {
    object.insert(name.to_owned(), value.into());
}

pub(crate) fn put_text(object: &mut Object, name: &str, text: &str) {
    if !text.is_empty() {
        put(object, name, text);
    }
}

pub(crate) fn put_number(object: &mut Object, name: &str, number: Option<i64>) {
    if let Some(number) = number {
        put(object, name, number);
    }
}

pub(crate) fn put_list(object: &mut Object, name: &str, list: Vec<Value>) {
    if !list.is_empty() {
        put(object, name, Value::Array(list));
    }
}

pub(crate) fn put_texts(object: &mut Object, name: &str, texts: &[String]) {
    put_list(
        object,
        name,
        texts
            .iter()
            .map(|text| Value::String(text.clone()))
            .collect(),
    );
}
