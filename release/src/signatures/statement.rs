//! Statements of in-toto (format 1): something that a key's owner says about files with these digests.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use archive::digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The type of every statement.
const TYPE: &str = "https://in-toto.io/Statement/v1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    pub(super) subject: Vec<Subject>,
    predicate_type: String,
    pub(super) predicate: Value,
}

/// A file, image or chart that a statement is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) digest: Sha256,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sha256 {
    sha256: String,
}

impl Statement {
    pub(super) fn new(
        subject: impl IntoIterator<Item = (String, Digest)>,
        predicate_type: &str,
        predicate: Value,
    ) -> Self {
        let subject = subject.into_iter().map(|(name, digest)| Subject {
            name,
            digest: Sha256 {
                sha256: digest.hex(),
            },
        });
        Self {
            kind: TYPE.to_owned(),
            subject: subject.collect(),
            predicate_type: predicate_type.to_owned(),
            predicate,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("these types have text keys and no floats")
    }

    /// Reads a statement with a predicate of this type.
    pub(super) fn parse(bytes: &[u8], predicate_type: &str) -> anyhow::Result<Self> {
        let statement: Value = serde_json::from_slice(bytes).context("the statement is damaged")?;
        for (key, expected) in [("_type", TYPE), ("predicateType", predicate_type)] {
            ensure!(
                statement[key] == expected,
                "the statement has the {key} {}, and this program reads {expected}",
                statement[key]
            );
        }
        serde_json::from_value(statement).context("the statement is damaged")
    }

    /// Checks that the statement is about exactly these subjects, and names the first of them that is another one there.
    pub(super) fn check_subjects(&self, expected: &[(String, Digest)]) -> anyhow::Result<()> {
        let mut stated = BTreeMap::new();
        for Subject { name, digest } in &self.subject {
            let former = stated.insert(name, &digest.sha256);
            ensure!(former.is_none(), "the statement names {name} twice");
        }
        for (name, known) in expected {
            let digest = stated.remove(name).with_context(|| {
                format!("the statement is not about {name}, which is in this release")
            })?;
            ensure!(
                known.hex() == *digest,
                "the statement is about {name} with the sha256 {digest}, and here it has {}",
                known.hex()
            );
        }
        match stated.keys().next() {
            Some(name) => bail!("the statement is about {name}, which is not in this release"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;
    use serde_json::json;

    use super::*;

    #[test]
    fn statement_is_written_as_the_format_has_it() {
        let digest = sha256(b"");
        let statement = Statement::new([("a".to_owned(), digest)], "https://x/v1", json!({}));
        let text = String::from_utf8(statement.to_bytes()).unwrap();
        let expected = format!(
            r#"{{"_type":"{TYPE}","subject":[{{"name":"a","digest":{{"sha256":"{}"}}}}],"predicateType":"https://x/v1","predicate":{{}}}}"#,
            digest.hex()
        );
        assert_eq!(text, expected);
        let parsed = Statement::parse(text.as_bytes(), "https://x/v1").unwrap();
        assert_eq!(parsed, statement);
    }

    #[test]
    fn other_subjects_and_formats_are_named() {
        let digests = [("a", b"1"), ("b", b"2")];
        let digests = digests.map(|(name, text)| (name.to_owned(), sha256(text)));
        let expected = digests.clone();
        let check = |subject: Vec<(String, Digest)>, error: &str| {
            let statement = Statement::new(subject, "t", json!({}));
            let found = statement.check_subjects(&expected);
            let found = found.map_err(|found| found.to_string()).err();
            assert!(
                found.clone().unwrap_or_default().contains(error)
                    && found.is_none() == error.is_empty(),
                "{found:?}"
            );
        };
        let [a, b] = digests;
        let other = ("c".to_owned(), sha256(b"3"));
        check(vec![a.clone(), b.clone()], "");
        check(vec![b.clone(), a.clone()], "");
        check(vec![a.clone()], "is not about b, which is in this release");
        check(vec![a.clone(), a.clone(), b.clone()], "names a twice");
        check(vec![a.clone(), b.clone(), other], "about c, which is not");
        check(
            vec![a.clone(), ("b".to_owned(), a.1)],
            "about b with the sha256",
        );
        let future = Statement::new([], "t/v2", json!({})).to_bytes();
        let error = Statement::parse(&future, "t/v1").unwrap_err().to_string();
        assert!(
            error.contains("\"t/v2\", and this program reads t/v1"),
            "{error}"
        );
    }
}
