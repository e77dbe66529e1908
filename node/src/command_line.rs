//! The words with which a process was started, as `/proc/<pid>/cmdline` has them.

use std::path::Path;

use crate::root::Root;

/// More than a runtime's is.
const MAX: u64 = 256 << 10;

/// Words, the program's name first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine(Vec<String>);

impl CommandLine {
    /// That of a process of the node; `None` when it is not to be seen, or a thread of the kernel.
    pub fn of(root: &Root, pid: u32) -> Option<Self> {
        let bytes = root.read(format!("/proc/{pid}/cmdline"), MAX).ok()?;
        let line = Self::parse(&bytes);
        (!line.0.is_empty()).then_some(line)
    }

    /// Reads words that each end with a zero byte.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let words = text.trim_end_matches('\0').split('\0');
        let is_empty = text.trim_end_matches('\0').is_empty();
        Self(words.filter(|_| !is_empty).map(str::to_owned).collect())
    }

    /// The program's name without its directory.
    pub fn program(&self) -> &str {
        let first = self.0.first().map_or("", String::as_str);
        Path::new(first)
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
    }

    /// The last value of a flag under any of its names, in each of the forms that Go's programs take.
    pub fn value(&self, names: &[&str]) -> Option<String> {
        let mut found = None;
        let mut words = self.0.iter().skip(1);
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                continue;
            };
            match flag.split_once('=') {
                Some((name, value)) if names.contains(&name) => found = Some(value.to_owned()),
                None if names.contains(&flag) => found = words.next().cloned().or(found),
                _ => {}
            }
        }
        found.filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_in_every_form() {
        for (line, expected) in [
            ("containerd\0-c\0/a\0", Some("/a")),
            (
                "/usr/bin/containerd\0--config=/a\0--log-level\0debug\0",
                Some("/a"),
            ),
            ("containerd\0--config\0/b\0-c=/a", Some("/a")),
            ("containerd\0--config", None),
            ("containerd\0config\0/a", None),
            ("containerd\0--config=", None),
            ("", None),
        ] {
            let line = CommandLine::parse(line.as_bytes());
            assert_eq!(line.value(&["config", "c"]).as_deref(), expected);
        }
    }

    #[test]
    fn programs() {
        for (line, expected) in [
            (
                "/var/lib/rancher/k3s/data/current/bin/containerd\0-c",
                "containerd",
            ),
            ("/usr/local/bin/k3s server", "k3s server"),
            ("", ""),
            ("\0\0", ""),
        ] {
            assert_eq!(CommandLine::parse(line.as_bytes()).program(), expected);
        }
    }
}
