//! Manual pages and shell completions, made from a command line.
//!
//! The pages of a program that a release ships are stored next to its sources; a test of the program compares them with its command line by
//! [`check`], so that the program itself does not carry what makes them.

use std::{collections::BTreeMap, env, fs, path::Path};

use clap::Command;
use clap_complete::{Shell, generate};

/// Stands for the version in the stored pages, so that another version changes none of them; a release has its version there.
pub const VERSION: &str = "@VERSION@";

/// Returns every file for a program, by its path: `man/…` and `completions/…`. Hidden commands are in none of them.
pub fn files(command: &Command) -> BTreeMap<String, Vec<u8>> {
    let name = command.get_name().to_owned();
    let mut files = manual(command.clone());
    let mut command = without_hidden(command);
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
    let files = files(&command);
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

/// Returns the command line without hidden commands and options, as far as completions show it: clap's generators offer hidden ones, too.
fn without_hidden(command: &Command) -> Command {
    // Clap takes names of the program's lifetime alone.
    let name: &'static str = command.get_name().to_owned().leak();
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let children = command
        .get_subcommands()
        .filter(|child| !child.is_hide_set());
    let copy = Command::new(name)
        .args(args)
        .subcommands(children.map(without_hidden))
        .disable_help_flag(command.is_disable_help_flag_set())
        .disable_help_subcommand(command.is_disable_help_subcommand_set())
        .disable_version_flag(command.is_disable_version_flag_set());
    let copy = match command.get_version() {
        Some(_) => copy.version(VERSION),
        None => copy,
    };
    match command.get_about() {
        Some(about) => copy.about(about.clone()),
        None => copy,
    }
}

fn add_pages(files: &mut BTreeMap<String, Vec<u8>>, command: &Command) {
    for child in command
        .get_subcommands()
        .filter(|child| !child.is_hide_set())
    {
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

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn hidden_commands_and_options_are_in_no_page_and_no_completion() {
        let option = |name: &'static str| Arg::new(name).long(name);
        let group = Command::new("vpn")
            .subcommand(Command::new("status").about("Shown").arg(option("json")))
            .subcommand(Command::new("secrethook").hide(true));
        let command = Command::new("sail")
            .arg(option("secretoption").hide(true))
            .subcommand(group)
            .subcommand(Command::new("secretcommand").hide(true));
        let files = files(&command);
        let names: Vec<_> = files.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "completions/_sail",
                "completions/sail.bash",
                "completions/sail.fish",
                "man/sail-vpn-status.1",
                "man/sail-vpn.1",
                "man/sail.1"
            ]
        );
        for (name, bytes) in &files {
            let text = String::from_utf8_lossy(bytes);
            assert!(!text.contains("secret"), "{name}: {text}");
            assert!(text.contains("status") || name == "man/sail.1", "{name}");
        }
    }
}
