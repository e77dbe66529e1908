//! The static site: mdBook renders the pages, in the order of the menu in `docs/index.md`.
//!
//! `cargo xtask site` starts this program, so that mdBook is compiled for nothing else.

use std::{env, fs, path::Path};

use anyhow::{Context as _, bail, ensure};
use docs::{INDEX, Link, Page, Pages, README};
use mdbook_html::HtmlHandlebars;
use mdbook_renderer::{
    RenderContext, Renderer as _,
    book::{Book, BookItem, Chapter, SectionNumber},
    config::Config,
};

const ICON: &str = "docs/icon.svg";
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [dir, commit] = &args[..] else {
        bail!("name an empty directory and a commit, or run `cargo xtask site`");
    };
    let pages = Pages::of_checkout().context("cannot read the pages")?;
    render(&pages, commit, Path::new(dir))
}

/// Renders the pages into an empty directory. The commit is another text where files differ from one.
fn render(pages: &Pages, commit: &str, dir: &Path) -> anyhow::Result<()> {
    // mdBook would remove what is there.
    let is_empty = fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
    ensure!(is_empty, "{} is not an empty directory", dir.display());
    let is_commit = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let revision = if is_commit { commit } else { "main" };
    let sources = format!("{REPOSITORY}/blob/{revision}");
    let (hash, dirty) = commit.split_at_checked(40).unwrap_or((commit, ""));
    let footer = format!(
        "<footer>multus-rs {}, commit {}{dirty} · <a href=\"{{{{git_repository_edit_url}}}}\">Source of this page</a></footer>\n",
        env!("CARGO_PKG_VERSION"),
        hash.get(..12).unwrap_or(hash),
    );
    let theme = tempfile::tempdir().context("cannot make a directory for the theme")?;
    fs::create_dir(theme.path().join("fonts"))?;
    for (path, bytes) in [
        ("favicon.svg", &fs::read(pages.root.join(ICON))?[..]),
        ("fonts/fonts.css", include_bytes!("../site.css")),
        ("header.hbs", footer.as_bytes()),
    ] {
        fs::write(theme.path().join(path), bytes)?;
    }
    let mut config: Config = include_str!("../book.toml").parse()?;
    config.set("output.html.theme", theme.path())?;
    config.set("output.html.git-repository-url", REPOSITORY)?;
    config.set(
        "output.html.edit-url-template",
        format!("{sources}{{path}}"),
    )?;
    let book = Book::new_with_items(items(pages, &sources));
    // mdBook copies the files of its root; the site is its own one, into which the images of the pages go afterwards.
    let context = RenderContext::new(dir, book, config, dir);
    HtmlHandlebars::new().render(&context)?;
    for page in pages.pages.values() {
        let images = page.links.iter().filter(|link| link.is_image);
        for path in images.filter_map(|link| link.file(&page.path)) {
            let to = dir.join(&path);
            fs::create_dir_all(to.parent().context("a file is in a directory")?)?;
            fs::copy(pages.root.join(&path), to).with_context(|| format!("cannot copy {path}"))?;
        }
    }
    Ok(())
}

/// Returns the README, then the pages of the menu in its sections, then the others. Pages next to a README of the menu are below it.
fn items(pages: &Pages, sources: &str) -> Vec<BookItem> {
    let chapter = |name: &str, page: &Page| Chapter {
        name: name.to_owned(),
        content: content(pages, page, sources),
        path: Some(if page.path == README {
            "index.md".into()
        } else {
            page.path.clone().into()
        }),
        source_path: Some(page.path.clone().into()),
        ..Chapter::default()
    };
    let mut others = pages.pages.clone();
    let mut items = Vec::new();
    if let Some(readme) = others.remove(README) {
        items.push(chapter("Overview", &readme).into());
    }
    let menu = menu(pages);
    others.retain(|path, _| menu.iter().all(|(_, page)| page.path != *path));
    let mut section = "";
    for (link, page) in menu {
        if link.section != section {
            section = &link.section;
            items.push(BookItem::PartTitle(section.to_owned()));
        }
        let mut item = chapter(&link.text, page);
        if let Some(dir) = page.path.strip_suffix(README) {
            let below = others.extract_if(.., |path, _| path.starts_with(dir));
            let below = below.map(|(_, page)| Chapter {
                // The menu indents by the parts of a number, and shows none.
                number: Some(SectionNumber::new([1, 1])),
                parent_names: vec![link.text.clone()],
                ..chapter(page.title(), &page)
            });
            item.sub_items = below.map(BookItem::Chapter).collect();
        }
        items.push(item.into());
    }
    items.push(BookItem::Separator);
    items.extend(
        others
            .values()
            .map(|page| chapter(page.title(), page).into()),
    );
    items
}

/// Returns the links to pages on the page that lists all of them, which is the menu of the site.
fn menu(pages: &Pages) -> Vec<(&Link, &Page)> {
    let links = pages.get(INDEX).map_or(&[][..], |index| &index.links);
    let to_pages = links.iter().filter(|link| link.anchor().is_none());
    to_pages
        .filter_map(|link| Some((link, pages.get(&link.file(INDEX)?)?)))
        .collect()
}

/// Returns the Markdown of a page for mdBook: without comments and checks of blocks, and with links of the site.
fn content(pages: &Pages, page: &Page, sources: &str) -> String {
    let mut lines: Vec<&str> = page.text.lines().collect();
    for block in &page.blocks {
        let fence = &mut lines[block.line - 1];
        if !block.language.is_empty()
            && let Some(at) = fence.find(&block.language)
        {
            *fence = &fence[..at + block.language.len()];
        }
    }
    lines.retain(|line| !line.starts_with("<!--"));
    let mut text = lines.join("\n");
    for link in &page.links {
        let to = match link.file(&page.path) {
            Some(file) if file == README => link.to.replacen(README, "index.md", 1),
            Some(file) if pages.get(&file).is_none() && !link.is_image => {
                format!("{sources}/{file}")
            }
            _ => continue,
        };
        text = text.replace(&format!("]({})", link.to), &format!("]({to})"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::LazyLock};

    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// The site of this checkout: its files that are text, by path.
    static SITE: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
        let dir = tempfile::tempdir().unwrap();
        render(&Pages::of_checkout().unwrap(), COMMIT, dir.path()).unwrap();
        let (mut files, mut open) = (BTreeMap::new(), vec![dir.path().to_owned()]);
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(
                    fs::read_dir(path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            } else {
                let name = path.strip_prefix(dir.path()).unwrap().to_str().unwrap();
                files.insert(name.to_owned(), fs::read_to_string(&path).unwrap());
            }
        }
        files
    });

    /// Returns the files whose names end in this way, with their paths.
    fn files(end: &str) -> impl Iterator<Item = (&'static String, &'static String)> {
        let is_one = move |path: &str| Path::new(path).extension().is_some_and(|it| it == end);
        SITE.iter().filter(move |(path, _)| is_one(path))
    }

    /// Returns the values of an attribute in a document.
    fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
        let begin = format!(" {attribute}=\"");
        let rest = html.split(&begin).skip(1);
        rest.filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn every_link_leads_to_a_file_and_a_heading_of_it() {
        let mut count = 0;
        for (path, text) in files("html") {
            let links = values(text, "href").into_iter().chain(values(text, "src"));
            for to in links.filter(|to| !to.contains(':')) {
                let (file, anchor) = to.split_once('#').unwrap_or((to, ""));
                let mut parts: Vec<&str> = path.split('/').collect();
                if !file.is_empty() {
                    parts.pop();
                    for part in file.split('/') {
                        match part {
                            ".." => drop(parts.pop()),
                            part => parts.push(part),
                        }
                    }
                }
                let target = SITE.get(&parts.join("/"));
                assert!(
                    target.is_some_and(
                        |text| anchor.is_empty() || values(text, "id").contains(&anchor)
                    ),
                    "{path}: {to}"
                );
                count += 1;
            }
        }
        assert!(count > 500, "{count} links");
    }

    /// A page of a file system may load scripts, but no data: the index of the search is one.
    #[test]
    fn site_needs_no_network_and_no_server() {
        for (path, text) in files("html") {
            let styles = text
                .split("<link ")
                .skip(1)
                .flat_map(|rest| values(rest, "href").into_iter().take(1));
            for loaded in values(text, "src").into_iter().chain(styles) {
                assert!(
                    !loaded.contains(':') && !loaded.starts_with('/'),
                    "{path}: {loaded}"
                );
            }
            assert!(
                !text.contains("class=\"playground\""),
                "{path} asks the playground of Rust"
            );
        }
        for (path, text) in files("css") {
            for loads in ["@import", "url(http", "url('http", "url(\"http"] {
                assert!(!text.contains(loads), "{path}: {loads}");
            }
        }
        assert!(SITE["searchindex.js"].contains("docs/pods.html#"));
    }

    #[test]
    fn every_page_says_version_commit_and_source() {
        let said = concat!(
            "multus-rs ",
            env!("CARGO_PKG_VERSION"),
            ", commit 0123456789ab · <a href="
        );
        for path in Pages::of_checkout().unwrap().pages.keys() {
            let file = match path.strip_suffix(".md") {
                Some("README") => "index.html".to_owned(),
                stem => format!("{}.html", stem.unwrap()),
            };
            let source = format!("{said}\"{REPOSITORY}/blob/{COMMIT}/{path}\">Source");
            assert!(SITE[&file].contains(&source), "{file}: no {source}");
        }
        // The forge does not have what differs from the commit.
        let (dir, dirty) = (tempfile::tempdir().unwrap(), format!("{COMMIT}-dirty"));
        render(&Pages::of_checkout().unwrap(), &dirty, dir.path()).unwrap();
        let text = fs::read_to_string(dir.path().join("index.html")).unwrap();
        for said in ["commit 0123456789ab-dirty ·", "/blob/main/README.md\""] {
            assert!(text.contains(said), "no {said}");
        }
    }

    #[test]
    fn menu_has_every_page_for_people_once() {
        let pages = Pages::of_checkout().unwrap();
        let menu = menu(&pages);
        for page in pages
            .for_people()
            .filter(|page| ![README, INDEX].contains(&&page.path[..]))
        {
            let count = menu.iter().filter(|(_, one)| *one == page).count();
            assert_eq!(count, 1, "{}", page.path);
        }
    }

    /// At 500 px a drawing is as wide as the page, and its small letters have 12 px.
    #[test]
    fn drawings_fit_a_narrow_page() {
        let drawings = SITE.iter().filter(|(path, _)| path.contains("/drawings/"));
        let widths = drawings.map(|(path, svg)| {
            let view = values(svg, "viewBox")[0];
            (
                path,
                view.split(' ').nth(2).unwrap().parse::<u32>().unwrap(),
            )
        });
        let widths: Vec<_> = widths.collect();
        assert!(!widths.is_empty());
        assert!(widths.iter().all(|(_, width)| *width <= 480), "{widths:?}");
    }

    #[test]
    fn markdown_has_links_of_the_site_and_no_marks() {
        let page = |(path, text): (&str, &str)| (path.to_owned(), Page::parse(path, text.into()));
        let texts = [
            (
                "docs/a.md",
                "# A\n<!-- note -->\n[x](../README.md#b) [y](../LICENSE) ![z](z.svg) [w](adr/README.md)\n\n```sh parsed\nls\n```",
            ),
            ("docs/adr/README.md", "# All"),
            (README, "# Read"),
        ];
        let pages = Pages {
            root: ".".into(),
            pages: texts.map(page).into(),
        };
        assert_eq!(
            content(&pages, &pages.pages["docs/a.md"], "at:"),
            "# A\n[x](../index.md#b) [y](at:/LICENSE) ![z](z.svg) [w](adr/README.md)\n\n```sh\nls\n```"
        );
    }
}
