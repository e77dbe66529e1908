//! The program under its own name: lists the plugins, and installs them for people without Multus.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::plugin::PLUGINS;

/// The file name of the program.
const NAME: &str = "multus-cni-plugins";

const USAGE: &str = "\
The common CNI plugins as one program. Started under the name of a plugin, it is that plugin.

Usage: multus-cni-plugins COMMAND

Commands:
  list                      Print the names of the plugins
  install DIR [OPTIONS]     Install the program into DIR, with a link for each plugin
  uninstall DIR             Remove from DIR what install put there
  version                   Print the version, with the commit and date of the release

Options of install:
  --only NAME[,NAME...]     Link only these plugins
  --replace                 Also replace files that have the name of a plugin; without it nothing is
                            installed when there is one

Examples:
  multus-cni-plugins install /opt/cni/bin
  multus-cni-plugins install /opt/cni/bin --only macvlan,dhcp
";

/// Why a command failed.
enum Failure {
    /// The command line is wrong: status 2.
    Usage(String),
    /// The work failed: status 1.
    Work(String),
}

pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let outcome = match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["list"] => {
            let names: Vec<_> = PLUGINS.iter().map(|plugin| plugin.name).collect();
            Ok(names.join("\n") + "\n")
        }
        ["version" | "--version" | "-V" | "-v"] => Ok(api::version::line(NAME) + "\n"),
        ["help" | "--help" | "-h"] => Ok(USAGE.to_owned()),
        ["install", args @ ..] => Install::parse(args).and_then(|install| install.run()),
        ["uninstall", dir] => uninstall(Path::new(dir)),
        [] => Err(Failure::Usage("a command is missing".to_owned())),
        [command, ..] => Err(Failure::Usage(format!(
            "{command:?} is not a command, or has wrong arguments"
        ))),
    };
    match outcome {
        Ok(text) => crate::start::exit(crate::start::write(&mut io::stdout(), text.as_bytes())),
        Err(Failure::Usage(text)) => fail(&format!("{text}; `{NAME} help` lists the commands"), 2),
        Err(Failure::Work(text)) => fail(&text, 1),
    }
}

fn fail(text: &str, status: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "{NAME}: {text}");
    ExitCode::from(status)
}

#[derive(Debug, PartialEq, Eq)]
struct Install {
    dir: PathBuf,
    names: Vec<&'static str>,
    replaces: bool,
}

impl Install {
    fn parse(args: &[&str]) -> Result<Self, Failure> {
        let all = PLUGINS.iter().map(|plugin| plugin.name);
        let (mut dir, mut names, mut replaces) = (None, all.clone().collect(), false);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "--replace" => replaces = true,
                "--only" => {
                    let list = args.next().copied().unwrap_or_default();
                    names = list
                        .split(',')
                        .map(|name| {
                            all.clone().find(|known| *known == name).ok_or_else(|| {
                                Failure::Usage(format!("--only: there is no plugin {name:?}"))
                            })
                        })
                        .collect::<Result<_, _>>()?;
                }
                path if dir.is_none() && !path.starts_with('-') => dir = Some(path.into()),
                other => {
                    return Err(Failure::Usage(format!(
                        "install does not take the argument {other:?}"
                    )));
                }
            }
        }
        let dir = dir.ok_or_else(|| Failure::Usage("install needs a directory".to_owned()))?;
        Ok(Self {
            dir,
            names,
            replaces,
        })
    }

    fn run(&self) -> Result<String, Failure> {
        let dir = &self.dir;
        let shown = dir.display();
        if !dir.is_dir() {
            return Err(Failure::Work(format!(
                "{shown} is not a directory: create it first"
            )));
        }
        let taken: Vec<_> = self
            .names
            .iter()
            .chain([&NAME])
            .filter(|name| is_taken(&dir.join(name)))
            .copied()
            .collect();
        if !taken.is_empty() && !self.replaces {
            return Err(Failure::Work(format!(
                "{shown} has {} of another origin: nothing was installed; name others with --only, or replace them with --replace",
                taken.join(", ")
            )));
        }
        let install = || -> io::Result<()> {
            copy_program(dir)?;
            for name in &self.names {
                replace_by_link(dir, name)?;
            }
            File::open(dir)?.sync_all()
        };
        install()
            .map_err(|error| Failure::Work(format!("cannot install into {shown}: {error}")))?;
        Ok(format!(
            "installed {} into {shown}\n",
            self.names.join(", ")
        ))
    }
}

/// Returns whether a file of another origin has the path. Links to the program are ours, and so is the program: it says so itself.
fn is_taken(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Err(_) => false,
        Ok(metadata) if metadata.is_symlink() => !is_own_link(path),
        Ok(metadata) => !(path.ends_with(NAME) && metadata.is_file()),
    }
}

fn is_own_link(path: &Path) -> bool {
    fs::read_link(path).is_ok_and(|target| target == Path::new(NAME))
}

/// Puts a copy of the running program into the directory, complete or not at all.
fn copy_program(dir: &Path) -> io::Result<()> {
    let mut source = File::open("/proc/self/exe")?;
    let temporary = dir.join(format!(".{NAME}.tmp"));
    remove_if_present(&temporary)?;
    let mut options = File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(&temporary)?;
    io::copy(&mut source, &mut file)?;
    file.sync_all()?;
    rustix::fs::rename(&temporary, dir.join(NAME))?;
    Ok(())
}

fn replace_by_link(dir: &Path, name: &str) -> io::Result<()> {
    if is_own_link(&dir.join(name)) {
        return Ok(());
    }
    let temporary = dir.join(format!(".{name}.tmp"));
    remove_if_present(&temporary)?;
    symlink(NAME, &temporary)?;
    rustix::fs::rename(&temporary, dir.join(name))?;
    Ok(())
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the links to the program, then the program.
fn uninstall(dir: &Path) -> Result<String, Failure> {
    let remove = || -> io::Result<Vec<String>> {
        let mut removed = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if is_own_link(&entry.path()) {
                fs::remove_file(entry.path())?;
                removed.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        removed.sort();
        if dir.join(NAME).is_file() {
            fs::remove_file(dir.join(NAME))?;
            removed.push(NAME.to_owned());
        }
        Ok(removed)
    };
    let shown = dir.display();
    let removed = remove().map_err(|error| {
        Failure::Work(format!("cannot remove all plugins from {shown}: {error}"))
    })?;
    Ok(if removed.is_empty() {
        format!("{shown} has none of these plugins\n")
    } else {
        format!("removed {} from {shown}\n", removed.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(dir: &Path, args: &[&str]) -> Result<String, String> {
        let dir = dir.to_str().unwrap();
        let args = [&[dir], args].concat();
        let outcome = Install::parse(&args).and_then(|install| install.run());
        outcome.map_err(|failure| match failure {
            Failure::Usage(text) | Failure::Work(text) => text,
        })
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn names_are_those_that_daemon_and_chart_know() {
        let names: Vec<_> = PLUGINS.iter().map(|plugin| plugin.name).collect();
        assert_eq!(names, api::plugins::NAMES);
        assert_eq!(ipam::guest::TYPE, api::plugins::WHEREABOUTS);
        assert_eq!(NAME, api::plugins::PROGRAM);
    }

    #[test]
    fn plugins_are_installed_again_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            install(dir.path(), &["--only", "static,macvlan"]).unwrap();
            assert_eq!(names(dir.path()), ["macvlan", NAME, "static"]);
        }
        let link = dir.path().join("macvlan");
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(NAME));
        assert_eq!(
            fs::read(&link).unwrap(),
            fs::read("/proc/self/exe").unwrap()
        );
        fs::write(dir.path().join("theirs"), "").unwrap();
        assert!(uninstall(dir.path()).is_ok());
        assert_eq!(names(dir.path()), ["theirs"]);
    }

    #[test]
    fn files_of_others_are_replaced_only_on_request() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("macvlan"), "theirs").unwrap();
        let error = install(dir.path(), &[]).unwrap_err();
        assert!(error.contains("has macvlan of another origin"), "{error}");
        assert_eq!(names(dir.path()), ["macvlan"]);
        install(dir.path(), &["--only", "static"]).unwrap();
        install(dir.path(), &["--replace"]).unwrap();
        assert!(is_own_link(&dir.path().join("macvlan")));
    }

    #[test]
    fn mistakes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (args, part) in [
            (&["--only", "macvaln"][..], "no plugin \"macvaln\""),
            (&["--only"], "no plugin \"\""),
            (&["--force"], "the argument \"--force\""),
            (&["second"], "the argument \"second\""),
        ] {
            let error = install(dir.path(), args).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let missing = dir.path().join("missing");
        assert!(install(&missing, &[]).unwrap_err().contains("create it"));
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn commands_of_the_pages_are_parsed() {
        let pages = docs::Pages::of_checkout().unwrap();
        pages.check_commands("multus-cni-plugins", |args| {
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            match args.as_slice() {
                ["list" | "version"] | ["uninstall", _] => Ok(()),
                ["install", args @ ..] => match Install::parse(args) {
                    Ok(_) => Ok(()),
                    Err(Failure::Usage(text) | Failure::Work(text)) => Err(text),
                },
                _ => Err("is not a command".to_owned()),
            }
        });
    }
}
