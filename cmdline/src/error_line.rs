//! Formats an error of a third-party type in one line. Such types name what failed and leave the reason to their sources; our own types
//! include it.

use std::error::Error;

/// Returns the error and its causes, outermost first. A cause that the text contains already is not repeated.
pub fn error_line(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    let mut line = String::new();
    for text in chain.map(|error| error.to_string().replace('\n', " ")) {
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(texts: &[&'static str], expected: &str) {
        let mut texts = texts.iter().rev();
        let innermost = anyhow::anyhow!(*texts.next().unwrap());
        let error = texts.fold(innermost, |error, text| error.context(*text));
        assert_eq!(error_line(error.as_ref()), expected);
    }

    #[test]
    fn every_cause_is_named_once() {
        check(&["refused"], "refused");
        check(&["list", "client", "refused"], "list: client: refused");
        check(
            &["list: client", "client", "refused"],
            "list: client: refused",
        );
        check(&["two\nlines", "refused"], "two lines: refused");
    }
}
