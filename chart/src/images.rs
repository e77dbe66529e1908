//! The names of the images that this project builds. Registry and path are a setting of the build, so that a distro publishes under its own.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The variable by which a build of the programs gets the prefix.
pub const VARIABLE: &str = "MULTUS_IMAGE_PREFIX";
/// The name of the daemon's image after the prefix.
pub const DAEMON: &str = "multus";
/// The registry of names without one.
const PUBLIC: &str = "docker.io";
/// The end of a name that is a tag: every image of a release has the release's version.
const TAG: &str = ":v";

/// The text before the name of each image, as `docker.io/multusrs/` or `registry.example/team/hardened-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImagePrefix {
    registry: Cow<'static, str>,
    path: Cow<'static, str>,
}

/// The text is not a prefix of images' names; it is kept for the message.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` cannot come before the name of an image: write [REGISTRY/]PATH/ or [REGISTRY/]PATH/PREFIX-, in lower case, as rancher/ or registry.example/team/hardened-"
)]
pub struct PrefixError(String);

impl ImagePrefix {
    /// The prefix of the images that this project publishes.
    pub const DEFAULT: Self = Self {
        registry: Cow::Borrowed(PUBLIC),
        path: Cow::Borrowed("multusrs/"),
    };

    /// Returns whether this is the prefix of this project.
    pub fn is_default(&self) -> bool {
        *self == Self::DEFAULT
    }

    /// Returns the registry as values of the chart have it: empty for the public one, which container runtimes add themselves.
    pub fn registry_value(&self) -> &str {
        if self.registry == PUBLIC {
            ""
        } else {
            &self.registry
        }
    }

    /// Returns the name of an image without its registry.
    pub fn repository(&self, image: &str) -> String {
        format!("{}{image}", self.path)
    }

    /// Returns the full name of an image of a release.
    pub fn reference(&self, image: &str, version: &str) -> String {
        format!("{self}{image}{TAG}{version}")
    }

    /// Returns a name that has the prefix of this project, with this one instead; any other name as it is.
    pub fn rename(&self, reference: &str) -> String {
        let default = Self::DEFAULT.to_string();
        match reference.strip_prefix(&default) {
            Some(image) => format!("{self}{image}"),
            None => reference.to_owned(),
        }
    }
}

impl Default for ImagePrefix {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for ImagePrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.path)
    }
}

impl FromStr for ImagePrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        // The rule of container runtimes: a first part with a dot or a port is a registry.
        let (registry, path) = match text.split_once('/') {
            Some((first, path)) if first.contains(['.', ':']) || first == "localhost" => {
                (first, path)
            }
            _ => (PUBLIC, text),
        };
        let is_sound = is_registry(registry) && is_path(path) && text.len() <= 128;
        if !is_sound {
            return Err(PrefixError(text.to_owned()));
        }
        Ok(Self {
            registry: Cow::Owned(registry.to_owned()),
            path: Cow::Owned(path.to_owned()),
        })
    }
}

impl TryFrom<String> for ImagePrefix {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Self, PrefixError> {
        text.parse()
    }
}

impl From<ImagePrefix> for String {
    fn from(prefix: ImagePrefix) -> Self {
        prefix.to_string()
    }
}

fn is_registry(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "443"));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let is_edge = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    host.bytes().all(is_plain)
        && is_edge(host.chars().next())
        && is_edge(host.chars().next_back())
        && port.parse::<u16>().is_ok()
}

/// Returns whether names of images may follow: parts of lower-case letters and digits with single separators between, and a separator at the end.
fn is_path(text: &str) -> bool {
    let is_separated = text.ends_with(['/', '-', '_', '.']);
    let named = format!("{text}{DAEMON}");
    is_separated && text.contains('/') && named.split('/').all(is_part)
}

fn is_part(part: &str) -> bool {
    let words = part.split(['-', '_', '.']);
    let is_word = |word: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !word.is_empty() && word.bytes().all(plain)
    };
    let mut words = words;
    words.all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, reference: &str, registry: &str, repository: &str) {
        let prefix: ImagePrefix = text.parse().unwrap();
        assert_eq!(prefix.reference(DAEMON, "1.2.3"), reference);
        assert_eq!(prefix.registry_value(), registry);
        assert_eq!(prefix.repository(DAEMON), repository);
        assert_eq!(prefix.to_string().parse::<ImagePrefix>().unwrap(), prefix);
    }

    #[test]
    fn prefix_is_registry_and_path() {
        let default = ImagePrefix::DEFAULT.to_string();
        check(
            &default,
            "docker.io/multusrs/multus:v1.2.3",
            "",
            "multusrs/multus",
        );
        check(
            "rancher/",
            "docker.io/rancher/multus:v1.2.3",
            "",
            "rancher/multus",
        );
        check(
            "r.example:5000/a/b/hardened-",
            "r.example:5000/a/b/hardened-multus:v1.2.3",
            "r.example:5000",
            "a/b/hardened-multus",
        );
        check(
            "localhost/x/",
            "localhost/x/multus:v1.2.3",
            "localhost",
            "x/multus",
        );
    }

    #[test]
    fn text_that_makes_no_name_is_refused() {
        for text in [
            "",
            "/",
            "rancher",
            "hardened-",
            "Rancher/",
            "rancher//",
            "a--/",
            "rancher/hardened",
            "r.example/",
            "r.example:port/a/",
            "-r.example/a/",
            "https://r.example/a/",
            "a b/",
            "a/../",
            "a/\"x-",
        ] {
            let error = text.parse::<ImagePrefix>().unwrap_err();
            assert_eq!(error, PrefixError(text.to_owned()));
        }
        let long = format!("{}/", "a".repeat(200));
        assert!(long.parse::<ImagePrefix>().is_err());
    }

    #[test]
    fn own_images_alone_are_renamed() {
        let prefix: ImagePrefix = "rancher/hardened-".parse().unwrap();
        let renamed = prefix.rename("docker.io/multusrs/multus:v1");
        assert_eq!(renamed, "docker.io/rancher/hardened-multus:v1");
        for other in ["docker.io/x/y:1", "r.example/multusrs/multus:v1"] {
            assert_eq!(prefix.rename(other), other);
        }
    }
}
