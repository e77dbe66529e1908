//! `CNI_ARGS`: `KEY=VALUE;KEY=VALUE`.
//!
//! Parsing is tolerant: order and duplicates are kept, a value may contain `=`, empty pieces (a trailing `;`) are skipped, and a
//! piece without `=` is a key with an empty value.

/// Splits the text into pairs of key and value.
pub fn parse(text: &str) -> Vec<(String, String)> {
    text.split(';')
        .filter(|piece| !piece.is_empty())
        .map(|piece| {
            let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
            (key.to_owned(), value.to_owned())
        })
        .collect()
}

/// Joins pairs into the text that [`parse`] reads.
pub fn format(pairs: &[(String, String)]) -> String {
    let pieces: Vec<_> = pairs
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pieces.join(";")
}

/// Returns the last value of a key; keys are case-sensitive.
pub fn get<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs
        .iter()
        .rev()
        .find(|(candidate, _)| candidate == key)
        .map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(parse(text), expected, "{text:?}");
    }

    #[test]
    fn parse_is_tolerant() {
        check("", &[]);
        check(";;", &[]);
        check("A=1;B=2;", &[("A", "1"), ("B", "2")]);
        check("A=x=y", &[("A", "x=y")]);
        check("A;B=", &[("A", ""), ("B", "")]);
        check("B=2;A=1;B=3", &[("B", "2"), ("A", "1"), ("B", "3")]);
        assert_eq!(get(&parse("B=2;A=1;B=3"), "B"), Some("3"));
        assert_eq!(get(&parse("B=2"), "b"), None);
    }

    #[test]
    fn format_keeps_order() {
        assert_eq!(
            format(&parse("IgnoreUnknown=1;K8S_POD_NAME=cart-0")),
            "IgnoreUnknown=1;K8S_POD_NAME=cart-0"
        );
    }
}
