//! The reference of all values in the chart's README, made from the same tables as the schema.

use std::fmt::Write as _;

use api::options::{OPTIONS, Scope};

use crate::values::{Kind, VALUES};

/// Before the part of the README that is made.
pub const BEGIN: &str = "<!-- made from the tables of values and options: begin -->\n";
/// After it.
pub const END: &str = "<!-- end -->\n";

/// The tables as markdown.
pub fn reference() -> String {
    let mut text = String::from("| value | default | |\n|---|---|---|\n");
    // Writing to a string cannot fail.
    for row in VALUES
        .iter()
        .filter(|row| !row.is_group() && row.doc != "No effect.")
    {
        let default = row.default.map(code).unwrap_or_default();
        let _ = writeln!(text, "| `{}` | {default} | {} |", row.path, row.doc);
    }
    let foreign = VALUES
        .iter()
        .filter(|row| row.kind == Kind::Anything && row.doc == "No effect.")
        .filter_map(|row| row.path.split_once('.'));
    let keys: Vec<String> = foreign.map(|(_, key)| format!("`{key}`")).collect();
    let _ = writeln!(
        text,
        "\nAccepted below `rke2-whereabouts` and without effect: {}.",
        keys.join(", ")
    );
    text.push_str(
        "\nKeys of `config.daemon_conf`; any other is handed to the network configuration.\n\n",
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

/// Bars would end a cell.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_it() {
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
            "UPDATE_EXPECT=1 cargo test -p chart writes it"
        );
    }
}
