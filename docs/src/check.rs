//! Checks of all pages that run nothing: marks, commands of known programs, links, and the list of pages.

use std::collections::BTreeMap;

use crate::{AT_ROOT, INDEX, Page, Pages};

/// Returns what is wrong with the pages, a line each.
pub fn complaints(pages: &Pages) -> Vec<String> {
    let mut found = Vec::new();
    for page in pages.pages.values() {
        found.extend(dead_links(pages, page));
        if page.is_for_people() {
            found.extend(blocks(page));
        }
    }
    found.extend(unlisted(pages));
    found
}

/// Returns how many blocks each check has.
pub fn counts(pages: &Pages) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    let blocks = pages.for_people().flat_map(|page| &page.blocks);
    for check in blocks.filter_map(|block| block.check.as_ref().ok()) {
        *counts.entry(check.word()).or_default() += 1;
    }
    counts
}

fn blocks(page: &Page) -> Vec<String> {
    let marks = page.blocks.iter().filter_map(|block| {
        let error = block.check.as_ref().err()?;
        Some(format!("{}:{}: {error}", page.path, block.line))
    });
    marks
        .chain(page.command_lines().filter_map(Result::err))
        .collect()
}

fn dead_links(pages: &Pages, page: &Page) -> Vec<String> {
    let mut found = Vec::new();
    for link in &page.links {
        let file = link.file(&page.path);
        if link.to.contains(':') && file.is_none() {
            continue;
        }
        let path = file.unwrap_or_else(|| page.path.clone());
        let at = format!("{}:{}", page.path, link.line);
        if !pages.root.join(&path).exists() {
            found.push(format!("{at}: a link to {path}, which does not exist"));
            continue;
        }
        if let (Some(anchor), Some(target)) = (link.anchor(), pages.get(&path))
            && !target.headings.iter().any(|one| one.anchor == anchor)
        {
            found.push(format!(
                "{at}: a link to a heading `{anchor}`, which {path} does not have"
            ));
        }
    }
    found
}

/// Names the pages that the index does not list.
fn unlisted(pages: &Pages) -> Vec<String> {
    let listed: Vec<String> = pages
        .get(INDEX)
        .map(|index| {
            index
                .links
                .iter()
                .filter_map(|link| link.file(INDEX))
                .collect()
        })
        .unwrap_or_default();
    pages
        .for_people()
        .filter(|page| page.path != INDEX && !AT_ROOT.contains(&page.path.as_str()))
        .filter(|page| !listed.contains(&page.path))
        .map(|page| format!("{}: {INDEX} does not list this page: add it", page.path))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn pages(texts: &[(&str, &str)]) -> Pages {
        let page = |(path, text): &(&str, &str)| {
            ((*path).to_owned(), Page::parse(path, (*text).to_owned()))
        };
        Pages {
            root: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")),
            pages: texts.iter().map(page).collect(),
        }
    }

    #[track_caller]
    fn check(texts: &[(&str, &str)], expected: &[&str]) {
        let found = complaints(&pages(texts));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}, expected {expected}");
        }
    }

    #[test]
    fn this_checkout_has_no_complaint() {
        let pages = Pages::of_checkout().unwrap();
        let found = complaints(&pages);
        assert!(found.is_empty(), "{}", found.join("\n"));
        assert!(pages.pages.len() > 20);
    }

    #[test]
    fn harm_is_named() {
        check(&[("README.md", "# A\n\n[a](#a)\n")], &[]);
        check(
            &[("README.md", "[a](#b) [c](docs/absent.md)\n")],
            &[
                "README.md:1: a link to a heading `b`",
                "docs/absent.md, which does not exist",
            ],
        );
        check(
            &[("README.md", "```sh\nls\n```\n")],
            &["README.md:1: the block names no check"],
        );
        check(
            &[
                ("docs/contributing/a.md", "```sh\nls\n```\n"),
                ("docs/adr/a.md", "```sh\nls\n```\n"),
            ],
            &[
                "docs/contributing/a.md:1: the block names no check",
                "docs/contributing/a.md: docs/index.md does not list this page",
            ],
        );
        check(
            &[("README.md", "```sh parsed\nhelm list\nheml list\n```\n")],
            &["README.md:3: no check knows the program `heml`"],
        );
        check(
            &[("docs/index.md", "# I\n"), ("docs/a.md", "# A\n")],
            &["docs/a.md: docs/index.md does not list"],
        );
        // Other pages are rendered, and their blocks are their own business.
        check(&[("ARCHITECTURE.md", "    x\n")], &[]);
    }
}
