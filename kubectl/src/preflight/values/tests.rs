//! Values that the chart refuses, with the messages of the chart's own templates.

use chart::{Chart, IDENTITIES};
use serde_json::json;

use super::*;

fn values(yaml: &str) -> Values {
    let explicit: Value = serde_yaml::from_str(yaml).unwrap();
    Values::new(explicit.as_object().unwrap())
}

const OLD_KUBERNETES: &str = "v1.29.3+k3s1";

/// Values, and path and a part of the message of the refusal.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "thickPlugin: {enabled: false}",
        "thickPlugin.enabled",
        "thin mode does not exist",
    ),
    (
        "image: {repository: rancher/hardened-multus-cni}",
        "image.repository",
        "names rancher/hardened-multus-cni, an image of the Go implementation",
    ),
    (
        "thickPlugin: {image: {tag: v4.3.0-build20260819}}",
        "thickPlugin.image.tag",
        "a build of the Go implementation",
    ),
    (
        "global: {systemDefaultRegistry: 'https://reg.example'}",
        "global.systemDefaultRegistry",
        "leave https:// out",
    ),
    (
        "global: {systemDefaultRegistry: '%{SYSTEM_DEFAULT_REGISTRY_RAW}%'}",
        "global.systemDefaultRegistry",
        "a template that was not filled in",
    ),
    (
        "global: {cattle: {systemDefaultRegistry: <registry>}}",
        "global.cattle.systemDefaultRegistry",
        "a template that was not filled in",
    ),
    (
        "config: {cni_conf: {renameConfFile: true}}",
        "config.cni_conf.renameConfFile",
        "never renamed: remove the value",
    ),
    (
        "config: {cni_conf: {skipMultusBinaryCopy: 'true'}}",
        "config.cni_conf.skipMultusBinaryCopy",
        "the shim has to be installed",
    ),
    (
        "config: {cni_conf: {additionalBinDir: /opt/multus/bin}}",
        "config.cni_conf.additionalBinDir",
        "binDir adds one",
    ),
    (
        "manifests: {configMap: false}",
        "manifests.configMap",
        "the DaemonSet needs it",
    ),
    (
        "metrics: {podMonitor: {enabled: true}}",
        "metrics.podMonitor.enabled",
        "set metrics.enabled",
    ),
    (
        "daemonSecurity: {capabilities: [SYS_ADMIN, SYS_CHROOT]}",
        "daemonSecurity.capabilities",
        "lacks SYS_PTRACE",
    ),
    (
        "config: {daemon_conf: {perNodeCertificate: {enabled: true}}}",
        "config.daemon_conf.perNodeCertificate",
        "move it to perNodeCertificate",
    ),
    (
        "config: {daemon_conf: {ownPlugins: {first: true}}}",
        "config.daemon_conf.ownPlugins",
        "move it there",
    ),
    (
        "cniplugins: {only: [macvaln]}",
        "cniplugins.only",
        "names macvaln, but there are only",
    ),
    (
        "cniplugins: {standalone: true, install: false}",
        "cniplugins.install",
        "remove one of them",
    ),
    (
        "{cniplugins: {standalone: true}, dynamicNetworksController: {enabled: true}}",
        "dynamicNetworksController.enabled",
        "no daemon attaches networks",
    ),
    (
        "config: {daemon_conf: {metricPort: 9091}}",
        "config.daemon_conf.metricPort",
        "did you mean metricsPort?",
    ),
    (
        "config: {daemon_conf: {namespaceisolation: true}}",
        "config.daemon_conf.namespaceisolation",
        "is written namespaceIsolation",
    ),
    (
        "config: {daemon_conf: {logLevel: warning}}",
        "config.daemon_conf.logLevel",
        "must be one of panic, error, verbose, debug",
    ),
    (
        "config: {daemon_conf: {unservedRequests: always}}",
        "config.daemon_conf.unservedRequests",
        "must be one of error, event, silent",
    ),
    (
        "config: {daemon_conf: {metricsPort: 70000}}",
        "config.daemon_conf.metricsPort",
        "a whole number from 1 to 65535",
    ),
    (
        "config: {daemon_conf: {connectionLimit: -1}}",
        "config.daemon_conf.connectionLimit",
        "a whole number from 1:",
    ),
    (
        "config: {cni_conf: {binDir: opt/cni/bin}}",
        "config.cni_conf.binDir",
        "must be an absolute path on the node",
    ),
    (
        "config: {cni_conf: {cniVersion: 2.0.0}}",
        "config.cni_conf.cniVersion",
        "must be one of auto, 0.1.0",
    ),
    (
        "perNodeCertificate: {certDir: certs}",
        "perNodeCertificate.certDir",
        "must be an absolute path",
    ),
    (
        "perNodeCertificate: {certDuration: 1d}",
        "perNodeCertificate.certDuration",
        "from 10m to 8760h",
    ),
    (
        "definitionValidation: {enabled: true}",
        "definitionValidation.enabled",
        "upgrade to 1.30",
    ),
    (
        "image: {digest: sha256:0}",
        "image.digest",
        "64 hexadecimal digits",
    ),
    (
        "{image: {digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}, thickPlugin: {image: {tag: v5}}}",
        "image.digest",
        "which takes precedence: set thickPlugin.image.digest",
    ),
    ("image: {tag: ''}", "image.tag", "set one of them"),
    (
        "commonLabels: {app: x}",
        "commonLabels.app",
        "use another key",
    ),
    ("podLabels: {tier: x}", "podLabels.tier", "use another key"),
    (
        "podAnnotations: {checksum/config: x}",
        "podAnnotations",
        "which the chart sets itself",
    ),
    (
        "nameOverride: -x",
        "nameOverride",
        "must be the value of a label",
    ),
    (
        "fullnameOverride: x",
        "fullnameOverride",
        "keep the names of the published chart",
    ),
    (
        "namespaceOverride: x",
        "namespaceOverride",
        "install with --namespace x",
    ),
    (
        "{daemonSecurity: {environment: [{name: A}]}, extraEnv: [{name: A}]}",
        "extraEnv",
        "set A, which the chart or another",
    ),
    (
        "extraEnv: [{name: POD_UID}]",
        "extraEnv",
        "set POD_UID, which the chart",
    ),
    (
        "updateStrategy: {type: Recreate}",
        "updateStrategy.type",
        "must be RollingUpdate or OnDelete",
    ),
    (
        "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 10%}}",
        "updateStrategy.rollingUpdate",
        "requires one of them to be 0",
    ),
    // Refused by the schema.
    (
        "thickPlugn: {}",
        "thickPlugn",
        "no such value: did you mean thickPlugin?",
    ),
    (
        "config: {cni_conf: {bindir: /x}}",
        "config.cni_conf.bindir",
        "did you mean binDir?",
    ),
    (
        "config: {cni_conf: {bindir: null}}",
        "config.cni_conf.bindir",
        "no such value",
    ),
    ("image: {tag: 5}", "image.tag", "must be string"),
    (
        "tolerations: {operator: Exists}",
        "tolerations",
        "must be array",
    ),
    (
        "image: {pullPolicy: Allways}",
        "image.pullPolicy",
        "IfNotPresent",
    ),
    (
        "config: {daemon_conf: {namespaceIsolation: 'yes'}}",
        "config.daemon_conf.namespaceIsolation",
        "must be boolean",
    ),
    (
        "serviceAccount: {name: null}",
        "serviceAccount.name",
        "is required",
    ),
    // Refused by the daemon's reader alone.
    (
        "config: {daemon_conf: {defaultNetworks: [1]}}",
        "config",
        "\"defaultNetworks\" must be a list of strings",
    ),
];

#[test]
fn refused_values_are_reported_with_a_hint() {
    for (yaml, path, part) in REFUSED {
        let found = values(yaml).problems(Some(OLD_KUBERNETES));
        assert_eq!(found.len(), 1, "{yaml}: {found:?}");
        assert_eq!(found[0].path, *path, "{yaml}");
        assert!(found[0].text.contains(part), "{yaml}: {found:?}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let found = values("{thickPlugin: {enabled: false}, imagee: {}, config: {daemon_conf: {logLevel: x, metricPort: 1}}}").problems(Some(OLD_KUBERNETES));
    let paths: Vec<_> = found.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "imagee",
            "thickPlugin.enabled",
            "config.daemon_conf.logLevel",
            "config.daemon_conf.metricPort"
        ]
    );
}

#[test]
fn accepted_values_have_no_problem() {
    for yaml in [
        "{}",
        "thickPlugin: {enabled: true}",
        "{podLabels: null, config: {cni_conf: {namespaceIsolation: null}, daemon_conf: {logLevel: null}}}",
        "thickPlugin: {enabled: 'true', image: null}",
        "config: {cni_conf: {confDir: /etc/cni/net.d, binDir: /host/opt/cni/bin, multusBinFile: '', logLevel: DEBUG}}",
        "config: {daemon_conf: {chrootDir: /hostroot, cniVersion: 0.3.1, socketDir: /host/run/multus/, logLevel: verbose, keyOfAPlugin: [1]}}",
        "perNodeCertificate: {enabled: true, certDuration: 1h30m}",
        "global: {systemDefaultRegistry: x, rke2DataDir: /d}",
        "global: {systemDefaultRegistry: '[2001:db8::1]:5000/mirror_a/'}",
        "{metrics: {enabled: true, podMonitor: {enabled: true}}}",
        "{manifests: {daemonSet: false, configMap: false}}",
        "rke2-whereabouts: {enabled: true, resources: {}}",
        "vCenter: {clusterId: test-id}",
        "image: {digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, tag: ''}",
        "{commonLabels: {team: x}, podAnnotations: {a: b}, nameOverride: a.b-c, priorityClassName: ''}",
        "{extraEnv: [{name: HTTP_PROXY, value: x}], nodeSelector: {a: b}, fullnameOverride: ''}",
        "updateStrategy: {type: OnDelete, rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}",
        "updateStrategy: {rollingUpdate: {maxUnavailable: 25%}}",
        "updateStrategy: {rollingUpdate: {maxSurge: 0}}",
    ] {
        assert_eq!(values(yaml).problems(Some(OLD_KUBERNETES)), [], "{yaml}");
    }
}

#[test]
fn admission_policies_are_accepted_from_kubernetes_1_30() {
    let values = values("definitionValidation: {enabled: true}");
    for version in [Some("v1.30.0"), Some("v2.0"), None] {
        assert_eq!(values.problems(version), [], "{version:?}");
    }
}

/// Returns the format strings of all `fail` in the chart's templates.
fn formats() -> Vec<String> {
    let files = chart::pack::files(Chart::Main, IDENTITIES[0], "5.0.0").unwrap();
    let templates = files
        .iter()
        .filter(|(path, _)| path.starts_with("templates/"));
    let mut formats = Vec::new();
    for (_, bytes) in templates {
        for line in std::str::from_utf8(bytes).unwrap().lines() {
            let Some((_, rest)) = line.split_once("- fail ") else {
                continue;
            };
            let rest = rest.trim_start_matches("(printf ");
            let text = rest.strip_prefix('"').unwrap_or_else(|| panic!("{line}"));
            formats.push(text.split('"').next().unwrap().to_owned());
        }
    }
    formats
}

fn fits(format: &str, text: &str) -> bool {
    let parts: Vec<_> = format
        .split("%s")
        .flat_map(|part| part.split("%d"))
        .collect();
    let mut rest = text;
    for (index, part) in parts.iter().enumerate() {
        let found = if index == 0 {
            rest.starts_with(part).then_some(0)
        } else {
            rest.find(part)
        };
        let Some(at) = found else { return false };
        rest = &rest[at + part.len()..];
    }
    parts.last().is_some_and(|last| text.ends_with(last))
}

/// The refusal by the CRD of the live cluster, which no value decides.
const OF_THE_CRD: &str = "the release %s owns the CRD";

/// A new refusal in a template fails this test until [`refusals`] has it, too.
#[test]
fn refusals_equal_those_of_the_templates() {
    let formats = formats();
    assert!(formats.len() > 10, "{formats:?}");
    let ours: Vec<_> = REFUSED
        .iter()
        .flat_map(|(yaml, ..)| refusals(&values(yaml), Some(OLD_KUBERNETES)))
        .collect();
    let of_values = |format: &&String| !format.starts_with(OF_THE_CRD);
    for format in formats.iter().filter(of_values) {
        assert!(
            ours.iter().any(|one| fits(format, &one.text)),
            "no refusal of preflight, or no case here, has the message {format:?}"
        );
    }
    for one in &ours {
        assert!(
            formats.iter().any(|format| fits(format, &one.text)),
            "no template has the message {one:?}"
        );
    }
}

#[test]
fn the_daemons_configuration_equals_that_of_the_chart() {
    let config = values("{}").daemon_config();
    assert_eq!(
        Value::Object(config),
        json!({"cniVersion": "auto", "multusConfigFile": "auto", "logLevel": "verbose", "logToStderr": true})
    );
    let yaml = "
config:
  cni_conf: {binDir: /host/opt/cni/bin, multusCniConfDir: /hostroot, namespaceIsolation: 'true', globalNamespaces: a, logToStderr: 'false'}
  daemon_conf: {globalNamespaces: b, metricsPort: 9000.0, logLevel: null}
dynamicNetworksController: {enabled: 'true'}
manifests: {dhcpDaemonSet: true}
perNodeCertificate: {enabled: true}
";
    assert_eq!(
        Value::Object(values(yaml).daemon_config()),
        json!({
            "cniVersion": "auto", "multusConfigFile": "auto", "logLevel": "verbose", "logToStderr": false,
            "metricsPort": 9000.0, "binDir": "/opt/cni/bin", "confDir": "/", "globalNamespaces": "b", "namespaceIsolation": true,
            "perNodeCertificate": {"enabled": true, "certDuration": "24h"}, "dynamicNetworks": true, "dhcp": true,
        })
    );
}
