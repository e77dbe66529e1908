//! The dictionary of a target: the words of its corpus, which libFuzzer inserts.

use std::collections::BTreeSet;

/// Words that are shorter or longer are not worth an entry.
const LENGTHS: std::ops::RangeInclusive<usize> = 2..=32;
/// More words than any grammar has.
const MOST: usize = 400;

/// Returns the dictionary in libFuzzer's form: the words of the texts, and what stands between them.
pub(super) fn of<'a>(corpus: impl Iterator<Item = &'a [u8]>) -> String {
    let mut words = BTreeSet::new();
    for text in corpus.filter_map(|bytes| str::from_utf8(bytes).ok()) {
        let is_word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        let parts = text.split(|c| !is_word(c)).chain(text.split(is_word));
        words.extend(
            parts
                .map(str::trim)
                .filter(|part| LENGTHS.contains(&part.len())),
        );
    }
    let lines = words.into_iter().take(MOST).map(|word| {
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
        let escaped = word.bytes().map(|byte| match byte {
            byte if plain(byte) => char::from(byte).to_string(),
            byte => format!("\\x{byte:02x}"),
        });
        format!("\"{}\"\n", escaped.collect::<String>())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_what_is_between_them_are_entries() {
        let corpus: [&[u8]; 3] = [b"{\"name\": \"a\"}", b"name: 1.0\n- x", b"\xff\xfe"];
        let text = of(corpus.into_iter());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                r#""\x22:\x20\x22""#,
                r#""\x22}""#,
                r#""1.0""#,
                r#""name""#,
                r#""{\x22""#
            ]
        );
    }
}
