//! Specifiers of systemd in a unit's settings: `%N`, `%S` and the like stand for names and directories of the unit, the node and the service
//! manager. Functions over text.

use std::{collections::BTreeMap, path::Path};

/// The directories and names of a system's service manager, which runs as root.
const FIXED: [(char, &str); 12] = [
    ('%', "%"),
    ('t', "/run"),
    ('S', "/var/lib"),
    ('C', "/var/cache"),
    ('L', "/var/log"),
    ('E', "/etc"),
    ('T', "/tmp"),
    ('V', "/var/tmp"),
    ('h', "/root"),
    ('u', "root"),
    ('U', "0"),
    ('G', "0"),
];

/// The value of each specifier of one unit.
#[derive(Debug)]
pub(crate) struct Specifiers(BTreeMap<char, String>);

impl Specifiers {
    /// Returns the specifiers of the unit of that name, whose file is at `path`, on the host of that name.
    pub(crate) fn new(unit: &str, path: &Path, host: &str) -> Self {
        let name = unit.rsplit_once('.').map_or(unit, |(name, _)| name);
        let (prefix, instance) = name.split_once('@').unwrap_or((name, ""));
        let last = prefix.rsplit('-').next().unwrap_or(prefix);
        let file = unescape(if instance.is_empty() {
            prefix
        } else {
            instance
        });
        let parent = path.parent().unwrap_or(path);
        let own = [
            ('n', unit.to_owned()),
            ('N', name.to_owned()),
            ('p', prefix.to_owned()),
            ('P', unescape(prefix)),
            ('i', instance.to_owned()),
            ('I', unescape(instance)),
            ('j', last.to_owned()),
            ('J', unescape(last)),
            ('f', format!("/{}", file.trim_start_matches('/'))),
            ('y', path.display().to_string()),
            ('Y', parent.display().to_string()),
            ('H', host.to_owned()),
            ('l', host.split('.').next().unwrap_or(host).to_owned()),
            ('g', "root".to_owned()),
        ];
        let fixed = FIXED.map(|(letter, text)| (letter, text.to_owned()));
        Self(fixed.into_iter().chain(own).collect())
    }

    /// Replaces the specifiers of a text; those without a known value stay.
    pub(crate) fn resolve(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            out.push_str(before);
            let mut letters = after.chars();
            let letter = letters.next();
            if let Some(value) = letter.and_then(|letter| self.0.get(&letter)) {
                out.push_str(value);
            } else {
                out.push('%');
                out.extend(letter);
            }
            rest = letters.as_str();
        }
        out + rest
    }
}

/// Returns the text that a part of a unit's name was made of: `-` stands for a slash, `\x2d` for the byte.
fn unescape(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        let code = rest.strip_prefix("\\x").and_then(|code| code.get(..2));
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            bytes.push(byte);
            rest = &rest[4..];
        } else {
            let (part, after) = rest.split_at(letter.len_utf8());
            match letter {
                '-' => bytes.push(b'/'),
                _ => bytes.extend(part.bytes()),
            }
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(unit: &str, text: &str, expected: &str) {
        let path = Path::new("/etc/systemd/system").join(unit);
        let specifiers = Specifiers::new(unit, &path, "vm.example");
        assert_eq!(specifiers.resolve(text), expected, "{unit} {text}");
    }

    /// The values are those of systemd 252, by `systemd-analyze verify`.
    #[test]
    fn specifiers_have_the_values_of_systemd() {
        let names = "%n+%N+%p+%P+%i+%I+%j+%J+%f";
        check(
            "k3s-agent.service",
            names,
            "k3s-agent.service+k3s-agent+k3s-agent+k3s/agent+++agent+agent+/k3s/agent",
        );
        check(
            r"k3s@a-b\x2dc.service",
            names,
            r"k3s@a-b\x2dc.service+k3s@a-b\x2dc+k3s+k3s+a-b\x2dc+a/b-c+k3s+k3s+/a/b-c",
        );
        check(
            "k3s.service",
            "%t %S %C %L %E %T %V %u %U %g %G %h",
            "/run /var/lib /var/cache /var/log /etc /tmp /var/tmp root 0 root 0 /root",
        );
        check(
            "k3s.service",
            "%y %Y %H %l",
            "/etc/systemd/system/k3s.service /etc/systemd/system vm.example vm",
        );
        check("k3s.service", "100%%N %ü 5%", "100%N %ü 5%");
    }
}
