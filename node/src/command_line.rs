//! The arguments of a process, as in `/proc/<pid>/cmdline`.

use std::path::Path;

use crate::root::Root;

/// More bytes than the command line of a runtime has.
const MAX_BYTES: u64 = 256 << 10;

/// The arguments, the program's name first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine(Vec<String>);

impl CommandLine {
    /// Reads the command line of a process; `None` if it cannot be read, or for a thread of the kernel.
    pub fn of(root: &Root, pid: u32) -> Option<Self> {
        let bytes = root.read(format!("/proc/{pid}/cmdline"), MAX_BYTES).ok()?;
        let line = Self::parse(&bytes);
        (!line.0.is_empty()).then_some(line)
    }

    /// Reads arguments that each end with a zero byte.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let args = text.trim_end_matches('\0').split('\0');
        let is_empty = text.trim_end_matches('\0').is_empty();
        Self(args.filter(|_| !is_empty).map(str::to_owned).collect())
    }

    /// Returns the program's name without its directory.
    pub fn program(&self) -> &str {
        let first = self.0.first().map_or("", String::as_str);
        Path::new(first)
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
    }

    /// Returns the last value of a flag under any of its names, in each form that Go's programs accept.
    pub fn value(&self, names: &[&str]) -> Option<String> {
        let mut found = None;
        let mut args = self.0.iter().skip(1);
        while let Some(arg) = args.next() {
            let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
                continue;
            };
            match flag.split_once('=') {
                Some((name, value)) if names.contains(&name) => found = Some(value.to_owned()),
                None if names.contains(&flag) => found = args.next().cloned().or(found),
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
    fn flags_are_read_in_every_form() {
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
    fn program_has_no_directory() {
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
