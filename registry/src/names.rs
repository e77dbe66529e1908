//! Names of hosts, repositories and tags, checked before they become parts of addresses.

use oci_spec::distribution::Reference;

/// Returns whether this is a name or address, with an optional port.
pub fn is_host(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    if text.is_empty() || !text.bytes().all(plain) {
        return false;
    }
    let Ok(address) = format!("http://{text}").parse::<reqwest::Url>() else {
        return false;
    };
    let has_name = address.host_str().is_some_and(|name| !name.is_empty());
    has_name && !text.ends_with(':')
}

/// Returns whether this is a path of a repository below a registry.
pub fn is_repository(text: &str) -> bool {
    parse(text, "x").is_some_and(|name| name.repository() == text)
}

/// Returns whether this is a tag.
pub fn is_tag(text: &str) -> bool {
    parse("x", text).is_some_and(|name| name.tag() == Some(text))
}

fn parse(repository: &str, tag: &str) -> Option<Reference> {
    format!("r.example/{repository}:{tag}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is_name: fn(&str) -> bool, sound: &[&str], malformed: &[&str]) {
        for text in sound {
            assert!(is_name(text), "{text}");
        }
        for text in malformed {
            assert!(!is_name(text), "{text}");
        }
    }

    #[test]
    fn names_are_checked() {
        let sound = [
            "r",
            "r.example",
            "r.example:5000",
            "10.0.0.1:80",
            "[::1]:5000",
        ];
        let malformed = [
            "",
            "r:",
            "r:99999",
            "r:port",
            "me@r",
            "http://r",
            "r/x",
            "r?x",
            ":5000",
            "[::1",
            "r example",
        ];
        check(is_host, &sound, &malformed);
        let sound = ["a", "a/b-c/d_e.f", "charts/rke2-multus"];
        let malformed = [
            "", "A/b", "a//b", "/a", "a/", "a b", "a:b", "../a", "a?b", "a@b",
        ];
        check(is_repository, &sound, &malformed);
        assert!(!is_repository(&"a".repeat(256)));
        check(
            is_tag,
            &["v1", "5.0.0_rc.1"],
            &["", "a b", "a/b", "a+b", "-a", "a@b"],
        );
        assert!(!is_tag(&"a".repeat(129)));
    }
}
