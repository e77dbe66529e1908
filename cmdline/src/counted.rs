//! Numbers with their nouns.

use std::fmt::Display;

/// Returns a number with its English noun, in the plural unless it is 1.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    if count == "1" {
        return format!("{count} {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{count} {stem}ies"),
        _ if noun.ends_with(['s', 'x']) => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        for (count, noun, expected) in [
            (1, "image", "1 image"),
            (0, "image", "0 images"),
            (11, "image", "11 images"),
            (1, "entry", "1 entry"),
            (2, "entry", "2 entries"),
            (2, "key", "2 keys"),
            (2, "address", "2 addresses"),
        ] {
            assert_eq!(counted(count, noun), expected);
        }
    }
}
