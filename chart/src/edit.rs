//! Edits YAML of other publishers line by line, so that every other line stays as it is, comments included.
//!
//! The lines to change are found by their layout. The new text is then parsed and compared with the intended content, so an unusual layout ends in an
//! error and never in a wrong file.

use serde_yaml::{Mapping, Value};

/// The reasons why a file cannot be edited.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not text.
    #[error("is not UTF-8 text")]
    NotText,
    /// The file does not parse.
    #[error("does not parse")]
    Parse(#[source] serde_yaml::Error),
    /// The top level is not a mapping.
    #[error("is not a list of keys and values")]
    NotMapping,
    /// The lines of a key are not laid out as usual.
    #[error("has `{0}` in a form that cannot be changed line by line")]
    Layout(String),
}

/// A YAML file: its text and the parsed content.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    text: String,
    content: Mapping,
}

impl Document {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(bytes).map_err(|_| Error::NotText)?;
        let content = mapping(text)?;
        Ok(Self {
            text: text.to_owned(),
            content,
        })
    }

    pub(crate) fn content(&self) -> &Mapping {
        &self.content
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }

    /// Sets the value of a key; the value must be a scalar that needs no quotes.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let mut intended = self.content.clone();
        intended.insert(key.into(), value.into());
        let mut lines = self.lines();
        let block = block(&lines, key).ok_or_else(|| Error::Layout(key.to_owned()))?;
        let end = if lines[block.0].ends_with("\r\n") {
            "\r\n"
        } else {
            "\n"
        };
        let line = format!("{key}: {value}{end}");
        lines.splice(block.0..block.1, [line.as_str()]);
        self.replace(key, lines.concat(), intended)
    }

    /// Removes a key with everything below it, if the file has it.
    pub(crate) fn remove(&mut self, key: &str) -> Result<(), Error> {
        let mut intended = self.content.clone();
        if intended.shift_remove(key).is_none() {
            return Ok(());
        }
        let mut lines = self.lines();
        let (from, to) = block(&lines, key).ok_or_else(|| Error::Layout(key.to_owned()))?;
        let blanks = |lines: &mut dyn Iterator<Item = &&str>| {
            lines.take_while(|line| line.trim().is_empty()).count()
        };
        let after = blanks(&mut lines[to..].iter());
        let before = blanks(&mut lines[..from].iter().rev());
        // Of the blank lines before and after the key those on one side stay; at the end of the file none.
        let (from, to) = match () {
            () if to + after == lines.len() => (from - before, lines.len()),
            () if before > 0 || from == 0 => (from, to + after),
            () => (from, to),
        };
        lines.drain(from..to);
        self.replace(key, lines.concat(), intended)
    }

    /// Removes one item of a key's list; with the last item the key itself.
    pub(crate) fn remove_item(&mut self, key: &str, index: usize) -> Result<(), Error> {
        let unusual = || Error::Layout(key.to_owned());
        let mut intended = self.content.clone();
        let items = intended.get_mut(key).and_then(Value::as_sequence_mut);
        let items = items
            .filter(|items| index < items.len())
            .ok_or_else(unusual)?;
        if items.len() == 1 {
            return self.remove(key);
        }
        items.remove(index);
        let count = items.len() + 1;
        let mut lines = self.lines();
        let (from, to) = block(&lines, key).ok_or_else(unusual)?;
        let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
        let is_item = |line: &str| line.trim_start_matches(' ').starts_with("- ");
        let first = lines[from..to].iter().find(|line| is_item(line));
        let depth = indent(first.ok_or_else(unusual)?);
        let mut starts: Vec<_> = (from..to)
            .filter(|&at| is_item(lines[at]) && indent(lines[at]) == depth)
            .collect();
        if starts.len() != count {
            return Err(unusual());
        }
        starts.push(to);
        lines.drain(starts[index]..starts[index + 1]);
        self.replace(key, lines.concat(), intended)
    }

    fn lines(&self) -> Vec<&str> {
        self.text.split_inclusive('\n').collect()
    }

    /// Replaces the text when it parses to the intended content.
    fn replace(&mut self, key: &str, text: String, intended: Mapping) -> Result<(), Error> {
        let is_intended = mapping(&text).is_ok_and(|found| found == intended);
        if !is_intended {
            return Err(Error::Layout(key.to_owned()));
        }
        (self.text, self.content) = (text, intended);
        Ok(())
    }
}

fn mapping(text: &str) -> Result<Mapping, Error> {
    match serde_yaml::from_str(text).map_err(Error::Parse)? {
        Value::Mapping(mapping) => Ok(mapping),
        Value::Null => Ok(Mapping::new()),
        _ => Err(Error::NotMapping),
    }
}

/// Returns the range of lines of a top-level key: its own and those below it, without blank lines and comments after them.
fn block(lines: &[&str], key: &str) -> Option<(usize, usize)> {
    let names = [key.to_owned(), format!("\"{key}\""), format!("'{key}'")];
    let is_own = |line: &&str| {
        let rest = names.iter().find_map(|name| line.strip_prefix(name));
        rest.is_some_and(|rest| rest.trim_start_matches(' ').starts_with(':'))
    };
    let from = lines.iter().position(is_own)?;
    let mut to = from + 1;
    for (at, line) in lines.iter().enumerate().skip(from + 1) {
        let is_below = line.starts_with([' ', '\t']) || *line == "-\n" || line.starts_with("- ");
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if !is_below {
            break;
        }
        to = at + 1;
    }
    Some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, change: impl Fn(&mut Document) -> Result<(), Error>, expected: &str) {
        let mut document = Document::read(text.as_bytes()).unwrap();
        change(&mut document).unwrap();
        assert_eq!(String::from_utf8(document.into_bytes()).unwrap(), expected);
    }

    fn check_refused(text: &str, change: impl Fn(&mut Document) -> Result<(), Error>) {
        let mut document = Document::read(text.as_bytes()).unwrap();
        let error = change(&mut document).unwrap_err();
        assert!(matches!(error, Error::Layout(_)), "{error}");
        assert_eq!(document.into_bytes(), text.as_bytes());
    }

    #[test]
    fn setting_a_value_changes_one_key_in_place() {
        let text = "# first\nname: \"a\" # old\nx:\n  name: a\n";
        let expected = "# first\nname: b\nx:\n  name: a\n";
        check(text, |file| file.set("name", "b"), expected);
        check(
            "name: a\r\nx: y\r\n",
            |file| file.set("name", "b"),
            "name: b\r\nx: y\r\n",
        );
        check("name: a", |file| file.set("name", "b"), "name: b\n");
        check(
            "'name' : >\n  a\nx: y\n",
            |file| file.set("name", "b"),
            "name: b\nx: y\n",
        );
    }

    #[test]
    fn removing_a_key_removes_everything_below_it() {
        let remove = |file: &mut Document| file.remove("b");
        check(
            "a: 1\n\nb:\n  c: d # e\n  \n# of f\nf: 1\n",
            remove,
            "a: 1\n\n# of f\nf: 1\n",
        );
        check("a: 1\nb:\n- c\n- d\nf: 1\n", remove, "a: 1\nf: 1\n");
        check("a: 1\n\nb: {c: d}\n\n", remove, "a: 1\n");
        check("b: |\n  a: 1\n\n  b: 2\nbb: 3\n", remove, "bb: 3\n");
        check("a:\n  b: 1\n", remove, "a:\n  b: 1\n");
        check("b:\n  x: y\n# end\n", remove, "# end\n");
    }

    #[test]
    fn removing_an_item_leaves_the_others() {
        let text = "d:\n- name: a\n  x: y\n- name: b\n  list:\n  - c\n# of e\ne: f\n";
        let first = "d:\n- name: b\n  list:\n  - c\n# of e\ne: f\n";
        check(text, |file| file.remove_item("d", 0), first);
        let second = "d:\n- name: a\n  x: y\n# of e\ne: f\n";
        check(text, |file| file.remove_item("d", 1), second);
        let all = |file: &mut Document| {
            file.remove_item("d", 0)
                .and_then(|()| file.remove_item("d", 0))
        };
        check(text, all, "# of e\ne: f\n");
        check(
            "d:\n    - a\n    - b\n",
            |file| file.remove_item("d", 1),
            "d:\n    - a\n",
        );
    }

    #[test]
    fn unusual_layouts_are_refused() {
        check_refused("d: [a, b]\n", |file| file.remove_item("d", 0));
        check_refused("d: [a]\n", |file| file.remove_item("d", 1));
        check_refused("{a: 1, b: 2}\n", |file| file.remove("b"));
        check_refused("? b\n: 1\na: 2\n", |file| file.remove("b"));
        check_refused("b: &x 1\na: *x\n", |file| file.remove("b"));
        check_refused("a: 1\n", |file| file.set("a", "1"));
        check_refused("a: 1\n", |file| file.set("b", "x"));
        check_refused("a: x\n", |file| file.set("a", "y: z"));
    }

    #[test]
    fn files_without_a_mapping_are_refused() {
        for (bytes, expected) in [
            (&b"- a"[..], "is not a list of keys and values"),
            (b"\xff", "is not UTF-8 text"),
            (b"a: [", "does not parse"),
            (b"a: 1\na: 2\n", "does not parse"),
        ] {
            assert_eq!(Document::read(bytes).unwrap_err().to_string(), expected);
        }
    }
}
