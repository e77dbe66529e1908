//! Inserts lines into the text of an index, at a place that is found by the file's layout.

use serde_yaml::Mapping;

/// Returns the text with one more entry at this position of a chart's list; `None` when the file is not laid out as usual.
pub(super) fn insert(text: &str, name: &str, position: usize, entry: &Mapping) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let start = lines.iter().position(|line| line.starts_with("entries:"))?;
    if lines[start].trim_end() == "entries: {}" {
        "entries:".clone_into(&mut lines[start]);
    }
    let end = block_end(&lines, start + 1, 1);
    let names = start + 1..end;
    let first = names.clone().find(|&at| is_content(&lines[at]));
    let depth = first.map_or(2, |at| indent(&lines[at]));
    let titles: Vec<(usize, &str)> = names
        .filter(|&at| is_content(&lines[at]) && indent(&lines[at]) == depth)
        .filter_map(|at| Some((at, title(&lines[at])?)))
        .collect();
    let found = titles.iter().find(|(_, title)| *title == name);
    let is_new = found.is_none();
    let (at, item_depth) = if let Some(&(at, _)) = found {
        let next = titles.iter().map(|one| one.0).find(|&next| next > at);
        item_line(&lines[..next.unwrap_or(end)], at, depth, position)
    } else {
        let after = titles.iter().find(|(_, title)| *title > name);
        let at = after.map_or_else(|| last_content(&lines, start, end), |one| one.0);
        (at, depth)
    };
    let item = serde_yaml::to_string(&[entry]).ok()?;
    let now = entry.get("created")?.as_str()?;
    let item = item.replace(
        &format!("created: {now}"),
        &format!("created: {}", quoted(now)),
    );
    let item = item.lines().map(|line| format!("{:item_depth$}{line}", ""));
    let title = is_new.then(|| format!("{:depth$}{name}:", ""));
    let new: Vec<String> = title.into_iter().chain(item).collect();
    lines.splice(at..at, new);
    Some(lines.join("\n") + "\n")
}

/// Returns the line of the item at this position of a chart's list, or the line after the last item, and the items' indentation.
fn item_line(lines: &[String], title: usize, depth: usize, position: usize) -> (usize, usize) {
    let below = title + 1..lines.len();
    let first = below.clone().find(|&at| is_content(&lines[at]));
    let depth = first.map_or(depth, |at| indent(&lines[at]));
    let is_item =
        |at: &usize| indent(&lines[*at]) == depth && lines[*at][depth..].starts_with("- ");
    let found = below.filter(is_item).nth(position);
    let at = found.unwrap_or_else(|| last_content(lines, title, lines.len()));
    (at, depth)
}

/// Returns the text with `generated` set to this time.
pub(super) fn set_generated(text: &str, now: &str) -> String {
    let line = format!("generated: {}\n", quoted(now));
    let mut found = false;
    let mut lines: Vec<_> = text.split_inclusive('\n').collect();
    for old in lines
        .iter_mut()
        .filter(|line| line.starts_with("generated:"))
    {
        (*old, found) = (&line, true);
    }
    if !found {
        lines.push(&line);
    }
    lines.concat()
}

/// Quotes a time, since some readers would parse it as a timestamp otherwise.
fn quoted(time: &str) -> String {
    format!("\"{time}\"")
}

/// Returns the first line from `from` on that is indented less than `depth`.
fn block_end(lines: &[String], from: usize, depth: usize) -> usize {
    let ends = |line: &String| is_content(line) && indent(line) < depth;
    let found = lines[from..].iter().position(ends);
    found.map_or(lines.len(), |at| from + at)
}

/// Returns the line after the last one with content, so that comments and blank lines before the next block stay with that block.
fn last_content(lines: &[String], from: usize, end: usize) -> usize {
    let found = (from..end).rev().find(|&at| is_content(&lines[at]));
    found.map_or(from, |at| at) + 1
}

fn is_content(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with('#')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns the name in a line that begins a chart's list; items of a list may be at the same depth, and begin with a key too.
fn title(line: &str) -> Option<&str> {
    let title = line.trim().strip_suffix(':')?;
    if title.starts_with("- ") {
        return None;
    }
    Some(title.trim_matches(['"', '\'']))
}
