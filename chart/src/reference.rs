//! The reference of all values in the chart's README. Its test generates it from the tables of values and options.

use std::fmt::Write as _;

use api::options::{OPTIONS, Scope};

use crate::values::{VALUES, WITHOUT_EFFECT};

/// The line before the generated part of the README.
const BEGIN: &str = "<!-- generated from the tables of values and options: begin -->\n";
/// The line after the generated part.
const END: &str = "<!-- end -->\n";

/// Returns the tables as markdown.
fn reference() -> String {
    let mut text = String::from("| value | default | |\n|---|---|---|\n");
    // Writing to a string cannot fail.
    for row in VALUES.iter().filter(|row| !row.is_group()) {
        let default = row.default.map(code).unwrap_or_default();
        let _ = writeln!(text, "| `{}` | {default} | {} |", row.path, row.doc);
    }
    let without_effect: Vec<String> = WITHOUT_EFFECT.iter().map(|path| code(path)).collect();
    let _ = writeln!(
        text,
        "\nThese keys of published charts are accepted and have no effect: {}.",
        without_effect.join(", ")
    );
    text.push_str(
        "\nKeys of `config.daemon_conf`; any other key is passed to the network configuration.\n\n",
    );
    text.push_str("| key | default | of | |\n|---|---|---|---|\n");
    for option in OPTIONS {
        let default = option.default.map(code).unwrap_or_default();
        let scope = match option.scope {
            Scope::Netconf => "network",
            Scope::Daemon => "daemon",
            Scope::Both => "both",
        };
        let _ = writeln!(
            text,
            "| `{}` | {default} | {scope} | {} |",
            option.name, option.doc
        );
    }
    text
}

/// Formats code in a cell, where a bar has to be escaped.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_the_current_reference() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/template/main/README.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (head, rest) = text.split_once(BEGIN).unwrap();
        let (found, tail) = rest.split_once(END).unwrap();
        let expected = reference();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, format!("{head}{BEGIN}{expected}{END}{tail}")).unwrap();
            return;
        }
        assert_eq!(
            found, expected,
            "UPDATE_EXPECT=1 cargo test -p chart updates it"
        );
    }
}
