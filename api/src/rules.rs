//! Conditions on values beyond their type, for the daemon that reads its file and for the chart's templates.

/// A condition on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An absolute path of the node.
    AbsolutePath,
    /// One of these words, without regard to case.
    Words(&'static [&'static str]),
    /// A whole number from 1 to this.
    UpTo(u64),
}

/// Returns the condition on the value of a key, spelled as in the table of options. Empty values always pass.
pub fn find(name: &str) -> Option<Rule> {
    let found = RULES.iter().find(|(key, _)| *key == name);
    found.map(|(_, rule)| *rule)
}

/// All conditions. A test of the daemon compares its reader with this table.
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
    (
        "publish",
        Rule::Words(&["none", "features", "labels", "resources"]),
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
    fn every_rule_names_an_option() {
        for (name, _) in RULES {
            let option = crate::options::find(name).map(|option| option.name);
            assert_eq!(option, Some(*name));
        }
    }
}
