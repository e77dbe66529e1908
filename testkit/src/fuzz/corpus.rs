//! Bounded runs of fuzz targets: each file of a target's corpus as it is, then pieces of the files cut, mixed and changed.
//!
//! `cargo xtask fuzz` runs the same targets from the same corpora, guided by coverage. An input that failed once is added to the
//! corpus and stays.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{PrintOnPanic, Random, repeat};

/// Inputs of a short run, each corpus file besides.
const ROUNDS: usize = 1000;
/// Longer inputs find nothing that shorter ones do not.
const LONGEST: usize = 4096;
/// Parts of the grammars that are read: JSON, YAML, TOML, and what stands in them.
const WORDS: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "\\",
    ",",
    ":",
    "=",
    "+",
    "/",
    "@",
    "#",
    "- ",
    "---\n",
    "...\n",
    "&x ",
    "*x",
    "<<: ",
    "!x ",
    "|",
    "~",
    "[[",
    "**",
    "null",
    "true",
    "0",
    "-1",
    "00",
    "1e999",
    "9223372036854775808",
    "1979-05-27",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "\u{ffff}",
    "\u{feff}",
    "\u{e9}",
    " ",
    "\t",
    "\n",
    "\r\n",
    "..",
    "::/0",
    "0.0.0.0/0",
];

/// Returns the directory of a target's corpus.
pub fn dir(target: &str) -> PathBuf {
    let testkit = Path::new(env!("CARGO_MANIFEST_DIR"));
    testkit.with_file_name("fuzz/corpus").join(target)
}

/// Calls `accepts` with each file of the target's corpus, then with many inputs made from them; it returns whether it took the input.
///
/// # Panics
/// When the target panics, is not a function of its input, or accepts all or none of the corpus.
pub fn run(target: &str, accepts: impl Fn(&[u8]) -> bool) {
    let dir = dir(target);
    let mut files: Vec<_> = fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{} cannot be listed: {error}", dir.display()))
        .map(|file| file.expect("the corpus can be listed").path())
        .collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files
        .iter()
        .map(|path| fs::read(path).expect("a file of the corpus can be read"))
        .collect();
    let check = |input: &[u8]| {
        let suspect = PrintOnPanic(input);
        let is_accepted = accepts(suspect.0);
        assert_eq!(
            accepts(suspect.0),
            is_accepted,
            "not a function of its input"
        );
        is_accepted
    };
    // A corpus that is refused as a whole, or taken as a whole, tries one side alone.
    let accepted = seeds.iter().filter(|seed| check(seed)).count();
    assert!(
        accepted > 0 && accepted < seeds.len(),
        "{accepted} of {} files of {} are accepted: one side is not tried",
        seeds.len(),
        dir.display()
    );
    repeat(ROUNDS, |random| {
        check(&changed(&seeds, random));
    });
}

/// One input: one of the corpus, changed in a few places.
fn changed(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(5) {
            0 => {
                let end = (at + random.below(8)).min(input.len());
                input.drain(at..end);
            }
            1 => {
                let word = WORDS[random.below(WORDS.len())];
                input.splice(at..at, word.bytes());
            }
            2 if at < input.len() => input[at] = random.below(256).to_le_bytes()[0],
            3 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                let piece = other[from..(from + random.below(64)).min(other.len())].to_vec();
                input.splice(at..at, piece);
            }
            _ => {
                let end = (at + random.below(32)).min(input.len());
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
        }
    }
    input.truncate(LONGEST);
    input
}
