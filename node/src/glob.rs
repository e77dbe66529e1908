//! File name patterns as Go's `path/filepath` reads them, and so containerd in `imports`: `*` and `?` stop at a slash, `[a-z]` and `[^a-z]`
//! are classes, `\` makes the next character a literal.

use std::path::{Component, Path, PathBuf};

/// Returns the paths that the absolute pattern matches, sorted, and at most `limit` and one more. `list` returns the names in a directory
/// among which that component of the pattern chooses. Paths that end in a component without pattern need not exist.
pub fn expand(
    pattern: &Path,
    limit: usize,
    mut list: impl FnMut(&Path, &str) -> Vec<String>,
) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.components() {
        let Component::Normal(part) = part else {
            continue;
        };
        let part = part.to_string_lossy();
        if !part.contains(['*', '?', '[', '\\']) {
            for path in &mut found {
                path.push(&*part);
            }
            continue;
        }
        let letters: Vec<char> = part.chars().collect();
        let mut next = Vec::new();
        for dir in &found {
            let mut names = list(dir, &part);
            names.sort();
            names.retain(|name| matches(&letters, &name.chars().collect::<Vec<_>>()));
            next.extend(names.into_iter().map(|name| dir.join(name)));
            next.truncate(limit + 1);
        }
        found = next;
    }
    found
}

/// Returns whether a name matches. Both are as short as file names, so trying every split is cheap.
fn matches(pattern: &[char], name: &[char]) -> bool {
    // The last star seen, and how much of the name it covers so far.
    let (mut at, mut here, mut star) = (0, 0, None);
    loop {
        if pattern.get(at) == Some(&'*') {
            star = Some((at + 1, here));
            at += 1;
            continue;
        }
        if here == name.len() && at == pattern.len() {
            return true;
        }
        match name.get(here).and_then(|c| match_one(&pattern[at..], *c)) {
            Some(used) => {
                at += used;
                here += 1;
            }
            None => match &mut star {
                Some((after, covered)) if *covered < name.len() => {
                    *covered += 1;
                    (at, here) = (*after, *covered);
                }
                _ => return false,
            },
        }
    }
}

/// Returns how many characters of the pattern match this character; `None` if it does not match.
fn match_one(pattern: &[char], c: char) -> Option<usize> {
    match (pattern.first()?, pattern.get(1)) {
        ('?', _) => Some(1),
        ('\\', Some(literal)) => (*literal == c).then_some(2),
        ('[', _) => class(&pattern[1..], c).map(|used| used + 1),
        (literal, _) => (*literal == c).then_some(1),
    }
}

/// The same for the part of a class after `[`, including `]`.
fn class(pattern: &[char], c: char) -> Option<usize> {
    let negated = pattern.first() == Some(&'^');
    let mut at = usize::from(negated);
    let mut is_in = false;
    loop {
        let (low, used) = literal(&pattern[at..])?;
        at += used;
        let mut high = low;
        if pattern.get(at) == Some(&'-') {
            let (end, used) = literal(&pattern[at + 1..])?;
            high = end;
            at += 1 + used;
        }
        is_in |= (low..=high).contains(&c);
        if pattern.get(at) == Some(&']') {
            break;
        }
    }
    (is_in != negated).then_some(at + 1)
}

/// Reads a literal of a class. Go refuses a class that begins with `]` or `-`, so such a pattern matches nothing.
fn literal(pattern: &[char]) -> Option<(char, usize)> {
    match pattern.first()? {
        '-' | ']' => None,
        '\\' => Some((*pattern.get(1)?, 2)),
        c => Some((*c, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, name: &str) -> bool {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        matches(&chars(pattern), &chars(name))
    }

    #[test]
    fn patterns_match_names_as_in_go() {
        for (pattern, yes, no) in [
            ("*.toml", "10-a.toml", "10-a.tom"),
            ("*a*b*c", "xaxbxbxc", "xaxbxcx"),
            ("?0-*", "10-", "0-"),
            ("[0-9][^0-9]", "1a", "11"),
            (r"\*[\]]", "*]", "a]"),
            ("a*a", "aa", "a"),
        ] {
            assert!(check(pattern, yes), "{pattern} {yes}");
            assert!(!check(pattern, no), "{pattern} {no}");
        }
        for broken in ["[", "[a", "[a-", "[^", "[]a]", "[-a]", "\\"] {
            assert!(!check(broken, "a"), "{broken}");
        }
    }

    #[test]
    fn hostile_pattern_is_matched_quickly() {
        let pattern = "*a".repeat(100);
        assert!(!check(&pattern, &"a".repeat(99)));
        assert!(!check(&(pattern + "b"), &"a".repeat(4000)));
    }

    #[test]
    fn expand_matches_directories_and_sorts() {
        let list = |dir: &Path, _: &str| match dir.to_str() {
            Some("/etc") => vec!["z.d".to_owned(), "a.d".to_owned(), "other".to_owned()],
            Some("/etc/a.d") => vec!["2.toml".to_owned(), "1.toml".to_owned()],
            Some("/etc/z.d") => vec![".hidden.toml".to_owned()],
            _ => Vec::new(),
        };
        let found = expand(Path::new("/etc/*.d/*.toml"), 9, list);
        let expected = [
            "/etc/a.d/1.toml",
            "/etc/a.d/2.toml",
            "/etc/z.d/.hidden.toml",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        assert_eq!(expand(Path::new("/etc/*.d/*.toml"), 1, list).len(), 2);
        assert_eq!(expand(Path::new("/none/*"), 9, list), [] as [PathBuf; 0]);
    }
}
