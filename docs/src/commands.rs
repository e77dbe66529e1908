//! The commands of a page: the lines of its blocks, as words.

/// The programs whose commands are checked: ours by their own command lines, and Helm and kubectl by their help texts.
pub const PROGRAMS: &[&str] = &[
    "cargo xtask",
    "helm",
    "kubectl",
    "kubectl multus",
    "multus-airgap",
    "multus-cni-plugins",
    "multus-daemon",
    "multus-distro",
];
/// Programs that every reader knows, in commands that need no check.
const COMMON: &[&str] = &[
    "cargo",
    "cat",
    "cd",
    "chmod",
    "cosign",
    "cp",
    "diff",
    "git",
    "gpg",
    "install",
    "ip",
    "mkdir",
    "mount",
    "openssl",
    "rm",
    "sha256sum",
    "skopeo",
    "systemctl",
    "tar",
    "try.sh",
];

/// A command of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Page and line, as in `docs/a.md:7`.
    pub at: String,
    pub program: String,
    /// The words after the program.
    pub args: Vec<String>,
}

/// Returns the commands of a line; several stand in a pipe or a list.
pub(crate) fn parse_line(at: &str, line: &str) -> Result<Vec<Command>, String> {
    let mut found = Vec::new();
    for words in split(line)? {
        let mut words = words.into_iter().peekable();
        while words
            .next_if(|word| word == "sudo" || word == "env" || is_assignment(word))
            .is_some()
        {}
        let Some(first) = words.next() else {
            continue;
        };
        let name = first.rsplit('/').next().unwrap_or(&first);
        let name = if name.starts_with("multus-airgap-") {
            "multus-airgap"
        } else {
            name
        };
        let program = match name {
            "kubectl-multus" => "kubectl multus".to_owned(),
            "kubectl" if words.next_if_eq("multus").is_some() => "kubectl multus".to_owned(),
            "cargo" if words.next_if_eq("xtask").is_some() => "cargo xtask".to_owned(),
            _ => name.to_owned(),
        };
        if !PROGRAMS.contains(&program.as_str()) && !COMMON.contains(&program.as_str()) {
            return Err(format!(
                "no check knows the program `{program}`: add it to docs/src/commands.rs, or mark the block otherwise"
            ));
        }
        found.push(Command {
            at: at.to_owned(),
            program,
            args: words.collect(),
        });
    }
    Ok(found)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    })
}

/// Splits a line into commands and words, as a shell does. A note behind `#` or behind four blanks does not count.
fn split(line: &str) -> Result<Vec<Vec<String>>, String> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut chars = line.trim().chars().peekable();
    let mut blanks = 0;
    while let Some(char) = chars.next() {
        let is_blank = char == ' ';
        blanks = if is_blank { blanks + 1 } else { 0 };
        if blanks == 4 {
            break;
        }
        let list = commands.last_mut().expect("there is always one");
        match char {
            ' ' | '|' | ';' | '&' | '>' | '<' => {
                list.extend(word.take());
                match char {
                    ' ' => {}
                    // The next word is a file.
                    '>' | '<' => {
                        while chars.next_if(|c| *c == ' ' || *c == '>').is_some() {}
                        while chars.next_if(|c| *c != ' ').is_some() {}
                    }
                    _ => commands.push(Vec::new()),
                }
            }
            '#' if word.is_none() => break,
            '\'' | '"' => {
                let text = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some(end) if end == char => break,
                        Some(inner) => text.push(inner),
                        None => return Err(format!("a quote has no end: {line}")),
                    }
                }
            }
            _ => word.get_or_insert_default().push(char),
        }
    }
    if let Some(list) = commands.last_mut() {
        list.extend(word);
    }
    commands.retain(|words| !words.is_empty());
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &[(&str, &[&str])]) {
        let found = parse_line("p:1", line).unwrap();
        let found: Vec<(&str, Vec<&str>)> = found
            .iter()
            .map(|one| {
                let args = one.args.iter().map(String::as_str);
                (one.program.as_str(), args.collect())
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(program, args)| (*program, args.to_vec()))
            .collect();
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn commands_are_found_in_lines() {
        check("helm list  # all", &[("helm", &["list"])]);
        check(
            "multus-distro doctor     as root",
            &[("multus-distro", &["doctor"])],
        );
        check(
            "kubectl multus why cart",
            &[("kubectl multus", &["why", "cart"])],
        );
        check(
            "A=b sudo ./multus-airgap-amd64 verify 'a b'",
            &[("multus-airgap", &["verify", "a b"])],
        );
        check(
            "helm template x | kubectl apply -f - >out.txt && cargo xtask lint",
            &[
                ("helm", &["template", "x"]),
                ("kubectl", &["apply", "-f", "-"]),
                ("cargo xtask", &["lint"]),
            ],
        );
        check("# a note", &[]);
        check("", &[]);
    }

    #[test]
    fn unknown_programs_and_open_quotes_are_errors() {
        assert!(
            parse_line("p:1", "heml list")
                .unwrap_err()
                .contains("`heml`")
        );
        assert!(parse_line("p:1", "helm 'x").unwrap_err().contains("quote"));
    }
}
