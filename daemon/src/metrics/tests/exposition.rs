//! A strict parser of Prometheus' text format, version 0.0.4. It checks names, labels, escapes, types before samples, one block for each
//! name, and buckets that add up.

use std::collections::{BTreeMap, BTreeSet};

use super::complete_text;

/// One line with a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

/// A family with its type and samples.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Block {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) samples: Vec<Sample>,
}

/// Returns all families, or the first invalid line with the reason.
pub(super) fn parse(text: &str) -> Result<Vec<Block>, String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut blocks: Vec<Block> = Vec::new();
    let mut help = None;
    for line in text.lines() {
        let wrong = |why: &str| Err(format!("{why}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let Some((name, _)) = rest.split_once(' ') else {
                return wrong("no text");
            };
            help = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = rest.split_once(' ') else {
                return wrong("no type");
            };
            if help.take().as_deref() != Some(name) {
                return wrong("no HELP before it");
            }
            if !["counter", "gauge", "histogram"].contains(&kind) {
                return wrong("unknown type");
            }
            if blocks.iter().any(|block| block.name == name) {
                return wrong("a second block");
            }
            let (name, kind) = (name.to_owned(), kind.to_owned());
            let samples = Vec::new();
            blocks.push(Block {
                name,
                kind,
                samples,
            });
        } else {
            let sample = match sample(line) {
                Ok(sample) => sample,
                Err(why) => return wrong(&why),
            };
            let Some(block) = blocks.last_mut().filter(|block| block.holds(&sample.name)) else {
                return wrong("not in the block of its name");
            };
            let is_same =
                |other: &Sample| (&other.name, &other.labels) == (&sample.name, &sample.labels);
            if block.samples.iter().any(is_same) {
                return wrong("twice");
            }
            block.samples.push(sample);
        }
    }
    blocks.iter().try_for_each(Block::check)?;
    Ok(blocks)
}

impl Block {
    /// Whether a sample of that name belongs to this family.
    fn holds(&self, name: &str) -> bool {
        match name.strip_prefix(&self.name) {
            Some("") => self.kind != "histogram",
            Some("_bucket" | "_sum" | "_count") => self.kind == "histogram",
            _ => false,
        }
    }

    fn check(&self) -> Result<(), String> {
        let Self { name, kind, .. } = self;
        if self.samples.is_empty() {
            return Err(format!("{name} has no samples"));
        }
        if !is_name(name) {
            return Err(format!("{name} is not a name"));
        }
        if (kind == "counter") != name.ends_with("_total") {
            return Err(format!("a {kind} is called {name}"));
        }
        if kind != "histogram" {
            return Ok(());
        }
        let mut series: BTreeSet<BTreeMap<String, String>> = BTreeSet::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            labels.remove("le");
            series.insert(labels);
        }
        for labels in series {
            self.check_histogram(&labels)?;
        }
        Ok(())
    }

    fn check_histogram(&self, labels: &BTreeMap<String, String>) -> Result<(), String> {
        let name = &self.name;
        let one = |suffix: &str| {
            let full = format!("{name}{suffix}");
            let found = self
                .samples
                .iter()
                .find(|s| s.name == full && s.labels == *labels);
            found.map(|sample| sample.value).ok_or(format!("no {full}"))
        };
        let (_, total) = (one("_sum")?, one("_count")?);
        let mut last = (f64::NEG_INFINITY, 0.0);
        for sample in &self.samples {
            let mut others = sample.labels.clone();
            let Some(bound) = others.remove("le").filter(|_| others == *labels) else {
                continue;
            };
            let bound = number(&bound).ok_or(format!("le of {name} is {bound}"))?;
            if bound <= last.0 || sample.value < last.1 {
                return Err(format!("buckets of {name} do not grow"));
            }
            last = (bound, sample.value);
        }
        if last.0 != f64::INFINITY || (last.1 - total).abs() > 0.0 {
            return Err(format!("the last bucket of {name} does not hold all"));
        }
        Ok(())
    }
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, rest) = line.split_at(end);
    if !is_name(name) {
        return Err("no name".to_owned());
    }
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = value.strip_prefix(' ').ok_or("no space before the value")?;
    let value = number(value).ok_or("no number")?;
    let name = name.to_owned();
    Ok(Sample {
        name,
        labels,
        value,
    })
}

/// Returns the labels up to the closing brace, and the rest of the line.
fn labels(mut rest: &str) -> Result<(BTreeMap<String, String>, &str), String> {
    let mut labels = BTreeMap::new();
    loop {
        let (name, behind) = rest.split_once("=\"").ok_or("a label without a value")?;
        if !is_name(name) || name.contains(':') {
            return Err("no name of a label".to_owned());
        }
        let mut value = String::new();
        let mut chars = behind.char_indices();
        let end = loop {
            match chars.next() {
                Some((index, '"')) => break index,
                Some((_, '\\')) => value.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, same @ ('\\' | '"'))) => same,
                    _ => return Err("an unknown escape".to_owned()),
                }),
                Some((_, char)) => value.push(char),
                None => return Err("a value without an end".to_owned()),
            }
        };
        if labels.insert(name.to_owned(), value).is_some() {
            return Err("a label twice".to_owned());
        }
        rest = &behind[end + 1..];
        match rest.split_at_checked(1) {
            Some((",", behind)) => rest = behind,
            Some(("}", behind)) => return Ok((labels, behind)),
            _ => return Err("no end of the labels".to_owned()),
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == ':';
    name.chars().all(is_part) && name.starts_with(|char: char| !char.is_ascii_digit())
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        _ if text.starts_with(|char: char| char.is_ascii_digit() || char == '-') => {
            text.parse().ok()
        }
        _ => None,
    }
}

#[test]
fn the_text_is_valid_for_prometheus() {
    let blocks = parse(&complete_text()).unwrap();
    assert!(blocks.len() > 15, "{blocks:?}");
    assert_eq!(parse(""), Ok(Vec::new()));
}

#[test]
fn the_parser_is_strict() {
    let head = "# HELP x_total X\n# TYPE x_total counter\n";
    assert!(parse(&format!("{head}x_total{{a=\"b\"}} 1\n")).is_ok());
    for (text, why) in [
        ("x_total 1\n".to_owned(), "not in the block"),
        (head.to_owned(), "no samples"),
        (format!("{head}x_total 1"), "no end"),
        (format!("{head}x_total 1\nx_total 2\n"), "twice"),
        (format!("{head}x_total{{a=\"b}} 1\n"), "without an end"),
        (format!("{head}x_total{{a=\"\\t\"}} 1\n"), "escape"),
        (format!("{head}x_total  1\n"), "no number"),
        (format!("{head}x_total 1\n{head}x_total 1\n"), "a second block"),
        ("# TYPE x counter\nx 1\n".to_owned(), "no HELP"),
        ("# HELP x X\n# TYPE x counter\nx 1\n".to_owned(), "is called x"),
        (
            "# HELP x X\n# TYPE x histogram\nx_bucket{le=\"1\"} 2\nx_bucket{le=\"+Inf\"} 1\nx_sum 1\nx_count 1\n".to_owned(),
            "do not grow",
        ),
        (
            "# HELP x X\n# TYPE x histogram\nx_bucket{le=\"1\"} 1\nx_sum 1\nx_count 1\n".to_owned(),
            "does not hold all",
        ),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
}
