//! The static site: each page as HTML with a menu, its contents and a search, readable from a file system, without a server or network.

use std::{collections::BTreeMap, fmt::Write as _, fs, io};

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd, html};

use crate::{Check, INDEX, Page, Pages, README, page};

/// The files that every page uses, by their paths in the site.
const ASSETS: [(&str, &str); 2] = [
    ("site.css", include_str!("site.css")),
    ("site.js", include_str!("site.js")),
];
/// The index of the search, which a page loads for its first search.
const SEARCH: &str = "search.js";
const ICON: &str = "docs/icon.svg";
const NAME: &str = "multus-rs";

/// What the pages describe.
#[derive(Debug, Clone, Copy)]
pub struct Edition<'a> {
    pub version: &'a str,
    /// The commit; another text where files differ from one.
    pub commit: &'a str,
}

/// Returns the files of the site by path: a page for each page, the images that they show, and what all pages use.
pub fn files(pages: &Pages, edition: Edition<'_>) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let site = Site::new(pages, edition);
    let mut files = BTreeMap::from(ASSETS.map(|(path, text)| (path.to_owned(), text.into())));
    files.insert(SEARCH.to_owned(), site.search_index().into_bytes());
    files.insert(ICON.to_owned(), fs::read(pages.root.join(ICON))?);
    for page in pages.pages.values() {
        files.insert(html_path(&page.path), site.document(page).into_bytes());
        let images = page.links.iter().filter(|link| link.is_image);
        for path in images.filter_map(|link| link.file(&page.path)) {
            let bytes = fs::read(pages.root.join(&path))?;
            files.insert(path, bytes);
        }
    }
    Ok(files)
}

/// Returns the path of a page in the site.
fn html_path(page: &str) -> String {
    if page == README {
        return "index.html".to_owned();
    }
    page.strip_suffix(".md")
        .map_or_else(|| page.to_owned(), |stem| format!("{stem}.html"))
}

/// Returns the way from a page to the root of the site.
fn up(page: &Page) -> String {
    "../".repeat(page.path.matches('/').count())
}

/// One section of the menu: its title, and its pages with their names.
type Section<'a> = (&'a str, Vec<(&'a str, &'a Page)>);

/// Reads the menu from the page that lists all pages; each page stands where it is listed first.
fn menu(pages: &Pages) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut listed = vec![README];
    let links = pages.get(INDEX).map_or(&[][..], |index| &index.links);
    for link in links {
        let path = link.file(INDEX).unwrap_or_default();
        let Some(page) = pages.get(&path) else {
            continue;
        };
        if link.anchor().is_some() || listed.contains(&page.path.as_str()) {
            continue;
        }
        listed.push(&page.path);
        match sections.last_mut() {
            Some((title, entries)) if *title == link.section => entries.push((&link.text, page)),
            _ => sections.push((&link.section, vec![(&link.text, page)])),
        }
    }
    sections
}

struct Site<'a> {
    pages: &'a Pages,
    edition: Edition<'a>,
    menu: Vec<Section<'a>>,
    /// Where the files of the checkout are at the forge.
    sources: String,
}

impl<'a> Site<'a> {
    fn new(pages: &'a Pages, edition: Edition<'a>) -> Self {
        let is_commit = edition.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        let revision = if is_commit { edition.commit } else { "main" };
        let repository = env!("CARGO_PKG_REPOSITORY");
        Self {
            pages,
            edition,
            menu: menu(pages),
            sources: format!("{repository}/blob/{revision}/"),
        }
    }

    fn document(&self, page: &Page) -> String {
        let up = up(page);
        let title = escape(page.title());
        let title = match page.path.as_str() {
            README => title,
            _ => format!("{title} · {NAME}"),
        };
        format!(
            r#"<!doctype html>
<html lang="en" data-root="{up}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<meta name="description" content="{description}">
<link rel="icon" href="{up}{ICON}">
<link rel="stylesheet" href="{up}site.css">
<script src="{up}site.js" defer></script>
</head>
<body>
<header>
<a class="home" href="{up}index.html"><img src="{up}{ICON}" alt="">{NAME}</a>
<form role="search" hidden><input type="search" placeholder="Search" aria-label="Search all pages"><ol aria-live="polite"></ol></form>
</header>
<nav>
<details open data-wide="56rem"><summary>Pages</summary>
{menu}</details>
</nav>
{contents}<main>
{body}</main>
<footer>
{neighbours}<p>{NAME} {version}, commit {commit} · <a href="{sources}{path}">Source of this page</a></p>
</footer>
</body>
</html>
"#,
            description = escape(&page.description()),
            menu = self.menu(page),
            contents = contents(page),
            body = self.body(page),
            neighbours = self.neighbours(page),
            version = self.edition.version,
            commit = short(self.edition.commit),
            sources = self.sources,
            path = page.path,
        )
    }

    fn menu(&self, page: &Page) -> String {
        let (up, mut menu) = (up(page), String::new());
        for (title, entries) in &self.menu {
            // Writing to a string cannot fail.
            let _ = writeln!(menu, "<h2>{}</h2>\n<ul>", escape(title));
            for (name, to) in entries {
                let here = if *to == page {
                    " aria-current=\"page\""
                } else {
                    ""
                };
                let (to, name) = (html_path(&to.path), escape(name));
                let _ = writeln!(menu, "<li><a href=\"{up}{to}\"{here}>{name}</a></li>");
            }
            menu.push_str("</ul>\n");
        }
        menu
    }

    /// Links to the page before and the page after this one in the menu, which begins after the README.
    fn neighbours(&self, page: &Page) -> String {
        let readme = self.pages.get(README).map(|page| (page.title(), page));
        let listed = self.menu.iter().flat_map(|(_, entries)| entries).copied();
        let all: Vec<_> = readme.into_iter().chain(listed).collect();
        let Some(at) = all.iter().position(|(_, one)| *one == page) else {
            return String::new();
        };
        let mut links = String::new();
        for (at, rel, label) in [
            (at.checked_sub(1), "prev", "Previous"),
            (Some(at + 1), "next", "Next"),
        ] {
            if let Some((name, to)) = at.and_then(|at| all.get(at)) {
                let (up, to, name) = (up(page), html_path(&to.path), escape(name));
                let _ = writeln!(
                    links,
                    "<a rel=\"{rel}\" href=\"{up}{to}\"><small>{label}</small>{name}</a>"
                );
            }
        }
        format!("<p class=\"neighbours\">\n{links}</p>\n")
    }

    /// Returns the script with the words of all sections: the address and title of each page, and the anchor, title and words of its sections.
    fn search_index(&self) -> String {
        let pages = self.pages.pages.values().map(|page| {
            let sections: Vec<_> = page
                .headings
                .iter()
                .map(|heading| (&heading.anchor, &heading.text, heading.body.trim()))
                .collect();
            (html_path(&page.path), page.title(), sections)
        });
        let pages = serde_json::to_string(&pages.collect::<Vec<_>>());
        format!("var searchIndex = {};\n", pages.expect("texts are JSON"))
    }

    /// Renders a page: headings get their anchors, links lead to pages of the site, and wide tables scroll by themselves.
    fn body(&self, page: &Page) -> String {
        let mut headings = page.headings.iter();
        let mut blocks = page.blocks.iter();
        let mut anchor = String::new();
        let mut events = Vec::new();
        for mut event in Parser::new_ext(&page.text, page::options()) {
            let mut after = None;
            match &mut event {
                Event::Start(Tag::Heading { id, .. }) => {
                    anchor = headings.next().map_or_else(String::new, |heading| heading.anchor.clone());
                    *id = Some(anchor.clone().into());
                }
                Event::End(TagEnd::Heading(_)) => events.push(Event::InlineHtml(
                    format!("<a class=\"anchor\" href=\"#{anchor}\" aria-label=\"Link to this heading\">#</a>").into(),
                )),
                Event::Start(Tag::Link { dest_url, .. }) => {
                    *dest_url = self.address(page, dest_url).into();
                }
                Event::Start(Tag::Table(_)) => events.push(Event::Html("<div class=\"table\">\n".into())),
                Event::End(TagEnd::Table) => after = Some(Event::Html("</div>\n".into())),
                Event::Start(Tag::CodeBlock(kind)) => {
                    // What is read and not copied has a class of its own.
                    match blocks.next().map(|block| &block.check) {
                        Some(Ok(Check::Message)) => *kind = CodeBlockKind::Fenced("message".into()),
                        Some(Ok(Check::Output | Check::Drawing)) => *kind = CodeBlockKind::Fenced("output".into()),
                        _ => {}
                    }
                }
                // Comments are for whoever reads the source.
                Event::Html(text) if text.starts_with("<!--") => continue,
                _ => {}
            }
            events.push(event);
            events.extend(after);
        }
        let mut out = String::new();
        html::push_html(&mut out, events.into_iter());
        out
    }

    /// Returns where a link leads to in the site.
    fn address(&self, page: &Page, to: &str) -> String {
        let Some(file) = page::file_of(to, &page.path) else {
            return to.to_owned();
        };
        if self.pages.get(&file).is_none() {
            return format!("{}{file}", self.sources);
        }
        let anchor = to.find('#').map_or("", |at| &to[at..]);
        format!("{}{}{anchor}", up(page), html_path(&file))
    }
}

/// Lists the headings of a page, unless there is nothing to choose from.
fn contents(page: &Page) -> String {
    let headings = page
        .headings
        .iter()
        .filter(|one| [2, 3].contains(&one.level));
    let mut items = String::new();
    for heading in headings {
        let (level, anchor, text) = (heading.level, &heading.anchor, escape(&heading.text));
        let _ = writeln!(
            items,
            "<li class=\"level-{level}\"><a href=\"#{anchor}\">{text}</a></li>"
        );
    }
    if items.lines().count() < 2 {
        return String::new();
    }
    format!(
        "<aside>\n<details open data-wide=\"80rem\"><summary>On this page</summary>\n<ul>\n{items}</ul>\n</details>\n</aside>\n"
    )
}

/// Returns the beginning of a commit, and what follows on its hash.
fn short(commit: &str) -> String {
    let (hash, more) = commit.split_at_checked(40).unwrap_or((commit, ""));
    format!("{}{more}", hash.get(..12).unwrap_or(hash))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the values of an attribute in a document.
    fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
        let begin = format!(" {attribute}=\"");
        html.split(&begin)
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect()
    }

    fn joined(page: &str, to: &str) -> String {
        let mut parts: Vec<&str> = page.split('/').collect();
        parts.pop();
        for part in to.split('/') {
            match part {
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        parts.join("/")
    }

    const EDITION: Edition<'static> = Edition {
        version: "1.2.3",
        commit: "0123456789abcdef0123456789abcdef01234567",
    };

    fn made() -> BTreeMap<String, String> {
        let pages = Pages::of_checkout().unwrap();
        let files = files(&pages, EDITION).unwrap().into_iter();
        files
            .map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap()))
            .collect()
    }

    fn pages<const N: usize>(texts: [(&str, &str); N]) -> Pages {
        let page = |(path, text): (&str, &str)| (path.to_owned(), Page::parse(path, text.into()));
        Pages {
            root: ".".into(),
            pages: texts.map(page).into(),
        }
    }

    #[test]
    fn every_link_of_the_site_leads_to_a_file_and_a_heading_of_it() {
        let files = made();
        let mut count = 0;
        let is_page = |(_, text): &(&String, &String)| text.starts_with("<!doctype");
        for (path, html) in files.iter().filter(is_page) {
            for to in values(html, "href").into_iter().chain(values(html, "src")) {
                if to.contains(':') {
                    assert!(!to.starts_with("http:"), "{path}: {to}");
                    continue;
                }
                let (file, anchor) = to.split_once('#').unwrap_or((to, ""));
                let file = match file {
                    "" => path.clone(),
                    file => joined(path, file),
                };
                assert!(files.contains_key(&file), "{path}: {to}");
                let is_there = anchor.is_empty() || values(&files[&file], "id").contains(&anchor);
                assert!(is_there, "{path}: {to}");
                count += 1;
            }
        }
        assert!(count > 500, "{count} links");
    }

    #[test]
    fn the_site_needs_no_network() {
        for (path, text) in made() {
            if text.starts_with("<!doctype") {
                let loaded = values(&text, "src");
                assert!(
                    loaded.iter().all(|to| !to.contains(':')),
                    "{path}: {loaded:?}"
                );
            }
            // Browsers let a page of a file system load a script, and fetch nothing.
            for forbidden in ["@import", "url(http", "fetch(", "XMLHttpRequest"] {
                assert!(path == SEARCH || !text.contains(forbidden), "{path}");
            }
        }
    }

    #[test]
    fn the_menu_has_every_page_for_people_once() {
        let pages = Pages::of_checkout().unwrap();
        let mut listed: Vec<_> = menu(&pages)
            .into_iter()
            .flat_map(|(_, entries)| entries)
            .map(|(_, page)| &page.path)
            .collect();
        listed.sort_unstable();
        let count = listed.len();
        listed.dedup();
        assert_eq!(listed.len(), count);
        for page in pages.for_people() {
            let is_listed = listed.contains(&&page.path);
            assert!(
                is_listed || [README, INDEX].contains(&page.path.as_str()),
                "{}",
                page.path
            );
        }
    }

    #[test]
    fn every_page_says_what_it_is_and_from_where() {
        let commit = EDITION.commit;
        for (path, html) in made() {
            let Some(stem) = path.strip_suffix(".html") else {
                continue;
            };
            let descriptions = values(&html, "content");
            let description = descriptions.last().unwrap();
            assert!(
                (2..=240).contains(&description.len()),
                "{path}: {description}"
            );
            let source = match stem {
                "index" => README.to_owned(),
                stem => format!("{stem}.md"),
            };
            let source = format!("/blob/{commit}/{source}\">Source of this page</a>");
            for text in [&source, "multus-rs 1.2.3, commit 0123456789ab ·"] {
                assert!(html.contains(text), "{path}: no {text}");
            }
            assert_eq!(html.matches("<nav>").count(), 1, "{path}");
        }
    }

    /// At 500 px a drawing is as wide as the page, and its small letters have 12 px.
    #[test]
    fn drawings_fit_a_narrow_page() {
        let mut count = 0;
        for (path, svg) in made()
            .iter()
            .filter(|(path, _)| path.contains("/drawings/"))
        {
            let view = values(svg, "viewBox")[0];
            let width: u32 = view.split(' ').nth(2).unwrap().parse().unwrap();
            assert!(width <= 480, "{path}: {width}");
            count += 1;
        }
        assert!(count > 0);
    }

    #[test]
    fn the_search_finds_sections_by_their_words() {
        let pages = pages([
            (
                "docs/a.md",
                "# A\n\none\ntwo\n\n## B \"c\"\n\n| x | y |\n|-|-|\n| 1 | `2` |\n",
            ),
            (README, "# Read\n"),
        ]);
        assert_eq!(
            Site::new(&pages, EDITION).search_index(),
            "var searchIndex = [[\"index.html\",\"Read\",[[\"read\",\"Read\",\"\"]]],\
             [\"docs/a.html\",\"A\",[[\"a\",\"A\",\"one two\"],[\"b-c\",\"B \\\"c\\\"\",\"x y 1 2\"]]]];\n"
        );
    }

    #[test]
    fn html_has_anchors_and_links_of_the_site() {
        let pages = pages([
            (
                "docs/a.md",
                "# A\n\n[x](../README.md#b) [y](../LICENSE)\n\n<!-- note -->\n\n|a|\n|-|\n|<b>|\n\n## C & d\n\n### E\n\n\
                 ```sh parsed\nhelm list\n```\n\n```text output\nx\n```\n",
            ),
            (README, "# Read\n\n## B\n"),
            (INDEX, "# All\n\n## S\n\n[A & more](a.md)\n"),
        ]);
        let site = Site::new(&pages, EDITION);
        let html = site.document(&pages.pages["docs/a.md"]);
        for text in [
            "<h1 id=\"a\">A<a class=\"anchor\" href=\"#a\" aria-label=\"Link to this heading\">#</a></h1>",
            "href=\"../index.html#b\"",
            &format!("/blob/{}/LICENSE\"", EDITION.commit),
            "<div class=\"table\">",
            "<title>A · multus-rs</title>",
            "<h2>S</h2>\n<ul>\n<li><a href=\"../docs/a.html\" aria-current=\"page\">A &amp; more</a></li>\n",
            "<li class=\"level-2\"><a href=\"#c--d\">C &amp; d</a></li>\n<li class=\"level-3\"><a href=\"#e\">E</a></li>\n",
            "<code class=\"language-sh\">helm list\n",
            "<code class=\"language-output\">x\n",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        assert!(!html.contains("note"), "{html}");
        let dirty = Edition {
            commit: &format!("{}-dirty", EDITION.commit),
            ..EDITION
        };
        let html = Site::new(&pages, dirty).document(&pages.pages["docs/a.md"]);
        for text in ["/blob/main/LICENSE\"", "commit 0123456789ab-dirty ·"] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn pages_lead_to_their_neighbours_in_the_menu() {
        let pages = pages([
            (README, "# Read\n"),
            (
                INDEX,
                "# All\n\n## S\n\n[A](a.md) [Read](../README.md)\n\n## T\n\n[B](work/b.md) [A](a.md)\n",
            ),
            ("docs/a.md", "# A\n"),
            ("docs/work/b.md", "# B\n"),
            ("docs/adr/1.md", "# 1\n"),
        ]);
        let site = Site::new(&pages, EDITION);
        let check = |path: &str, expected: &[&str]| {
            let html = site.neighbours(&pages.pages[path]);
            assert_eq!(values(&html, "href"), expected, "{path}: {html}");
        };
        check(README, &["docs/a.html"]);
        check("docs/a.md", &["../index.html", "../docs/work/b.html"]);
        check("docs/work/b.md", &["../../docs/a.html"]);
        check("docs/adr/1.md", &[]);
    }
}
