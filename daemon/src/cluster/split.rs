//! Cuts the JSON of a list into its items while it arrives, so that no more than one of them is in memory as text.
//!
//! Only as much of JSON is understood as is needed to see where an item ends; each is read by serde afterwards, and so is what is
//! around them. Text that is no JSON ends in an error of one of the two.

/// More than any object: etcd keeps none beyond a few MiB.
const MAX_ITEM: usize = 16 << 20;
/// Everything in a list that is no item.
const MAX_ENVELOPE: usize = 1 << 20;

/// The text of a list, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    /// Open braces and brackets.
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    /// Where the last string of the envelope at its own level began and ended.
    last_string: (usize, usize),
    /// The value that comes is that of the key `items`.
    is_items_next: bool,
    in_items: bool,
    item: Vec<u8>,
    envelope: Vec<u8>,
}

/// The text is no list that the API server would send.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SplitError {
    #[error("the list ends in the middle")]
    Cut,
    #[error("an object or the list's own part is too long")]
    TooLong,
}

/// The level of the list itself, and that of its items.
const ENVELOPE: u32 = 1;
const ITEMS: u32 = 2;

impl Splitter {
    /// Takes the next piece; `handle` gets each item that ends in it.
    pub(super) fn push<E: From<SplitError>>(
        &mut self,
        piece: &[u8],
        mut handle: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = 0;
        for (index, &byte) in piece.iter().enumerate() {
            if self.in_string {
                if self.is_escaped {
                    self.is_escaped = false;
                } else if byte == b'\\' {
                    self.is_escaped = true;
                } else if byte == b'"' {
                    self.in_string = false;
                    if self.depth == ENVELOPE {
                        self.last_string.1 = self.envelope.len() + index - from;
                    }
                }
                continue;
            }
            match byte {
                b'"' => {
                    self.in_string = true;
                    if self.depth == ENVELOPE {
                        self.last_string.0 = self.envelope.len() + index - from + 1;
                    }
                }
                b':' if self.depth == ENVELOPE => {
                    self.keep(&piece[from..index])?;
                    from = index;
                    let (start, end) = self.last_string;
                    self.is_items_next = self.envelope.get(start..end) == Some(b"items");
                }
                b',' if self.depth == ENVELOPE => self.is_items_next = false,
                b'[' if self.depth == ENVELOPE && self.is_items_next => {
                    self.keep(&piece[from..=index])?;
                    from = index + 1;
                    self.depth = ITEMS;
                    self.in_items = true;
                    self.is_items_next = false;
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.in_items && self.depth == ENVELOPE {
                        // Between items there is nothing but commas and space.
                        self.in_items = false;
                        self.item.clear();
                        from = index;
                    } else if self.in_items && self.depth == ITEMS {
                        self.keep(&piece[from..=index])?;
                        from = index + 1;
                        let item = std::mem::take(&mut self.item);
                        let start = item.iter().position(|byte| !is_between(*byte));
                        handle(&item[start.unwrap_or_default()..])?;
                        // Its memory serves the next one.
                        self.item = item;
                        self.item.clear();
                    }
                }
                _ => {}
            }
        }
        Ok(self.keep(&piece[from..])?)
    }

    /// Returns the list without its items, once all of it has come.
    pub(super) fn finish(self) -> Result<Vec<u8>, SplitError> {
        if self.depth == 0 && !self.in_string && !self.envelope.is_empty() {
            Ok(self.envelope)
        } else {
            Err(SplitError::Cut)
        }
    }

    fn keep(&mut self, piece: &[u8]) -> Result<(), SplitError> {
        let (to, max) = if self.in_items {
            (&mut self.item, MAX_ITEM)
        } else {
            (&mut self.envelope, MAX_ENVELOPE)
        };
        if to.len() + piece.len() > max {
            return Err(SplitError::TooLong);
        }
        to.extend_from_slice(piece);
        Ok(())
    }
}

fn is_between(byte: u8) -> bool {
    byte == b',' || byte.is_ascii_whitespace()
}

/// Cuts a watch into its lines.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Takes the next piece; `handle` gets each line that ends in it.
    pub(super) fn push<E: From<SplitError>>(
        &mut self,
        piece: &[u8],
        mut handle: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = &after[1..];
            if self.0.is_empty() {
                handle(line)?;
            } else {
                self.0.extend_from_slice(line);
                let line = std::mem::take(&mut self.0);
                handle(&line)?;
            }
        }
        if self.0.len() + rest.len() > MAX_ITEM {
            return Err(SplitError::TooLong.into());
        }
        self.0.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Splits a text that comes in pieces of this size.
    fn split(text: &str, size: usize) -> Result<(Vec<String>, String), SplitError> {
        let mut splitter = Splitter::default();
        let mut items = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            splitter.push(piece, |item| {
                items.push(String::from_utf8(item.to_vec()).unwrap());
                Ok::<_, SplitError>(())
            })?;
        }
        let envelope = splitter.finish()?;
        Ok((items, String::from_utf8(envelope).unwrap()))
    }

    fn check(text: &str, items: &[&str], envelope: &str) {
        for size in [1, 2, 3, 7, 16, 1000] {
            let (found, around) = split(text, size).unwrap();
            assert_eq!(found, items, "{text} in pieces of {size}");
            assert_eq!(around, envelope, "{text} in pieces of {size}");
        }
    }

    #[test]
    fn items_are_cut_out_wherever_pieces_end() {
        check(
            r#"{"items":[{"a":1},{"b":[{}]}]}"#,
            &[r#"{"a":1}"#, r#"{"b":[{}]}"#],
            r#"{"items":[]}"#,
        );
        check(
            r#"{"kind":"List","metadata":{"items":[1]},"items": [ {"a":"}]\"[{"} , {} ] ,"more":7}"#,
            &[r#"{"a":"}]\"[{"}"#, "{}"],
            r#"{"kind":"List","metadata":{"items":[1]},"items": [] ,"more":7}"#,
        );
        check(
            r#"{"items":null,"x":[{}]}"#,
            &[],
            r#"{"items":null,"x":[{}]}"#,
        );
        check(r#"{"items":[]}"#, &[], r#"{"items":[]}"#);
        check(
            r#"{"a":"items","b":[{}]}"#,
            &[],
            r#"{"a":"items","b":[{}]}"#,
        );
        check(
            "{\"items\":[\n{\"ü\":\"\\\\\"}\n]}\n",
            &["{\"ü\":\"\\\\\"}"],
            "{\"items\":[]}\n",
        );
    }

    #[test]
    fn text_that_ends_early_is_no_list() {
        for text in ["", "{", r#"{"items":[{}"#, r#"{"items":[{}]"#, r#"{"a":""#] {
            assert_eq!(split(text, 4), Err(SplitError::Cut), "{text}");
        }
    }

    #[test]
    fn other_text_does_no_harm() {
        for text in [
            "]]]}",
            "no JSON",
            "[1,2]",
            "\"\"",
            "{]}[",
            "{\"items\":[7,\"x\",[]]}",
        ] {
            for size in [1, 3, 100] {
                let _ = split(text, size);
            }
        }
    }

    #[test]
    fn no_item_is_longer_than_any_object() {
        let mut splitter = Splitter::default();
        let nothing = |_: &[u8]| Ok::<_, SplitError>(());
        splitter.push(b"{\"items\":[{\"a\":\"", nothing).unwrap();
        let piece = vec![b'x'; MAX_ITEM];
        assert_eq!(splitter.push(&piece, nothing), Err(SplitError::TooLong));
        let mut lines = Lines::default();
        lines.push(b"{", nothing).unwrap();
        assert_eq!(lines.push(&piece, nothing), Err(SplitError::TooLong));
    }

    #[test]
    fn all_of_a_large_list_comes_through() {
        let items: Vec<Value> = (0..500)
            .map(|number| json!({"metadata": {"name": format!("pod-{number}"), "labels": {"a": "{\\"}}}))
            .collect();
        let text = json!({"metadata": {"resourceVersion": "7"}, "items": items}).to_string();
        let (found, envelope) = split(&text, 100).unwrap();
        let found: Vec<Value> = found
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        assert_eq!(found, items);
        let envelope: Value = serde_json::from_str(&envelope).unwrap();
        assert_eq!(envelope["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn lines_are_cut_wherever_pieces_end() {
        for size in 1..9 {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in b"one\ntwo\n\nthree\nfo".chunks(size) {
                lines
                    .push(piece, |line| {
                        found.push(String::from_utf8(line.to_vec()).unwrap());
                        Ok::<_, SplitError>(())
                    })
                    .unwrap();
            }
            assert_eq!(found, ["one", "two", "", "three"]);
        }
    }
}
