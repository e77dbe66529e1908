//! `extraArgs`: arguments of the provider's program, less those that this program sets itself.

use std::net::IpAddr;

use super::AuthError;

/// The arguments, sorted by the program that reads them.
#[derive(Default)]
pub(super) struct Arguments {
    pub(super) rest: Vec<String>,
    pub(super) advertise_routes: Vec<String>,
    pub(super) login_server: Option<String>,
    pub(super) has_tags: bool,
    pub(super) warnings: Vec<String>,
}

/// The beginning of every key of tailscale's own control server.
const KEY: &str = "tskey-";

/// Flags that carry a key or another credential.
const CREDENTIALS: [&str; 6] = [
    "--auth-key",
    "--authkey",
    "--client-id",
    "--client-secret",
    "--id-token",
    "--audience",
];
const CREDENTIAL: &str =
    "puts a credential where every user of the node sees it: write the key as joinKey";

/// Flags that are left out, with a reason, and whether a value follows them.
const LEFT_OUT: [(&str, &str, bool); 5] = [
    (
        "--reset",
        "it would undo settings that others made on this node",
        false,
    ),
    ("--timeout", "this program has its own deadlines", true),
    ("--json", "it changes the output that is read", false),
    ("--qr", "its output is not shown", false),
    ("--qr-format", "its output is not shown", true),
];

/// Reads the arguments; a flag may have one dash or two, and its value may be the next word.
pub(super) fn read(text: &str) -> Result<Arguments, AuthError> {
    let mut arguments = Arguments::default();
    let words = words(text)?;
    if words.iter().any(|word| word.contains(KEY)) {
        return Err(AuthError::KeyInArguments);
    }
    let mut words = words.into_iter().enumerate().peekable();
    while let Some((at, word)) = words.next() {
        let name = word.trim_start_matches('-');
        let dashes = word.len() - name.len();
        let name = name.split('=').next().unwrap_or_default();
        if !(1..=2).contains(&dashes) || name.is_empty() {
            return Err(AuthError::NotAFlag { word: at + 1 });
        }
        let flag = format!("--{name}");
        let mut value = word.split_once('=').map(|(_, value)| value.to_owned());
        let mut take_value = || {
            value
                .take()
                .or_else(|| words.next().map(|(_, word)| word))
                .unwrap_or_default()
        };
        if let Some(flag) = CREDENTIALS.into_iter().find(|known| *known == flag) {
            return Err(AuthError::Argument {
                flag,
                reason: CREDENTIAL,
            });
        }
        if let Some((flag, reason, has_value)) = LEFT_OUT.iter().find(|(known, ..)| *known == flag)
        {
            if *has_value {
                take_value();
            }
            arguments
                .warnings
                .push(format!("{flag} in extraArgs is left out: {reason}"));
            continue;
        }
        match flag.as_str() {
            "--login-server" => arguments.login_server = Some(take_value()),
            "--advertise-routes" => arguments.advertise_routes = routes(&take_value())?,
            "--accept-routes" => accept_routes(value.as_deref())?,
            "--shields-up" => shields_up(value.as_deref())?,
            _ => {
                arguments.has_tags |= flag == "--advertise-tags";
                arguments.rest.push(word);
                // The value of this flag, or a word that the provider's program refuses.
                if value.is_none()
                    && let Some((_, next)) = words.next_if(|(_, word)| !word.starts_with('-'))
                {
                    arguments.rest.push(next);
                }
            }
        }
    }
    Ok(arguments)
}

/// Accepts the value that this program sets.
fn accept_routes(value: Option<&str>) -> Result<(), AuthError> {
    if is_true(value) {
        return Ok(());
    }
    Err(AuthError::Argument {
        flag: "--accept-routes",
        reason: "would keep this node from the pods of the others: leave it out",
    })
}

/// Accepts the default.
fn shields_up(value: Option<&str>) -> Result<(), AuthError> {
    if !is_true(value) {
        return Ok(());
    }
    Err(AuthError::Argument {
        flag: "--shields-up",
        reason: "would keep the other nodes from this one's kubelet, API server and pods: leave it out",
    })
}

/// Returns whether a switch is on; one without a value is.
fn is_true(value: Option<&str>) -> bool {
    matches!(
        value,
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True")
    )
}

/// Returns the routes of a comma-separated list.
fn routes(list: &str) -> Result<Vec<String>, AuthError> {
    let is_route = |route: &str| {
        let (address, length) = route.split_once('/')?;
        let max = match address.parse().ok()? {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        length.parse::<u8>().ok().filter(|length| *length <= max)
    };
    let routes = list.split(',').filter(|route| !route.is_empty());
    routes
        .map(|route| match is_route(route) {
            Some(_) => Ok(route.to_owned()),
            None => Err(AuthError::Argument {
                flag: "--advertise-routes",
                reason: "is not a list of routes: write it as 10.1.0.0/16,fd00:1::/64",
            }),
        })
        .collect()
}

/// Splits at white space outside of quotes.
fn words(text: &str) -> Result<Vec<String>, AuthError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' | '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some(next) if next == character => break,
                        Some(next) => word.push(next),
                        None => {
                            return Err(AuthError::Quotes {
                                field: super::EXTRA,
                            });
                        }
                    }
                }
            }
            space if space.is_whitespace() => words.extend(word.take()),
            control if control.is_control() => {
                return Err(AuthError::Characters {
                    field: super::EXTRA,
                    found: "control characters",
                    expected: "arguments as you would type them",
                });
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}
