//! The table of values: a path, a value, and its outcome.

pub(super) struct Row {
    pub(super) path: &'static str,
    /// The value as YAML.
    pub(super) value: &'static str,
    /// Further values that the outcome needs.
    pub(super) with: &'static [&'static str],
    pub(super) outcome: Outcome,
}

/// The outcome of a value.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    /// The objects have this text, which they lack without the value.
    Shows(&'static str),
    /// The objects lack this text, which they have without the value.
    Hides(&'static str),
    /// The objects do not change.
    NoChange,
    /// Helm fails with an error that contains this text.
    Refused(&'static str),
}

use Outcome::{Hides, NoChange, Refused, Shows};

const fn row(path: &'static str, value: &'static str, outcome: Outcome) -> Row {
    Row {
        path,
        value,
        with: &[],
        outcome,
    }
}

/// A row of `config.daemon_conf` with a key that the daemon would refuse.
const fn refused(value: &'static str, words: &'static str) -> Row {
    row("config.daemon_conf", value, Refused(words))
}

const CERTIFICATE: &[&str] = &["perNodeCertificate.enabled=true"];

/// A row with certificates on.
const fn certified(path: &'static str, value: &'static str, outcome: Outcome) -> Row {
    Row {
        with: CERTIFICATE,
        ..row(path, value, outcome)
    }
}

/// A digest of no existing image.
const DIGEST: &str = "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
const PINNED: &str = "@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";

/// A row with the disruption budget on.
const fn budgeted(path: &'static str, value: &'static str, outcome: Outcome) -> Row {
    Row {
        with: &["podDisruptionBudget.enabled=true"],
        ..row(path, value, outcome)
    }
}

/// A row that is refused where plugins are installed without a multiplexer.
const fn standalone(path: &'static str, value: &'static str, words: &'static str) -> Row {
    Row {
        with: &["cniplugins.standalone=true"],
        ..row(path, value, Refused(words))
    }
}

const MONITORED: &[&str] = &["metrics.enabled=true", "metrics.podMonitor.enabled=true"];

/// A row with metrics on.
const fn measured(path: &'static str, value: &'static str, outcome: Outcome) -> Row {
    Row {
        with: &["metrics.enabled=true"],
        ..row(path, value, outcome)
    }
}

pub(super) const ROWS: &[Row] = &[
    row(
        "image.registry",
        "own.example",
        Shows("own.example/multusrs/multus:v"),
    ),
    Row {
        with: &["image.registry=own.example"],
        ..row(
            "global.systemDefaultRegistry",
            "mirror.example",
            Shows("mirror.example/multusrs/multus:v"),
        )
    },
    row("image.repository", "mine/own", Shows("mine/own:v")),
    row("image.tag", "v9.9.9", Shows("multusrs/multus:v9.9.9")),
    row("image.digest", DIGEST, Shows(PINNED)),
    row(
        "image.digest",
        "sha256:2d71",
        Refused("must be sha256: and 64 hexadecimal digits"),
    ),
    Row {
        with: &["thickPlugin.image.tag=v1"],
        ..row(
            "image.digest",
            DIGEST,
            Refused("set thickPlugin.image.digest, or remove one of them"),
        )
    },
    row("image.tag", "''", Refused("image.tag is empty")),
    row(
        "nameOverride",
        "mine",
        Shows(r#""app.kubernetes.io/name":"mine""#),
    ),
    row(
        "nameOverride",
        "-mine",
        Refused("must be the value of a label"),
    ),
    row(
        "fullnameOverride",
        "mine",
        Refused("objects keep the names of the published chart"),
    ),
    row(
        "namespaceOverride",
        "mine",
        Refused("install with --namespace mine"),
    ),
    row("commonLabels", "{team: net}", Shows(r#""team":"net""#)),
    row(
        "commonLabels",
        "{app: mine}",
        Refused("commonLabels.app is set, but pods are found by that label"),
    ),
    row(
        "image.pullPolicy",
        "Always",
        Shows(r#""imagePullPolicy":"Always""#),
    ),
    row(
        "imagePullSecrets",
        "[{name: key}]",
        Shows(r#""imagePullSecrets":[{"name":"key"}]"#),
    ),
    row(
        "architectures",
        "[riscv64]",
        Shows(r#""values":["riscv64"]"#),
    ),
    row(
        "serviceAccount.name",
        "other",
        Shows(r#""serviceAccountName":"other""#),
    ),
    row("serviceAccount.name", "'a: b'", Refused("does not match")),
    row("image.tag", "'v1 x'", Refused("does not match")),
    row("labels.nodeSelector", "{a: true}", Refused("boolean")),
    row("extraEnv", "[{name: A, value: 1}]", Refused("number")),
    row("vCenter", "{clusterId: test-id}", NoChange),
    row(
        "daemonSecurity.capabilities",
        "[SYS_ADMIN, SYS_CHROOT, SYS_PTRACE, NET_ADMIN, BPF]",
        Shows(r#""add":["SYS_ADMIN","SYS_CHROOT","SYS_PTRACE","NET_ADMIN","BPF"]"#),
    ),
    row(
        "daemonSecurity.environment",
        "[{name: HTTPS_PROXY, value: a-proxy}]",
        Shows(r#"{"name":"HTTPS_PROXY","value":"a-proxy"}"#),
    ),
    row("pod.resources.enabled", "false", Hides(r#""limits""#)),
    row(
        "pod.resources.multus",
        "{requests: {cpu: 77m}, limits: {cpu: 77m}}",
        Shows(r#""cpu":"77m""#),
    ),
    row(
        "pod.resources.dynamicNetworksController",
        "{requests: {cpu: 1m}}",
        NoChange,
    ),
    row(
        "podAnnotations",
        "{mine.example/a: b}",
        Shows(r#""mine.example/a":"b""#),
    ),
    row(
        "podAnnotations",
        "{checksum/config: b}",
        Refused("podAnnotations has checksum/config, which the chart sets itself"),
    ),
    row(
        "podLabels",
        "{mine.example/c: d}",
        Shows(r#""mine.example/c":"d""#),
    ),
    row(
        "podLabels",
        "{tier: mine}",
        Refused("podLabels.tier is set, but pods are found by that label"),
    ),
    row(
        "extraEnv",
        "[{name: NO_PROXY, value: a-host}]",
        Shows(r#"{"name":"NO_PROXY","value":"a-host"}"#),
    ),
    row(
        "extraEnv",
        "[{name: POD_UID, value: mine}]",
        Refused("set POD_UID, which the chart or another of their entries sets"),
    ),
    row(
        "priorityClassName",
        "important",
        Shows(r#""priorityClassName":"important""#),
    ),
    row(
        "updateStrategy.type",
        "OnDelete",
        Shows(r#""updateStrategy":{"type":"OnDelete"}"#),
    ),
    row(
        "updateStrategy.type",
        "Recreate",
        Refused("must be RollingUpdate or OnDelete"),
    ),
    row(
        "updateStrategy.rollingUpdate.maxSurge",
        "25%",
        Shows(r#""rollingUpdate":{"maxSurge":"25%","maxUnavailable":0}"#),
    ),
    row(
        "updateStrategy.rollingUpdate.maxUnavailable",
        "3",
        Shows(r#""rollingUpdate":{"maxSurge":0,"maxUnavailable":3}"#),
    ),
    Row {
        with: &["updateStrategy.rollingUpdate.maxSurge=2"],
        ..row(
            "updateStrategy.rollingUpdate.maxUnavailable",
            "1",
            Refused("Kubernetes requires one of them to be 0"),
        )
    },
    row(
        "podDisruptionBudget.enabled",
        "true",
        Shows(r#""kind":"PodDisruptionBudget""#),
    ),
    budgeted(
        "podDisruptionBudget.minAvailable",
        "2",
        Shows(r#""minAvailable":2"#),
    ),
    budgeted(
        "podDisruptionBudget.minAvailable",
        "50%",
        Refused("want null or integer"),
    ),
    row(
        "labels.nodeSelector",
        "{disk: ssd}",
        Shows(r#""disk":"ssd""#),
    ),
    row("nodeSelector", "{zone: a}", Shows(r#""zone":"a""#)),
    row(
        "affinity",
        "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: fast, operator: Exists}]}]}}}",
        Shows(r#"{"key":"fast","operator":"Exists"},{"key":"kubernetes.io/arch","#),
    ),
    row(
        "tolerations",
        "[{key: mine, operator: Exists}]",
        Shows(r#""tolerations":[{"key":"mine","operator":"Exists"}]"#),
    ),
    row(
        "config.cni_conf.confDir",
        "/x/conf",
        Shows(r#"\"cniConfigDir\": \"/x/conf\""#),
    ),
    row(
        "config.cni_conf.binDir",
        "/x/bin",
        Shows(r#"\"binDir\": \"/x/bin\""#),
    ),
    row(
        "config.cni_conf.shimDir",
        "/x/shim",
        Shows(r#"\"shimDir\": \"/x/shim\""#),
    ),
    row(
        "config.cni_conf.multusConfFile",
        "/x/00.conf",
        Shows(r#"\"multusConfigFile\": \"/x/00.conf\""#),
    ),
    row(
        "config.cni_conf.multusAutoconfigDir",
        "/x/auto",
        Shows(r#"\"multusAutoconfigDir\": \"/x/auto\""#),
    ),
    row("config.fullnameOverride", "multus", NoChange),
    row("config.cni_conf.kubeconfig", "/x/kubeconfig", NoChange),
    row("config.cni_conf.cleanupConfigOnExit", "false", NoChange),
    row(
        "config.cni_conf.namespaceIsolation",
        "true",
        Shows(r#"\"namespaceIsolation\": true"#),
    ),
    row(
        "config.cni_conf.globalNamespaces",
        "a,b",
        Shows(r#"\"globalNamespaces\": \"a,b\""#),
    ),
    row(
        "config.cni_conf.readinessIndicatorFile",
        "/x/ready",
        Shows(r#"\"readinessindicatorfile\": \"/x/ready\""#),
    ),
    row(
        "config.cni_conf.multusCniConfDir",
        "/x/multus",
        Shows(r#"\"confDir\": \"/x/multus\""#),
    ),
    row(
        "config.cni_conf.masterCniFilename",
        "20-x.conf",
        Shows(r#"\"multusMasterCNI\": \"20-x.conf\""#),
    ),
    row(
        "config.cni_conf.overrideNetworkName",
        "true",
        Shows(r#"\"overrideNetworkName\": true"#),
    ),
    row(
        "config.cni_conf.cniVersion",
        "0.4.0",
        Shows(r#"\"cniVersion\": \"0.4.0\""#),
    ),
    row(
        "config.cni_conf.logLevel",
        "panic",
        Shows(r#"\"logLevel\": \"panic\""#),
    ),
    row(
        "config.cni_conf.logFile",
        "/x/log",
        Shows(r#"\"logFile\": \"/x/log\""#),
    ),
    row(
        "config.cni_conf.logToStderr",
        "false",
        Shows(r#"\"logToStderr\": false"#),
    ),
    row(
        "config.cni_conf.renameConfFile",
        "true",
        Refused("is never renamed: remove the value"),
    ),
    row(
        "config.cni_conf.skipConfigWatch",
        "true",
        Refused("is always watched: remove the value"),
    ),
    row(
        "config.cni_conf.skipMultusBinaryCopy",
        "true",
        Refused("has to be installed: remove the value"),
    ),
    row(
        "config.cni_conf.multusBinFile",
        "/x",
        Refused("comes with the image: remove the value"),
    ),
    row(
        "config.cni_conf.additionalBinDir",
        "/x",
        Refused("binDir adds one: remove the value"),
    ),
    row(
        "config.daemon_conf",
        "{logLevel: panic, keyOfAPlugin: [1]}",
        Shows(r#"\"keyOfAPlugin\": ["#),
    ),
    // The port counts without metrics.enabled.
    row(
        "config.daemon_conf",
        "{metricsPort: 9292}",
        Shows(r#"\"metricsPort\": 9292"#),
    ),
    // The chart refuses what the daemon would refuse.
    refused(
        "{metricPort: 9091}",
        "no such key: did you mean metricsPort?",
    ),
    refused(
        "{namespaceIsolaton: true}",
        "did you mean namespaceIsolation?",
    ),
    refused(
        "{NAMESPACESISOLATION: true}",
        "did you mean namespaceIsolation?",
    ),
    refused(
        "{namespaceisolation: true}",
        "is written namespaceIsolation",
    ),
    refused("{CniConfigDir: /x}", "is written cniConfigDir"),
    refused(
        "{logLevel: warning}",
        "must be one of panic, error, verbose, debug",
    ),
    refused("{cniVersion: 9.9.9}", "must be one of auto, 0.1.0"),
    refused(
        "{unservedRequests: always}",
        "must be one of error, event, silent",
    ),
    refused(
        "{socketDir: run/multus}",
        "must be an absolute path on the node",
    ),
    refused(
        "{metricsPort: 70000}",
        "must be a whole number from 1 to 65535",
    ),
    refused("{connectionLimit: 0}", "must be a whole number from 1:"),
    row(
        "config.cni_conf.binDir",
        "opt/cni/bin",
        Refused("config.cni_conf.binDir is opt/cni/bin, but must be an absolute path"),
    ),
    row(
        "config.cni_conf.logLevel",
        "warning",
        Refused("config.cni_conf.logLevel is warning, but must be one of"),
    ),
    row(
        "config.cni_conf.cniVersion",
        "2.0.0",
        Refused("config.cni_conf.cniVersion is 2.0.0, but must be one of"),
    ),
    row(
        "perNodeCertificate.certDir",
        "certs",
        Refused("perNodeCertificate.certDir is certs, but must be an absolute path"),
    ),
    certified(
        "perNodeCertificate.certDuration",
        "1d",
        Refused("perNodeCertificate.certDuration is 1d, but must be a duration from 10m"),
    ),
    certified(
        "perNodeCertificate.certDuration",
        "9m59s",
        Refused("must be a duration from 10m to 8760h"),
    ),
    row(
        "perNodeCertificate.enabled",
        "true",
        Shows(r#""name":"rke2-multus-approver""#),
    ),
    certified(
        "perNodeCertificate.bootstrapKubeconfig",
        "/x/kubelet",
        Shows(r#"\"bootstrapKubeconfig\": \"/x/kubelet\""#),
    ),
    certified(
        "perNodeCertificate.certDir",
        "/x/certs",
        Shows(r#"\"certDir\": \"/x/certs\""#),
    ),
    certified(
        "perNodeCertificate.certDuration",
        "1h",
        Shows(r#"\"certDuration\": \"1h\""#),
    ),
    certified(
        "perNodeCertificate.exclusive",
        "true",
        Hides(
            r#""kind":"Role","name":"rke2-multus"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:multus"},{"kind":"ServiceAccount""#,
        ),
    ),
    certified(
        "perNodeCertificate.approver.enabled",
        "false",
        Hides(r#""kind":"Deployment""#),
    ),
    certified(
        "perNodeCertificate.approver.resources",
        "{limits: {cpu: 78m}}",
        Shows(r#""cpu":"78m""#),
    ),
    row(
        "definitionValidation.enabled",
        "true",
        Shows(r#""kind":"ValidatingAdmissionPolicyBinding""#),
    ),
    Row {
        with: &["definitionValidation.enabled=true"],
        ..row(
            "definitionValidation.actions",
            "[Warn, Audit]",
            Shows(r#""validationActions":["Warn","Audit"]"#),
        )
    },
    row("metrics.enabled", "true", Shows(r#"\"metricsPort\": 9"#)),
    measured("metrics.port", "9191", Shows(r#"\"metricsPort\": 9191"#)),
    measured(
        "metrics.service.enabled",
        "true",
        Shows(r#""ports":[{"name":"metrics","port":9"#),
    ),
    row(
        "metrics.service.enabled",
        "true",
        Refused("set metrics.enabled to true"),
    ),
    measured(
        "metrics.podMonitor.enabled",
        "true",
        Shows(r#""replacement":"$1:9"#),
    ),
    Row {
        with: MONITORED,
        ..row(
            "metrics.podMonitor.interval",
            "77s",
            Shows(r#""interval":"77s""#),
        )
    },
    Row {
        with: MONITORED,
        ..row(
            "metrics.podMonitor.labels",
            "{release: mine}",
            Shows(r#""release":"mine""#),
        )
    },
    row(
        "metrics.dashboard.enabled",
        "true",
        Shows(r#""grafana_dashboard":"1""#),
    ),
    Row {
        with: &["metrics.dashboard.enabled=true"],
        ..row(
            "metrics.dashboard.labels",
            "{folder: mine}",
            Shows(r#""folder":"mine""#),
        )
    },
    row(
        "metrics.rules.enabled",
        "true",
        Shows(r#""alert":"MultusNotReady""#),
    ),
    Row {
        with: &["metrics.rules.enabled=true"],
        ..row(
            "metrics.rules.labels",
            "{release: mine}",
            Shows(r#""release":"mine""#),
        )
    },
    row(
        "manifests.serviceAccount",
        "false",
        Hides(r#""kind":"ServiceAccount","metadata""#),
    ),
    row(
        "manifests.clusterRole",
        "false",
        Hides(r#""kind":"ClusterRole","metadata""#),
    ),
    row(
        "manifests.clusterRoleBinding",
        "false",
        Hides(r#""kind":"ClusterRoleBinding""#),
    ),
    row(
        "manifests.configMap",
        "false",
        Refused("the DaemonSet needs it: set it to true"),
    ),
    row(
        "manifests.daemonSet",
        "false",
        Hides(r#""kind":"DaemonSet""#),
    ),
    row(
        "manifests.dhcpDaemonSet",
        "true",
        Shows(r#"\"dhcp\": true"#),
    ),
    row("manifests.customResourceDefinition", "true", NoChange),
    row(
        "global.systemDefaultRegistry",
        "mirror.example",
        Shows("mirror.example/multusrs/multus:v"),
    ),
    row(
        "global.cattle.systemDefaultRegistry",
        "cattle.example",
        Shows("cattle.example/multusrs/multus:v"),
    ),
    Row {
        with: &["global.systemDefaultRegistry=mirror.example"],
        ..row(
            "global.cattle.systemDefaultRegistry",
            "cattle.example",
            NoChange,
        )
    },
    row(
        "global.systemDefaultRegistry",
        "https://mirror.example",
        Refused("a registry is named without a scheme: leave https:// out"),
    ),
    row(
        "global.systemDefaultRegistry",
        r#""%{SYSTEM_DEFAULT_REGISTRY_RAW}%""#,
        Refused("a template that was not filled in: set host and port of the registry"),
    ),
    row(
        "global.cattle.systemDefaultRegistry",
        r#""<registry>""#,
        Refused("a template that was not filled in: set host and port of the registry"),
    ),
    row(
        "thickPlugin.enabled",
        "false",
        Refused("thin mode does not exist in this chart: remove the value"),
    ),
    row(
        "thickPlugin.image.repository",
        "mine/own",
        Shows("mine/own:v"),
    ),
    row(
        "thickPlugin.image.tag",
        "v9.9.9",
        Shows("multusrs/multus:v9.9.9"),
    ),
    row("thickPlugin.image.digest", DIGEST, Shows(PINNED)),
    row(
        "thickPlugin.image.pullPolicy",
        "Never",
        Shows(r#""imagePullPolicy":"Never""#),
    ),
    row(
        "dynamicNetworksController.enabled",
        "true",
        Shows(r#"\"dynamicNetworks\": true"#),
    ),
    row(
        "dynamicNetworksController.image",
        "{repository: r, tag: t}",
        NoChange,
    ),
    row(
        "dynamicNetworksController.sockets",
        "{containerd: /a, multus: /b}",
        NoChange,
    ),
    row("rke2-whereabouts.enabled", "true", NoChange),
    row("rke2-whereabouts.image", "{tag: t}", NoChange),
    row(
        "rke2-whereabouts.updateStrategy",
        "{type: OnDelete}",
        NoChange,
    ),
    row("rke2-whereabouts.imagePullSecrets", "[{name: a}]", NoChange),
    row("rke2-whereabouts.nameOverride", "a", NoChange),
    row("rke2-whereabouts.fullnameOverride", "a", NoChange),
    row("rke2-whereabouts.namespaceOverride", "a", NoChange),
    row("rke2-whereabouts.serviceAccount", "{name: a}", NoChange),
    row("rke2-whereabouts.podAnnotations", "{a: b}", NoChange),
    row(
        "rke2-whereabouts.podSecurityContext",
        "{fsGroup: 1}",
        NoChange,
    ),
    row(
        "rke2-whereabouts.securityContext",
        "{privileged: true}",
        NoChange,
    ),
    row("rke2-whereabouts.resources", "{limits: {cpu: 1}}", NoChange),
    row("rke2-whereabouts.nodeSelector", "{a: b}", NoChange),
    row(
        "rke2-whereabouts.tolerations",
        "[{operator: Exists}]",
        NoChange,
    ),
    row("rke2-whereabouts.affinity", "{nodeAffinity: {}}", NoChange),
    row("rke2-whereabouts.priorityClassName", "a", NoChange),
    row("rke2-whereabouts.cniConf", "{binDir: /a}", NoChange),
    row(
        "rke2-whereabouts.nodeSliceController",
        "{enabled: true}",
        NoChange,
    ),
    row("rke2-whereabouts.reconciler", "{logLevel: a}", NoChange),
    row("rke2-whereabouts.global", "{a: b}", NoChange),
    row("cniplugins.image", "{repository: r, tag: t}", NoChange),
    row(
        "cniplugins.install",
        "false",
        Shows(r#"\"install\": false"#),
    ),
    row("cniplugins.only", "[macvlan]", Shows(r#"\"only\": ["#)),
    row("cniplugins.only", "[macvaln]", Refused("names macvaln")),
    row(
        "cniplugins.skipcnis",
        "'flannel, macvlan'",
        Shows(r#"\"skip\": ["#),
    ),
    row("cniplugins.first", "true", Shows(r#"\"first\": true"#)),
    Row {
        // Objects with every switch on have certificates.
        with: &["perNodeCertificate.enabled=false"],
        ..row("cniplugins.standalone", "true", Shows(r#"["plugins"]"#))
    },
    standalone("cniplugins.install", "false", "cniplugins.install is false"),
    standalone("cniplugins.first", "true", "keep their names"),
    standalone(
        "dynamicNetworksController.enabled",
        "true",
        "no daemon attaches",
    ),
    standalone(
        "perNodeCertificate.enabled",
        "true",
        "nothing but their own DaemonSet",
    ),
    row("dhcpDaemonSet.image", "{repository: r, tag: t}", NoChange),
];
