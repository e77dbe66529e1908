//! iptables, by its program: the tables of `iptables-legacy` and the rules that `iptables-nft` writes have no interface but that.

use std::collections::HashSet;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Result, failure};
use crate::kernel::netns::Namespace;

/// Where the program is looked for when it is not in PATH: runtimes start plugins with a PATH of their own.
const SYSTEM_DIRS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// The status of the program when a rule or a chain is not there, or a chain is there already.
const REFUSED: i32 = 1;
/// The status of the program when it does not understand a rule, such as one that jumps to a chain that is not there.
const NOT_UNDERSTOOD: i32 = 2;

/// How long a line for `iptables-restore` may be; its own limit differs from version to version, and is not below.
const LINE_LENGTH: usize = 1000;

/// The texts by which the program says that a chain or a rule is not there.
const NOT_FOUND: [&str; 4] = [
    "Bad rule (does a matching rule exist in that chain?).",
    "No chain/target/match by that name.",
    "No such file or directory",
    "does not exist",
];

/// The two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    V4,
    V6,
}

impl Protocol {
    /// Returns the one for an address.
    pub(crate) const fn of(address: std::net::IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }
}

/// Whether a chain was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    New,
    Existing,
}

/// Where in its chain a rule is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    Last,
}

/// A rule and its place in its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) chain: &'static str,
    pub(crate) place: Place,
    pub(crate) rule: Vec<String>,
}

/// The program of a protocol.
pub(crate) struct Iptables {
    program: PathBuf,
}

/// A run of the program that failed.
#[derive(Debug)]
pub(crate) struct Error {
    command: Vec<String>,
    status: Option<i32>,
    stderr: String,
}

impl Error {
    /// Returns whether the chain or the rule is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        NOT_FOUND.iter().any(|text| self.stderr.contains(text))
    }

    /// Returns whether a rule cannot be there, because it names a chain that is not.
    pub(crate) fn is_not_understood(&self) -> bool {
        self.status == Some(NOT_UNDERSTOOD)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "running [{}]: ", self.command.join(" "))?;
        match self.status {
            Some(status) => write!(formatter, "exit status {status}: {}", self.stderr),
            None => formatter.write_str(&self.stderr),
        }
    }
}

impl crate::error::Cause for Error {
    fn with(self, what: &str) -> cni::CniError {
        failure!("{what}: {self}")
    }
}

impl From<Error> for cni::CniError {
    fn from(error: Error) -> Self {
        failure!("{error}")
    }
}

type Outcome<T> = std::result::Result<T, Error>;

impl Iptables {
    pub(crate) fn find(protocol: Protocol) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::env::split_paths(&path).chain(SYSTEM_DIRS.map(PathBuf::from));
        find_in(dirs, protocol.program())
            .map(|program| Self { program })
            .ok_or_else(|| {
                failure!(
                    "exec: {:?}: executable file not found in $PATH",
                    protocol.program()
                )
            })
    }

    pub(crate) fn has_chain(&self, table: &str, chain: &str) -> Outcome<bool> {
        Self::unless_refused(self.run(&["-t", table, "-S", chain, "1"]))
    }

    /// Makes a chain, unless it is there.
    pub(crate) fn ensure_chain(&self, table: &str, chain: &str) -> Outcome<Chain> {
        let is_new = Self::unless_refused(self.run(&["-t", table, "-N", chain]))?;
        Ok(if is_new { Chain::New } else { Chain::Existing })
    }

    pub(crate) fn has_rule(&self, table: &str, chain: &str, rule: &[String]) -> Outcome<bool> {
        Self::unless_refused(self.run_rule(&["-t", table, "-C", chain], rule))
    }

    /// Adds a chain and rules, its own and those that lead there, each as the last one of its chain: all or none, in one run.
    pub(crate) fn add_chain(
        &self,
        table: &str,
        chain: &str,
        rules: &[(&str, Vec<String>)],
    ) -> Outcome<()> {
        let mut lines = vec![rule(["-N", chain])];
        lines.extend(rules.iter().map(|(chain, words)| line("-A", chain, words)));
        if self.restore(table, &lines) {
            return Ok(());
        }
        // The chain is there already, or a rule is wrong; one by one the program says which.
        let state = self.ensure_chain(table, chain)?;
        rules
            .iter()
            .try_for_each(|(chain, rule)| self.add(state, Place::Last, table, chain, rule))
    }

    /// Puts a rule into a chain, unless it is there. `concerned` is the plugin's chain to which the rule belongs: nothing is in a new
    /// one, and nothing can lead there, so that nothing is looked for.
    pub(crate) fn add(
        &self,
        concerned: Chain,
        place: Place,
        table: &str,
        chain: &str,
        rule: &[String],
    ) -> Outcome<()> {
        if concerned == Chain::Existing && self.has_rule(table, chain, rule)? {
            return Ok(());
        }
        let command = match place {
            Place::First => &["-t", table, "-I", chain, "1"][..],
            Place::Last => &["-t", table, "-A", chain],
        };
        self.run_rule(command, rule).map(|_| ())
    }

    /// Adds chains and rules that all containers share. They are there nearly always, so they are looked for first; others that look
    /// at the same time must not add them as well, so they are added under the lock of the network namespace.
    pub(crate) fn ensure_shared(
        &self,
        table: &str,
        chains: &[&str],
        rules: &[Placed],
    ) -> Outcome<()> {
        let is_missing = |placed: &Placed| match self.has_rule(table, placed.chain, &placed.rule) {
            Err(error) if error.is_not_understood() => Ok(true),
            outcome => outcome.map(|is_there| !is_there),
        };
        let mut is_complete = true;
        for placed in rules {
            is_complete = is_complete && !is_missing(placed)?;
        }
        if is_complete {
            return Ok(());
        }
        // Held until `namespace` is dropped. Without a lock a rule may be there twice, which does no harm.
        let namespace = Namespace::current();
        let _ = namespace.as_ref().map(Namespace::lock);
        for chain in chains {
            self.ensure_chain(table, chain)?;
        }
        for Placed { chain, place, rule } in rules {
            self.add(Chain::Existing, *place, table, chain, rule)?;
        }
        Ok(())
    }

    /// Deletes a rule; that it is not there is success.
    pub(crate) fn delete_if_present(
        &self,
        table: &str,
        chain: &str,
        rule: &[String],
    ) -> Outcome<()> {
        match self.run_rule(&["-t", table, "-D", chain], rule) {
            Err(error) if !error.is_not_found() && !error.is_not_understood() => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes a chain with its rules and the rules of `parent` that jump there; that something is not there is success. Rules are
    /// found as they are, whatever they match.
    pub(crate) fn delete_chain(&self, table: &str, parent: &str, chain: &str) -> Outcome<()> {
        self.delete_jumps(table, parent, chain, |_| true)
    }

    /// Deletes the selected ones of the rules of `parent` that jump to a chain, and the chain with its rules once none jumps there.
    pub(crate) fn delete_jumps(
        &self,
        table: &str,
        parent: &str,
        chain: &str,
        is_selected: impl Fn(&ListedRule) -> bool,
    ) -> Outcome<()> {
        let rules = match self.list(table, parent) {
            Err(error) if error.is_not_found() => Vec::new(),
            rules => rules?,
        };
        let jumps = rules
            .into_iter()
            .filter(|rule| rule.target() == Some(chain));
        let (selected, others): (Vec<_>, Vec<_>) = jumps.partition(is_selected);
        let selected = selected.into_iter().map(|rule| (parent, rule.words));
        let unused = others.is_empty().then_some(chain);
        self.delete(table, &selected.collect::<Vec<_>>(), unused)
    }

    /// Deletes rules, each of its chain, and then a chain with its rules; that something is not there is success.
    pub(crate) fn delete(
        &self,
        table: &str,
        rules: &[(&str, Vec<String>)],
        chain: Option<&str>,
    ) -> Outcome<()> {
        let lines = rules.iter().map(|(chain, words)| line("-D", chain, words));
        let mut lines: Vec<_> = lines.collect();
        if let Some(chain) = chain {
            lines.extend([rule(["-F", chain]), rule(["-X", chain])]);
        }
        if lines.is_empty() || self.restore(table, &lines) {
            return Ok(());
        }
        // Another DEL may have been faster with some of them.
        for (chain, rule) in rules {
            self.delete_if_present(table, chain, rule)?;
        }
        chain.map_or(Ok(()), |chain| self.flush_and_delete(table, chain))
    }

    fn flush_and_delete(&self, table: &str, chain: &str) -> Outcome<()> {
        for command in ["-F", "-X"] {
            match self.run(&["-t", table, command, chain]) {
                Err(error) if error.is_not_found() => return Ok(()),
                outcome => outcome?,
            };
        }
        Ok(())
    }

    /// Deletes the chains to which rules of `parent` lead whose comment begins with `prefix` and is not among the `valid` ones, with
    /// those rules.
    pub(crate) fn delete_stale_chains(
        &self,
        table: &str,
        parent: &str,
        prefix: &str,
        valid: &HashSet<String>,
    ) -> Outcome<()> {
        let rules = match self.list(table, parent) {
            Err(error) if error.is_not_found() => return Ok(()),
            rules => rules?,
        };
        for chain in stale_chains(&rules, prefix, valid) {
            self.delete_chain(table, parent, chain)?;
        }
        Ok(())
    }

    /// Returns the rules of a chain.
    pub(crate) fn list(&self, table: &str, chain: &str) -> Outcome<Vec<ListedRule>> {
        let output = self.run(&["-t", table, "-S", chain])?;
        Ok(output.lines().filter_map(ListedRule::parse).collect())
    }

    fn unless_refused(outcome: Outcome<String>) -> Outcome<bool> {
        match outcome {
            Ok(_) => Ok(true),
            Err(error) if error.status == Some(REFUSED) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn run_rule(&self, command: &[&str], rule: &[String]) -> Outcome<String> {
        let rule = rule.iter().map(String::as_str);
        let args: Vec<_> = command.iter().copied().chain(rule).collect();
        self.run(&args)
    }

    /// Makes all changes or none with `iptables-restore`, which is beside the program. Returns whether they are made; why they are not,
    /// the program says better of a single one.
    fn restore(&self, table: &str, lines: &[Vec<String>]) -> bool {
        let Some(script) = restore_script(table, lines) else {
            return false;
        };
        let mut program = self.program.clone().into_os_string();
        program.push("-restore");
        let child = Command::new(program)
            .args(["--noflush", "--wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            return false;
        };
        // Without the last line, which a program that ends early does not read, nothing is changed.
        let _ = child
            .stdin
            .take()
            .map(|mut stdin| stdin.write_all(script.as_bytes()));
        child.wait().is_ok_and(|status| status.success())
    }

    /// Runs the program, which waits for others that hold its lock.
    fn run(&self, args: &[&str]) -> Outcome<String> {
        let failed = |status, stderr| Error {
            command: std::iter::once(self.program.display().to_string())
                .chain(args.iter().map(|arg| (*arg).to_owned()))
                .chain(std::iter::once("--wait".to_owned()))
                .collect(),
            status,
            stderr,
        };
        let output = Command::new(&self.program)
            .args(args)
            .arg("--wait")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(None, error.to_string()))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(failed(output.status.code(), stderr))
        }
    }
}

/// A rule that is in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedRule {
    /// The words that follow the name of the chain.
    pub(crate) words: Vec<String>,
}

impl ListedRule {
    /// Reads a line of `iptables -S`; those that make a chain are not rules.
    fn parse(line: &str) -> Option<Self> {
        let mut words = split_words(line);
        // In front there may be counters: "[0:0] -A CHAIN ...".
        let start = words.iter().position(|word| word == "-A")?;
        words.drain(..(start + 2).min(words.len()));
        Some(Self { words })
    }

    /// Returns the chain or the target of the rule.
    pub(crate) fn target(&self) -> Option<&str> {
        self.after("-j")
    }

    pub(crate) fn comment(&self) -> Option<&str> {
        self.after("--comment")
    }

    /// Returns the word that follows an option.
    pub(crate) fn after(&self, option: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == option)?;
        self.words.get(at + 1).map(String::as_str)
    }
}

/// Returns the chains of plugins to which rules lead whose comment begins with `prefix` and is not valid.
fn stale_chains<'a>(
    rules: &'a [ListedRule],
    prefix: &str,
    valid: &HashSet<String>,
) -> HashSet<&'a str> {
    rules
        .iter()
        .filter(|rule| {
            let comment = rule.comment().unwrap_or_default();
            comment.starts_with(prefix) && !valid.contains(comment)
        })
        .filter_map(ListedRule::target)
        .filter(|target| target.starts_with("CNI-"))
        .collect()
}

/// Returns a rule as the reference plugins print one.
pub(crate) fn shown(rule: &[String]) -> String {
    format!("[{}]", rule.join(" "))
}

/// Makes a rule of texts.
pub(crate) fn rule<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

/// Returns the words of one change: a command, the chain that it changes, and the rule.
fn line(command: &str, chain: &str, words: &[String]) -> Vec<String> {
    let mut line = rule([command, chain]);
    line.extend_from_slice(words);
    line
}

/// Returns what makes changes to a table by `iptables-restore`; `None` when it could read a line as something else.
fn restore_script(table: &str, lines: &[Vec<String>]) -> Option<String> {
    let mut script = format!("*{table}\n");
    for words in lines {
        let words: Vec<_> = words.iter().map(|word| restore_word(word)).collect();
        let line = words.join(" ");
        if line.len() > LINE_LENGTH || line.contains(char::is_control) {
            return None;
        }
        script.push_str(&line);
        script.push('\n');
    }
    script.push_str("COMMIT\n");
    Some(script)
}

/// Quotes a word that is more than letters, digits and what addresses and ports have.
fn restore_word(word: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "-_!.,:/[]".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        super::quoted(word)
    }
}

/// Splits a line into words as `iptables -S` quotes them: in double quotes, with a backslash in front of a quote.
fn split_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' if is_quoted => word.get_or_insert_default().extend(characters.next()),
            ' ' if !is_quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

fn find_in(dirs: impl Iterator<Item = PathBuf>, program: &str) -> Option<PathBuf> {
    dirs.filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_rules_are_read_as_they_were_written() {
        let line = r#"-A POSTROUTING -s 10.0.0.5/32 -m comment --comment "name: \"net\" id: \"a b\"" -j CNI-0123"#;
        let rule = ListedRule::parse(line).unwrap();
        assert_eq!(rule.target(), Some("CNI-0123"));
        assert_eq!(rule.comment(), Some(r#"name: "net" id: "a b""#));
        assert_eq!(rule.words[..2], ["-s", "10.0.0.5/32"]);
        assert_eq!(rule.words.len(), 8);
        let counted = ListedRule::parse("[1:84] -A INPUT -j ACCEPT").unwrap();
        assert_eq!(counted.words, ["-j", "ACCEPT"]);
        assert_eq!(ListedRule::parse("-N CNI-0123"), None);
        assert_eq!(ListedRule::parse("-P INPUT ACCEPT"), None);
        assert_eq!(split_words(r#"a "" b"#), ["a", "", "b"]);
    }

    #[test]
    fn words_are_quoted_for_restore() {
        let words = [
            "-A",
            "CH",
            "--comment",
            r#"a "b\c" 'd'"#,
            "",
            "[fd00::3]:80",
        ]
        .map(str::to_owned);
        assert_eq!(
            restore_script("nat", &[words.to_vec()]).as_deref(),
            Some("*nat\n-A CH --comment \"a \\\"b\\\\c\\\" 'd'\" \"\" [fd00::3]:80\nCOMMIT\n")
        );
        for word in ["a\nCOMMIT", &"a".repeat(LINE_LENGTH + 1)] {
            assert_eq!(restore_script("nat", &[rule([word])]), None, "{word}");
        }
    }

    #[test]
    fn program_is_the_first_that_can_be_run() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = ["a", "b", "c"].map(|name| dir.path().join(name));
        for dir in &dirs {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(dirs[0].join("iptables"), "").unwrap();
        std::os::unix::fs::symlink("/bin/sh", dirs[1].join("iptables")).unwrap();
        std::os::unix::fs::symlink("/bin/sh", dirs[2].join("iptables")).unwrap();
        let found = find_in(dirs.clone().into_iter(), "iptables");
        assert_eq!(found, Some(dirs[1].join("iptables")));
        assert_eq!(find_in(dirs.into_iter(), "ip6tables"), None);
    }

    #[test]
    fn absence_is_told_from_other_refusals() {
        let error = |stderr: &str| Error {
            command: rule(["/sbin/iptables", "-t", "nat", "-X", "A", "--wait"]),
            status: Some(1),
            stderr: stderr.to_owned(),
        };
        assert!(error("iptables: No chain/target/match by that name.\n").is_not_found());
        assert!(error("iptables v1.8.9 (nf_tables): Chain 'A' does not exist\n").is_not_found());
        let busy = error("iptables: Too many links.\n");
        assert!(!busy.is_not_found());
        assert_eq!(
            busy.to_string(),
            "running [/sbin/iptables -t nat -X A --wait]: exit status 1: iptables: Too many links.\n"
        );
    }

    #[test]
    fn stale_chains_are_those_of_the_prefix_that_are_not_valid() {
        let entry = |network: &str, id: &str, target: &str| ListedRule {
            words: rule([
                "-m",
                "comment",
                "--comment",
                &format!("name: {network:?} id: {id:?}"),
                "-j",
                target,
            ]),
        };
        let rules = [
            entry("net1", "cid1", "CNI-1"),
            entry("net1", "cid2", "CNI-2"),
            entry("net10", "cid3", "CNI-3"),
            entry("net1", "cid4", "KUBE-POSTROUTING"),
        ];
        let valid = HashSet::from([r#"name: "net1" id: "cid1""#.to_owned()]);
        assert_eq!(
            stale_chains(&rules, r#"name: "net1" id: "#, &valid),
            HashSet::from(["CNI-2"])
        );
    }
}
