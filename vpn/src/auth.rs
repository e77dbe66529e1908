//! The language of `--vpn-auth`: which VPN a node joins, and with which key. A parser of bytes.
//!
//! It accepts K3s' texts, `name=tailscale,joinKey=…[,controlServerURL=…][,extraArgs=…]`, with the same meaning, and more: fields in any
//! order, other VPNs, values that contain `=`, values in quotes, which may contain commas, and no key where the node is logged in already.
//! K3s loses parts of some texts: it cuts a value at a second `=`, which is kept here, and drops a second `extraArgs`, which is refused.
//! A URL without `http` or `https` and a host is refused too.
//!
//! No error and no warning contains a part of the input, because any part may be one of the key.

mod arguments;

use std::fmt;

use crate::{
    Secret,
    provider::{Pods, ProviderName, Selection},
};

/// The settings by which a node joins a VPN.
#[derive(Debug)]
pub struct Auth {
    /// The VPN.
    pub selection: Selection,
    /// The key, unless the node is logged in already.
    pub key: Option<Secret>,
    /// The URL of the control server, where it is not the provider's own.
    pub control_server: Option<String>,
    /// The user's own routes from `extraArgs`, which are advertised with the node's.
    pub advertise_routes: Vec<String>,
    /// Further arguments of the provider's program.
    pub extra_args: Vec<String>,
    /// Sentences about arguments that were left out and about settings that are risky on a node.
    pub warnings: Vec<String>,
}

/// The reason why a text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// There is nothing in the text.
    #[error("the VPN settings are empty: write name=tailscale,joinKey=KEY")]
    Empty,
    /// The text is longer than any settings.
    #[error("the VPN settings have more than {MAX} bytes: name the file that holds them alone")]
    TooLong,
    /// A field without `=`.
    #[error(
        "field {field} of the VPN settings has no `=`: write NAME=VALUE, and put a value with a comma in quotes"
    )]
    NoValue {
        /// Its number, from 1.
        field: usize,
    },
    /// A field of another name.
    #[error(
        "field {field} of the VPN settings has an unknown name{}: the names are name, joinKey, controlServerURL and extraArgs, or name, interface and pods, and a value with a comma is put in quotes",
        Similar(*.similar)
    )]
    UnknownField {
        /// Its number, from 1.
        field: usize,
        /// The field whose name it resembles.
        similar: Option<&'static str>,
    },
    /// A field with a key of WireGuard's.
    #[error(
        "field {field} of the VPN settings is a key of WireGuard, whose interface has its keys in its own configuration: leave it out"
    )]
    Key {
        /// Its number, from 1.
        field: usize,
    },
    /// Quotes that do not end, or text behind them.
    #[error(
        "the quotes in {field} of the VPN settings do not end before a comma: end the value with the character that begins it"
    )]
    Quotes {
        /// Its name.
        field: &'static str,
    },
    /// A value that is not text.
    #[error("{field} of the VPN settings contains {found}: write {expected}")]
    Characters {
        /// Its name.
        field: &'static str,
        /// The kind of character.
        found: &'static str,
        /// The text to write instead.
        expected: &'static str,
    },
    /// No field `name`.
    #[error("the VPN settings have no `name`: begin with name=tailscale")]
    NoProvider,
    /// Another VPN.
    #[error(
        "the VPN settings name a VPN that is not supported: write name=tailscale, name=wireguard,interface=NAME, or name=interface,interface=NAME for any other interface between the nodes"
    )]
    UnknownProvider,
    /// A field that this VPN does not have.
    #[error("{field} of the VPN settings {reason}")]
    OtherProvider {
        /// Its name.
        field: &'static str,
        /// Why it is refused, with what helps.
        reason: &'static str,
    },
    /// The VPN is an interface of the user's, which is not named.
    #[error("the VPN settings name no interface: add interface=NAME")]
    NoInterface,
    /// The control server's address is not usable.
    #[error(
        "the control server's URL in the VPN settings {reason}: write it as https://headscale.example.com"
    )]
    ControlServer {
        /// The reason why it is refused.
        reason: &'static str,
    },
    /// The secret of an OAuth client without tags.
    #[error(
        "joinKey is the secret of an OAuth client, which needs tags: add --advertise-tags=tag:NAME to extraArgs"
    )]
    NoTags,
    /// The secret of an OAuth client with a parameter that there is not.
    #[error(
        "joinKey has an unknown parameter after `?`, or one that is neither true nor false: write ?ephemeral=false&preauthorized=true"
    )]
    ClientParameter,
    /// An argument that must not be passed on.
    #[error("{flag} in extraArgs {reason}")]
    Argument {
        /// The flag, one of a fixed list.
        flag: &'static str,
        /// Why it is refused, with what helps.
        reason: &'static str,
    },
    /// A key among the arguments.
    #[error(
        "extraArgs has a key, which every user of the node can read there: write it as joinKey"
    )]
    KeyInArguments,
    /// A word that belongs to no flag.
    #[error(
        "word {word} of extraArgs is not a flag: write --flag=value, and put a value with spaces in quotes"
    )]
    NotAFlag {
        /// Its number, from 1.
        word: usize,
    },
    /// A second `extraArgs`.
    #[error("extraArgs is in the VPN settings twice, and K3s drops the second: join them")]
    TwoArguments,
}

/// Prints a field whose name is similar.
struct Similar(Option<&'static str>);

impl fmt::Display for Similar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .map_or(Ok(()), |name| write!(f, " (did you mean {name}?)"))
    }
}

/// More than any settings have.
pub const MAX: usize = 8192;

/// The names of fields, as K3s writes them.
const FIELDS: [&str; 6] = [
    "name",
    "joinKey",
    "controlServerURL",
    EXTRA,
    "interface",
    "pods",
];
const EXTRA: &str = "extraArgs";

/// The beginning of the secret of an OAuth client, which the provider's program turns into a key.
const CLIENT_SECRET: &[u8] = b"tskey-client-";

impl Auth {
    /// Reads settings. White space around the text and around a field is ignored.
    pub fn parse(text: &[u8]) -> Result<Self, AuthError> {
        if text.len() > MAX {
            return Err(AuthError::TooLong);
        }
        let mut fields = Fields::read(text.trim_ascii())?;
        let provider = match fields.name.as_deref() {
            None | Some(b"") => return Err(AuthError::NoProvider),
            Some(name) => ProviderName::parse(name).ok_or(AuthError::UnknownProvider)?,
        };
        let selection = fields.selection(provider)?;
        let arguments = match &fields.extra {
            None => arguments::Arguments::default(),
            Some(extra) => arguments::read(extra)?,
        };
        let explicit = fields.control_server.filter(|url| !url.is_empty());
        let explicit = explicit.map(|url| control_server(&url)).transpose()?;
        let in_arguments = arguments.login_server.as_deref();
        let in_arguments = in_arguments
            .map(|url| control_server(url.as_bytes()))
            .transpose()?;
        let control_server = match (explicit, in_arguments) {
            (Some(explicit), Some(other)) if !same_server(&explicit, &other) => {
                return Err(AuthError::Argument {
                    flag: "--login-server",
                    reason: "contradicts controlServerURL: leave it out",
                });
            }
            (explicit, in_arguments) => explicit.or(in_arguments),
        };
        let mut warnings = arguments.warnings;
        let key = fields.key.filter(|key| !key.is_empty());
        if let Some(key) = &key {
            warnings.extend(check_key(key.expose(), arguments.has_tags)?);
        }
        Ok(Self {
            selection,
            key,
            control_server,
            advertise_routes: arguments.advertise_routes,
            extra_args: arguments.rest,
            warnings,
        })
    }
}

/// The fields of a text. As in K3s, the last of several fields of one name counts.
#[derive(Default)]
struct Fields {
    name: Option<Vec<u8>>,
    key: Option<Secret>,
    control_server: Option<Vec<u8>>,
    extra: Option<String>,
    interface: Option<Vec<u8>>,
    pods: Option<Vec<u8>>,
}

impl Fields {
    fn read(text: &[u8]) -> Result<Self, AuthError> {
        if text.is_empty() {
            return Err(AuthError::Empty);
        }
        let mut fields = Self::default();
        let mut rest = Some(text);
        let mut number = 0;
        while let Some(text) = rest {
            number += 1;
            let text = text.trim_ascii_start();
            let end = text.iter().position(|byte| b",=".contains(byte));
            let Some(end) = end.filter(|&end| text[end] == b'=') else {
                return Err(AuthError::NoValue { field: number });
            };
            let name = text[..end].trim_ascii();
            let Some(&field) = FIELDS.iter().find(|field| field.as_bytes() == name) else {
                let name_of_key = name.to_ascii_lowercase();
                if [&b"privatekey"[..], b"presharedkey", b"publickey"].contains(&&name_of_key[..]) {
                    return Err(AuthError::Key { field: number });
                }
                return Err(AuthError::UnknownField {
                    field: number,
                    similar: similar(name),
                });
            };
            let (value, after) = value(field, &text[end + 1..])?;
            rest = after;
            match field {
                "name" => fields.name = Some(value),
                "joinKey" => fields.key = Some(Secret::new(value)),
                "controlServerURL" => fields.control_server = Some(value),
                "interface" => fields.interface = Some(value),
                "pods" => fields.pods = Some(value),
                _ if fields.extra.is_some() => return Err(AuthError::TwoArguments),
                _ => fields.extra = Some(arguments_text(value)?),
            }
        }
        Ok(fields)
    }
}

impl Fields {
    /// Returns what the settings select. A provider has a login, whose fields are the other ones, or an interface that its user brings up.
    fn selection(&mut self, provider: ProviderName) -> Result<Selection, AuthError> {
        let refuse = |field, reason| Err(AuthError::OtherProvider { field, reason });
        if provider == ProviderName::Tailscale {
            let other_settings = [("interface", &self.interface), ("pods", &self.pods)];
            return match other_settings
                .into_iter()
                .find(|(_, value)| value.is_some())
            {
                Some((field, _)) => refuse(
                    field,
                    "is for a VPN that you bring up yourself, and tailscale makes its own: leave it out",
                ),
                None => Ok(Selection::default()),
            };
        }
        let login = [
            ("joinKey", self.key.is_some()),
            ("controlServerURL", self.control_server.is_some()),
            (EXTRA, self.extra.is_some()),
        ];
        if let Some((field, _)) = login.into_iter().find(|(_, is_set)| *is_set) {
            return refuse(
                field,
                "is for a VPN with a login, and this interface is yours, with its keys where you keep them: leave it out",
            );
        }
        let name = self.interface.take().ok_or(AuthError::NoInterface)?;
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_=+.-".contains(byte);
        if !(1..=15).contains(&name.len()) || !name.iter().all(is_plain) {
            return refuse(
                "interface",
                "is not a name of an interface, of at most 15 letters, digits and _=+.-: correct it",
            );
        }
        let pods = match (provider, self.pods.as_deref()) {
            (ProviderName::Wireguard, None | Some(b"routes")) => Pods::Routes,
            (_, None | Some(b"vxlan")) => Pods::Vxlan,
            (ProviderName::Wireguard, Some(_)) => {
                return refuse("pods", "is neither routes nor vxlan: correct it");
            }
            (_, Some(_)) => {
                return refuse(
                    "pods",
                    "is vxlan with name=interface, since nothing else brings pods through any interface: leave it out",
                );
            }
        };
        Ok(Selection {
            provider,
            interface: String::from_utf8(name).ok(),
            pods,
        })
    }
}

/// Returns a field's value, and the text behind the comma that ends it. Without quotes `extraArgs` is the rest of the text.
fn value<'a>(
    field: &'static str,
    text: &'a [u8],
) -> Result<(Vec<u8>, Option<&'a [u8]>), AuthError> {
    let unquoted = text.trim_ascii_start();
    if let Some(&quote) = unquoted.first().filter(|quote| b"\"'".contains(quote))
        && let Some((value, after)) = quoted(&unquoted[1..], quote)
    {
        let after = after.trim_ascii_start();
        return match after.split_first() {
            None => Ok((value, None)),
            Some((b',', after)) => Ok((value, Some(after))),
            // Only an argument of its own is in quotes, as K3s reads it.
            Some(_) if field == EXTRA => Ok((text.to_vec(), None)),
            Some(_) => Err(AuthError::Quotes { field }),
        };
    } else if unquoted.starts_with(b"\"") || unquoted.starts_with(b"'") {
        return Err(AuthError::Quotes { field });
    }
    if field == EXTRA {
        return Ok((text.to_vec(), None));
    }
    let mut parts = text.splitn(2, |&byte| byte == b',');
    let value = parts.next().unwrap_or_default().trim_ascii().to_vec();
    Ok((value, parts.next()))
}

/// Returns the text up to the closing quote, and the text behind it. In double quotes a backslash takes `"` and `\` literally.
fn quoted(text: &[u8], quote: u8) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte == quote {
            return Some((value, &text[at + 1..]));
        }
        let next = text.get(at + 1).copied();
        match (byte, next) {
            (b'\\', Some(literal @ (b'"' | b'\\'))) if quote == b'"' => {
                value.push(literal);
                at += 2;
            }
            _ => {
                value.push(byte);
                at += 1;
            }
        }
    }
    None
}

/// Returns the text of `extraArgs`, unless it has the field a second time, as K3s would look for it.
fn arguments_text(value: Vec<u8>) -> Result<String, AuthError> {
    let text = String::from_utf8(value).map_err(|_| AuthError::Characters {
        field: EXTRA,
        found: "bytes that are not UTF-8",
        expected: "arguments as you would type them",
    })?;
    if text.contains(",extraArgs=") {
        return Err(AuthError::TwoArguments);
    }
    Ok(text)
}

/// Returns the field that a name resembles: another case, or with a word less or more.
fn similar(name: &[u8]) -> Option<&'static str> {
    let plain = |name: &[u8]| {
        let letters = name.iter().filter(|byte| byte.is_ascii_alphanumeric());
        letters.map(u8::to_ascii_lowercase).collect::<Vec<u8>>()
    };
    match plain(name).as_slice() {
        b"provider" | b"vpn" => Some("name"),
        b"iface" | b"device" | b"dev" | b"link" => Some("interface"),
        b"key" | b"authkey" | b"token" => Some("joinKey"),
        b"controlserver" | b"loginserver" | b"url" | b"server" => Some("controlServerURL"),
        b"args" | b"extraarg" | b"extra" => Some(EXTRA),
        name => FIELDS
            .into_iter()
            .find(|field| plain(field.as_bytes()) == name),
    }
}

/// Refuses what the provider's program cannot read as a key; returns what is risky.
fn check_key(key: &[u8], has_tags: bool) -> Result<Option<String>, AuthError> {
    if !key.iter().all(u8::is_ascii_graphic) {
        return Err(AuthError::Characters {
            field: "joinKey",
            found: "white space or bytes that are no ASCII letters, digits or signs",
            expected: "the key as the control server shows it",
        });
    }
    if !key.starts_with(CLIENT_SECRET) {
        return Ok(None);
    }
    if !has_tags {
        return Err(AuthError::NoTags);
    }
    let parameters = key.splitn(2, |&byte| byte == b'?').nth(1);
    let parameters = parameters.unwrap_or_default().split(|&byte| byte == b'&');
    let mut is_lasting = false;
    for parameter in parameters.filter(|parameter| !parameter.is_empty()) {
        let mut parts = parameter.splitn(2, |&byte| byte == b'=');
        let name = parts.next().unwrap_or_default();
        let value = parts.next().unwrap_or_default();
        let is_true = match value {
            b"" => None,
            b"0" | b"f" | b"F" | b"false" | b"FALSE" | b"False" => Some(false),
            b"1" | b"t" | b"T" | b"true" | b"TRUE" | b"True" => Some(true),
            _ if name == b"baseURL" => None,
            _ => return Err(AuthError::ClientParameter),
        };
        match name {
            b"ephemeral" => is_lasting = is_true == Some(false),
            b"preauthorized" | b"baseURL" => {}
            _ => return Err(AuthError::ClientParameter),
        }
    }
    Ok((!is_lasting).then(|| {
        "nodes of this OAuth client are ephemeral: one that is away for long comes back with another address, so end joinKey with ?ephemeral=false&preauthorized=true"
            .to_owned()
    }))
}

/// Returns whether two addresses name one control server.
pub(crate) fn same_server(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Returns the URL of a control server.
fn control_server(url: &[u8]) -> Result<String, AuthError> {
    let fail = |reason| Err(AuthError::ControlServer { reason });
    let Ok(text) = std::str::from_utf8(url) else {
        return fail("is not UTF-8");
    };
    let lower = text.to_ascii_lowercase();
    let Some(scheme) = ["https://", "http://"]
        .into_iter()
        .find(|scheme| lower.starts_with(scheme))
    else {
        return fail("begins with neither https:// nor http://");
    };
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return fail("has white space or characters that are not ASCII");
    }
    let rest = &text[scheme.len()..];
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return fail("has a user name, which the VPN's program does not send");
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if port.is_some_and(|port| !port.is_empty() && port.parse::<u16>().is_err()) {
        return fail("has a port that is not a number up to 65535");
    }
    let is_host = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        }
    };
    if !is_host {
        return fail("has no host");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
