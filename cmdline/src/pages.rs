//! Manual pages and shell completions, made from a command line.
//!
//! The pages of a program that a release ships are stored next to its sources; a test of the program compares them with its command line by
//! [`check`], so that the program itself does not carry what makes them.

use std::{collections::BTreeMap, env, fs, path::Path};

use clap::Command;
use clap_complete::{Shell, generate};

/// Stands for the version in the stored pages, so that another version changes none of them; a release has its version there.
pub const VERSION: &str = "@VERSION@";

/// Returns every file for a program, by its path: `man/…` and `completions/…`.
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

/// Asserts that the files in `<dir>/pages` are those of the command line, or writes them when `UPDATE_EXPECT` is set.
pub fn check(command: Command, dir: &str) {
    let pages = Path::new(dir).join("pages");
    let command = match command.get_version() {
        Some(_) => command.version(VERSION),
        None => command,
    };
    let files = of_program(command);
    if env::var_os("UPDATE_EXPECT").is_some() {
        for (path, bytes) in &files {
            let path = pages.join(path);
            fs::create_dir_all(path.parent().expect("every page has a parent directory"))
                .expect("the directory of pages can be made");
            fs::write(path, bytes).expect("a page can be written");
        }
    }
    for (path, bytes) in &files {
        let found = fs::read(pages.join(path)).unwrap_or_default();
        assert!(
            found == *bytes,
            "{path} is not up to date: UPDATE_EXPECT=1 cargo test writes it"
        );
    }
    for subdir in ["man", "completions"] {
        for entry in fs::read_dir(pages.join(subdir)).expect("the pages were written") {
            let name = entry.expect("the directory can be listed").file_name();
            let path = format!("{subdir}/{}", name.to_string_lossy());
            assert!(
                files.contains_key(&path),
                "{path} belongs to no command: remove it"
            );
        }
    }
}

/// Asserts that clap finds no fault with the command line, and that the help of every command ends with an example that starts with `start`.
pub fn check_examples(command: &Command, start: &str) {
    command.clone().debug_assert();
    let is_leaf = command.get_subcommands().next().is_none();
    let help = command.get_after_help().map(ToString::to_string);
    let has_example = help.is_some_and(|help| help.contains(&format!("  {start} ")));
    assert!(
        has_example || !is_leaf,
        "the help of {} shows no example",
        command.get_name()
    );
    for command in command.get_subcommands() {
        check_examples(command, start);
    }
}

/// Returns one manual page for the program and one for each of its commands.
pub fn manual(command: Command) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut command = command.disable_help_subcommand(true);
    // Clap knows the full names of subcommands only after this.
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
