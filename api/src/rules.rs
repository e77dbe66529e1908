//! What the values of some keys must be beyond their type: by the daemon when it reads its file, and by the chart when it is rendered.

/// A condition on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An absolute path of the node.
    AbsolutePath,
    /// One of these words, whatever its case.
    Words(&'static [&'static str]),
    /// A whole number from 1 to this.
    UpTo(u64),
}

/// The condition on the value of a key, spelled as in the table of options; empty values always pass.
pub fn find(name: &str) -> Option<Rule> {
    let found = RULES.iter().find(|(key, _)| *key == name);
    found.map(|(_, rule)| *rule)
}

/// All of them. The daemon's tests hold its reader to this table.
pub static RULES: &[(&str, Rule)] = &[
    (
        "cniVersion",
        Rule::Words(&[
            "auto", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
        ]),
    ),
    (
        "logLevel",
        Rule::Words(&["panic", "error", "verbose", "debug"]),
    ),
    (
        "unservedRequests",
        Rule::Words(&["error", "event", "silent"]),
    ),
    ("metricsPort", Rule::UpTo(65535)),
    ("connectionLimit", Rule::UpTo(u64::MAX)),
    ("socketDir", Rule::AbsolutePath),
    ("cniDir", Rule::AbsolutePath),
    ("confDir", Rule::AbsolutePath),
    ("binDir", Rule::AbsolutePath),
    ("shimDir", Rule::AbsolutePath),
    ("cniConfigDir", Rule::AbsolutePath),
    ("multusAutoconfigDir", Rule::AbsolutePath),
    ("criSocket", Rule::AbsolutePath),
    ("kubeletDir", Rule::AbsolutePath),
    ("readinessindicatorfile", Rule::AbsolutePath),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_about_an_option() {
        for (name, _) in RULES {
            let option = crate::options::find(name).map(|option| option.name);
            assert_eq!(option, Some(*name));
        }
    }
}
