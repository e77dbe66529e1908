//! Values of the chart: which of them an installation would refuse, and the daemon's file that comes of the others.
//!
//! Shape and types are judged by the schema that is made from the chart's table, keys of the daemon by the table of options and by the
//! daemon's own reader. Refusals that are neither are in the chart's `check.yaml`; a test holds [`refusals`] to every message there.

use std::sync::LazyLock;

use api::{
    options::{self, OPTIONS},
    rules::{self, Rule},
};
use chart::{IDENTITIES, schema::values_schema, values::values_yaml};
use plan::daemon_config::{self, Config};
use serde_json::{Map, Value};

use super::schema;

/// One value that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Keys with dots between.
    pub(super) path: String,
    /// What is wrong and what to do.
    pub(super) text: String,
}

impl Problem {
    pub(super) fn new(path: &str, text: String) -> Self {
        Self {
            path: path.to_owned(),
            text,
        }
    }
}

/// Values of a person, laid over those of the chart.
#[derive(Debug, Clone)]
pub(super) struct Values {
    all: Value,
}

impl Values {
    /// Lays `given` over the chart's values; a key that is null takes the chart's away, as in Helm.
    pub(super) fn new(given: &Map<String, Value>) -> Self {
        let mut all = defaults();
        merge(&mut all, given, true);
        Self { all }
    }

    /// The value at a path; null where there is none.
    pub(super) fn get(&self, path: &str) -> &Value {
        path.split('.').fold(&self.all, |value, key| &value[key])
    }

    /// Whether a switch is on; published charts took words, too.
    pub(super) fn is_on(&self, path: &str) -> bool {
        is_on(self.get(path))
    }

    /// Everything that keeps Helm from rendering the chart for this version of Kubernetes, or daemons from starting.
    pub(super) fn problems(&self, kubernetes: Option<&str>) -> Vec<Problem> {
        static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
            serde_json::from_str(&values_schema()).expect("the schema is made as JSON")
        });
        let mut problems = schema::check(&SCHEMA, &self.all, "");
        for refusal in refusals(self, kubernetes) {
            // The schema has said it of the same value already.
            if !problems.iter().any(|one| one.path == refusal.path) {
                problems.push(refusal);
            }
        }
        if problems.is_empty()
            && let Err(error) = Config::parse(self.daemon_config())
        {
            problems.push(Problem::new("config", error.to_string()));
        }
        problems
    }

    /// `daemon-config.json` as the chart's template makes it.
    pub(super) fn daemon_config(&self) -> Map<String, Value> {
        let mut config = Map::from_iter([
            ("cniVersion".to_owned(), "auto".into()),
            ("multusConfigFile".to_owned(), "auto".into()),
            ("logLevel".to_owned(), "verbose".into()),
            ("logToStderr".to_owned(), true.into()),
        ]);
        if let Some(port) = self.metrics_port() {
            config.insert("metricsPort".to_owned(), port.into());
        }
        for (key, option) in PATHS {
            let text = word(self.get(&format!("config.cni_conf.{key}")));
            if !text.is_empty() {
                config.insert((*option).to_owned(), node_path(&text).into());
            }
        }
        for (key, option) in WORDS {
            let value = self.get(&format!("config.cni_conf.{key}"));
            if is_set(value) {
                config.insert((*option).to_owned(), value.clone());
            }
        }
        for key in ["namespaceIsolation", "overrideNetworkName", "logToStderr"] {
            let value = self.get(&format!("config.cni_conf.{key}"));
            if !value.is_null() {
                config.insert(key.to_owned(), is_on(value).into());
            }
        }
        if self.is_on("perNodeCertificate.enabled") {
            let mut keys = Map::from_iter([("enabled".to_owned(), true.into())]);
            for key in ["bootstrapKubeconfig", "certDir", "certDuration"] {
                let value = self.get(&format!("perNodeCertificate.{key}"));
                if is_set(value) {
                    keys.insert(key.to_owned(), value.clone());
                }
            }
            config.insert("perNodeCertificate".to_owned(), keys.into());
        }
        if self.is_on("dynamicNetworksController.enabled") {
            config.insert("dynamicNetworks".to_owned(), true.into());
        }
        if self.is_on("manifests.dhcpDaemonSet") {
            config.insert("dhcp".to_owned(), true.into());
        }
        for (key, value) in self.daemon_conf() {
            if !value.is_null() {
                config.insert(key.clone(), value.clone());
            }
        }
        config
    }

    fn daemon_conf(&self) -> impl Iterator<Item = (&String, &Value)> {
        let map = self.get("config.daemon_conf").as_object();
        map.into_iter().flatten()
    }

    fn metrics_port(&self) -> Option<i64> {
        let own = self.get("config.daemon_conf.metricsPort");
        let port = self.get("metrics.port");
        if is_set(own) {
            number(own)
        } else if self.is_on("metrics.enabled") {
            Some(number(port).unwrap_or(9091))
        } else {
            None
        }
    }
}

/// Values of `config.cni_conf` that are paths, with the daemon's option for each.
const PATHS: &[(&str, &str)] = &[
    ("confDir", "cniConfigDir"),
    ("binDir", "binDir"),
    ("shimDir", "shimDir"),
    ("multusAutoconfigDir", "multusAutoconfigDir"),
    ("readinessIndicatorFile", "readinessindicatorfile"),
    ("multusCniConfDir", "confDir"),
];

/// Other values of `config.cni_conf`, with the daemon's option for each.
const WORDS: &[(&str, &str)] = &[
    ("globalNamespaces", "globalNamespaces"),
    ("masterCniFilename", "multusMasterCNI"),
    ("logFile", "logFile"),
    ("logLevel", "logLevel"),
    ("cniVersion", "cniVersion"),
    ("multusConfFile", "multusConfigFile"),
];

/// Variables that the chart sets itself.
const VARIABLES: [&str; 6] = [
    "MULTUS_NODE_NAME",
    "POD_NAME",
    "POD_NAMESPACE",
    "POD_UID",
    "MULTUS_DAEMONSET",
    "MULTUS_CRD_CHART",
];
/// The first version of Kubernetes that has admission policies.
const WITH_POLICIES: (u64, u64) = (1, 30);

/// What `check.yaml` and the templates' helpers refuse, in their words.
fn refusals(values: &Values, kubernetes: Option<&str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |path: &str, text: String| problems.push(Problem::new(path, text));
    if !values.is_on("thickPlugin.enabled") {
        refuse(
            "thickPlugin.enabled",
            "thickPlugin.enabled is false, but thin mode does not exist in this chart: remove the value or set it to true".to_owned(),
        );
    }
    for key in ["image", "thickPlugin.image"] {
        let path = format!("{key}.repository");
        let repository = word(values.get(&path));
        if ["hardened-multus", "multus-cni"]
            .iter()
            .any(|name| repository.contains(name))
        {
            refuse(
                &path,
                format!(
                    "{path} names {repository}, an image of the Go implementation, which this chart cannot run: remove {key} from your values"
                ),
            );
        }
        let path = format!("{key}.tag");
        let tag = word(values.get(&path));
        if is_go_build(&tag) {
            refuse(
                &path,
                format!(
                    "{path} is {tag}, a build of the Go implementation, which this chart cannot run: remove {key} from your values"
                ),
            );
        }
    }
    if values.is_on("rke2-whereabouts.enabled") {
        refuse(
            "rke2-whereabouts.enabled",
            "rke2-whereabouts.enabled is true, but this chart does not bring whereabouts: install its own chart and remove the value; its CRDs stay as they are".to_owned(),
        );
    }
    if values.is_on("manifests.daemonSet") && !values.is_on("manifests.configMap") {
        refuse(
            "manifests.configMap",
            "manifests.configMap is false, but the DaemonSet needs it: set it to true".to_owned(),
        );
    }
    for key in ["service", "podMonitor"] {
        let path = format!("metrics.{key}.enabled");
        if values.is_on(&path) && values.metrics_port().is_none() {
            refuse(
                &path,
                format!(
                    "{path} is true, but daemons serve no metrics: set metrics.enabled to true"
                ),
            );
        }
    }
    if let Some(version) = kubernetes.filter(|version| is_older(version, WITH_POLICIES))
        && values.is_on("definitionValidation.enabled")
    {
        refuse(
            "definitionValidation.enabled",
            format!(
                "definitionValidation.enabled is true, but Kubernetes {version} has no ValidatingAdmissionPolicy: set it to false, or upgrade to 1.30"
            ),
        );
    }
    let capabilities = values.get("daemonSecurity.capabilities").as_array();
    for needed in ["SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE"] {
        if capabilities.is_some_and(|all| !all.contains(&needed.into())) {
            refuse(
                "daemonSecurity.capabilities",
                format!(
                    "daemonSecurity.capabilities lacks {needed}, which the daemon needs to enter the runtime's namespaces: add it, or leave the value out"
                ),
            );
        }
    }
    problems.extend(refused_modes(values));
    problems.extend(refused_images(values));
    problems.extend(refused_names(values));
    problems.extend(refused_update(values));
    problems.extend(refused_options(values));
    problems.extend(refused_certificate(values));
    problems
}

/// Ways of upstream's thin plugin that do not exist here.
fn refused_modes(values: &Values) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |path: &str, text: String| problems.push(Problem::new(path, text));
    for (key, cure) in [
        ("renameConfFile", "the primary's file is never renamed"),
        ("skipMultusBinaryCopy", "the shim has to be installed"),
        ("skipConfigWatch", "the primary's file is always watched"),
    ] {
        let path = format!("config.cni_conf.{key}");
        if values.is_on(&path) {
            refuse(
                &path,
                format!("{path} is true, but {cure}: remove the value"),
            );
        }
    }
    for (key, cure) in [
        ("multusBinFile", "the shim comes with the image"),
        (
            "additionalBinDir",
            "each node is asked for its directories, and binDir adds one",
        ),
    ] {
        let path = format!("config.cni_conf.{key}");
        if is_set(values.get(&path)) {
            refuse(
                &path,
                format!("{path} is set, but {cure}: remove the value"),
            );
        }
    }
    problems
}

/// Digests, and the image that there has to be.
fn refused_images(values: &Values) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |path: &str, text: String| problems.push(Problem::new(path, text));
    for key in ["image", "thickPlugin.image"] {
        let path = format!("{key}.digest");
        let digest = word(values.get(&path));
        if !digest.is_empty() && !is_digest(&digest) {
            refuse(
                &path,
                format!(
                    "{path} is {digest}, but must be sha256: and 64 hexadecimal digits: take the one of the image's index from release.json"
                ),
            );
        }
    }
    let is_set = |path: &str| is_set(values.get(path));
    let has_own = is_set("thickPlugin.image.repository") || is_set("thickPlugin.image.tag");
    if is_set("image.digest") && !is_set("thickPlugin.image.digest") && has_own {
        refuse("image.digest", "image.digest is set, but thickPlugin.image names another image, which wins: set thickPlugin.image.digest, or remove one of both".to_owned());
    }
    let named = [
        "thickPlugin.image.tag",
        "image.tag",
        "thickPlugin.image.digest",
        "image.digest",
    ];
    if !named.into_iter().any(is_set) {
        refuse(
            "image.tag",
            "image.tag is empty, and there is no image.digest: set one of both".to_owned(),
        );
    }
    problems
}

/// Labels, annotations, variables and names that the chart keeps for itself.
fn refused_names(values: &Values) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |path: &str, text: String| problems.push(Problem::new(path, text));
    for group in ["commonLabels", "podLabels"] {
        for key in ["app", "tier"] {
            if values.get(group).get(key).is_some() {
                refuse(
                    &format!("{group}.{key}"),
                    format!(
                        "{group}.{key} is set, but pods are found by that label, and no upgrade could change it: give yours another key"
                    ),
                );
            }
        }
    }
    let annotations = values.get("podAnnotations").as_object();
    for key in annotations.into_iter().flat_map(Map::keys) {
        let is_kept = key == "checksum/config"
            || IDENTITIES.iter().any(|one| {
                *key == format!(
                    "container.apparmor.security.beta.kubernetes.io/kube-{}",
                    one.name
                )
            });
        if is_kept {
            refuse(
                "podAnnotations",
                format!("podAnnotations has {key}, which the chart sets itself: remove it"),
            );
        }
    }
    let name = word(values.get("nameOverride"));
    if !name.is_empty() && !is_label(&name) {
        refuse(
            "nameOverride",
            format!(
                "nameOverride is {name}, but must be the value of a label: up to 63 letters, digits, -, _ and ., a letter or digit first and last"
            ),
        );
    }
    let full = word(values.get("fullnameOverride"));
    if !full.is_empty() {
        refuse(
            "fullnameOverride",
            format!(
                "fullnameOverride is {full}, but objects keep the names of the published chart, so that its release can be upgraded: remove the value, and name the release as the DaemonSet is to be called"
            ),
        );
    }
    let namespace = word(values.get("namespaceOverride"));
    if !namespace.is_empty() {
        refuse(
            "namespaceOverride",
            format!(
                "namespaceOverride is {namespace}, but all objects are in the release's namespace: remove the value, and install with --namespace {namespace}"
            ),
        );
    }
    let mut names: Vec<_> = VARIABLES.map(str::to_owned).into();
    for path in ["daemonSecurity.environment", "extraEnv"] {
        for variable in values.get(path).as_array().into_iter().flatten() {
            let name = word(&variable["name"]);
            if names.contains(&name) {
                refuse(
                    path,
                    format!(
                        "daemonSecurity.environment and extraEnv set {name}, which the chart or another of their entries sets: remove it"
                    ),
                );
            }
            names.push(name);
        }
    }
    problems
}

/// How daemons are replaced.
fn refused_update(values: &Values) -> Option<Problem> {
    let kind = match values.get("updateStrategy.type") {
        value if is_set(value) => word(value),
        _ => "RollingUpdate".to_owned(),
    };
    if kind == "OnDelete" || !values.is_on("manifests.daemonSet") {
        return None;
    }
    if kind != "RollingUpdate" {
        let text = format!(
            "updateStrategy.type is {kind}, but must be RollingUpdate or OnDelete: correct it, or remove the value"
        );
        return Some(Problem::new("updateStrategy.type", text));
    }
    let amount = |key: &str| word(values.get(&format!("updateStrategy.rollingUpdate.{key}")));
    let is_none = |amount: &str| ["0", "0%"].contains(&amount);
    // The one that is not set follows from the other.
    let follow = |other_is_none: bool| if other_is_none { "1" } else { "0" }.to_owned();
    let (mut surge, mut gone) = (amount("maxSurge"), amount("maxUnavailable"));
    if surge.is_empty() {
        surge = follow(gone.is_empty() || is_none(&gone));
    }
    if gone.is_empty() {
        gone = follow(is_none(&surge));
    }
    (is_none(&surge) == is_none(&gone)).then(|| {
        let text = format!("updateStrategy.rollingUpdate has maxSurge {surge} and maxUnavailable {gone}, but Kubernetes wants one of them to be 0 and the other not: correct them, or remove one");
        Problem::new("updateStrategy.rollingUpdate", text)
    })
}

/// Keys of the daemon and of `config.cni_conf`, by the table of options.
fn refused_options(values: &Values) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (key, value) in values.daemon_conf() {
        let path = format!("config.daemon_conf.{key}");
        let text = if key == "perNodeCertificate" {
            is_set(value).then(|| format!("{path} is set, but certificates need rights and an approver, too: move it to perNodeCertificate"))
        } else if OPTIONS.iter().any(|option| option.name == key) {
            broken_rule(&path, value, rules::find(key))
        } else if let Some(option) = options::find(key) {
            Some(format!(
                "{path} is set, but the key is written {}: correct it",
                option.name
            ))
        } else {
            daemon_config::suggestion(key).map(|meant| {
                format!("{path} is set, but there is no such key: did you mean {meant}?")
            })
        };
        problems.extend(text.map(|text| Problem::new(&path, text)));
    }
    let words = WORDS
        .iter()
        .filter(|(key, _)| ["logLevel", "cniVersion"].contains(key));
    for (key, option) in PATHS.iter().chain(words) {
        let path = format!("config.cni_conf.{key}");
        let text = broken_rule(&path, values.get(&path), rules::find(option));
        problems.extend(text.map(|text| Problem::new(&path, text)));
    }
    problems
}

fn refused_certificate(values: &Values) -> Vec<Problem> {
    let mut problems = Vec::new();
    for key in ["bootstrapKubeconfig", "certDir"] {
        let path = format!("perNodeCertificate.{key}");
        let text = broken_rule(&path, values.get(&path), Some(Rule::AbsolutePath));
        problems.extend(text.map(|text| Problem::new(&path, text)));
    }
    let path = "perNodeCertificate.certDuration";
    let duration = values.get(path);
    // The daemon's own reader knows which durations there are.
    let keys = serde_json::json!({"perNodeCertificate": {"certDuration": duration}});
    let is_wrong = keys
        .as_object()
        .is_some_and(|keys| Config::parse(keys.clone()).is_err());
    if is_set(duration) && is_wrong {
        let text = format!(
            "{path} is {}, but must be a duration from 10m to 8760h, as 24h or 1h30m: correct it",
            word(duration)
        );
        problems.push(Problem::new(path, text));
    }
    problems
}

/// What is wrong with a value by the rule of its option; empty values always pass.
fn broken_rule(path: &str, value: &Value, rule: Option<Rule>) -> Option<String> {
    let text = word(value);
    if text.is_empty() {
        return None;
    }
    match rule? {
        Rule::AbsolutePath => (!text.starts_with('/')).then(|| {
            format!("{path} is {text}, but must be an absolute path on the node: write all of it, or remove the value")
        }),
        Rule::Words(words) => (!words.contains(&text.to_lowercase().as_str())).then(|| {
            format!(
                "{path} is {text}, but must be one of {}: correct it, or remove the value",
                words.join(", ")
            )
        }),
        Rule::UpTo(most) => {
            let is_within = number(value).is_some_and(|number| {
                u64::try_from(number).is_ok_and(|number| (1..=most).contains(&number))
            });
            let up_to = match most {
                u64::MAX => String::new(),
                most => format!(" to {most}"),
            };
            (!is_within).then(|| {
                format!("{path} is {text}, but must be a whole number from 1{up_to}: correct it, or remove the value")
            })
        }
    }
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|digits| {
        let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        digits.len() == 64 && digits.bytes().all(is_hexadecimal)
    })
}

/// Whether it can be the value of a label.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().copied().all(is_inner)
        && is_end(bytes.first())
        && is_end(bytes.last())
}

/// Whether a version such as `v1.29.3+k3s1` is older than this one.
fn is_older(version: &str, than: (u64, u64)) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next()?.parse::<u64>().ok();
    let found = number().and_then(|major| Some((major, number()?)));
    found.is_some_and(|found| found < than)
}

/// Whether a tag ends in `-build` and eight digits, as those of Rancher's images do.
fn is_go_build(tag: &str) -> bool {
    let end = tag.rsplit_once("-build").map(|(_, end)| end);
    end.is_some_and(|end| end.len() == 8 && end.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The chart's values, as its `values.yaml` has them.
fn defaults() -> Value {
    serde_yaml::from_str(&values_yaml()).expect("the chart's own values are YAML")
}

/// Lays `values` over `place`: objects are merged, anything else is replaced. `null_removes` as for a chart's values; between two
/// files of values null stays, to take away the chart's.
pub(super) fn merge(place: &mut Value, values: &Map<String, Value>, null_removes: bool) {
    if !place.is_object() {
        *place = Value::Object(Map::new());
    }
    let map = place.as_object_mut().expect("it is an object by now");
    for (key, value) in values {
        match value {
            // A key that the chart does not have stays, and its schema refuses it.
            Value::Null if null_removes && map.contains_key(key) => drop(map.remove(key)),
            Value::Object(values) => {
                merge(map.entry(key).or_insert(Value::Null), values, null_removes);
            }
            value => drop(map.insert(key.clone(), value.clone())),
        }
    }
}

/// A path on the node: what was meant for a container that saw the node below /host.
pub(super) fn node_path(text: &str) -> String {
    for mount in ["/hostroot", "/host"] {
        match text.strip_prefix(mount) {
            Some("") => return "/".to_owned(),
            Some(rest) if rest.starts_with('/') => return rest.to_owned(),
            _ => {}
        }
    }
    text.to_owned()
}

fn is_on(value: &Value) -> bool {
    word(value) == "true"
}

/// Whether a template takes a value for one: neither empty, nor false, nor nought.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_on) => *is_on,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// A value as a template prints it; nothing for null.
fn word(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// A whole number, also one that became a float on its way.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let text = value.as_f64().filter(|number| number.fract() == 0.0)?;
        format!("{text:.0}").parse().ok()
    })
}

#[cfg(test)]
mod tests;
