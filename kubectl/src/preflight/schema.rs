//! Validates values against the chart's `values.schema.json`, as Helm does before it renders anything.
//! It supports the keywords that this schema uses and no others; a test fails when the schema gets a new one.
//! The crate `jsonschema`, with its engine of regular expressions, makes a program of 9.5 MB, and the budget is 8 MB.

use serde_json::{Map, Value};

use crate::suggest;

/// One value that would be refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ValueProblem {
    /// The keys of the value, joined by dots.
    pub(super) path: String,
    /// A sentence that says what is wrong, with a hint at its end.
    pub(super) text: String,
}

impl ValueProblem {
    pub(super) fn new(path: &str, text: String) -> Self {
        Self {
            path: path.to_owned(),
            text,
        }
    }
}

/// A regular expression, a function that matches the same texts, and a description of them.
type Pattern = (&'static str, fn(&str) -> bool, &'static str);

/// All patterns of the schema; a function for each makes a regular expression engine unnecessary.
const PATTERNS: &[Pattern] = &[
    ("^[0-9]+%$", is_percentage, "a number or a percentage"),
    (
        "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        is_name,
        "the name of an object: small letters, digits, - and ., with a letter or digit first and last",
    ),
    (
        "^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$",
        is_tag,
        "the tag of an image: letters, digits, _, . and -, with a letter, digit or _ first",
    ),
];

fn is_name(text: &str) -> bool {
    let is_end = |byte: Option<u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    is_end(text.bytes().next())
        && is_end(text.bytes().last())
        && text
            .bytes()
            .all(|byte| is_end(Some(byte)) || matches!(byte, b'-' | b'.'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().next().is_none_or(is_word)
        && text
            .bytes()
            .all(|byte| is_word(byte) || matches!(byte, b'-' | b'.'))
}

fn is_percentage(text: &str) -> bool {
    text.strip_suffix('%').is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Returns everything in `value` that the schema does not allow; `path` is that of the value.
pub(super) fn check(schema: &Value, value: &Value, path: &str) -> Vec<ValueProblem> {
    let mut problems = Vec::new();
    walk(schema, value, path, &mut problems);
    problems
}

fn walk(schema: &Value, value: &Value, path: &str, problems: &mut Vec<ValueProblem>) {
    let mut add = |text: String| problems.push(ValueProblem::new(path, text));
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<_> = allowed.iter().filter(|one| !is_empty(one)).collect();
        add(format!(
            "it is {value}, but must be one of {}",
            join(allowed)
        ));
        return;
    }
    let kinds = kinds(&schema["type"]);
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(kind, value)) {
        let kinds: Vec<_> = kinds.into_iter().filter(|kind| *kind != "null").collect();
        add(format!("it is {value}, but must be {}", kinds.join(" or ")));
        return;
    }
    for (keyword, is_out_of_bound, phrase) in [
        (
            "minimum",
            (|value, bound| value < bound) as fn(f64, f64) -> bool,
            "at least",
        ),
        ("maximum", |value, bound| value > bound, "at most"),
    ] {
        if let (Some(bound), Some(number)) = (schema[keyword].as_f64(), value.as_f64())
            && is_out_of_bound(number, bound)
        {
            add(format!("it is {value}, but must be {phrase} {bound}"));
        }
    }
    if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str()) {
        let known = PATTERNS.iter().find(|(known, ..)| *known == pattern);
        if let Some((_, matches, description)) = known
            && !matches(text)
        {
            add(format!("it is {value}, but must be {description}"));
        }
    }
    match value {
        Value::Object(map) => properties(schema, map, path, problems),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(
                    &schema["items"],
                    item,
                    &format!("{path}[{index}]"),
                    problems,
                );
            }
        }
        _ => {}
    }
}

fn properties(
    schema: &Value,
    map: &Map<String, Value>,
    path: &str,
    problems: &mut Vec<ValueProblem>,
) {
    let below = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    let known = schema["properties"].as_object();
    for (key, value) in map {
        if let Some(schema) = known.and_then(|known| known.get(key)) {
            walk(schema, value, &below(key), problems);
        } else if schema["additionalProperties"].is_object() {
            walk(
                &schema["additionalProperties"],
                value,
                &below(key),
                problems,
            );
        } else if schema["additionalProperties"] == false {
            let names = known.into_iter().flat_map(Map::keys).map(String::as_str);
            let hint = suggest::nearest(key, names)
                .map_or_else(String::new, |name| format!(": did you mean {name}?"));
            let text = format!("the chart does not have this value{hint}");
            problems.push(ValueProblem::new(&below(key), text));
        }
    }
    for key in schema["required"].as_array().into_iter().flatten() {
        let key = key.as_str().unwrap_or_default();
        if !map.contains_key(key) {
            let text = "it is required: set it, or leave it out to use the default";
            problems.push(ValueProblem::new(&below(key), text.to_owned()));
        }
    }
}

fn kinds(value: &Value) -> Vec<&str> {
    match value {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        // YAML may turn an integer into a float.
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

fn join(values: Vec<&Value>) -> String {
    let texts: Vec<_> = values.into_iter().map(Value::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEYWORDS: [&str; 12] = [
        "$schema",
        "additionalProperties",
        "default",
        "description",
        "enum",
        "items",
        "maximum",
        "minimum",
        "pattern",
        "properties",
        "required",
        "type",
    ];

    #[test]
    fn every_keyword_of_the_charts_schema_is_supported() {
        fn keywords(schema: &Value, unknown: &mut Vec<String>) {
            for (keyword, value) in schema.as_object().into_iter().flatten() {
                if !KEYWORDS.contains(&keyword.as_str()) {
                    unknown.push(keyword.clone());
                }
                match keyword.as_str() {
                    "properties" => {
                        for schema in value.as_object().unwrap().values() {
                            keywords(schema, unknown);
                        }
                    }
                    "items" => keywords(value, unknown),
                    "additionalProperties" if value.is_object() => keywords(value, unknown),
                    "pattern" => {
                        let mut known = PATTERNS.iter();
                        assert!(known.any(|(known, ..)| value == known), "{value}");
                    }
                    _ => {}
                }
            }
        }
        let schema: Value =
            serde_json::from_str(&chart::schema::values_schema(chart::VERSION)).unwrap();
        let mut unknown = Vec::new();
        keywords(&schema, &mut unknown);
        assert_eq!(unknown, [""; 0]);
    }

    #[test]
    fn each_keyword_is_applied() {
        let schema = json!({"type": "object", "additionalProperties": false, "required": ["kind"], "properties": {
            "kind": {"enum": ["a", "b", null]},
            "port": {"type": ["integer", "null"], "minimum": 1, "maximum": 10},
            "names": {"type": "array", "items": {"type": "string"}},
            "open": {"type": "object", "additionalProperties": true},
            "texts": {"type": "object", "additionalProperties": {"type": "string"}},
            "amount": {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+%$"},
        }});
        for (value, expected) in [
            (json!({"kind": "a", "port": 1.0, "open": {"x": 1}}), None),
            (json!({"kind": null, "port": null}), None),
            (json!({"port": 1}), Some(("kind", "is required"))),
            (
                json!({"kind": "c"}),
                Some(("kind", "must be one of \"a\", \"b\"")),
            ),
            (
                json!({"kind": "a", "port": 0}),
                Some(("port", "at least 1")),
            ),
            (
                json!({"kind": "a", "port": 11}),
                Some(("port", "at most 10")),
            ),
            (
                json!({"kind": "a", "port": 1.5}),
                Some(("port", "must be integer")),
            ),
            (
                json!({"kind": "a", "names": ["x", 1]}),
                Some(("names[1]", "must be string")),
            ),
            (
                json!({"kind": "a", "texts": {"b": "c"}, "amount": "10%"}),
                None,
            ),
            (
                json!({"kind": "a", "texts": {"b": 1}}),
                Some(("texts.b", "must be string")),
            ),
            (
                json!({"kind": "a", "amount": "half"}),
                Some(("amount", "a number or a percentage")),
            ),
            (
                json!({"kind": "a", "prot": 1}),
                Some(("prot", "does not have this value: did you mean port?")),
            ),
        ] {
            let found = check(&schema, &value, "");
            let Some((path, part)) = expected else {
                assert!(found.is_empty(), "{value}: {found:?}");
                continue;
            };
            assert_eq!(found.len(), 1, "{value}: {found:?}");
            assert_eq!(found[0].path, path);
            assert!(found[0].text.contains(part), "{found:?}");
        }
    }
}
