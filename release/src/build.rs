//! The part of `release.json` about what built the programs: tools as they reported themselves, and flags.

use std::collections::{BTreeMap, BTreeSet};

use archive::digest::Digest;
use serde::{Deserialize, Serialize};

/// Everything besides the sources that the bytes of programs follow from. It is the same on every machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Build {
    pub rustc: String,
    pub rustc_commit: String,
    pub llvm: String,
    pub cargo: String,
    pub linker: String,
    /// The digests of the toolchain's own files that write programs, by their names: the compiler's driver, LLVM and the linker.
    pub tool_files: BTreeMap<String, Digest>,
    pub c_compiler: String,
    /// The digest of the files that pin the C compiler.
    pub c_compiler_lock: Digest,
    /// The digest of `Cargo.lock`.
    pub crates: Digest,
    /// By the name of the architecture.
    pub targets: BTreeMap<String, Target>,
}

/// The part of a build that differs between architectures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Target {
    pub triple: String,
    /// The source of Rust's standard library, and the digest of a finished one.
    pub std: String,
    pub libc: String,
    pub rustflags: Vec<String>,
    pub c_flags: Vec<String>,
}

impl Build {
    /// Returns the names of the fields in which two builds differ, with both values.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |name: String, one: String, other: String| {
            if one != other {
                differences.push(format!("{name} is `{one}` and `{other}`"));
            }
        };
        let fields = |build: &Self| {
            [
                ("rustc", build.rustc.clone()),
                ("rustcCommit", build.rustc_commit.clone()),
                ("llvm", build.llvm.clone()),
                ("cargo", build.cargo.clone()),
                ("linker", build.linker.clone()),
                ("cCompiler", build.c_compiler.clone()),
                ("cCompilerLock", build.c_compiler_lock.to_string()),
                ("crates", build.crates.to_string()),
            ]
        };
        for ((name, one), (_, other)) in fields(self).into_iter().zip(fields(other)) {
            compare(name.to_owned(), one, other);
        }
        let names: BTreeSet<_> = self
            .tool_files
            .keys()
            .chain(other.tool_files.keys())
            .collect();
        for name in names {
            let digest = |build: &Self| {
                let digest = build.tool_files.get(name);
                digest.map_or_else(|| "absent".to_owned(), Digest::to_string)
            };
            compare(format!("toolFiles.{name}"), digest(self), digest(other));
        }
        let names: BTreeSet<_> = self.targets.keys().chain(other.targets.keys()).collect();
        let text = |target: Option<&Target>| {
            let text = target.map(|target| {
                let (rustflags, c_flags) = (target.rustflags.join(" "), target.c_flags.join(" "));
                format!(
                    "{}, std {}, {}, {rustflags}, {c_flags}",
                    target.triple, target.std, target.libc
                )
            });
            text.unwrap_or_else(|| "absent".to_owned())
        };
        for name in names {
            let (one, other) = (self.targets.get(name), other.targets.get(name));
            compare(format!("targets.{name}"), text(one), text(other));
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;

    use super::*;

    fn build() -> Build {
        let target = Target {
            triple: "a-b".to_owned(),
            std: "component".to_owned(),
            libc: "musl".to_owned(),
            rustflags: vec!["-C".to_owned()],
            c_flags: Vec::new(),
        };
        Build {
            rustc: "1.95.0".to_owned(),
            rustc_commit: "c0ffee".to_owned(),
            llvm: "1".to_owned(),
            cargo: "1.95.0".to_owned(),
            linker: "LLD 1".to_owned(),
            tool_files: BTreeMap::from([("rust-lld".to_owned(), sha256(b"linker"))]),
            c_compiler: "clang 1".to_owned(),
            c_compiler_lock: sha256(b"lock"),
            crates: sha256(b"crates"),
            targets: BTreeMap::from([("arm".to_owned(), target)]),
        }
    }

    #[test]
    fn differences_name_the_field_and_both_values() {
        let one = build();
        assert_eq!(one.differences(&build()), Vec::<String>::new());
        let mut other = build();
        other.rustc_commit = "bad".to_owned();
        other.crates = sha256(b"others");
        other.targets.get_mut("arm").unwrap().libc = "glibc".to_owned();
        other
            .targets
            .insert("amd64".to_owned(), one.targets["arm"].clone());
        let differences = one.differences(&other);
        assert_eq!(differences.len(), 4, "{differences:?}");
        assert_eq!(differences[0], "rustcCommit is `c0ffee` and `bad`");
        assert!(
            differences[1].starts_with("crates is `sha256:"),
            "{differences:?}"
        );
        assert!(
            differences[2].starts_with("targets.amd64 is `absent` and"),
            "{differences:?}"
        );
        assert!(differences[3].contains("glibc"), "{differences:?}");
    }

    /// A new field must be compared too.
    #[test]
    fn every_field_is_compared() {
        let text = serde_json::to_value(build()).unwrap();
        let fields = text.as_object().unwrap();
        for name in fields.keys().filter(|name| *name != "targets") {
            let mut changed = text.clone();
            changed[name] = if fields[name].is_object() {
                serde_json::json!({"rust-lld": sha256(b"another")})
            } else if fields[name].as_str().unwrap().starts_with("sha256:") {
                serde_json::to_value(sha256(b"changed")).unwrap()
            } else {
                "changed".into()
            };
            let changed: Build = serde_json::from_value(changed).unwrap();
            let differences = build().differences(&changed);
            assert_eq!(differences.len(), 1, "{name}");
            assert!(differences[0].starts_with(name.as_str()), "{differences:?}");
        }
    }
}
