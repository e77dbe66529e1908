//! systemd units: the command and the environment of a unit, and a drop-in that starts it through this program. Functions over text.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};

use vpn::provider::Selection;

use clap::ValueEnum as _;

use crate::{
    plan::Distro,
    settings::{self, Role},
    specifiers::Specifiers,
};

/// The name of our drop-in, which sorts after those that an operator numbers.
pub(crate) const DROP_IN: &str = "90-multus.conf";
/// The beginning of the drop-in's comment with the original command.
const MADE_OF: &str = "# made of: ";

/// Returns the command of a unit with drop-ins: of all `ExecStart=` lines, the only one after the last that empties the list.
pub(crate) fn exec_start(texts: &[String]) -> anyhow::Result<String> {
    match &settings(texts, "ExecStart")[..] {
        [] => bail!("it starts nothing"),
        [command] => Ok(command.clone()),
        _ => bail!("it starts several commands"),
    }
}

/// Returns the values of a setting of the service, in order: those after the last line that empties the list.
fn settings(texts: &[String], key: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for text in texts {
        let mut section = String::new();
        for line in lines(text) {
            if line.starts_with('[') {
                section = line;
            } else if let Some(value) = line.strip_prefix(key)
                && let Some(value) = value.trim_start().strip_prefix('=')
                && section == "[Service]"
            {
                match value.trim() {
                    "" => values.clear(),
                    value => values.push(value.to_owned()),
                }
            }
        }
    }
    values
}

/// The environment variables of a service.
pub(crate) type Environment = BTreeMap<String, String>;

/// Returns the variables that the unit itself sets (`Environment=`).
pub(crate) fn environment(texts: &[String], specifiers: &Specifiers) -> Environment {
    let assignments = settings(texts, "Environment")
        .into_iter()
        .flat_map(|line| split_args(&line));
    assignments
        .filter_map(|assignment| {
            let (name, value) = assignment.split_once('=')?;
            Some((specifiers.resolve(name), specifiers.resolve(value)))
        })
        .collect()
}

/// Files with variables of the service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EnvironmentFiles {
    /// An absolute path, or a pattern of glob(3).
    pub(crate) path: String,
    /// The service starts without them, too.
    pub(crate) are_optional: bool,
}

/// Returns the files with variables (`EnvironmentFile=`), which count more than the unit's own; of the files the last. Like systemd it
/// passes over relative paths.
pub(crate) fn environment_files(
    texts: &[String],
    specifiers: &Specifiers,
) -> Vec<EnvironmentFiles> {
    let files = settings(texts, "EnvironmentFile").into_iter();
    files
        .map(|value| {
            let path = value.strip_prefix('-');
            EnvironmentFiles {
                path: specifiers.resolve(path.unwrap_or(&value)),
                are_optional: path.is_some(),
            }
        })
        .filter(|files| files.path.starts_with('/'))
        .collect()
}

/// Adds the assignments of an environment file, in the syntax of systemd.exec(5).
pub(crate) fn add_environment_file(environment: &mut Environment, text: &str) {
    let mut letters = text.chars().peekable();
    while letters.peek().is_some() {
        let mut line = String::new();
        // The length up to the last letter that is not a trailing space.
        let mut kept = 0;
        let mut quote = None;
        // Quotes count at the beginning of the value, and after a quoted part.
        let mut may_quote = false;
        while let Some(letter) = letters.next() {
            match (quote, letter) {
                (Some(open), _) if letter == open => (quote, may_quote) = (None, true),
                (None, '"' | '\'') if may_quote => quote = Some(letter),
                (None, '\n') => break,
                (None, '#' | ';') if line.is_empty() => {
                    let _ = letters.find(|letter| *letter == '\n');
                    break;
                }
                (open, '\\') if open != Some('\'') => match letters.next() {
                    None | Some('\n') => continue,
                    Some(next) => {
                        may_quote = false;
                        if open == Some('"') && !"\"\\`$".contains(next) {
                            line.push('\\');
                        }
                        line.push(next);
                    }
                },
                (None, space) if space.is_whitespace() => {
                    if !line.is_empty() && !may_quote {
                        line.push(space);
                    }
                    continue;
                }
                _ => {
                    may_quote = quote.is_none() && letter == '=' && !line.contains('=');
                    line.push(letter);
                }
            }
            kept = line.len();
        }
        line.truncate(kept);
        if let Some((name, value)) = line.split_once('=') {
            environment.insert(name.trim_end().to_owned(), value.to_owned());
        }
    }
}

/// Returns the directories of a unit's drop-ins below one of systemd's directories: of the unit itself, of the template of an instance,
/// and of all units whose names begin with the same words.
pub(crate) fn drop_in_dirs(unit: &str) -> Vec<String> {
    let (name, kind) = unit.rsplit_once('.').unwrap_or((unit, ""));
    let (prefix, instance) = match name.split_once('@') {
        Some((prefix, instance)) => (prefix, format!("@{instance}")),
        None => (name, String::new()),
    };
    let mut names = vec![name.to_owned()];
    if instance.len() > 1 {
        names.push(format!("{prefix}@"));
    }
    let dashes = prefix.rmatch_indices('-');
    names.extend(dashes.map(|(at, _)| format!("{}{instance}", &prefix[..=at])));
    names.dedup();
    names
        .into_iter()
        .map(|name| format!("{name}.{kind}.d"))
        .collect()
}

/// The directory of drop-ins of all services, which counts least.
pub(crate) const DROP_INS_OF_ALL: &str = "service.d";

/// Returns the arguments that systemd starts: specifiers are replaced, then `${NAME}` is replaced inside an argument, `$NAME` that is one by the words of its value.
pub(crate) fn args(
    command: &str,
    environment: &Environment,
    specifiers: &Specifiers,
) -> Vec<String> {
    let value = |name: &str| environment.get(name).map_or("", String::as_str);
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    let mut all = Vec::new();
    for arg in split_args(command) {
        let arg = specifiers.resolve(&arg);
        if let Some(name) = arg.strip_prefix('$')
            && is_name(name)
        {
            all.extend(split_args(value(name)));
            continue;
        }
        let mut out = String::new();
        let mut rest = arg.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            rest = after;
            if let Some(after) = after.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some((name, after)) = after
                .strip_prefix('{')
                .and_then(|after| after.split_once('}'))
            {
                out.push_str(value(name));
                rest = after;
            } else {
                out.push('$');
            }
        }
        all.push(out + rest);
    }
    all
}

/// Returns the drop-in that starts a command as `program run OPTIONS -- command`.
pub(crate) fn drop_in(program: &Path, command: &str, options: &[String]) -> anyhow::Result<String> {
    let program = plain_path(program)?;
    let rest = command.trim_start_matches(['-', ':', '+', '!']);
    let prefixes = &command[..command.len() - rest.len()];
    ensure!(
        !rest.starts_with('@'),
        "the unit gives the program another name (@): remove that"
    );
    role(rest)?;
    let order = if options.iter().any(|option| option == VPN_OPTION) {
        format!("[Unit]\nWants={VPN_UNIT}\nAfter={VPN_UNIT}\n")
    } else {
        String::new()
    };
    let options = options.join(" ");
    Ok(format!(
        "# written by `multus-distro install`; `multus-distro uninstall` removes it\n{MADE_OF}{command}\n\
         {order}[Service]\nExecStart=\nExecStart={prefixes}{program} run {options} -- {rest}\n"
    ))
}

/// The features that `multus-distro install` switches on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) multus: bool,
    /// The distro of a program whose name does not say it.
    pub(crate) distro: Option<Distro>,
    /// The file with the VPN's settings, and the networks of pods.
    pub(crate) vpn: Option<(PathBuf, Vec<String>)>,
}

impl Features {
    /// Returns the options of `run`.
    pub(crate) fn options(&self) -> anyhow::Result<Vec<String>> {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.multus.then(|| MULTUS_OPTION.to_owned()));
        if let Some(distro) = self.distro {
            words.extend([DISTRO_OPTION.to_owned(), distro.as_str().to_owned()]);
        }
        if let Some((file, networks)) = &self.vpn {
            words.extend([VPN_OPTION.to_owned(), plain_path(file)?.to_owned()]);
            if !networks.is_empty() {
                words.extend([CIDR_OPTION.to_owned(), networks.join(",")]);
            }
        }
        Ok(words)
    }

    /// Reads the options of a drop-in.
    pub(crate) fn parse_drop_in(text: &str) -> Option<Self> {
        let start = exec_start(&[text.to_owned()]).ok()?;
        let args = split_args(&start).into_iter();
        let args: Vec<String> = args.take_while(|arg| arg != "--").collect();
        let value = |option: &str| {
            let at = args.iter().position(|arg| arg == option)?;
            args.get(at + 1)
        };
        let networks = value(CIDR_OPTION).map(|list| list.split(',').map(str::to_owned).collect());
        Some(Self {
            multus: args.iter().any(|arg| arg == MULTUS_OPTION),
            distro: value(DISTRO_OPTION).and_then(|name| Distro::from_str(name, false).ok()),
            vpn: value(VPN_OPTION).map(|file| (file.into(), networks.unwrap_or_default())),
        })
    }
}

/// The limits of the unit that keeps the VPN up, whose process holds a key: it writes only below `/run` and `/var/lib`, and starts
/// the provider's program, never the distro. The file with its settings may be in a home.
const SANDBOX: &str = "NoNewPrivileges=yes\nProtectSystem=full\nProtectHome=read-only\n\
    ProtectKernelTunables=yes\nProtectKernelModules=yes\nProtectControlGroups=yes\n\
    RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\nRestrictNamespaces=yes\n\
    LockPersonality=yes\nSystemCallArchitectures=native\n";

/// The unit that keeps the VPN up.
pub(crate) const VPN_UNIT: &str = "multus-vpn.service";

/// Returns the unit that keeps the VPN up: after its daemon, before the distro. Its end leaves the VPN as it is.
pub(crate) fn vpn_unit(
    program: &Path,
    vpn_auth_file: &Path,
    selection: &Selection,
) -> anyhow::Result<String> {
    let (program, file) = (plain_path(program)?, plain_path(vpn_auth_file)?);
    let (wants, after) = match (selection.guide().unit, &selection.interface) {
        ("", _) => (String::new(), String::new()),
        // The interface is the user's, who may bring it up in another way.
        (unit, Some(name)) => (String::new(), format!(" {}", unit.replace("NAME", name))),
        (unit, None) => (format!(" {unit}"), format!(" {unit}")),
    };
    Ok(format!(
        "# written by `multus-distro install`; `multus-distro uninstall` removes it\n\
         [Unit]\nDescription=VPN of this node, for K3s and RKE2\n\
         Wants=network-online.target{wants}\n\
         After=network-online.target{after}\n\
         Before=k3s.service k3s-agent.service rke2-server.service rke2-agent.service\n\
         [Service]\nType=notify\nExecStart={program} vpn run {VPN_OPTION} {file}\n\
         Restart=always\nRestartSec=5s\nUMask=0077\nLimitCORE=0\n{SANDBOX}\
         [Install]\nWantedBy=multi-user.target\n"
    ))
}

/// Returns a path that a unit and flannel's configuration can name without quotes.
pub(crate) fn plain_path(path: &Path) -> anyhow::Result<&str> {
    path.to_str()
        .filter(|path| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
            path.starts_with('/') && path.chars().all(is_plain)
        })
        .with_context(|| {
            format!(
                "{} cannot be written into a unit: move it to a path of letters, digits and ._-+, as /usr/local/bin",
                path.display()
            )
        })
}

/// The option of `run` that stages Multus.
const MULTUS_OPTION: &str = "--multus";
/// The option of `run` that names the distro.
const DISTRO_OPTION: &str = "--distro";
/// The option of `run` that names the file with the VPN's settings.
const VPN_OPTION: &str = "--vpn-auth-file";
/// The option that names the networks of pods.
const CIDR_OPTION: &str = "--vpn-cluster-cidr";

/// Returns the command that a drop-in was made of.
pub(crate) fn original_command(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix(MADE_OF))
}

/// Returns `server` or `agent`, whichever the command starts.
pub(crate) fn role(command: &str) -> anyhow::Result<&'static str> {
    let args = split_args(command);
    let role = settings::role(&args).map(Role::as_str);
    role.with_context(|| format!("`{command}` starts neither a server nor an agent"))
}

/// Splits a command into its arguments and removes their quotes.
pub(crate) fn split_args(command: &str) -> Vec<String> {
    let mut args = Vec::new();
    let mut arg: Option<String> = None;
    let mut quote = None;
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                arg.get_or_insert_default();
            }
            (open, '\\') if open != Some('\'') => {
                arg.get_or_insert_default().extend(letters.next());
            }
            (None, _) if letter.is_whitespace() => args.extend(arg.take()),
            _ => arg.get_or_insert_default().push(letter),
        }
    }
    args.extend(arg);
    args
}

/// Returns the lines without comments, each joined with its continuations.
fn lines(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        let (part, is_continued) = match line.strip_suffix('\\') {
            Some(part) => (part.trim_end(), true),
            None => (line, false),
        };
        let mut joined = open.take().unwrap_or_default();
        if !joined.is_empty() && !part.is_empty() {
            joined.push(' ');
        }
        joined.push_str(part);
        if is_continued {
            open = Some(joined);
        } else if !joined.is_empty() {
            all.push(joined);
        }
    }
    all.extend(open);
    all
}

#[cfg(test)]
mod tests {
    use vpn::provider::ProviderName;

    use super::*;

    /// The unit that K3s' install script writes.
    const K3S: &str = "[Unit]\nDescription=Lightweight Kubernetes\n[Service]\nType=notify\nExecStartPre=-/sbin/modprobe overlay\n\
        ExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--data-dir' \\\n\t'/data/k 3s' \\\n\n";

    fn check(texts: &[&str]) -> anyhow::Result<String> {
        exec_start(
            &texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn command_of_a_unit_with_drop_ins_is_found() {
        let k3s = "/usr/local/bin/k3s server '--data-dir' '/data/k 3s'";
        assert_eq!(check(&[K3S]).unwrap(), k3s);
        let own = "# x\n[Service]\nExecStart=\nExecStart = /opt/k3s server\n";
        assert_eq!(check(&[K3S, own]).unwrap(), "/opt/k3s server");
        assert!(check(&[K3S, "[Service]\nExecStart=/x\n"]).is_err());
        assert!(check(&["[Install]\nExecStart=/x\n"]).is_err());
    }

    #[test]
    fn drop_in_starts_the_same_command_through_this_program() {
        let program = Path::new("/usr/local/bin/multus-distro");
        let command = check(&[K3S]).unwrap();
        let multus = [MULTUS_OPTION.to_owned()];
        let text = drop_in(program, &command, &multus).unwrap();
        let start = "ExecStart=\nExecStart=/usr/local/bin/multus-distro run --multus -- /usr/local/bin/k3s server '--data-dir' '/data/k 3s'\n";
        assert!(text.ends_with(start), "{text}");
        assert_eq!(original_command(&text), Some(command.as_str()));
        let through = check(&[K3S, &text]).unwrap();
        assert!(through.starts_with("/usr/local/bin/multus-distro run"));
        let agent = drop_in(program, "-/usr/local/bin/rke2 agent", &multus).unwrap();
        assert!(agent.contains("=-/usr/local/bin/multus-distro run --multus -- /usr/local"));
        for (program, command) in [
            ("/tmp/a b", "/k3s server"),
            ("relative", "/k3s server"),
            ("/x", "/k3s kubectl"),
            ("/x", "@/k3s k3s server"),
        ] {
            assert!(
                drop_in(Path::new(program), command, &[]).is_err(),
                "{program} {command}"
            );
        }
    }

    #[test]
    fn vpn_comes_before_the_distro() {
        let program = Path::new("/usr/local/bin/multus-distro");
        let file = Path::new("/etc/multus-vpn.auth");
        let mut features = Features {
            multus: true,
            distro: None,
            vpn: Some((file.to_owned(), Vec::new())),
        };
        let options = features.options().unwrap();
        let text = drop_in(program, "/usr/local/bin/k3s agent", &options).unwrap();
        let start = "ExecStart=/usr/local/bin/multus-distro run --multus --vpn-auth-file /etc/multus-vpn.auth -- /usr/local/bin/k3s agent\n";
        assert!(text.ends_with(start), "{text}");
        assert_eq!(original_command(&text), Some("/usr/local/bin/k3s agent"));
        let networks = ["10.9.0.0/16", "fd09::/56"].map(str::to_owned);
        for (multus, networks) in [(true, Vec::new()), (false, networks.to_vec())] {
            features = Features {
                multus,
                distro: multus.then_some(Distro::Rke2),
                vpn: Some((file.to_owned(), networks)),
            };
            let text = drop_in(program, "k3s agent", &features.options().unwrap()).unwrap();
            assert_eq!(Features::parse_drop_in(&text).as_ref(), Some(&features));
            assert_eq!(text.contains("--multus"), multus);
        }
        // An argument of the distro is none of ours.
        let command = "/usr/local/bin/k3s agent --vpn-auth-file /x";
        let without = drop_in(program, command, &[MULTUS_OPTION.to_owned()]).unwrap();
        assert_eq!(Features::parse_drop_in(&without).unwrap().vpn, None);
        let order = "[Unit]\nWants=multus-vpn.service\nAfter=multus-vpn.service\n[Service]\n";
        assert!(text.contains(order), "{text}");
        let unit = [vpn_unit(program, file, &Selection::default()).unwrap()];
        for line in [
            "After=network-online.target tailscaled.service",
            "Before=k3s.service k3s-agent.service rke2-server.service rke2-agent.service",
            "LimitCORE=0",
            "NoNewPrivileges=yes",
            "ProtectSystem=full",
            "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        ] {
            assert!(unit[0].lines().any(|found| found == line), "{}", unit[0]);
        }
        assert_eq!(
            exec_start(&unit).unwrap(),
            "/usr/local/bin/multus-distro vpn run --vpn-auth-file /etc/multus-vpn.auth"
        );
        assert!(vpn_unit(program, Path::new("/etc/a b"), &Selection::default()).is_err());
    }

    #[test]
    fn unit_of_the_vpn_follows_an_interface_of_the_user_without_starting_it() {
        let unit = |provider| {
            let selection = Selection {
                provider,
                interface: Some("wg0".to_owned()),
                ..Selection::default()
            };
            vpn_unit(Path::new("/x"), Path::new("/y"), &selection).unwrap()
        };
        let order = "Wants=network-online.target\nAfter=network-online.target";
        let followed = format!("{order} wg-quick@wg0.service\n");
        assert!(unit(ProviderName::Wireguard).contains(&followed));
        assert!(unit(ProviderName::Interface).contains(&format!("{order}\n")));
    }

    #[test]
    fn environment_of_a_unit_is_read_as_systemd_reads_it() {
        let unit = "[Service]\nEnvironment=A=1 \"B=two words\" P=%p\nEnvironmentFile=-/etc/default/%N\n\
            EnvironmentFile=/etc/%n.env\nEnvironmentFile=relative\n";
        let texts = [unit.to_owned()];
        let specifiers =
            |unit: &str| Specifiers::new(unit, Path::new("/etc/systemd/system/x"), "vm");
        let mut environment = environment(&texts, &specifiers("k3s@x.service"));
        let pairs = |environment: &Environment| {
            let pairs = environment
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(pairs(&environment), ["A=1", "B=two words", "P=k3s"]);
        let file = |path: &str, are_optional| EnvironmentFiles {
            path: path.to_owned(),
            are_optional,
        };
        assert_eq!(
            environment_files(&texts, &specifiers("k3s.service")),
            [
                file("/etc/default/k3s", true),
                file("/etc/k3s.service.env", false)
            ]
        );
        let reset = [unit.to_owned(), "[Service]\nEnvironmentFile=\n".to_owned()];
        assert_eq!(environment_files(&reset, &specifiers("k3s.service")), []);
        // The quotes are those of K3s' installer.
        let text = "# A=9\n\n; A=8\n  B = 'a b'  \nC=\"x\\\"y\\z\"\nD=a\\\nb c  \nE=\nno assignment\nF=it\\'s";
        environment.remove("P");
        add_environment_file(&mut environment, text);
        assert_eq!(
            pairs(&environment),
            ["A=1", "B=a b", "C=x\"y\\z", "D=ab c", "E=", "F=it's"]
        );
        assert_eq!(
            args(
                "k3s ${A}server $B x$A $$y ${NONE} $NONE '%S/%p x'",
                &environment,
                &specifiers("k3s.service")
            ),
            [
                "k3s",
                "1server",
                "a",
                "b",
                "x$A",
                "$y",
                "",
                "/var/lib/k3s x"
            ]
        );
    }

    /// The order is that of systemd 252, by `systemd-analyze verify`.
    #[test]
    fn drop_ins_of_the_unit_come_before_those_of_its_prefixes() {
        assert_eq!(drop_in_dirs("k3s.service"), ["k3s.service.d"]);
        assert_eq!(
            drop_in_dirs("rke2-server-a.service"),
            [
                "rke2-server-a.service.d",
                "rke2-server-.service.d",
                "rke2-.service.d"
            ]
        );
        assert_eq!(
            drop_in_dirs("k3s-a@b.service"),
            ["k3s-a@b.service.d", "k3s-a@.service.d", "k3s-@b.service.d"]
        );
    }

    #[test]
    fn arguments_are_unquoted() {
        let command = r#"k3s server '--a b' --c="d e" f\ g """#;
        assert_eq!(
            split_args(command),
            ["k3s", "server", "--a b", "--c=d e", "f g", ""]
        );
    }
}
