//! Splits the JSON of a list into its items while it arrives, so that the text of only one item is in memory at a time.
//!
//! The splitter understands only as much JSON as it needs to find the end of an item. Serde parses each item afterwards, and also the
//! envelope around them. Text that is not JSON becomes an error of one of the two.

/// More than any object: etcd stores no object beyond a few MiB.
const MAX_ITEM: usize = 16 << 20;
/// The limit for the list without its items.
const MAX_ENVELOPE: usize = 1 << 20;

/// The text of a list, as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct ListSplitter {
    /// Open braces and brackets.
    depth: u32,
    context: Context,
    /// Start and end of the last string at the envelope's own level.
    last_string: (usize, usize),
    /// Whether the next value belongs to the key `items`.
    is_items_next: bool,
    in_items: bool,
    item: Vec<u8>,
    envelope: Vec<u8>,
}

/// The context of the next byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Context {
    #[default]
    Structure,
    String,
    /// After a backslash in a string.
    Escape,
}

/// The text is not a list that the API server would send.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SplitError {
    #[error("the list ends in the middle")]
    Cut,
    #[error("an object of the list, or the list without its objects, is too long")]
    TooLong,
}

/// The depth of the list itself, and that of its items.
const ENVELOPE: u32 = 1;
const ITEMS: u32 = 2;

impl ListSplitter {
    /// Processes the next chunk and passes each item that ends in it to `handle`.
    pub(super) fn push<E: From<SplitError>>(
        &mut self,
        chunk: &[u8],
        mut handle: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = 0;
        for (index, &byte) in chunk.iter().enumerate() {
            match (self.context, byte) {
                (Context::Structure, _) => {}
                (Context::Escape, _) => {
                    self.context = Context::String;
                    continue;
                }
                (Context::String, b'\\') => {
                    self.context = Context::Escape;
                    continue;
                }
                (Context::String, b'"') => {
                    self.context = Context::Structure;
                    if self.depth == ENVELOPE {
                        self.last_string.1 = self.envelope.len() + index - from;
                    }
                    continue;
                }
                (Context::String, _) => continue,
            }
            match byte {
                b'"' => {
                    self.context = Context::String;
                    if self.depth == ENVELOPE {
                        self.last_string.0 = self.envelope.len() + index - from + 1;
                    }
                }
                b':' if self.depth == ENVELOPE => {
                    self.keep(&chunk[from..index])?;
                    from = index;
                    let (start, end) = self.last_string;
                    self.is_items_next = self.envelope.get(start..end) == Some(b"items");
                }
                b',' if self.depth == ENVELOPE => self.is_items_next = false,
                b'[' if self.depth == ENVELOPE && self.is_items_next => {
                    self.keep(&chunk[from..=index])?;
                    from = index + 1;
                    self.depth = ITEMS;
                    self.in_items = true;
                    self.is_items_next = false;
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.in_items && self.depth == ENVELOPE {
                        // Between items there are only commas and white space.
                        self.in_items = false;
                        self.item.clear();
                        from = index;
                    } else if self.in_items && self.depth == ITEMS {
                        self.keep(&chunk[from..=index])?;
                        from = index + 1;
                        let item = std::mem::take(&mut self.item);
                        let start = item.iter().position(|byte| !is_separator(*byte));
                        handle(&item[start.unwrap_or_default()..])?;
                        // The next item reuses the buffer.
                        self.item = item;
                        self.item.clear();
                    }
                }
                _ => {}
            }
        }
        Ok(self.keep(&chunk[from..])?)
    }

    /// Returns the envelope, which is the list without its items, once the list is complete.
    pub(super) fn finish(self) -> Result<Vec<u8>, SplitError> {
        if self.depth == 0 && self.context == Context::Structure && !self.envelope.is_empty() {
            Ok(self.envelope)
        } else {
            Err(SplitError::Cut)
        }
    }

    fn keep(&mut self, chunk: &[u8]) -> Result<(), SplitError> {
        let (to, max) = if self.in_items {
            (&mut self.item, MAX_ITEM)
        } else {
            (&mut self.envelope, MAX_ENVELOPE)
        };
        if to.len() + chunk.len() > max {
            return Err(SplitError::TooLong);
        }
        to.extend_from_slice(chunk);
        Ok(())
    }
}

fn is_separator(byte: u8) -> bool {
    byte == b',' || byte.is_ascii_whitespace()
}

/// Splits a watch into its lines.
#[derive(Debug, Default)]
pub(super) struct LineSplitter(Vec<u8>);

impl LineSplitter {
    /// Processes the next chunk and passes each line that ends in it to `handle`.
    pub(super) fn push<E: From<SplitError>>(
        &mut self,
        chunk: &[u8],
        mut handle: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = chunk;
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

    /// Splits a text that arrives in chunks of this size.
    fn split(text: &str, size: usize) -> Result<(Vec<String>, String), SplitError> {
        let mut splitter = ListSplitter::default();
        let mut items = Vec::new();
        for chunk in text.as_bytes().chunks(size) {
            splitter.push(chunk, |item| {
                items.push(String::from_utf8(item.to_vec()).unwrap());
                Ok::<_, SplitError>(())
            })?;
        }
        let envelope = splitter.finish()?;
        Ok((items, String::from_utf8(envelope).unwrap()))
    }

    fn check(text: &str, items: &[&str], envelope: &str) {
        for size in [1, 2, 3, 7, 16, 1000] {
            let (found, rest) = split(text, size).unwrap();
            assert_eq!(found, items, "{text} in chunks of {size}");
            assert_eq!(rest, envelope, "{text} in chunks of {size}");
        }
    }

    #[test]
    fn items_are_split_wherever_chunks_end() {
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
    fn text_that_ends_early_is_an_error() {
        for text in ["", "{", r#"{"items":[{}"#, r#"{"items":[{}]"#, r#"{"a":""#] {
            assert_eq!(split(text, 4), Err(SplitError::Cut), "{text}");
        }
    }

    #[test]
    fn invalid_text_does_not_panic() {
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
    fn too_long_items_and_lines_are_refused() {
        let mut splitter = ListSplitter::default();
        let nothing = |_: &[u8]| Ok::<_, SplitError>(());
        splitter.push(b"{\"items\":[{\"a\":\"", nothing).unwrap();
        let chunk = vec![b'x'; MAX_ITEM];
        assert_eq!(splitter.push(&chunk, nothing), Err(SplitError::TooLong));
        let mut lines = LineSplitter::default();
        lines.push(b"{", nothing).unwrap();
        assert_eq!(lines.push(&chunk, nothing), Err(SplitError::TooLong));
    }

    #[test]
    fn a_large_list_is_split_completely() {
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
    fn lines_are_split_wherever_chunks_end() {
        for size in 1..9 {
            let mut lines = LineSplitter::default();
            let mut found = Vec::new();
            for chunk in b"one\ntwo\n\nthree\nfo".chunks(size) {
                lines
                    .push(chunk, |line| {
                        found.push(String::from_utf8(line.to_vec()).unwrap());
                        Ok::<_, SplitError>(())
                    })
                    .unwrap();
            }
            assert_eq!(found, ["one", "two", "", "three"]);
        }
    }
}
