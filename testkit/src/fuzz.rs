//! Inputs for readers of untrusted bytes: samples that are cut, mixed and changed, the same in every short run.
//!
//! With `FUZZ_SECONDS=60 cargo test fuzz` each target runs for 60 seconds, each time from another seed. `docs/contributing/testing.md` says how the
//! targets run guided by coverage.

pub mod corpus;
pub mod tar;

use std::time::{Duration, Instant, SystemTime};

/// How many inputs a short run has.
const ROUNDS: usize = 1000;

/// A small generator (xorshift) of numbers that follow from a seed.
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits are a number")
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.next() % end.max(1)
    }

    /// One of these.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Prints its input when it is dropped by a panic, so that the input can become a sample.
pub struct PrintOnPanic<'a>(pub &'a [u8]);

impl Drop for PrintOnPanic<'_> {
    #[expect(clippy::print_stderr, reason = "a test that fails prints why")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("make this a sample: b\"{}\"", self.0.escape_ascii());
        }
    }
}

/// Calls `each` for `rounds` rounds with the same numbers in every run, or for `FUZZ_SECONDS` seconds with others. Returns the number of rounds.
pub fn repeat(rounds: usize, mut each: impl FnMut(&mut Random)) -> usize {
    let seconds = std::env::var("FUZZ_SECONDS").ok();
    let seconds: Option<u64> = seconds.map(|text| text.parse().expect("FUZZ_SECONDS is a number"));
    let seed = seconds.map_or(1, |_| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.expect("the clock is past 1970").subsec_nanos()
    });
    let mut random = Random(u64::from(seed) | 1 << 40);
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut count = 0;
    while end.map_or(count < rounds, |end| Instant::now() < end) {
        each(&mut random);
        count += 1;
    }
    count
}

/// Runs a target, which returns whether it accepted its input, on the inputs that `make` makes.
/// Fails when nearly all inputs or nearly none are accepted, since the other side is then hardly tried.
pub fn run(make: impl Fn(&mut Random) -> Vec<u8>, target: impl Fn(&[u8]) -> bool) {
    let mut accepted = 0;
    let rounds = repeat(ROUNDS, |random| {
        let input = make(random);
        let input = PrintOnPanic(&input);
        accepted += usize::from(target(input.0));
    });
    assert!(
        accepted > rounds / 100 && accepted < rounds - rounds / 100,
        "{accepted} of {rounds} accepted: one side is hardly tried"
    );
}

/// One of the samples, with up to three changes; `tokens` of its grammar may be inserted.
pub fn changed(samples: &[&[u8]], tokens: &[&str], random: &mut Random) -> Vec<u8> {
    let mut input = random.pick(samples).to_vec();
    for _ in 0..random.below(4) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(12)).min(input.len());
        match random.below(6) {
            0 => drop(input.drain(at..end)),
            1 => drop(input.splice(at..at, random.pick(tokens).bytes())),
            2 => drop(input.splice(at..end, random.pick(tokens).bytes())),
            3 => {
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            4 => {
                let other = random.pick(samples);
                let from = random.below(other.len());
                let to = (from + random.below(80)).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    input
}
