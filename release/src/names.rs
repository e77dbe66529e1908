//! Names of images.

use oci_spec::distribution::Reference;
use url::Url;

/// Returns a complete name in its parts, or `None` when it is malformed.
pub fn reference(text: &str) -> Option<Reference> {
    let name: Reference = text.parse().ok()?;
    // The parser takes `A/b` for a host and a repository, and then for a repository with a capital letter, which it refuses elsewhere.
    let is_sound = name.whole().parse::<Reference>().is_ok();
    // It takes any number for a port.
    let is_address = Url::parse(&format!("http://{}", name.registry())).is_ok();
    (is_sound && is_address).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for text in [
            "x",
            "busybox",
            "a/b:1",
            "r.example:5000/a/b:v1",
            "localhost/a",
        ] {
            assert!(reference(text).is_some(), "{text}");
        }
        for text in [
            "",
            "A",
            "A/b:1",
            "r.example/A/b",
            "r.example:99999/a:1",
            "r.example/a:",
            "r.1/a",
            "a/b:",
            "a b",
            "a:b c",
            "http://r/a",
        ] {
            assert!(reference(text).is_none(), "{text}");
        }
    }
}
