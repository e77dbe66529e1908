//! libFuzzer: starts the program of a target and reads what it prints.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead as _, BufReader},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};

use super::dictionary;

/// Seconds after which an input counts as one that never ends; the machine may be busy.
const TIMEOUT: u32 = 30;
/// The bounds of the longest input of a target: longer ones are slow, and reach nothing that shorter ones do not.
const LONGEST: RangeInclusive<usize> = 512..=16 << 10;
/// How many lines before the end explain a failure.
const LAST_LINES: usize = 200;

/// The program of a target and its directories.
pub(super) struct Engine {
    pub(super) program: PathBuf,
    /// Inputs that reached something new, of all runs.
    pub(super) corpus: PathBuf,
    /// The corpus in the tree.
    pub(super) seeds: PathBuf,
    pub(super) artifacts: PathBuf,
    pub(super) temporary: PathBuf,
}

/// When a process ends, at the latest.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub(super) executions: Option<u64>,
    pub(super) time: Duration,
}

/// The outcome of one process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) executions: u64,
    /// Edges of the code that were reached.
    pub(super) coverage: u64,
    /// The input that the target fails on, and the reason.
    pub(super) finding: Option<(PathBuf, String)>,
}

impl Engine {
    /// Makes the directories and writes the dictionary, which is empty for a corpus without text.
    pub(super) fn prepare(&self) -> anyhow::Result<()> {
        for dir in [&self.corpus, &self.artifacts, &self.temporary] {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let corpus = files(&self.seeds)?;
        let words = dictionary::of(corpus.iter().map(|(_, bytes)| bytes.as_slice()));
        let path = self.dictionary();
        fs::write(&path, words).with_context(|| format!("cannot write {}", path.display()))
    }

    fn dictionary(&self) -> PathBuf {
        self.temporary.join("words.dict")
    }

    /// Returns the command of a process of the target.
    fn command(&self, limit: Limit) -> anyhow::Result<Command> {
        let prefix = |name: &str, path: &Path| format!("-{name}={}", path.display());
        let seeds = files(&self.seeds)?;
        let longest = longest_input(seeds.iter().map(|(_, bytes)| bytes.len()));
        let dictionary = self.dictionary();
        // libFuzzer refuses an empty one.
        let has_words = fs::metadata(&dictionary).is_ok_and(|file| file.len() > 0);
        let mut command = Command::new(&self.program);
        command
            .arg(format!("-max_len={longest}"))
            .arg(prefix("artifact_prefix", &self.artifacts.join("")))
            .args(has_words.then(|| prefix("dict", &dictionary)))
            .arg(format!("-max_total_time={}", limit.time.as_secs().max(1)))
            .arg(format!("-timeout={TIMEOUT}"))
            .arg("-print_final_stats=1")
            .args(limit.executions.map(|count| format!("-runs={count}")))
            .args([&self.corpus, &self.seeds])
            .env("TMPDIR", &self.temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs the target; `show` is called with the number of executions so far.
    pub(super) fn run(&self, limit: Limit, mut show: impl FnMut(u64)) -> anyhow::Result<Outcome> {
        let mut child = self
            .command(limit)?
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let stderr = child.stderr.take().context("stderr is a pipe")?;
        let mut reader = Reader::default();
        for line in BufReader::new(stderr).split(b'\n') {
            reader.line(&String::from_utf8_lossy(&line?));
            show(reader.outcome.executions);
        }
        let status = child.wait()?;
        match (status.success(), &reader.outcome.finding) {
            (true, _) => Ok(Outcome {
                finding: None,
                ..reader.outcome
            }),
            (false, Some(_)) => Ok(reader.outcome),
            (false, None) => bail!(
                "{} ended with {status} and no input:\n{}",
                self.program.display(),
                reader.last_lines.make_contiguous().join("\n")
            ),
        }
    }

    /// Copies into an empty directory the fewest inputs that reach what the corpus in the tree does not reach.
    pub(super) fn minimise(&self, to: &Path) -> anyhow::Result<()> {
        let _ = fs::remove_dir_all(to);
        fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
        fs::create_dir_all(&self.temporary)?;
        let seeds = files(&self.seeds)?;
        for (path, bytes) in &seeds {
            let name = path.file_name().context("a file has a name")?;
            fs::write(to.join(name), bytes)?;
        }
        let output = Command::new(&self.program)
            .arg("-set_cover_merge=1")
            .args([to, &self.corpus])
            .env("TMPDIR", &self.temporary)
            .output()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        ensure!(
            output.status.success(),
            "cannot minimise the corpus: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        for (path, _) in &seeds {
            fs::remove_file(to.join(path.file_name().context("a file has a name")?))?;
        }
        Ok(())
    }
}

/// Returns the length of the longest input that libFuzzer makes: room for two of the corpus in the tree.
fn longest_input(seeds: impl Iterator<Item = usize>) -> usize {
    let longest = seeds.max().unwrap_or_default();
    (2 * longest).clamp(*LONGEST.start(), *LONGEST.end())
}

/// Returns the files of a directory, sorted, with their content.
pub(super) fn files(dir: &Path) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let context = || format!("cannot read {}", dir.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).with_context(context)? {
        paths.push(entry.with_context(context)?.path());
    }
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok((path, bytes))
    };
    paths.into_iter().map(read).collect()
}

/// Reads libFuzzer's lines.
#[derive(Default)]
struct Reader {
    outcome: Outcome,
    panic: Option<String>,
    last_lines: VecDeque<String>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let number_after = |mark: &str| -> Option<u64> {
            let (_, rest) = line.split_once(mark)?;
            rest.split_whitespace().next()?.parse().ok()
        };
        let outcome = &mut self.outcome;
        if line.starts_with('#') {
            outcome.executions = number_after("#").unwrap_or(outcome.executions);
            outcome.coverage = number_after(" cov: ").unwrap_or(outcome.coverage);
        }
        if let Some(units) = number_after("stat::number_of_executed_units:") {
            outcome.executions = units;
        }
        if line.contains(" panicked at ") {
            self.panic.get_or_insert_with(|| line.trim().to_owned());
        }
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            let path = PathBuf::from(path.trim());
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let reason = match name.split_once('-').map(|(kind, _)| kind) {
                Some("timeout") => format!("it does not end within {TIMEOUT} seconds"),
                Some("oom") => "it takes too much memory".to_owned(),
                _ => self
                    .panic
                    .clone()
                    .unwrap_or_else(|| "it ends the process".to_owned()),
            };
            outcome.finding = Some((path, reason));
        }
        if self.last_lines.len() == LAST_LINES {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(line.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Outcome {
        let mut reader = Reader::default();
        for line in text.lines() {
            reader.line(line);
        }
        reader.outcome
    }

    #[test]
    fn inputs_have_room_for_two_of_the_corpus() {
        assert_eq!(longest_input([3, 4608, 0].into_iter()), 9216);
        assert_eq!(longest_input([20].into_iter()), 512);
        assert_eq!(longest_input([1 << 20].into_iter()), 16 << 10);
    }

    #[test]
    fn dictionary_without_words_is_not_given() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let engine = Engine {
            program: path("target"),
            corpus: path("corpus"),
            seeds: path("seeds"),
            artifacts: path("artifacts"),
            temporary: path("tmp"),
        };
        fs::create_dir(&engine.seeds).unwrap();
        let limit = Limit {
            executions: None,
            time: Duration::from_secs(1),
        };
        for (name, seed, expected) in [("frame", &b"\xff\xfe"[..], 0), ("list", b"name", 1)] {
            fs::write(engine.seeds.join(name), seed).unwrap();
            engine.prepare().unwrap();
            let command = engine.command(limit).unwrap();
            let args = command.get_args().map(|arg| arg.to_string_lossy());
            let dictionaries = args.filter(|arg| arg.starts_with("-dict="));
            assert_eq!(dictionaries.count(), expected, "{name}");
        }
    }

    #[test]
    fn executions_and_coverage_are_read() {
        let text = "INFO: Seed: 1\n#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 30Mb\n#1024\tpulse  cov: 40 ft: 70 corp: 9/80b lim: 11 exec/s: 512 rss: 31Mb\n#4096\tDONE   cov: 41 ft: 71 corp: 9/80b lim: 11 exec/s: 512 rss: 31Mb\nDone 4096 runs in 8 second(s)\nstat::number_of_executed_units: 4097\nstat::average_exec_per_sec:     512\n";
        let expected = Outcome {
            executions: 4097,
            coverage: 41,
            finding: None,
        };
        assert_eq!(read(text), expected);
    }

    #[test]
    fn finding_has_its_input_and_the_panic() {
        let text = "#8\tNEW    cov: 3 ft: 4 corp: 2/3b lim: 4 exec/s: 0 rss: 30Mb\n\nthread '<unnamed>' (7) panicked at plan/src/fuzz.rs:20:9:\nassertion failed: x\n==7== ERROR: libFuzzer: deadly signal\nSUMMARY: libFuzzer: deadly signal\nartifact_prefix='/t/'; Test unit written to /t/crash-1234\n";
        let (path, reason) = read(text).finding.unwrap();
        assert_eq!(path, Path::new("/t/crash-1234"));
        assert!(reason.contains("plan/src/fuzz.rs:20:9"), "{reason}");
    }

    #[test]
    fn input_without_an_end_is_a_finding() {
        let text = "ALARM: working on the last Unit for 31 seconds\nartifact_prefix='/t/'; Test unit written to /t/timeout-1\n==7== ERROR: libFuzzer: timeout after 31 seconds\nSUMMARY: libFuzzer: timeout\n";
        let (path, reason) = read(text).finding.unwrap();
        assert_eq!(path, Path::new("/t/timeout-1"));
        assert!(reason.contains("30 seconds"), "{reason}");
    }
}
