//! Bounded fuzzing of all untrusted input: annotations, network definitions, CNI configurations and requests. Inputs are made from the
//! corpus in `tests/corpus` by cutting, mixing and changing it. An input that has failed once is added to the corpus and stays there.
//!
//! A run is short and always the same. `FUZZ_SECONDS=60 cargo test -p daemon fuzz::` runs each target that long, from another seed.

use std::{fs, path::Path};

use ::fuzz::{Random, Suspect};
use cni::config::NetworkConfig;
use serde_json::{Map, Value, json};

use crate::{
    call::Call,
    cluster,
    netconf::Netconf,
    plan::{self, Inputs, NoPlugins, PodView},
};

/// The number of inputs of a short run, in addition to the corpus files.
const ROUNDS: usize = 4000;
/// Longer inputs find nothing that shorter ones do not.
const LONGEST: usize = 4096;
/// Tokens of the grammars under test.
const WORDS: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    "\"",
    ",",
    ":",
    "/",
    "@",
    "null",
    "true",
    "0",
    "-1",
    "1e999",
    "9223372036854775808",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "\u{ffff}",
    " ",
    "\n",
    "..",
    "::/0",
    "0.0.0.0/0",
    "name",
    "type",
    "plugins",
    "cniVersion",
    "interface",
    "default-route",
    "ips",
    "mac",
    "cni-args",
    "args",
    "ipam",
];

/// Runs a target on its corpus and on inputs made from it. `accepts` returns whether the target accepted an input.
fn fuzz(corpus: &str, accepts: impl Fn(&[u8]) -> bool) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(corpus);
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).unwrap()).collect();
    let check = |input: &[u8]| {
        let suspect = Suspect(input);
        let is_accepted = accepts(suspect.0);
        assert_eq!(
            accepts(suspect.0),
            is_accepted,
            "not a function of its input"
        );
        is_accepted
    };
    // A corpus of which all is refused, or all accepted, would test one side only.
    let accepted = seeds.iter().filter(|seed| check(seed)).count();
    assert!(
        accepted > 0 && accepted < seeds.len(),
        "{accepted} of {}",
        seeds.len()
    );
    ::fuzz::repeat(ROUNDS, |random| {
        check(&mutate(&seeds, random));
    });
}

/// Returns an input from the corpus, changed in a few places.
fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(5) {
            0 => {
                let end = (at + random.below(8)).min(input.len());
                input.drain(at..end);
            }
            1 => {
                let word = WORDS[random.below(WORDS.len())];
                input.splice(at..at, word.bytes());
            }
            2 if at < input.len() => input[at] = random.below(256).to_le_bytes()[0],
            3 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                let piece = other[from..(from + random.below(64)).min(other.len())].to_vec();
                input.splice(at..at, piece);
            }
            _ => {
                let end = (at + random.below(32)).min(input.len());
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
        }
    }
    input.truncate(LONGEST);
    input
}

#[test]
fn annotations() {
    fuzz("annotation", |input| {
        let text = String::from_utf8_lossy(input);
        let Ok(selections) = plan::parse_annotation(&text, "shop") else {
            return false;
        };
        for selection in selections {
            assert!(!selection.name.is_empty() && !selection.namespace.is_empty());
            let interface = selection.interface.as_deref();
            assert!(interface.is_none_or(|name| name.parse::<cni::env::IfName>().is_ok()));
        }
        true
    });
}

/// A cluster with the same definition under every name.
struct SingleDefinition(std::sync::Arc<plan::Nad>);

impl plan::Definitions for SingleDefinition {
    fn nad(&self, _namespace: &str, _name: &str) -> Option<std::sync::Arc<plan::Nad>> {
        Some(std::sync::Arc::clone(&self.0))
    }
}

#[test]
fn definitions() {
    let dir = tempfile::tempdir().unwrap();
    let root = node::root::Root::open(dir.path()).unwrap();
    let netconf = json!({"delegates": [{"cniVersion": "1.0.0", "name": "p", "type": "bridge"}]});
    let netconf = Netconf::effective(netconf.to_string().as_bytes(), &Map::new(), true).unwrap();
    let mut pod = PodView {
        namespace: "shop".to_owned(),
        name: "cart".to_owned(),
        ..PodView::default()
    };
    let networks = r#"[{"name": "n", "cni-args": {"tier": "gold"}}, {"name": "n"}]"#;
    pod.annotations
        .insert(plan::NETWORKS_ANNOTATION.to_owned(), networks.to_owned());
    fuzz("nad", |input| {
        let Some(nad) = cluster::read_definition(input) else {
            return false;
        };
        let definitions = SingleDefinition(nad);
        let inputs = Inputs {
            netconf: &netconf,
            definitions: &definitions,
            files: &root,
            plugins: &NoPlugins,
        };
        let Ok(plan) = plan::attachments(Some(&pod), inputs) else {
            return false;
        };
        assert_eq!(plan.len(), 3);
        for attachment in &plan {
            let config = &attachment.config;
            assert!(!config.name.is_empty() && !config.plugins.is_empty());
        }
        let with_args = plan[1].config.plugins.iter();
        for plugin in with_args {
            assert_eq!(plugin.value["args"]["cni"]["tier"], "gold");
        }
        true
    });
}

#[test]
fn configurations() {
    fuzz("config", |input| {
        let Ok(config) = NetworkConfig::parse(input) else {
            return false;
        };
        assert!(!config.name.is_empty() && !config.name.contains('/'));
        assert!(config.plugins.iter().all(|plugin| !plugin.kind.is_empty()));
        assert_eq!(config.bytes(), input, "handed on as it was written");
        true
    });
}

#[test]
fn requests() {
    fuzz("request", |input| {
        let Ok(request) = api::Request::from_json(input) else {
            return false;
        };
        let Ok(call) = Call::parse(&request) else {
            return false;
        };
        if let Some(request) = &call.request {
            let id = request.container_id.as_str();
            assert!(!id.is_empty() && !id.contains('/') && !id.starts_with('.'));
        }
        let daemon: Map<String, Value> = Map::new();
        Netconf::effective(&request.config, &daemon, true).is_ok()
    });
}
