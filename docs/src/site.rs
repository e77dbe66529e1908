//! The static site: each page as HTML with a menu, readable from a file system, without a server, scripts or network.

use std::{collections::BTreeMap, fmt::Write as _, fs, io};

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd, html};

use crate::{INDEX, Link, Page, Pages, README, page};

const STYLE: &str = include_str!("site.css");
/// The style sheet's path in the site.
const STYLE_PATH: &str = "style.css";
/// Where files of the checkout are that are no pages.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

/// Returns the files of the site by path: a page for each page, the images that they show, and the style.
pub fn files(pages: &Pages) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::from([(STYLE_PATH.to_owned(), STYLE.as_bytes().to_vec())]);
    let menu = menu(pages);
    for page in pages.pages.values() {
        let html = document(pages, page, &menu);
        files.insert(html_path(&page.path), html.into_bytes());
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

/// One section of the menu: its title, and its pages with their names.
type Section<'a> = (&'a str, Vec<(&'a str, String)>);

/// Reads the menu from the page that lists all pages; each page stands where it is listed first.
fn menu(pages: &Pages) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut listed = vec![README.to_owned()];
    let links = pages.get(INDEX).map_or(&[][..], |index| &index.links);
    for link in links {
        let Some(path) = link.file(INDEX) else {
            continue;
        };
        if link.anchor().is_some() || listed.contains(&path) || pages.get(&path).is_none() {
            continue;
        }
        listed.push(path.clone());
        match sections.last_mut() {
            Some((title, entries)) if *title == link.section => entries.push((&link.text, path)),
            _ => sections.push((&link.section, vec![(&link.text, path)])),
        }
    }
    sections
}

fn document(pages: &Pages, page: &Page, menu: &[Section<'_>]) -> String {
    let own = html_path(&page.path);
    let up = "../".repeat(own.matches('/').count());
    let mut nav = String::new();
    for (title, entries) in menu {
        // Writing to a string cannot fail.
        let _ = write!(nav, "<h2>{}</h2>\n<ul>\n", escape(title));
        for (text, path) in entries {
            let here = if *path == page.path {
                " aria-current=\"page\""
            } else {
                ""
            };
            let to = html_path(path);
            let _ = writeln!(
                nav,
                "<li><a href=\"{up}{to}\"{here}>{}</a></li>",
                escape(text)
            );
        }
        nav.push_str("</ul>\n");
    }
    let title = page.title();
    let title = match page.path.as_str() {
        README => escape(title),
        _ => format!("{} · multus-rs", escape(title)),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<link rel=\"stylesheet\" href=\"{up}{STYLE_PATH}\">\n</head>\n<body>\n\
         <nav>\n<a class=\"home\" href=\"{up}index.html\">multus-rs</a>\n<details><summary>Pages</summary>\n{nav}</details>\n<div class=\"wide\">\n{nav}</div>\n</nav>\n\
         <main>\n{}</main>\n</body>\n</html>\n",
        body(pages, page)
    )
}

/// Renders a page: headings get their anchors, links lead to pages of the site, and wide tables scroll by themselves.
fn body(pages: &Pages, page: &Page) -> String {
    let mut headings = page.headings.iter();
    let events = Parser::new_ext(&page.text, page::options()).flat_map(|event| match event {
        Event::Start(Tag::Heading {
            level,
            classes,
            attrs,
            ..
        }) => {
            let id = headings.next().map(|heading| heading.anchor.clone().into());
            vec![Event::Start(Tag::Heading {
                level,
                id,
                classes,
                attrs,
            })]
        }
        Event::Start(Tag::Link {
            link_type,
            dest_url,
            title,
            id,
        }) => {
            let dest_url = address(pages, page, &dest_url).into();
            vec![Event::Start(Tag::Link {
                link_type,
                dest_url,
                title,
                id,
            })]
        }
        Event::Start(Tag::Table(columns)) => vec![
            Event::Html("<div class=\"table\">\n".into()),
            Event::Start(Tag::Table(columns)),
        ],
        Event::End(TagEnd::Table) => {
            vec![Event::End(TagEnd::Table), Event::Html("</div>\n".into())]
        }
        // A message is read, not copied: it is wrapped.
        Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) if info.ends_with(" message") => {
            vec![Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(
                "message".into(),
            )))]
        }
        // Comments are for whoever reads the source.
        Event::Html(text) if text.starts_with("<!--") => Vec::new(),
        event => vec![event],
    });
    let mut out = String::new();
    html::push_html(&mut out, events);
    out
}

/// Returns where a link leads to in the site.
fn address(pages: &Pages, page: &Page, to: &str) -> String {
    let link = Link {
        line: 0,
        to: to.to_owned(),
        text: String::new(),
        is_image: false,
        section: String::new(),
    };
    let Some(file) = link.file(&page.path) else {
        return to.to_owned();
    };
    if pages.get(&file).is_none() {
        return format!("{REPOSITORY}{file}");
    }
    let up = "../".repeat(page.path.matches('/').count());
    let anchor = link.anchor().map(|anchor| format!("#{anchor}"));
    format!("{up}{}{}", html_path(&file), anchor.unwrap_or_default())
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

    #[test]
    fn every_link_of_the_site_leads_to_a_file_and_a_heading_of_it() {
        let pages = Pages::of_checkout().unwrap();
        let files = files(&pages).unwrap();
        let text = |path: &str| String::from_utf8_lossy(&files[path]).into_owned();
        let mut count = 0;
        for path in files
            .keys()
            .filter(|path| text(path).starts_with("<!doctype"))
        {
            let html = text(path);
            for to in values(&html, "href")
                .into_iter()
                .chain(values(&html, "src"))
            {
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
                let ids = text(&file);
                let is_there = anchor.is_empty() || values(&ids, "id").contains(&anchor);
                assert!(is_there, "{path}: {to}");
                count += 1;
            }
        }
        assert!(count > 500, "{count} links");
    }

    #[test]
    fn the_site_needs_no_network() {
        let pages = Pages::of_checkout().unwrap();
        for (path, bytes) in files(&pages).unwrap() {
            let text = String::from_utf8_lossy(&bytes);
            if text.starts_with("<!doctype") {
                assert!(!text.contains("<script"), "{path}");
                let loaded = values(&text, "src");
                assert!(
                    loaded.iter().all(|to| !to.contains(':')),
                    "{path}: {loaded:?}"
                );
            }
            assert!(
                !text.contains("@import") && !text.contains("url(http"),
                "{path}"
            );
        }
    }

    #[test]
    fn the_menu_has_every_page_for_people_once() {
        let pages = Pages::of_checkout().unwrap();
        let menu = menu(&pages);
        let mut listed: Vec<_> = menu
            .iter()
            .flat_map(|(_, entries)| entries.iter().map(|(_, path)| path.as_str()))
            .collect();
        listed.sort_unstable();
        let count = listed.len();
        listed.dedup();
        assert_eq!(listed.len(), count);
        for page in pages.for_people() {
            let is_listed = listed.contains(&page.path.as_str());
            assert!(
                is_listed || [README, INDEX].contains(&page.path.as_str()),
                "{}",
                page.path
            );
        }
    }

    #[test]
    fn html_has_anchors_and_links_of_the_site() {
        let page = Page::parse(
            "docs/a.md",
            "# A\n\n[x](../README.md#b) [y](../LICENSE)\n\n<!-- note -->\n\n|a|\n|-|\n|<b>|\n"
                .to_owned(),
        );
        let readme = Page::parse(README, "# Read\n\n## B\n".to_owned());
        let pages = Pages {
            root: ".".into(),
            pages: [page, readme].map(|page| (page.path.clone(), page)).into(),
        };
        let html = document(
            &pages,
            &pages.pages["docs/a.md"],
            &[("S", vec![("Read & see", README.to_owned())])],
        );
        for text in [
            "<h1 id=\"a\">A</h1>",
            "href=\"../index.html#b\"",
            &format!("href=\"{REPOSITORY}LICENSE\""),
            "<div class=\"table\">",
            "<title>A · multus-rs</title>",
            "<a href=\"../index.html\">Read &amp; see</a>",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        assert!(!html.contains("note"), "{html}");
    }
}
