//! Quotes what a pod's author wrote: a text of limited length in one line, whatever it contains.

use std::fmt::Write as _;

/// The most characters of a quoted text.
const LIMIT: usize = 100;

/// Returns a text with escapes for what a terminal or a log would not show as written, cut to a limited length.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars().take(LIMIT) {
        if character == '\'' {
            out.push(character);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", character.escape_debug());
        }
    }
    if text.chars().nth(LIMIT).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_short_and_in_one_line() {
        assert_eq!(quoted("it's ä"), "it's ä");
        assert_eq!(quoted("a\nb\u{1b}[1m\u{202e}"), r"a\nb\u{1b}[1m\u{202e}");
        assert_eq!(quoted(&"x".repeat(100)), "x".repeat(100));
        assert_eq!(quoted(&"x".repeat(200_000)), "x".repeat(100) + "…");
    }
}
