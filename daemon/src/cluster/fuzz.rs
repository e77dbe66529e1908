//! Fuzz targets of the API server's answers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::list_splitter::{LineSplitter, ListSplitter, SplitError};
use super::reflector::parse_line;

/// A list, in chunks of every length: where it is JSON, the splitter finds what a parser of the whole text finds.
pub fn lists(input: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow, default)]
        items: Vec<&'a RawValue>,
        #[serde(flatten)]
        other: BTreeMap<String, Value>,
    }
    let [whole, parts] = [input.len().max(1), 3].map(|size| split(input, size));
    assert_eq!(whole, parts, "the chunks make a difference");
    // The API server writes no key twice, and none with numbers for its letters.
    let count = |text: &[u8]| {
        input
            .windows(text.len())
            .filter(|part| *part == text)
            .count()
    };
    let parsed = serde_json::from_slice::<List<'_>>(input).ok();
    let parsed = parsed.filter(|_| count(b"\"items\"") < 2 && count(b"\\u") == 0);
    let Some(list) =
        parsed.filter(|list| list.items.iter().all(|item| item.get().starts_with('{')))
    else {
        return false;
    };
    let Ok((items, envelope)) = whole else {
        panic!("a list is refused: {whole:?}");
    };
    let expected: Vec<_> = list
        .items
        .iter()
        .map(|item| item.get().as_bytes())
        .collect();
    assert_eq!(items, expected);
    let envelope: List<'_> = serde_json::from_slice(&envelope).expect("the envelope is JSON");
    assert!(envelope.items.is_empty());
    assert_eq!(envelope.other, list.other);
    true
}

type Split = Result<(Vec<Vec<u8>>, Vec<u8>), SplitError>;

fn split(input: &[u8], size: usize) -> Split {
    let (mut splitter, mut items) = (ListSplitter::default(), Vec::new());
    for chunk in input.chunks(size) {
        splitter.push(chunk, |item| {
            items.push(item.to_vec());
            Ok::<_, SplitError>(())
        })?;
    }
    Ok((items, splitter.finish()?))
}

/// The lines of a watch.
pub fn watches(input: &[u8]) -> bool {
    let lines = |size| {
        let (mut splitter, mut lines) = (LineSplitter::default(), Vec::new());
        for chunk in input.chunks(size) {
            let pushed = splitter.push(chunk, |line| {
                lines.push(line.to_vec());
                Ok::<_, SplitError>(())
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
