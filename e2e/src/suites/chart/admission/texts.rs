//! Sound and broken texts of network definitions.

use serde_json::{Value, json};

/// A trailing comma, the most common mistake.
pub(super) const BROKEN: &str = r#"{"cniVersion": "1.0.0", "type": "bridge",}"#;

/// Sound texts, one for each construct that the policy could get wrong.
pub(super) const ACCEPTED: &[&str] = &[
    r#"{"cniVersion":"1.0.0","type":"bridge","bridge":"br-storage","ipam":{"type":"host-local","ranges":[[{"subnet":"10.20.0.0/24"}]]}}"#,
    "",
    " \n\t",
    r#"{"type":"a"}"#,
    "\n  {\n\t\"cniVersion\" :\n\"0.3.1\",\r\n \"type\" : \"a\" }\n\n",
    r#"{"cniVersion":"","type":"a"}"#,
    r#"{"type":"a","b":[],"c":{},"d":[{}],"e":[[],[[]]],"f":null,"g":[true,false,null,-1.5e+10,0,0.25,"x"]}"#,
    r#"{"type":"a","text":"{[\"type\": }], 'x' \\ \/ \u00e9 ü 日本 : , \"cniVersion\":\"9\""}"#,
    r#"{"type":"a","plugins":"not a list","l":{"plugins":[{"type":"x"}]},"t":{"type":"y"}}"#,
    r#"{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"a","type2":{}},{"x":1,"type":"b","capabilities":{"mac":true}}]}"#,
    r#"{"plugins":[{"type":"a"}]}"#,
    r#"{"disableCheck":true,"plugins":[{"plugins":[],"type":"a"}],"x":[{"y":{"z":[1,2,{"type":3}]}}]}"#,
    r#"{"type":"plugins","plugins":"type","":"","k":""}"#,
    r#"{"ty\u0070e":"a"}"#,
];

/// Broken texts, with a part of the error.
pub(super) const REFUSED: &[(&str, &str)] = &[
    (BROKEN, "not valid JSON"),
    (r#"{"type":"a""#, "not valid JSON"),
    (r#""type":"a"}"#, "not valid JSON"),
    (r#"{"type":"a"}}"#, "not valid JSON"),
    (r#"{"type":"a"} {"type":"b"}"#, "not valid JSON"),
    (r#"{"type":"a" "b":1}"#, "not valid JSON"),
    (r#"{"type" "a"}"#, "not valid JSON"),
    (r#"{"type":"a","b"}"#, "not valid JSON"),
    (r#"{"type":"a","b":{},"c"}"#, "not valid JSON"),
    (r#"{"type":"a","b":[1,]}"#, "not valid JSON"),
    (r#"{"type":"a","b":[1 2]}"#, "not valid JSON"),
    (r#"{"type":"a","b":["c":1]}"#, "not valid JSON"),
    (r#"{"type":"a","b":[{"type":"c"},"d":1]}"#, "not valid JSON"),
    (r#"{"type":"a","b":(1)}"#, "not valid JSON"),
    (r#"{"type":"a",1:2}"#, "not valid JSON"),
    (r#"{"type":"a","b":01}"#, "not valid JSON"),
    (r#"{"type":"a","b":.5}"#, "not valid JSON"),
    (r#"{"type":"a","b":True}"#, "not valid JSON"),
    (r#"{"type":"a","b":"c\d"}"#, "not valid JSON"),
    ("{\"type\":\"a\",\"b\":\"line\nbreak\"}", "not valid JSON"),
    ("{'type':'a'}", "not valid JSON"),
    ("{type: a}", "not valid JSON"),
    ("type: a", "not valid JSON"),
    (r#"{"type":"a"} // why"#, "not valid JSON"),
    ("{\"type\":\"a\",\u{a0}\"b\":1}", "not valid JSON"),
    (r#"[{"type":"a"}]"#, "not an object"),
    (r#""type""#, "not an object"),
    ("null", "not an object"),
    ("{}", "names no plugin"),
    (
        r#"{"cniVersion":"1.0.0","ipam":{"type":"host-local"}}"#,
        "names no plugin",
    ),
    (r#"{"type":""}"#, "names no plugin"),
    (r#"{"type":1}"#, "names no plugin"),
    (r#"{"Type":"a"}"#, "names no plugin"),
    (r#"{"plugins":[]}"#, "names no plugin"),
    (r#"{"plugins":{"type":"a"}}"#, "names no plugin"),
    (
        r#"{"plugins":[{"type":"a"},{"ipam":{"type":"b"}}]}"#,
        "names no plugin",
    ),
    (r#"{"plugins":[{"type":"a"},"b"]}"#, "names no plugin"),
    (r#"{"plugins":[[{"type":"a"}]]}"#, "names no plugin"),
    (r#"{"x":{"plugins":[{"type":"a"}]}}"#, "names no plugin"),
    (
        r#"{"cniVersion":"9.0.0","type":"a"}"#,
        "\"9.0.0\", which does not exist: write one of 0.1.0",
    ),
    (
        r#"{"cniVersion": "1.0","type":"a"}"#,
        "which does not exist",
    ),
    (
        r#"{"cniVersion":"1.0.0 ","type":"a"}"#,
        "which does not exist",
    ),
];

/// Sound texts to which characters are added, and from which some are removed.
pub(super) const TO_BREAK: &[&str] = &[
    r#"{"cniVersion":"1.0.0","type":"bridge","vlan":[10, -2.5e3],"ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/8"}]]}}"#,
    r#"{"cniVersion":"0.4.0","name":"n","plugins":[{"type":"a","mtu":1500},{"type":"tuning","sysctl":{"k":"v\n"},"on":true}]}"#,
];

/// Returns variants of the text: without each of its characters, and with further ones at each position.
pub(super) fn broken(text: &str) -> impl Iterator<Item = String> {
    let less = (0..text.len()).map(|at| format!("{}{}", &text[..at], &text[at + 1..]));
    let more = (0..=text.len()).flat_map(move |at| {
        ["{", "}", "[", "]", ",", ":", "\"", "\\", "0", "null"]
            .into_iter()
            .map(move |part| format!("{}{part}{}", &text[..at], &text[at..]))
    });
    less.chain(more)
}

/// Returns a text that is nested deeper than the policy checks.
pub(super) fn deep() -> String {
    let value = (0..40).fold(json!(1), |value, level| {
        if level % 2 == 0 {
            json!([value, 2])
        } else {
            json!({"a": value, "type": "b"})
        }
    });
    json!({"type": "a", "b": value}).to_string()
}

/// Returns a text with a thousand ranges, as a generator writes it.
pub(super) fn large() -> String {
    let range = |number: u32| json!([{"subnet": format!("10.{}.{}.0/24", number / 256, number % 256), "exclude": []}]);
    let ranges: Vec<Value> = (0..1000).map(range).collect();
    json!({"cniVersion": "1.0.0", "plugins": [{"type": "a", "ipam": {"type": "b", "ranges": ranges}}]}).to_string()
}
