//! Reads documents from files, directories and stdin: YAML with any number of documents in a file, and JSON.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;

/// The argument that means stdin.
const STDIN: &str = "-";
/// Extensions of the files that are read from a directory; a file that is named by itself may have any.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// One document of a source.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) location: Location,
    /// The parsed document, or the reason why it cannot be parsed.
    pub(crate) content: Result<Value, String>,
}

/// The file and the line where a document begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Location {
    pub(crate) file: String,
    /// Counted from 1; `None` for the whole file, as when it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// Reads all documents of all sources, in the order of the sources; files of a directory are sorted by name.
pub(crate) fn read(sources: &[String]) -> Vec<Document> {
    let mut documents = Vec::new();
    for source in sources {
        if source == STDIN {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            documents.extend(file_documents("stdin", read.map(|_| text)));
            continue;
        }
        for path in files(Path::new(source)) {
            let name = path.display().to_string();
            documents.extend(file_documents(&name, fs::read_to_string(&path)));
        }
    }
    documents
}

/// Returns the location of a source as a whole.
pub(crate) fn whole(source: &str) -> Location {
    let file = if source == STDIN { "stdin" } else { source };
    Location {
        file: file.to_owned(),
        line: None,
    }
}

/// Returns the path of a file, or all files below a directory that have an extension of manifests, without hidden files and links to directories.
fn files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = fs::read_dir(path) else {
        // Reading it as a file then reports the reason.
        return vec![path.to_owned()];
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let is_hidden = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| name.starts_with('.'))
    };
    let is_manifest = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
    };
    let mut found = Vec::new();
    for path in paths.into_iter().filter(|path| !is_hidden(path)) {
        if path.is_dir() && !path.is_symlink() {
            found.extend(files(&path));
        } else if is_manifest(&path) {
            found.push(path);
        }
    }
    found
}

fn file_documents(file: &str, text: io::Result<String>) -> Vec<Document> {
    let location = |line| Location {
        file: file.to_owned(),
        line: Some(line),
    };
    match text {
        Ok(text) => parse(&text)
            .into_iter()
            .map(|(line, content)| Document {
                location: location(line),
                content,
            })
            .collect(),
        Err(error) => vec![Document {
            location: whole(file),
            content: Err(format!("cannot be read: {error}")),
        }],
    }
}

/// Parses the documents of a text, each with the line where it begins; empty documents are left out.
fn parse(text: &str) -> Vec<(usize, Result<Value, String>)> {
    // Some editors begin a file with a mark of its encoding.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with(['{', '[']) && !text.contains("\n---") {
        return parse_json(text);
    }
    let mut documents = Vec::new();
    for (first, part) in parts(text) {
        // For a reader the document begins at its first line that is neither blank nor a comment.
        let is_content = |line: &str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let Some(skipped) = part.lines().position(is_content) else {
            continue;
        };
        match serde_yaml::from_str::<Value>(&part) {
            Ok(Value::Null) => {}
            Ok(value) => documents.push((first + skipped, Ok(value))),
            Err(_) => documents.push(yaml_error(first, &part, first + skipped)),
        }
    }
    documents
}

/// Returns why a part cannot be parsed, with the lines of the whole text, and the line of the finding: that of a tab, or else `begin`.
fn yaml_error(first: usize, part: &str, begin: usize) -> (usize, Result<Value, String>) {
    // The parser counts the lines before the part as well.
    let text = "\n".repeat(first - 1) + part;
    let Err(error) = serde_yaml::from_str::<Value>(&text) else {
        return (begin, Err("is not valid YAML".to_owned()));
    };
    let is_tabbed = |line: &&str| line.trim_start_matches(' ').starts_with('\t');
    let place = error.location().map(|place| place.line());
    let tabbed = place.filter(|line| text.lines().nth(line - 1).as_ref().is_some_and(is_tabbed));
    match tabbed {
        Some(line) => {
            let reason = "YAML must not be indented with tabs: use spaces";
            (line, Err(reason.to_owned()))
        }
        None => (begin, Err(format!("is not valid YAML: {error}"))),
    }
}

/// Splits a text at lines of `---`; each part has the number of its first line.
fn parts(text: &str) -> Vec<(usize, String)> {
    let mut parts = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        let is_end = line == "---" || line.starts_with("--- ") || line.starts_with("---\t");
        if is_end {
            // The rest of the line belongs to the document.
            let rest = line.trim_start_matches("---").trim_start();
            let rest = if rest.starts_with('#') { "" } else { rest };
            parts.push((index + 1, format!("{rest}\n")));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    parts
}

/// Parses one or more JSON values; each item of an array is a document.
fn parse_json(text: &str) -> Vec<(usize, Result<Value, String>)> {
    let mut documents = Vec::new();
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    loop {
        let before = &text[..stream.byte_offset()];
        let blanks = text[before.len()..]
            .chars()
            .take_while(|c| c.is_whitespace());
        let line = 1 + before.matches('\n').count() + blanks.filter(|c| *c == '\n').count();
        match stream.next() {
            None => return documents,
            Some(Ok(Value::Array(values))) => {
                documents.extend(values.into_iter().map(|value| (line, Ok(value))));
            }
            Some(Ok(value)) => documents.push((line, Ok(value))),
            Some(Err(error)) => {
                documents.push((line, Err(format!("is not valid JSON: {error}"))));
                return documents;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(usize, Value)]) {
        let found: Vec<_> = parse(text)
            .into_iter()
            .map(|(line, content)| (line, content.unwrap()))
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn each_document_has_the_line_where_it_begins() {
        check("a: 1\n", &[(1, json!({"a": 1}))]);
        check(
            "# one\n---\n\n# two\na: 1\n---\n---\nb: |\n  {\n  --- \n  }\n--- # end\nc: [1]\n...\n",
            &[
                (5, json!({"a": 1})),
                (8, json!({"b": "{\n--- \n}\n"})),
                (13, json!({"c": [1]})),
            ],
        );
        check("", &[]);
        check("---\n# nothing\n---\n", &[]);
    }

    #[test]
    fn json_values_and_arrays_are_documents() {
        check("{\"a\":\t1}", &[(1, json!({"a": 1}))]);
        check(
            "{\"a\": 1}\n\n{\"b\": 2}\n",
            &[(1, json!({"a": 1})), (3, json!({"b": 2}))],
        );
        check(
            "[{\"a\": 1}, {\"b\": 2}]",
            &[(1, json!({"a": 1})), (1, json!({"b": 2}))],
        );
        check(
            "{\"a\": 1}\n---\n{\"b\": 2}\n",
            &[(1, json!({"a": 1})), (3, json!({"b": 2}))],
        );
    }

    #[test]
    fn invalid_documents_are_reported_and_the_others_are_read() {
        let found = parse("a: [\n---\nb: 1\n");
        assert!(found[0].1.as_ref().unwrap_err().contains("not valid YAML"));
        assert_eq!(found[1].1, Ok(json!({"b": 1})));
        let found = parse("{\"a\": 1}\n{,}");
        assert_eq!(found[1].0, 2);
        assert!(found[1].1.as_ref().unwrap_err().contains("not valid JSON"));
    }

    #[test]
    fn lines_of_errors_are_those_of_the_file() {
        let error = |text: &str| {
            let mut found = parse(text);
            let (line, content) = found.pop().unwrap();
            (line, content.unwrap_err())
        };
        let (line, text) = error("a: 1\n---\n# b\nb: [\nc: 1\n");
        assert_eq!(line, 4);
        assert!(text.contains("at line 4 column 4"), "{text}");
        let tabs = "YAML must not be indented with tabs: use spaces".to_owned();
        assert_eq!(error("a: 1\n---\nb:\n\tc: 1\n"), (4, tabs.clone()));
        assert_eq!(error("a:\n  b: 1\n  \tc: 1\n"), (3, tabs.clone()));
        assert_eq!(error("a: |\n\t{}\n"), (2, tabs));
    }

    #[test]
    fn mark_of_an_encoding_is_skipped() {
        check("\u{feff}a: 1\n", &[(1, json!({"a": 1}))]);
        check(
            "\u{feff}{\"a\": 1}\n{\"b\": 2}\n",
            &[(1, json!({"a": 1})), (2, json!({"b": 2}))],
        );
    }

    #[test]
    fn manifests_are_read_from_all_levels_of_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sub")).unwrap();
        fs::create_dir_all(dir.path().join(".git")).unwrap();
        for name in ["b.yaml", "sub/a.json", "README.md", ".git/c.yaml", "a.yml"] {
            fs::write(dir.path().join(name), "{\"kind\": \"x\"}").unwrap();
        }
        let documents = read(&[dir.path().display().to_string()]);
        let names: Vec<_> = documents
            .iter()
            .map(|one| {
                let path = Path::new(&one.location.file)
                    .strip_prefix(dir.path())
                    .unwrap();
                path.display().to_string()
            })
            .collect();
        assert_eq!(names, ["a.yml", "b.yaml", "sub/a.json"]);
        let absent = read(&["/no/such.yaml".to_owned()]);
        assert_eq!(absent[0].location.to_string(), "/no/such.yaml");
        assert!(
            absent[0]
                .content
                .as_ref()
                .unwrap_err()
                .contains("cannot be read")
        );
    }
}
