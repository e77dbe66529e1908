//! The pages for people: README.md, SECURITY.md, everything in `docs/`, and what these link to.
//!
//! The library reads pages into blocks of code, headings and links, and checks them; the crate `site` renders them.
//! It runs nothing itself: each block names the check that runs it, and the tests of programs and suites read the blocks from here.

mod block;
pub mod check;
mod commands;
#[cfg(test)]
mod coverage;
#[cfg(test)]
mod messages;
mod page;

use std::{
    collections::{BTreeMap, VecDeque},
    fs, io,
    path::{Path, PathBuf},
};

pub use block::{Block, Check, SUITES};
pub use commands::{Command, PROGRAMS};
pub use page::{Heading, Link, Page};

/// The page at the root that people see first.
pub const README: &str = "README.md";
/// The page that lists all others, from which the site's menu is made.
pub const INDEX: &str = "docs/index.md";
/// The pages outside of `docs/` whose blocks are checked.
const AT_ROOT: [&str; 2] = [README, "SECURITY.md"];
/// The directories of the users' book and of the contributors' book.
const BOOKS: [&str; 2] = ["docs", "docs/contributing"];

/// Every page of a checkout.
pub struct Pages {
    /// The checkout.
    pub root: PathBuf,
    /// The pages by their paths below the root.
    pub pages: BTreeMap<String, Page>,
}

impl Pages {
    /// Reads the pages of the checkout that this crate was compiled in.
    pub fn of_checkout() -> io::Result<Self> {
        Self::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")))
    }

    /// Reads the pages of a checkout: those for people, and every Markdown file that one of them links to.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut open: VecDeque<String> = AT_ROOT
            .into_iter()
            .filter(|path| root.join(path).exists())
            .map(str::to_owned)
            .collect();
        for book in BOOKS {
            for entry in fs::read_dir(root.join(book))? {
                let name = entry?.file_name();
                let name = name.to_string_lossy();
                if name.ends_with(".md") {
                    open.push_back(format!("{book}/{name}"));
                }
            }
        }
        let mut pages = BTreeMap::new();
        while let Some(path) = open.pop_front() {
            if pages.contains_key(&path) || !root.join(&path).is_file() {
                continue;
            }
            let page = Page::parse(&path, fs::read_to_string(root.join(&path))?);
            let linked = page.links.iter().filter_map(|link| link.file(&path));
            open.extend(
                linked.filter(|file| Path::new(file).extension().is_some_and(|end| end == "md")),
            );
            pages.insert(path, page);
        }
        Ok(Self {
            root: root.to_owned(),
            pages,
        })
    }

    /// Returns a page by its path below the root.
    pub fn get(&self, path: &str) -> Option<&Page> {
        self.pages.get(path)
    }

    /// Returns the pages for people, whose blocks are checked; those that they link to are only rendered.
    pub fn for_people(&self) -> impl Iterator<Item = &Page> {
        self.pages.values().filter(|page| page.is_for_people())
    }

    /// Returns every command of a program in blocks whose commands are parsed or run, with page and line.
    pub fn commands(&self, program: &str) -> Vec<Command> {
        self.for_people()
            .flat_map(Page::commands)
            .filter(|command| command.program == program)
            .collect()
    }

    /// Fails, with every complaint, unless a program parses all of its commands on pages.
    #[track_caller]
    pub fn check_commands(&self, program: &str, parse: impl Fn(Vec<String>) -> Result<(), String>) {
        let commands = self.commands(program);
        assert!(!commands.is_empty(), "no page has a command of {program}");
        let refused: Vec<_> = commands
            .into_iter()
            .filter_map(|command| {
                let Command { at, args, .. } = command;
                let error = parse(args.clone()).err()?;
                Some(format!("{at}: {program} {}: {error}", args.join(" ")))
            })
            .collect();
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }

    /// Returns the blocks that a check runs, by page, in their order.
    pub fn blocks(&self, is_wanted: impl Fn(&Check) -> bool) -> Vec<(&Page, &Block)> {
        self.for_people()
            .flat_map(|page| page.blocks.iter().map(move |block| (page, block)))
            .filter(|(_, block)| block.check.as_ref().is_ok_and(&is_wanted))
            .collect()
    }
}
