//! Manual pages and shell completions of a command line, and of the programs that a release ships.
//!
//! Those of the programs stand beside their sources, and a test of each holds them to its command line with [`check`].

use std::{collections::BTreeMap, env, fs, path::Path};

use clap::Command;
use clap_complete::{Shell, generate};

/// Every file for a program, by its path: `man/…` and `completions/…`.
pub fn of_program(mut command: Command) -> BTreeMap<String, Vec<u8>> {
    let name = command.get_name().to_owned();
    let mut files = manual(command.clone());
    for (shell, file) in [
        (Shell::Bash, format!("{name}.bash")),
        (Shell::Fish, format!("{name}.fish")),
        (Shell::Zsh, format!("_{name}")),
    ] {
        let mut bytes = Vec::new();
        generate(shell, &mut command, &name, &mut bytes);
        files.insert(format!("completions/{file}"), bytes);
    }
    files
}

/// Holds the files in `pages/` of a folder to a command line, or writes them where `UPDATE_EXPECT` is set.
pub fn check(command: Command, dir: &str) {
    let pages = Path::new(dir).join("pages");
    let files = of_program(command);
    if env::var_os("UPDATE_EXPECT").is_some() {
        for (path, bytes) in &files {
            let path = pages.join(path);
            fs::create_dir_all(path.parent().expect("it is in a folder")).expect("can be made");
            fs::write(path, bytes).expect("can be written");
        }
    }
    for (path, bytes) in &files {
        let found = fs::read(pages.join(path)).unwrap_or_default();
        assert!(
            found == *bytes,
            "{path} is not up to date: UPDATE_EXPECT=1 cargo test writes it"
        );
    }
    for folder in ["man", "completions"] {
        for entry in fs::read_dir(pages.join(folder)).expect("the pages are there") {
            let name = entry.expect("can be read").file_name();
            let path = format!("{folder}/{}", name.to_string_lossy());
            assert!(
                files.contains_key(&path),
                "{path} is of no command: remove it"
            );
        }
    }
}

/// One page for the program and one for each of its commands.
pub fn manual(command: Command) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut command = command.disable_help_subcommand(true);
    // What a command is called in full is known from then on.
    command.build();
    add_pages(&mut files, &command);
    files
}

fn add_pages(files: &mut BTreeMap<String, Vec<u8>>, command: &Command) {
    for child in command.get_subcommands() {
        add_pages(files, child);
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    let name = name.replace(' ', "-");
    let mut bytes = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name.clone())
        .source("multus-rs")
        .render(&mut bytes)
        .expect("a Vec takes every write");
    let text = String::from_utf8(bytes).expect("pages are made of text");
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    files.insert(format!("man/{name}.1"), (lines.join("\n") + "\n").into());
}
