//! One page: its headings, links and blocks.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::{
    AT_ROOT, BOOKS,
    block::{Block, Check, MarkError},
    commands::{self, Command},
};

/// The comment in front of the check of a page's indented blocks.
const DEFAULT: &str = "<!-- blocks: ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its path below the root of the checkout.
    pub path: String,
    /// Its Markdown.
    pub text: String,
    /// Its headings, in their order.
    pub headings: Vec<Heading>,
    /// Its links and images, in their order.
    pub links: Vec<Link>,
    /// Its blocks of code, in their order.
    pub blocks: Vec<Block>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    /// From 1, the page's title.
    pub level: u8,
    /// Its text without marks.
    pub text: String,
    /// The name by which links reach it.
    pub anchor: String,
}

/// A link or an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its line, from 1.
    pub line: usize,
    /// The address as written.
    pub to: String,
    /// Its text without marks.
    pub text: String,
    /// Whether it is an image.
    pub is_image: bool,
    /// The heading of level 2 that it is below; empty for none.
    pub section: String,
}

/// The Markdown that pages are written in.
fn options() -> Options {
    Options::ENABLE_TABLES
}

impl Page {
    /// Parses a page.
    pub fn parse(path: &str, text: String) -> Self {
        let mut page = Self {
            path: path.to_owned(),
            text,
            headings: Vec::new(),
            links: Vec::new(),
            blocks: Vec::new(),
        };
        let text = std::mem::take(&mut page.text);
        page.fill(&text);
        page.text = text;
        page
    }

    fn fill(&mut self, text: &str) {
        let line_of = |at: usize| text[..at].matches('\n').count() + 1;
        let default = text
            .lines()
            .find_map(|line| line.strip_prefix(DEFAULT)?.strip_suffix(" -->"));
        // The parts that are open; links stand in headings, never the other way round.
        let mut heading: Option<(u8, String)> = None;
        let mut link: Option<Link> = None;
        let mut block: Option<Block> = None;
        let mut section = String::new();
        for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    heading = Some((level as u8, String::new()));
                }
                Event::End(TagEnd::Heading(_)) => {
                    if let Some((level, text)) = heading.take() {
                        if level == 2 {
                            section.clone_from(&text);
                        }
                        let anchor = self.anchor(&text);
                        self.headings.push(Heading {
                            level,
                            text,
                            anchor,
                        });
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    link = Some(Link {
                        line: line_of(range.start),
                        to: dest_url.into_string(),
                        text: String::new(),
                        is_image: text[range.start..].starts_with('!'),
                        section: section.clone(),
                    });
                }
                Event::End(TagEnd::Link | TagEnd::Image) => self.links.extend(link.take()),
                Event::Start(Tag::CodeBlock(kind)) => {
                    let (language, check) = match &kind {
                        CodeBlockKind::Indented => {
                            let check = default.map_or(Err(MarkError::Missing), Check::parse);
                            (String::new(), check)
                        }
                        CodeBlockKind::Fenced(info) => {
                            let (language, mark) = info.split_once(' ').unwrap_or((info, ""));
                            (language.to_owned(), Check::parse(mark.trim()))
                        }
                    };
                    block = Some(Block {
                        line: line_of(range.start),
                        language,
                        check,
                        text: String::new(),
                    });
                }
                Event::End(TagEnd::CodeBlock) => self.blocks.extend(block.take()),
                Event::Text(words) | Event::Code(words) => {
                    if let Some(block) = &mut block {
                        block.text.push_str(&words);
                    }
                    if let Some(link) = &mut link {
                        link.text.push_str(&words);
                    }
                    if let Some((_, text)) = &mut heading {
                        text.push_str(&words);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the name of the next heading with this text, as GitHub makes it.
    fn anchor(&self, text: &str) -> String {
        let own = slug(text);
        let same = self.headings.iter().filter(|one| slug(&one.text) == own);
        match same.count() {
            0 => own,
            count => format!("{own}-{count}"),
        }
    }

    /// Returns whether the page belongs to one of the books, so that its blocks are checked.
    pub fn is_for_people(&self) -> bool {
        let dir = self.path.rsplit_once('/').map(|(dir, _)| dir);
        AT_ROOT.contains(&self.path.as_str()) || dir.is_some_and(|dir| BOOKS.contains(&dir))
    }

    /// Returns the page's title, or its path where it has none.
    pub fn title(&self) -> &str {
        let first = self.headings.first();
        first.map_or(&self.path, |heading| &heading.text)
    }

    /// Returns the commands of the page's blocks; lines that are none are left out.
    pub fn commands(&self) -> Vec<Command> {
        let lines = self.command_lines();
        lines.filter_map(Result::ok).flatten().collect()
    }

    /// Returns the commands of each line that has to be one, or what is wrong with the line.
    pub(crate) fn command_lines(&self) -> impl Iterator<Item = Result<Vec<Command>, String>> {
        let with_commands = self
            .blocks
            .iter()
            .filter(|block| block.check.as_ref().is_ok_and(Check::has_commands))
            .filter(|block| ["", "sh"].contains(&block.language.as_str()));
        with_commands.flat_map(move |block| {
            let is_parsed = !matches!(block.check, Ok(Check::Elsewhere(_)));
            joined(&block.text).map(move |(number, line)| {
                let at = format!("{}:{}", self.path, block.line + number);
                match commands::parse_line(&at, &line) {
                    // Anything may be in a block that runs elsewhere; our own commands in it are checked all the same.
                    Err(_) if !is_parsed => Ok(Vec::new()),
                    found => found.map_err(|error| format!("{at}: {error}")),
                }
            })
        })
    }
}

fn slug(text: &str) -> String {
    let kept = text.trim().chars().flat_map(char::to_lowercase);
    kept.filter(|char| char.is_alphanumeric() || [' ', '-', '_'].contains(char))
        .map(|char| if char == ' ' { '-' } else { char })
        .collect()
}

/// Returns the lines with their numbers, those that end in a backslash with the next one.
fn joined(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (number, first) = lines.next()?;
        let mut line = first.to_owned();
        while let Some(head) = line.strip_suffix('\\') {
            let next = lines.next().map_or("", |(_, next)| next.trim());
            line = format!("{head}{next}");
        }
        Some((number + 1, line))
    })
}

impl Link {
    /// Returns the file below the root of the checkout to which it leads from a page; `None` for an address, and for a link with only an anchor.
    pub fn file(&self, page: &str) -> Option<String> {
        let (path, _) = self.to.split_once('#').unwrap_or((&self.to, ""));
        if path.is_empty() || path.contains(':') {
            return None;
        }
        let mut parts: Vec<&str> = page.split('/').collect();
        parts.pop();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        Some(parts.join("/"))
    }

    /// Returns the anchor that it names.
    pub fn anchor(&self) -> Option<&str> {
        self.to.split_once('#').map(|(_, anchor)| anchor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# The *title*\n\n## One `x`: two\n\n[a](b.md#c) ![d](e.svg)\n\n```sh parsed\nhelm list \\\n  --all\nkubectl get pods\n```\n\n## One x two\n\n    indented\n";

    #[test]
    fn headings_links_and_blocks_are_found() {
        let page = Page::parse("docs/a.md", TEXT.to_owned());
        assert_eq!(page.title(), "The title");
        let anchors: Vec<_> = page
            .headings
            .iter()
            .map(|one| one.anchor.as_str())
            .collect();
        assert_eq!(anchors, ["the-title", "one-x-two", "one-x-two-1"]);
        let links: Vec<_> = page
            .links
            .iter()
            .map(|one| (one.file(&page.path).unwrap(), one.is_image, one.line))
            .collect();
        let expected = [
            ("docs/b.md".to_owned(), false, 5),
            ("docs/e.svg".to_owned(), true, 5),
        ];
        assert_eq!(links, expected);
        assert_eq!(page.links[0].anchor(), Some("c"));
        assert_eq!(page.links[0].section, "One x: two");
        let blocks: Vec<_> = page
            .blocks
            .iter()
            .map(|one| (one.line, &one.check))
            .collect();
        assert_eq!(
            blocks,
            [(7, &Ok(Check::Parsed)), (15, &Err(MarkError::Missing))]
        );
        let commands: Vec<_> = page
            .commands()
            .into_iter()
            .map(|one| (one.at, one.args))
            .collect();
        assert_eq!(
            commands,
            [
                (
                    "docs/a.md:8".to_owned(),
                    vec!["list".to_owned(), "--all".to_owned()]
                ),
                (
                    "docs/a.md:10".to_owned(),
                    vec!["get".to_owned(), "pods".to_owned()]
                ),
            ]
        );
    }

    #[test]
    fn a_comment_names_the_check_of_indented_blocks() {
        let page = Page::parse("a.md", format!("<!-- blocks: output -->\n{TEXT}"));
        assert_eq!(page.blocks[1].check, Ok(Check::Output));
        assert_eq!(page.blocks[0].check, Ok(Check::Parsed));
    }

    #[test]
    fn links_are_relative_to_their_page() {
        let file = |page: &str, to: &str| {
            let link = Link {
                line: 1,
                to: to.to_owned(),
                text: String::new(),
                is_image: false,
                section: String::new(),
            };
            link.file(page)
        };
        assert_eq!(
            file("docs/a.md", "../README.md#x"),
            Some("README.md".into())
        );
        assert_eq!(file("README.md", "docs/a.md"), Some("docs/a.md".into()));
        assert_eq!(
            file("docs/a.md", "../chart/consumers/"),
            Some("chart/consumers".into())
        );
        assert_eq!(file("docs/a.md", "#x"), None);
        assert_eq!(file("docs/a.md", "https://example.com/a.md"), None);
    }
}
