//! Fuzz target of the API server's answers.

use serde_json::Value;

use super::line_splitter::LineSplitter;
use super::reflector::parse_line;

/// The lines of a watch.
pub fn watches(input: &[u8]) -> bool {
    let lines = |size| {
        let (mut splitter, mut lines) = (LineSplitter::default(), Vec::new());
        for chunk in input.chunks(size) {
            let pushed = splitter.push(chunk, |line| {
                lines.push(line.to_vec());
                Ok(())
            });
            pushed.expect("the input is short");
        }
        lines
    };
    let found = lines(input.len().max(1));
    assert_eq!(found, lines(2));
    let parsed = found.iter().filter(|line| !line.is_empty());
    let parsed: Vec<_> = parsed.map(|line| parse_line::<Value>(line)).collect();
    for (_, version) in parsed.iter().flatten() {
        assert!(version.as_ref().is_none_or(|version| !version.is_empty()));
    }
    !parsed.is_empty() && parsed.iter().all(Result::is_ok)
}
