//! Writes `templates/_options.tpl`: the daemon's table of options and the names of our plugins for the templates, which refuse at
//! rendering what the daemon would refuse at its start.

use api::{
    options::OPTIONS,
    plugins::NAMES,
    rules::{self, Rule},
};
use serde_json::{Map, Value, json};

/// Returns a template named `multus.options` that renders a JSON object, the rule of each option by its name, and one named
/// `multus.plugins` that renders a list of names.
pub(crate) fn options_template() -> String {
    let options: Map<String, Value> = OPTIONS
        .iter()
        .map(|option| (option.name.to_owned(), rule(option.name)))
        .collect();
    format!(
        "{{{{- /* Made from the daemon's table of options. */ -}}}}\n{{{{- define \"multus.options\" -}}}}\n{}\n{{{{- end -}}}}\n{{{{- define \"multus.plugins\" -}}}}\n{}\n{{{{- end -}}}}\n",
        Value::Object(options),
        json!(NAMES)
    )
}

fn rule(name: &str) -> Value {
    match rules::find(name) {
        None => json!({}),
        Some(Rule::AbsolutePath) => json!({"path": true}),
        Some(Rule::Words(words)) => json!({"words": words}),
        Some(Rule::UpTo(u64::MAX)) => json!({"least": 1}),
        Some(Rule::UpTo(most)) => json!({"least": 1, "most": most}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_contains_the_table() {
        let text = options_template();
        let line = text.lines().nth(2).unwrap();
        let options: Map<String, Value> = serde_json::from_str(line).unwrap();
        assert_eq!(options.len(), OPTIONS.len());
        assert_eq!(options["metricsPort"], json!({"least": 1, "most": 65535}));
        assert_eq!(options["socketDir"], json!({"path": true}));
        assert!(!line.contains("{{"), "{line}");
    }
}
