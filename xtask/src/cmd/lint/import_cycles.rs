//! Finds top-level modules of a crate that import each other in a cycle. A function over the texts of files.
//!
//! Test code does not count: modules and blocks under `#[cfg(test)]`. Neither does the crate's root, which declares every module; what
//! it re-exports counts as the module that it comes from.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
};

/// Returns a complaint about every cycle.
pub(super) fn complaints<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<Source>> = BTreeMap::new();
    for (path, text) in files {
        if let Some((name, source)) = Source::read(path, text) {
            crates.entry(name).or_default().push(source);
        }
    }
    let in_crate = |(name, sources): (&&str, &Vec<Source>)| {
        let cycles = cycles(&edges(sources));
        let complaints: Vec<_> = cycles.iter().map(|cycle| describe(name, cycle)).collect();
        complaints
    };
    crates.iter().flat_map(in_crate).collect()
}

/// A file of a crate, without comments, texts and test code.
struct Source {
    path: String,
    /// The names of its module and those above it; empty for the crate's root.
    module: Vec<String>,
    code: String,
    /// Modules below that only tests have.
    test_modules: Vec<String>,
}

impl Source {
    /// Returns the file with the name of its crate, or `None` for tests and for what is not a source file of a crate.
    fn read<'a>(path: &'a str, text: &str) -> Option<(&'a str, Self)> {
        let (name, below) = path.split_once("/src/")?;
        // A test module under another name of its file (`#[path]`) is recognised by that name.
        let below = below
            .strip_suffix(".rs")
            .filter(|below| !below.ends_with("_tests"))?;
        let mut module: Vec<String> = below.split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| last == "mod")
            || matches!(below, "lib" | "main" | "build")
        {
            module.pop();
        }
        let mut source = Self {
            path: path.to_owned(),
            module,
            code: without_texts(text),
            test_modules: Vec::new(),
        };
        source.remove_tests();
        Some((name, source))
    }

    /// Blanks every item under `#[cfg(test)]`, and notes the modules among them.
    fn remove_tests(&mut self) {
        const ATTRIBUTE: &str = "#[cfg(test)]";
        while let Some(start) = self.code.find(ATTRIBUTE) {
            let rest = &self.code[start + ATTRIBUTE.len()..];
            let end = start + ATTRIBUTE.len() + item_length(rest);
            let item = &self.code[start + ATTRIBUTE.len()..end];
            if let Some(module) = item.trim_end().strip_suffix(';')
                && let Some((_, name)) = module.rsplit_once("mod ")
            {
                self.test_modules.push(name.trim().to_owned());
            }
            let blank = self.code[start..end]
                .chars()
                .map(|c| if c == '\n' { '\n' } else { ' ' });
            let blank: String = blank.collect();
            self.code.replace_range(start..end, &blank);
        }
    }

    /// Returns the paths from the crate's root that the code names, each with its line.
    fn imports(&self) -> Vec<(Vec<String>, usize)> {
        let mut found = Vec::new();
        for start in ["crate::", "super::", "self::"] {
            for (at, _) in self.code.match_indices(start) {
                let is_whole = !self.code[..at].ends_with(|c: char| is_ident(c) || c == ':');
                if !is_whole {
                    continue;
                }
                let mut base = match start {
                    "crate::" => Vec::new(),
                    _ => self.module.clone(),
                };
                let mut rest = &self.code[at..];
                while let Some(further) = rest.strip_prefix("super::") {
                    base.pop();
                    rest = further;
                }
                for prefix in ["crate::", "self::"] {
                    rest = rest.strip_prefix(prefix).unwrap_or(rest);
                }
                let line = self.code[..at].matches('\n').count();
                for path in paths(rest) {
                    found.push(([base.clone(), path].concat(), line));
                }
            }
        }
        found
    }
}

/// Which module imports which, with the file and line of one such import.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

fn edges(sources: &[Source]) -> Edges {
    let test_modules: BTreeSet<Vec<String>> = sources
        .iter()
        .flat_map(|source| {
            let below = |name: &String| [source.module.clone(), vec![name.clone()]].concat();
            source.test_modules.iter().map(below)
        })
        .collect();
    let is_test = |source: &&Source| {
        (1..=source.module.len()).any(|length| test_modules.contains(&source.module[..length]))
    };
    let sources: Vec<&Source> = sources.iter().filter(|source| !is_test(source)).collect();
    let modules: BTreeSet<&String> = sources
        .iter()
        .filter_map(|source| source.module.first())
        .collect();
    let reexports = reexports(&sources, &modules);
    let mut edges = Edges::new();
    for source in &sources {
        let Some(from) = source.module.first() else {
            continue;
        };
        for (path, line) in source.imports() {
            let Some(first) = path.first() else { continue };
            let to = if modules.contains(first) {
                first
            } else if let Some(module) = reexports.get(first) {
                module
            } else {
                continue;
            };
            if to != from {
                let text = format!("{}:{} imports {}", source.path, line + 1, path.join("::"));
                let targets = edges.entry(from.clone()).or_default();
                targets.entry(to.clone()).or_insert(text);
            }
        }
    }
    edges
}

/// Returns the names that the crate's root re-exports, with the modules that they come from.
fn reexports(sources: &[&Source], modules: &BTreeSet<&String>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for root in sources.iter().filter(|source| source.module.is_empty()) {
        for statement in root.code.split("use ").skip(1) {
            let statement = statement.split(';').next().unwrap_or_default();
            let statement = statement.trim_start();
            let statement = ["crate::", "self::"]
                .iter()
                .find_map(|prefix| statement.strip_prefix(prefix))
                .unwrap_or(statement);
            for path in paths(statement) {
                if let [module, .., name] = &path[..]
                    && modules.contains(module)
                {
                    names.insert(name.clone(), module.clone());
                }
            }
        }
    }
    names
}

/// Expands the path, or tree of paths, at the beginning of a text.
fn paths(text: &str) -> Vec<Vec<String>> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        let mut all = Vec::new();
        for part in split_group(group) {
            let part = part.trim_start();
            all.extend(paths(part.strip_prefix("self::").unwrap_or(part)));
        }
        return all;
    }
    let name: String = text.chars().take_while(|&c| is_ident(c)).collect();
    if name.is_empty() {
        return Vec::new();
    }
    let rest = text[name.len()..].trim_start();
    let below = match rest.strip_prefix("::") {
        Some(rest) => paths(rest),
        None => Vec::new(),
    };
    if below.is_empty() {
        return vec![vec![name]];
    }
    let with_name = |path: Vec<String>| [vec![name.clone()], path].concat();
    below.into_iter().map(with_name).collect()
}

/// Splits the inside of braces at its commas, up to the closing brace.
fn split_group(text: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0_usize, 0);
    let mut parts = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&text[start..at]);
                return parts;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts
}

/// Returns the length of the item at the beginning of a text: up to its semicolon, or to the end of its block.
fn item_length(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Blanks comments and the content of string and character literals; lines stay.
fn without_texts(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let starts = |at: usize, text: &str| {
        text.chars()
            .enumerate()
            .all(|(i, c)| chars.get(at + i) == Some(&c))
    };
    while at < chars.len() {
        let end = if starts(at, "//") {
            (at..chars.len()).find(|&i| chars[i] == '\n')
        } else if starts(at, "/*") {
            (at + 2..chars.len())
                .find(|&i| starts(i, "*/"))
                .map(|i| i + 2)
        } else if chars[at] == '"' {
            closing_quote(&chars, at)
        } else if let Some(end) = raw_string_end(&chars, at) {
            Some(end)
        } else if chars[at] == '\'' && starts(at + 1, "\\") {
            (at + 3..chars.len())
                .find(|&i| chars[i] == '\'')
                .map(|i| i + 1)
        } else if chars[at] == '\'' && chars.get(at + 2) == Some(&'\'') {
            Some(at + 3)
        } else {
            out.push(chars[at]);
            at += 1;
            continue;
        };
        let end = end.unwrap_or(chars.len());
        out.extend(
            chars[at..end]
                .iter()
                .map(|&c| if c == '\n' { '\n' } else { ' ' }),
        );
        at = end;
    }
    out
}

fn closing_quote(chars: &[char], start: usize) -> Option<usize> {
    let mut at = start + 1;
    while let Some(&c) = chars.get(at) {
        match c {
            '\\' => at += 2,
            '"' => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// Returns the end of the raw string that starts here, if one does.
fn raw_string_end(chars: &[char], start: usize) -> Option<usize> {
    let before = start.checked_sub(1).map(|at| chars[at]);
    if chars[start] != 'r' || before.is_some_and(|c| is_ident(c) && c != 'b') {
        return None;
    }
    let hashes = chars[start + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(start + 1 + hashes) != Some(&'"') {
        return None;
    }
    let is_end = |at: usize| {
        chars[at] == '"' && (1..=hashes).all(|offset| chars.get(at + offset) == Some(&'#'))
    };
    let end = (start + 2 + hashes..chars.len()).find(|&at| is_end(at));
    Some(end.map_or(chars.len(), |at| at + 1 + hashes))
}

fn is_ident(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The modules of a cycle in order, each with its import of the next.
type Cycle = Vec<(String, String)>;

/// Returns a shortest cycle through each module that is in one, without those whose modules another cycle has already named.
fn cycles(edges: &Edges) -> Vec<Cycle> {
    let mut cycles: Vec<Cycle> = Vec::new();
    for start in edges.keys() {
        let is_named = cycles.iter().flatten().any(|(module, _)| module == start);
        if !is_named && let Some(cycle) = shortest_cycle(edges, start) {
            cycles.push(cycle);
        }
    }
    cycles
}

fn shortest_cycle(edges: &Edges, start: &String) -> Option<Cycle> {
    let mut previous: BTreeMap<&String, &String> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for (next, _) in edges.get(module).into_iter().flatten() {
            if next == start {
                let mut path = vec![module];
                while let Some(before) = path.last().and_then(|last| previous.get(*last)) {
                    path.push(before);
                }
                path.reverse();
                let nexts = path.iter().skip(1).copied().chain([start]);
                let steps = path.iter().zip(nexts);
                let step =
                    |(from, to): (&&String, &String)| ((*from).clone(), edges[*from][to].clone());
                return Some(steps.map(step).collect());
            }
            if next != start && !previous.contains_key(next) {
                previous.insert(next, module);
                queue.push_back(next);
            }
        }
    }
    None
}

fn describe(name: &str, cycle: &Cycle) -> String {
    let modules = cycle.iter().map(|(module, _)| module.as_str());
    let modules: Vec<_> = modules
        .chain(cycle.first().map(|(first, _)| first.as_str()))
        .collect();
    let mut text = format!(
        "{name}: modules import each other in a cycle: {}",
        modules.join(" → ")
    );
    for (_, import) in cycle {
        // Writing to a string cannot fail.
        let _ = write!(text, "; {import}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        complaints(files.iter().copied())
    }

    #[test]
    fn cycle_is_named_with_one_import_of_each_edge() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a.rs", "//! A.\nuse crate::b::B;\n"),
            ("x/src/b.rs", "fn f() {\n    crate::c::g();\n}"),
            ("x/src/c/mod.rs", "mod d;"),
            ("x/src/c/d.rs", "use super::super::a;"),
        ];
        assert_eq!(
            found(&files),
            [
                "x: modules import each other in a cycle: a → b → c → a; x/src/a.rs:2 imports b::B; \
                 x/src/b.rs:2 imports c::g; x/src/c/d.rs:1 imports a"
            ]
        );
        assert_eq!(found(&files[..4]), [""; 0]);
    }

    #[test]
    fn groups_and_reexports_are_resolved() {
        let group = "use crate::{\n    other,\n    b::{self, B},\n};";
        let files = |root, a, b| {
            found(&[
                ("x/src/main.rs", root),
                ("x/src/a.rs", a),
                ("x/src/b.rs", b),
            ])
        };
        assert_eq!(files("", group, "use crate::a;").len(), 1);
        assert_eq!(files("", "use super::b;", "use super::a::A;").len(), 1);
        let root = "pub use self::a::{A, A2};\nuse b::B;";
        assert_eq!(files(root, "use crate::B;", "use crate::A2;").len(), 1);
        assert_eq!(files(root, "use crate::B;", "use crate::C;"), [""; 0]);
    }

    #[test]
    fn modules_below_one_module_may_import_each_other() {
        let files = [
            ("x/src/a.rs", "use self::b::B; use crate::a::c;"),
            ("x/src/a/b.rs", "use super::c;"),
            ("x/src/a/c.rs", "use super::b;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn tests_comments_and_texts_do_not_count() {
        let a = "#[cfg(test)]\nuse crate::b;\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n// use crate::b;\n\
            const T: &str = \"crate::b\"; const R: &str = r#\"crate::b\"#; const C: char = '\"'; const L: &'static str = \"\";";
        let b = "use crate::a;\n#[cfg(test)]\nmod tests;";
        let files = [("x/src/a.rs", a), ("x/src/b.rs", b)];
        assert_eq!(found(&files), [""; 0]);
        let test_module = [
            ("x/src/lib.rs", "mod a; mod b;\n#[cfg(test)]\nmod fixtures;"),
            ("x/src/a.rs", "use crate::b;"),
            ("x/src/b/tests.rs", "use crate::a;"),
            (
                "x/src/b.rs",
                "#[cfg(test)]\nmod tests;\nuse crate::fixtures;",
            ),
            ("x/src/fixtures.rs", "use crate::b;"),
            ("x/src/b/c_tests.rs", "use crate::a;"),
        ];
        assert_eq!(found(&test_module), [""; 0]);
        // The same without the attribute is a cycle.
        let used = [
            ("x/src/a.rs", "use crate::b;"),
            ("x/src/b.rs", "use crate::a;"),
        ];
        assert_eq!(found(&used).len(), 1);
    }
}
