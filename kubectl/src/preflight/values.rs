//! Values of the chart: reports those that an installation would refuse, and makes the daemon's configuration file from the others.
//!
//! Shape and types are validated by the schema that the chart's table of values makes, the daemon's keys by the table of options and by the daemon's
//! own reader. All other refusals are in the chart's `check.yaml`; a test compares [`refusals`] with every message there.

use std::sync::LazyLock;

use api::{
    options::{self, OPTIONS},
    plugins::NAMES,
    rules::{self, Rule},
};
use chart::{IDENTITIES, schema::values_schema, values::values_yaml};
use plan::daemon_config::{self, Config};
use serde_json::{Map, Value};

use super::schema::{self, ValueProblem};

/// The chart's default values with explicit values merged over them.
#[derive(Debug, Clone)]
pub(super) struct Values {
    all: Value,
}

impl Values {
    /// Merges `explicit` over the chart's defaults; a key that is null removes the chart's key, as in Helm.
    pub(super) fn new(explicit: &Map<String, Value>) -> Self {
        let mut all = defaults();
        merge(&mut all, explicit, true);
        Self { all }
    }

    /// Returns the value at a path; null when there is none.
    pub(super) fn get(&self, path: &str) -> &Value {
        path.split('.').fold(&self.all, |value, key| &value[key])
    }

    /// Returns true when a switch is on; published charts also accepted the text "true".
    pub(super) fn is_on(&self, path: &str) -> bool {
        is_on(self.get(path))
    }

    /// Returns whether the chart installs plugins and no multiplexer.
    pub(super) fn is_standalone(&self) -> bool {
        self.is_on("cniplugins.standalone")
    }

    /// Returns everything that keeps Helm from rendering the chart for this version of Kubernetes, or daemons from starting.
    pub(super) fn problems(&self, kubernetes: Option<&str>) -> Vec<ValueProblem> {
        static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
            serde_json::from_str(&values_schema(chart::VERSION))
                .expect("the schema is generated as JSON")
        });
        let mut problems = schema::check(&SCHEMA, &self.all, "");
        for refusal in refusals(self, kubernetes) {
            // The schema may have reported the same value already.
            if !problems.iter().any(|one| one.path == refusal.path) {
                problems.push(refusal);
            }
        }
        if problems.is_empty()
            && let Err(error) = Config::parse(self.daemon_config())
        {
            problems.push(ValueProblem::new("config", error.to_string()));
        }
        problems
    }

    /// Makes `daemon-config.json` as the chart's template does.
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
            let text = text_of(self.get(&format!("config.cni_conf.{key}")));
            if !text.is_empty() {
                config.insert((*option).to_owned(), node_path(&text).into());
            }
        }
        for (key, option) in OTHER_OPTIONS {
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
        let plugins = self.own_plugins();
        if !plugins.is_empty() {
            config.insert("ownPlugins".to_owned(), plugins.into());
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

    /// The daemon's key `ownPlugins`, which has only what differs from the defaults.
    fn own_plugins(&self) -> Map<String, Value> {
        let mut keys = Map::new();
        let install = self.get("cniplugins.install");
        if !install.is_null() && !is_on(install) {
            keys.insert("install".to_owned(), false.into());
        }
        if is_set(self.get("cniplugins.only")) {
            keys.insert("only".to_owned(), self.get("cniplugins.only").clone());
        }
        if let Some(names) = self.get("cniplugins.skipcnis").as_str() {
            let names = names.split([',', ' ']).filter(|name| !name.is_empty());
            let names: Vec<Value> = names.map(Value::from).collect();
            if !names.is_empty() {
                keys.insert("skip".to_owned(), names.into());
            }
        }
        if self.is_on("cniplugins.first") {
            keys.insert("first".to_owned(), true.into());
        }
        keys
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

/// Values of `config.cni_conf` that are paths, each with the daemon's option for it.
const PATHS: &[(&str, &str)] = &[
    ("confDir", "cniConfigDir"),
    ("binDir", "binDir"),
    ("shimDir", "shimDir"),
    ("multusAutoconfigDir", "multusAutoconfigDir"),
    ("readinessIndicatorFile", "readinessindicatorfile"),
    ("multusCniConfDir", "confDir"),
];

/// Other values of `config.cni_conf`, each with the daemon's option for it.
const OTHER_OPTIONS: &[(&str, &str)] = &[
    ("globalNamespaces", "globalNamespaces"),
    ("masterCniFilename", "multusMasterCNI"),
    ("logFile", "logFile"),
    ("logLevel", "logLevel"),
    ("cniVersion", "cniVersion"),
    ("multusConfFile", "multusConfigFile"),
];

/// Environment variables that the chart sets itself.
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

/// Returns what `check.yaml` and the templates' helpers refuse, with the same messages.
fn refusals(values: &Values, kubernetes: Option<&str>) -> Vec<ValueProblem> {
    let mut problems = Vec::new();
    let mut refuse = |path: &str, text: String| problems.push(ValueProblem::new(path, text));
    if !values.is_on("thickPlugin.enabled") {
        refuse(
            "thickPlugin.enabled",
            "thickPlugin.enabled is false, but thin mode does not exist in this chart: remove the value or set it to true".to_owned(),
        );
    }
    for key in ["image", "thickPlugin.image"] {
        let path = format!("{key}.repository");
        let repository = text_of(values.get(&path));
        if ["hardened-multus-", "multus-cni"]
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
        let tag = text_of(values.get(&path));
        if is_go_build(&tag) {
            refuse(
                &path,
                format!(
                    "{path} is {tag}, a build of the Go implementation, which this chart cannot run: remove {key} from your values"
                ),
            );
        }
    }
    let only = values.get("cniplugins.only").as_array();
    for name in only.into_iter().flatten().map(text_of) {
        if !NAMES.contains(&name.as_str()) {
            let known = NAMES.join(", ");
            refuse(
                "cniplugins.only",
                format!("cniplugins.only names {name}, but there are only {known}: correct it"),
            );
        }
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
    problems.extend(refused_without_multiplexer(values));
    problems.extend(refused_images(values));
    problems.extend(refused_registries(values));
    problems.extend(refused_names(values));
    problems.extend(refused_update(values));
    problems.extend(refused_options(values));
    problems.extend(refused_certificate(values));
    problems
}

/// Returns values that contradict an installation of plugins without a multiplexer.
fn refused_without_multiplexer(values: &Values) -> Vec<ValueProblem> {
    let mut problems = Vec::new();
    if !values.is_standalone() {
        return problems;
    }
    let mut refuse = |path: &str, text: String| problems.push(ValueProblem::new(path, text));
    let install = values.get("cniplugins.install");
    if !install.is_null() && !is_on(install) {
        refuse(
            "cniplugins.install",
            "cniplugins.standalone is true, but cniplugins.install is false: remove one of them"
                .to_owned(),
        );
    }
    for (path, reason) in [
        ("cniplugins.first", "plugins of the node keep their names"),
        (
            "dynamicNetworksController.enabled",
            "no daemon attaches networks",
        ),
        (
            "perNodeCertificate.enabled",
            "the daemons read nothing but their own DaemonSet",
        ),
    ] {
        if values.is_on(path) {
            refuse(
                path,
                format!(
                    "{path} is true, but with cniplugins.standalone {reason}: remove one of them"
                ),
            );
        }
    }
    problems
}

/// Returns refused options of upstream's thin plugin that do not exist here.
fn refused_modes(values: &Values) -> Vec<ValueProblem> {
    let mut problems = Vec::new();
    let mut refuse = |path: &str, text: String| problems.push(ValueProblem::new(path, text));
    for (key, reason) in [
        (
            "renameConfFile",
            "the default network's file is never renamed",
        ),
        ("skipMultusBinaryCopy", "the shim has to be installed"),
        (
            "skipConfigWatch",
            "the default network's file is always watched",
        ),
    ] {
        let path = format!("config.cni_conf.{key}");
        if values.is_on(&path) {
            refuse(
                &path,
                format!("{path} is true, but {reason}: remove the value"),
            );
        }
    }
    for (key, reason) in [
        ("multusBinFile", "the shim comes with the image"),
        (
            "additionalBinDir",
            "each daemon discovers the directories of its node, and binDir adds one",
        ),
    ] {
        let path = format!("config.cni_conf.{key}");
        if is_set(values.get(&path)) {
            refuse(
                &path,
                format!("{path} is set, but {reason}: remove the value"),
            );
        }
    }
    problems
}

/// Returns refused digests, and a missing image.
fn refused_images(values: &Values) -> Vec<ValueProblem> {
    let mut problems = Vec::new();
    let mut refuse = |path: &str, text: String| problems.push(ValueProblem::new(path, text));
    for key in ["image", "thickPlugin.image"] {
        let path = format!("{key}.digest");
        let digest = text_of(values.get(&path));
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
        refuse("image.digest", "image.digest is set, but thickPlugin.image names another image, which takes precedence: set thickPlugin.image.digest, or remove one of them".to_owned());
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
            "image.tag is empty, and there is no image.digest: set one of them".to_owned(),
        );
    }
    problems
}

/// Returns refused registries.
fn refused_registries(values: &Values) -> Vec<ValueProblem> {
    let mut problems = Vec::new();
    for path in [
        "global.systemDefaultRegistry",
        "global.cattle.systemDefaultRegistry",
    ] {
        let registry = text_of(values.get(path));
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "][._:/-".contains(c);
        let text = if let Some((scheme, _)) = registry.split_once("://") {
            format!(
                "{path} is {registry}, but a registry is named without a scheme: leave {scheme}:// out"
            )
        } else if !registry.chars().all(is_allowed) {
            format!(
                "{path} is {registry}, a template that was not filled in: set host and port of the registry, or leave the value out"
            )
        } else {
            continue;
        };
        problems.push(ValueProblem::new(path, text));
    }
    problems
}

/// Returns refused labels, annotations, environment variables and names, which the chart reserves for itself.
fn refused_names(values: &Values) -> Vec<ValueProblem> {
    let mut problems = Vec::new();
    let mut refuse = |path: &str, text: String| problems.push(ValueProblem::new(path, text));
    for group in ["commonLabels", "podLabels"] {
        for key in ["app", "tier"] {
            if values.get(group).get(key).is_some() {
                refuse(
                    &format!("{group}.{key}"),
                    format!(
                        "{group}.{key} is set, but pods are found by that label, which an upgrade cannot change: use another key"
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
    let name = text_of(values.get("nameOverride"));
    if !name.is_empty() && !is_label(&name) {
        refuse(
            "nameOverride",
            format!(
                "nameOverride is {name}, but must be the value of a label: use up to 63 letters, digits, -, _ and ., with a letter or digit first and last"
            ),
        );
    }
    let full = text_of(values.get("fullnameOverride"));
    if !full.is_empty() {
        refuse(
            "fullnameOverride",
            format!(
                "fullnameOverride is {full}, but objects keep the names of the published chart, so that its release can be upgraded: remove the value, and give the release the name that the DaemonSet should have"
            ),
        );
    }
    let namespace = text_of(values.get("namespaceOverride"));
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
            let name = text_of(&variable["name"]);
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

/// Returns a refused update strategy.
fn refused_update(values: &Values) -> Option<ValueProblem> {
    let kind = match values.get("updateStrategy.type") {
        value if is_set(value) => text_of(value),
        _ => "RollingUpdate".to_owned(),
    };
    if kind == "OnDelete" || !values.is_on("manifests.daemonSet") {
        return None;
    }
    if kind != "RollingUpdate" {
        let text = format!(
            "updateStrategy.type is {kind}, but must be RollingUpdate or OnDelete: correct it, or remove the value"
        );
        return Some(ValueProblem::new("updateStrategy.type", text));
    }
    let amount = |key: &str| text_of(values.get(&format!("updateStrategy.rollingUpdate.{key}")));
    let is_none = |amount: &str| ["0", "0%"].contains(&amount);
    // The amount that is not set follows from the other one.
    let default = |other_is_none: bool| if other_is_none { "1" } else { "0" }.to_owned();
    let (mut surge, mut unavailable) = (amount("maxSurge"), amount("maxUnavailable"));
    if surge.is_empty() {
        surge = default(unavailable.is_empty() || is_none(&unavailable));
    }
    if unavailable.is_empty() {
        unavailable = default(is_none(&surge));
    }
    (is_none(&surge) == is_none(&unavailable)).then(|| {
        let text = format!("updateStrategy.rollingUpdate has maxSurge {surge} and maxUnavailable {unavailable}, but Kubernetes requires one of them to be 0 and the other not: correct them, or remove one");
        ValueProblem::new("updateStrategy.rollingUpdate", text)
    })
}

/// Returns refused keys of the daemon and of `config.cni_conf`, by the table of options.
fn refused_options(values: &Values) -> Vec<ValueProblem> {
    let mut problems = Vec::new();
    for (key, value) in values.daemon_conf() {
        let path = format!("config.daemon_conf.{key}");
        let text = if key == "perNodeCertificate" {
            is_set(value).then(|| format!("{path} is set, but certificates need rights and an approver, too: move it to perNodeCertificate"))
        } else if key == "ownPlugins" {
            is_set(value).then(|| {
                format!("{path} is set, but cniplugins chooses the plugins: move it there")
            })
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
        problems.extend(text.map(|text| ValueProblem::new(&path, text)));
    }
    let others = OTHER_OPTIONS
        .iter()
        .filter(|(key, _)| ["logLevel", "cniVersion"].contains(key));
    for (key, option) in PATHS.iter().chain(others) {
        let path = format!("config.cni_conf.{key}");
        let text = broken_rule(&path, values.get(&path), rules::find(option));
        problems.extend(text.map(|text| ValueProblem::new(&path, text)));
    }
    problems
}

fn refused_certificate(values: &Values) -> Vec<ValueProblem> {
    let mut problems = Vec::new();
    for key in ["bootstrapKubeconfig", "certDir"] {
        let path = format!("perNodeCertificate.{key}");
        let text = broken_rule(&path, values.get(&path), Some(Rule::AbsolutePath));
        problems.extend(text.map(|text| ValueProblem::new(&path, text)));
    }
    let path = "perNodeCertificate.certDuration";
    let duration = values.get(path);
    // The daemon's own reader decides which durations are valid.
    let keys = serde_json::json!({"perNodeCertificate": {"certDuration": duration}});
    let is_wrong = keys
        .as_object()
        .is_some_and(|keys| Config::parse(keys.clone()).is_err());
    if is_set(duration) && is_wrong {
        let text = format!(
            "{path} is {}, but must be a duration from 10m to 8760h, such as 24h or 1h30m: correct it",
            text_of(duration)
        );
        problems.push(ValueProblem::new(path, text));
    }
    problems
}

/// Returns how a value breaks the rule of its option; empty values always pass.
fn broken_rule(path: &str, value: &Value, rule: Option<Rule>) -> Option<String> {
    let text = text_of(value);
    if text.is_empty() {
        return None;
    }
    match rule? {
        Rule::AbsolutePath => (!text.starts_with('/')).then(|| {
            format!("{path} is {text}, but must be an absolute path on the node: write the complete path, or remove the value")
        }),
        Rule::Words(words) => (!words.contains(&text.to_lowercase().as_str())).then(|| {
            format!(
                "{path} is {text}, but must be one of {}: correct it, or remove the value",
                words.join(", ")
            )
        }),
        Rule::UpTo(max) => {
            let is_within = number(value).is_some_and(|number| {
                u64::try_from(number).is_ok_and(|number| (1..=max).contains(&number))
            });
            let up_to = match max {
                u64::MAX => String::new(),
                max => format!(" to {max}"),
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

/// Returns true for a text that can be the value of a label.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().copied().all(is_inner)
        && is_end(bytes.first())
        && is_end(bytes.last())
}

/// Returns true when a version such as `v1.29.3+k3s1` is older than `than`.
fn is_older(version: &str, than: (u64, u64)) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next()?.parse::<u64>().ok();
    let found = number().and_then(|major| Some((major, number()?)));
    found.is_some_and(|found| found < than)
}

/// Returns true when a tag ends in `-build` and eight digits, as the tags of Rancher's images do.
fn is_go_build(tag: &str) -> bool {
    let end = tag.rsplit_once("-build").map(|(_, end)| end);
    end.is_some_and(|end| end.len() == 8 && end.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the chart's default values, as its `values.yaml` has them.
fn defaults() -> Value {
    serde_yaml::from_str(&values_yaml(chart::VERSION)).expect("the chart's own values are YAML")
}

/// Merges `values` into `target`: objects are merged key by key, anything else is replaced. With `null_removes` a null removes the key, as in the
/// chart's own values; between two files of values it stays, so that it can remove the chart's key later.
pub(super) fn merge(target: &mut Value, values: &Map<String, Value>, null_removes: bool) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let map = target
        .as_object_mut()
        .expect("anything else was replaced by an object");
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

/// Returns a path of the node; values written for upstream's container have it below `/host` or `/hostroot`.
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
    text_of(value) == "true"
}

/// Returns true for values that a template's `if` accepts: neither empty, nor false, nor 0.
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

/// Returns a value as a template prints it; null is empty.
fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Returns an integer, also one that YAML turned into a float.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let text = value.as_f64().filter(|number| number.fract() == 0.0)?;
        format!("{text:.0}").parse().ok()
    })
}

#[cfg(test)]
mod tests;
