//! The distro's command line, parsed as the library urfave/cli does, which uses Go's package `flag`: one dash or two, `name=value` or two
//! arguments, and nothing counts behind the first argument that belongs to no flag.

use std::collections::BTreeMap;

use super::{
    Role,
    table::{Kind, TABLE},
};

/// Returns what the arguments start: K3s takes the first argument of that name, flags before it or not (pkg/configfilearg/parser.go).
pub(crate) fn role(args: &[String]) -> Option<Role> {
    args.iter().skip(1).find_map(|arg| Role::named(arg))
}

/// Returns the values of each flag of the table. Flags before `server` or `agent` are those of the whole program, and neither of the two
/// reads them.
pub(super) fn values(args: &[String]) -> BTreeMap<&'static str, Vec<String>> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut rest = args.iter().skip(1).peekable();
    if role(args).is_some() {
        rest.find(|arg| Role::named(arg).is_some());
    }
    while let Some(arg) = rest.next() {
        let Some(name) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            break;
        };
        if name.is_empty() {
            break;
        }
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        let flag = TABLE.iter().find(|flag| flag.is_named(name));
        let value = match (value, flag.map(|flag| flag.kind)) {
            (Some(value), _) => Some(value),
            (None, Some(Kind::Switch)) => Some("true".to_owned()),
            (None, Some(_)) => rest.next().cloned(),
            // An unknown flag is a switch, or the next argument is its value.
            (None, None) => rest.next_if(|next| !next.starts_with('-')).cloned(),
        };
        if let Some(flag) = flag {
            found.entry(flag.name).or_default().extend(value);
        }
    }
    found
}

/// Returns the file that an argument names: only these arguments are read before the file (`findConfigFileFlag`).
pub(super) fn config_file(args: &[String]) -> Option<&str> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        for name in ["--config", "-c"] {
            match arg.strip_prefix(name) {
                Some("") => return args.next().map(String::as_str),
                Some(value) if value.starts_with('=') => return Some(&value[1..]),
                _ => {}
            }
        }
    }
    None
}
