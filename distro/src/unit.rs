//! systemd units: the command of a unit, and a drop-in that starts it through this program. Functions over text.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};

/// The name of our drop-in, which sorts after those that an operator numbers.
pub(crate) const DROP_IN: &str = "90-multus.conf";
/// The beginning of the drop-in's comment with the original command.
const MADE_OF: &str = "# made of: ";

/// Returns the command of a unit with drop-ins: of all `ExecStart=` lines, the only one after the last that empties the list.
pub(crate) fn exec_start(texts: &[String]) -> anyhow::Result<String> {
    let mut commands: Vec<String> = Vec::new();
    for text in texts {
        let mut section = String::new();
        for line in lines(text) {
            if line.starts_with('[') {
                section = line;
            } else if let Some(value) = line.strip_prefix("ExecStart")
                && let Some(value) = value.trim_start().strip_prefix('=')
                && section == "[Service]"
            {
                match value.trim() {
                    "" => commands.clear(),
                    command => commands.push(command.to_owned()),
                }
            }
        }
    }
    match &commands[..] {
        [] => bail!("it starts nothing"),
        [command] => Ok(command.clone()),
        _ => bail!("it starts several commands"),
    }
}

/// Returns the drop-in that starts a command as `program server|agent --multus -- command`.
pub(crate) fn drop_in(program: &Path, command: &str) -> anyhow::Result<String> {
    let program = program
        .to_str()
        .filter(|path| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
            path.starts_with('/') && path.chars().all(is_plain)
        })
        .with_context(|| {
            format!(
                "{} cannot be written into a unit: move the program to a path of letters, digits and ._-+, as /usr/local/bin",
                program.display()
            )
        })?;
    let rest = command.trim_start_matches(['-', ':', '+', '!']);
    let prefixes = &command[..command.len() - rest.len()];
    ensure!(
        !rest.starts_with('@'),
        "the unit gives the program another name (@): remove that"
    );
    let role = role(rest)?;
    Ok(format!(
        "# written by `multus-distro install`; `multus-distro install --remove` takes it away\n{MADE_OF}{command}\n\
         [Service]\nExecStart=\nExecStart={prefixes}{program} {role} --multus -- {rest}\n"
    ))
}

/// Returns the command that a drop-in was made of.
pub(crate) fn original_command(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix(MADE_OF))
}

/// Returns `server` or `agent`, whichever the command starts.
pub(crate) fn role(command: &str) -> anyhow::Result<&'static str> {
    let args = split_args(command);
    let role = args.iter().skip(1).find_map(|arg| match arg.as_str() {
        "server" => Some("server"),
        "agent" => Some("agent"),
        _ => None,
    });
    role.with_context(|| format!("`{command}` starts neither a server nor an agent"))
}

/// Splits a command into its arguments and removes their quotes.
pub(crate) fn split_args(command: &str) -> Vec<String> {
    let mut args = Vec::new();
    let mut arg: Option<String> = None;
    let mut quote = None;
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                arg.get_or_insert_default();
            }
            (open, '\\') if open != Some('\'') => {
                arg.get_or_insert_default().extend(letters.next());
            }
            (None, _) if letter.is_whitespace() => args.extend(arg.take()),
            _ => arg.get_or_insert_default().push(letter),
        }
    }
    args.extend(arg);
    args
}

/// Returns the lines without comments, each joined with its continuations.
fn lines(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        let (part, is_continued) = match line.strip_suffix('\\') {
            Some(part) => (part.trim_end(), true),
            None => (line, false),
        };
        let mut joined = open.take().unwrap_or_default();
        if !joined.is_empty() && !part.is_empty() {
            joined.push(' ');
        }
        joined.push_str(part);
        if is_continued {
            open = Some(joined);
        } else if !joined.is_empty() {
            all.push(joined);
        }
    }
    all.extend(open);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The unit that K3s' install script writes.
    const K3S: &str = "[Unit]\nDescription=Lightweight Kubernetes\n[Service]\nType=notify\nExecStartPre=-/sbin/modprobe overlay\n\
        ExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--data-dir' \\\n\t'/data/k 3s' \\\n\n";

    fn check(texts: &[&str]) -> anyhow::Result<String> {
        exec_start(
            &texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn command_of_a_unit_with_drop_ins_is_found() {
        let k3s = "/usr/local/bin/k3s server '--data-dir' '/data/k 3s'";
        assert_eq!(check(&[K3S]).unwrap(), k3s);
        let own = "# x\n[Service]\nExecStart=\nExecStart = /opt/k3s server\n";
        assert_eq!(check(&[K3S, own]).unwrap(), "/opt/k3s server");
        assert!(check(&[K3S, "[Service]\nExecStart=/x\n"]).is_err());
        assert!(check(&["[Install]\nExecStart=/x\n"]).is_err());
    }

    #[test]
    fn drop_in_starts_the_same_command_through_this_program() {
        let program = Path::new("/usr/local/bin/multus-distro");
        let command = check(&[K3S]).unwrap();
        let text = drop_in(program, &command).unwrap();
        let start = "ExecStart=\nExecStart=/usr/local/bin/multus-distro server --multus -- /usr/local/bin/k3s server '--data-dir' '/data/k 3s'\n";
        assert!(text.ends_with(start), "{text}");
        assert_eq!(original_command(&text), Some(command.as_str()));
        let through = check(&[K3S, &text]).unwrap();
        assert!(through.starts_with("/usr/local/bin/multus-distro server"));
        let agent = drop_in(program, "-/usr/local/bin/rke2 agent").unwrap();
        assert!(agent.contains("=-/usr/local/bin/multus-distro agent --multus -- /usr/local"));
        for (program, command) in [
            ("/tmp/a b", "/k3s server"),
            ("relative", "/k3s server"),
            ("/x", "/k3s kubectl"),
            ("/x", "@/k3s k3s server"),
        ] {
            assert!(
                drop_in(Path::new(program), command).is_err(),
                "{program} {command}"
            );
        }
    }

    #[test]
    fn arguments_are_unquoted() {
        let command = r#"k3s server '--a b' --c="d e" f\ g """#;
        assert_eq!(
            split_args(command),
            ["k3s", "server", "--a b", "--c=d e", "f g", ""]
        );
    }
}
