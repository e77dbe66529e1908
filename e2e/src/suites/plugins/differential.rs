//! The same configurations for the reference's plugins and ours, each in a cell of its own: answers, errors and the state afterwards
//! must be equal.
//!
//! The cases of a plugin are a file of this directory. A difference that is wanted has its reason there.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    PluginsFixture,
    cell::{self, Call, NETNS, Step},
    compare::{self, Difference, Normalizer},
    emulator,
    feature::Feature,
};
use crate::{
    pool,
    report::{Report, say},
};

const FILES: &[(&str, &str)] = &[
    ("bandwidth", include_str!("differential/bandwidth.yaml")),
    ("bridge", include_str!("differential/bridge.yaml")),
    ("dhcp", include_str!("differential/dhcp.yaml")),
    ("dummy", include_str!("differential/dummy.yaml")),
    ("firewall", include_str!("differential/firewall.yaml")),
    ("host-device", include_str!("differential/host-device.yaml")),
    ("host-local", include_str!("differential/host-local.yaml")),
    ("ipvlan", include_str!("differential/ipvlan.yaml")),
    ("loopback", include_str!("differential/loopback.yaml")),
    ("macvlan", include_str!("differential/macvlan.yaml")),
    ("portmap", include_str!("differential/portmap.yaml")),
    ("ptp", include_str!("differential/ptp.yaml")),
    ("sbr", include_str!("differential/sbr.yaml")),
    ("static", include_str!("differential/static.yaml")),
    ("tap", include_str!("differential/tap.yaml")),
    ("tuning", include_str!("differential/tuning.yaml")),
    ("vlan", include_str!("differential/vlan.yaml")),
    ("vrf", include_str!("differential/vrf.yaml")),
];
/// The kernel deletes the links of a deleted namespace some time later, all at once; `marker` shows when.
pub(super) const DELETE_NETNS: &str = "\
ip link add marker type veth peer name marker netns pod
ip netns delete pod
for attempt in $(seq 200); do test -e /sys/class/net/marker || exit 0; sleep 0.02; done
echo the links of a deleted namespace remain >&2
exit 1
";
/// The most places that the report of a case names.
const SHOWN: usize = 6;

/// The cases of one plugin.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cases {
    /// Scripts on the host before each case; `pod` is the container's namespace.
    #[serde(default)]
    pub(super) setup: Vec<String>,
    pub(super) cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    /// More scripts before the case.
    #[serde(default)]
    setup: Vec<String>,
    /// Keys of the configuration, except the plugin's type.
    #[serde(default)]
    config: Map<String, Value>,
    /// `CNI_ARGS`.
    #[serde(default)]
    args: String,
    #[serde(default = "eth0")]
    ifname: String,
    #[serde(default = "whole_life")]
    life: Vec<Event>,
    #[serde(default)]
    wanted: Vec<Wanted>,
}

/// A verb, or what happens between two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Event {
    #[serde(rename = "ADD")]
    Add,
    #[serde(rename = "CHECK")]
    Check,
    #[serde(rename = "DEL")]
    Del,
    #[serde(rename = "GC")]
    Gc,
    #[serde(rename = "STATUS")]
    Status,
    #[serde(rename = "VERSION")]
    Version,
    /// The namespace is deleted, and later calls name none.
    #[serde(rename = "delete netns")]
    DeleteNetns,
    /// Later calls name no namespace.
    #[serde(rename = "no netns")]
    NoNetns,
    /// Later calls name the host's namespace.
    #[serde(rename = "host netns")]
    HostNetns,
    /// Later calls name another container.
    #[serde(rename = "other container")]
    OtherContainer,
}

/// A difference with its reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The beginning of the place.
    at: String,
    reason: String,
    /// The feature of the kernel without which both sides differ.
    without: Option<Feature>,
}

fn eth0() -> String {
    "eth0".to_owned()
}

/// ADD to DEL; the second DEL has no namespace, as after a reboot.
fn whole_life() -> Vec<Event> {
    use Event::{Add, Check, Del, NoNetns};
    vec![Add, Check, Del, NoNetns, Del]
}

/// A difference that is wanted in every case.
struct Everywhere {
    /// Also gets whether both sides failed ADD.
    matches: fn(&Difference, bool) -> bool,
    reason: &'static str,
}

const EVERYWHERE: &[Everywhere] = &[
    Everywhere {
        matches: |Difference {
                      at,
                      values: [reference, ours],
                  },
                  has_failed| {
            let count = |list: &Value| list.as_array().map(Vec::len);
            let is_less = ours.is_null() || count(ours) < count(reference);
            has_failed && at.contains(" state after ") && is_less && !reference.is_null()
        },
        reason: "a failed ADD is undone",
    },
    Everywhere {
        matches: |Difference {
                      at,
                      values: [reference, ours],
                  },
                  _| {
            let is_failure = at.ends_with(" DEL/status") && *reference != 0 && *ours == 0;
            is_failure
                || (at.ends_with(" DEL/answer") && reference["code"].is_u64() && ours.is_null())
        },
        reason: "DEL of what is absent succeeds",
    },
    Everywhere {
        matches: |Difference {
                      at,
                      values: [_, ours],
                  },
                  _| { at.contains(" state after DEL/files/") && ours.is_null() },
        reason: "DEL creates no files",
    },
    Everywhere {
        matches: |Difference {
                      at,
                      values: [reference, ours],
                  },
                  _| {
            let is_empty = |rules: &Value| {
                let lines = rules.as_array().into_iter().flatten();
                !lines
                    .filter_map(Value::as_str)
                    .any(|line| line.starts_with('-'))
            };
            (at.ends_with("/iptables") || at.ends_with("/ip6tables"))
                && is_empty(reference)
                && *ours == json!([])
        },
        reason: "no tables are created for nothing",
    },
    Everywhere {
        matches: |Difference {
                      at,
                      values: [reference, ours],
                  },
                  _| {
            let is_of_host = at.contains(" state after ADD/host/links/");
            is_of_host && at.ends_with("/nodad") && reference.is_null() && *ours == true
        },
        reason: "the gateway of a ptp link is usable at once",
    },
    Everywhere {
        matches: |Difference {
                      at,
                      values: [reference, ours],
                  },
                  _| {
            let is_ours = |alias: &str| alias.starts_with("cni:container:");
            at.contains("/links/")
                && at.ends_with("/ifalias")
                && reference.is_null()
                && ours.as_str().is_some_and(is_ours)
        },
        reason: "DEL knows its link by the alias, whatever its name",
    },
];

/// Runs the selected cases; reports one check per plugin.
pub(super) fn run(fixture: &PluginsFixture<'_>, report: &mut Report) {
    let Ok(files) = report.check("the cases of each plugin are read", all) else {
        return;
    };
    let mut jobs = Vec::new();
    for (plugin, cases) in files {
        for case in cases.cases {
            if fixture.selects(&format!("cases of {plugin}: {}", case.name)) {
                jobs.push((plugin, cases.setup.clone(), case));
            }
        }
    }
    let (mut used, mut has_failed) = (BTreeSet::new(), false);
    let mut refused: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut outcomes: BTreeMap<_, Vec<_>> = BTreeMap::new();
    pool::run(
        jobs,
        |(plugin, setup, case)| case.run(fixture, plugin, setup),
        |(plugin, _, case), outcome, _| {
            let line = match outcome {
                Ok(Equality::Reasons(reasons)) => {
                    used.extend(reasons);
                    None
                }
                Ok(Equality::Refused(reason)) => {
                    refused
                        .entry(reason)
                        .or_default()
                        .push(format!("{plugin} {}", case.name));
                    None
                }
                Err(error) => {
                    has_failed = true;
                    Some(format!("{}: {error:#}", case.name))
                }
            };
            outcomes.entry(*plugin).or_default().push(line);
        },
    );
    for (plugin, lines) in outcomes {
        let count = lines.len();
        let failed: Vec<_> = lines.into_iter().flatten().collect();
        let _ = report.check(&format!("{plugin} is equal in {count} cases"), || {
            ensure!(
                failed.is_empty(),
                "{} differ\n  {}",
                failed.len(),
                failed.join("\n  ")
            );
            Ok(())
        });
    }
    for (reason, cases) in &refused {
        say(&format!("{reason}: {}", cases.join(", ")));
    }
    // A failed case reports no reasons, and a selection does not use all.
    if !has_failed && fixture.case.is_none() {
        let _ = report.check("each reason that holds everywhere is used", || {
            for row in EVERYWHERE {
                ensure!(
                    used.contains(row.reason),
                    "nothing differs because {}",
                    row.reason
                );
            }
            Ok(())
        });
    }
}

/// Why a case counts as equal.
enum Equality {
    /// Every difference is wanted; these reasons hold everywhere.
    Reasons(Vec<&'static str>),
    /// The emulator keeps our plugin from its work.
    Refused(&'static str),
}

/// Reads all cases, by plugin, and adds the one that every plugin has.
pub(super) fn all() -> anyhow::Result<Vec<(&'static str, Cases)>> {
    let read = |(plugin, text): &(&'static str, &str)| {
        let mut cases = cases(text).with_context(|| format!("{plugin}.yaml"))?;
        cases.cases.push(version());
        Ok((*plugin, cases))
    };
    FILES.iter().map(read).collect()
}

/// The versions of the specification that a plugin accepts.
fn version() -> Case {
    Case {
        name: "version".to_owned(),
        setup: Vec::new(),
        config: Map::new(),
        args: String::new(),
        ifname: eth0(),
        life: vec![Event::Version],
        wanted: Vec::new(),
    }
}

fn cases(text: &str) -> anyhow::Result<Cases> {
    serde_yaml::from_str(text).context("the file is not as the cases are")
}

impl Case {
    fn run(
        &self,
        fixture: &PluginsFixture<'_>,
        plugin: &str,
        setup: &[String],
    ) -> anyhow::Result<Equality> {
        let seen = |plugins: &Path| -> anyhow::Result<Value> {
            let steps = self.steps(plugin, setup, &self.life, |_| plugins);
            let literal = serde_json::to_string(&steps)?;
            let mut normalizer = Normalizer::new(&literal);
            let seen = cell::run_in_sandbox(&steps)?;
            let numbered = seen.iter().enumerate().map(|(number, (name, value))| {
                (format!("{number} {name}"), normalizer.normalize(value))
            });
            Ok(Value::Object(numbered.collect()))
        };
        let reference = seen(&fixture.reference).context("with the reference's plugins")?;
        let ours = seen(&fixture.ours).context("with our plugins")?;
        if fixture.env.is_foreign()
            && let Some(row) = emulator::refusal(plugin, &self.name)
        {
            ensure!(
                row.is_met(&reference, &ours),
                "no call fails because {}: remove the case from emulator.rs",
                row.reason
            );
            return Ok(Equality::Refused(row.reason));
        }
        let differences = compare::differences(&reference, &ours);
        let has_failed = [&reference, &ours].iter().all(|seen| {
            let calls = seen.as_object().into_iter().flatten();
            let mut adds = calls.filter(|(name, _)| name.ends_with(" ADD"));
            adds.any(|(_, outcome)| outcome["status"] != 0)
        });
        self.judge(&differences, has_failed, &fixture.features)?;
        let rows = EVERYWHERE.iter().filter(|row| {
            let matches = |difference| (row.matches)(difference, has_failed);
            differences.iter().any(matches)
        });
        Ok(Equality::Reasons(rows.map(|row| row.reason).collect()))
    }

    /// Fails for a difference without a reason, and for a reason without a difference.
    fn judge(
        &self,
        differences: &[Difference],
        has_failed: bool,
        features: &BTreeSet<Feature>,
    ) -> anyhow::Result<()> {
        let is_present = |feature| features.contains(&feature);
        let wanted: Vec<_> = self
            .wanted
            .iter()
            .filter(|wanted| !wanted.without.is_some_and(is_present))
            .collect();
        let is_at =
            |difference: &Difference, wanted: &Wanted| difference.at.starts_with(&wanted.at);
        for wanted in &wanted {
            ensure!(
                differences
                    .iter()
                    .any(|difference| is_at(difference, wanted)),
                "nothing differs at {}: remove the reason ({})",
                wanted.at,
                wanted.reason
            );
        }
        let unwanted: Vec<_> = differences
            .iter()
            .filter(|difference| {
                let is_usual = EVERYWHERE
                    .iter()
                    .any(|row| (row.matches)(difference, has_failed));
                !is_usual && !wanted.iter().any(|wanted| is_at(difference, wanted))
            })
            .collect();
        if unwanted.is_empty() {
            return Ok(());
        }
        let lines: Vec<_> = unwanted
            .iter()
            .take(SHOWN)
            .map(
                |Difference {
                     at,
                     values: [reference, ours],
                 }| {
                    format!("{at}\n      reference {reference}\n      ours      {ours}")
                },
            )
            .collect();
        bail!("{} places\n    {}", unwanted.len(), lines.join("\n    "))
    }

    /// Returns the steps of a life; `plugins` is the directory of the plugin that serves a verb.
    pub(super) fn steps<'a>(
        &self,
        plugin: &str,
        setup: &[String],
        life: &[Event],
        plugins: impl Fn(Event) -> &'a Path,
    ) -> Vec<Step> {
        let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": plugin});
        for (key, value) in &self.config {
            config[key] = value.clone();
        }
        let mut call = Call {
            plugins: PathBuf::new(),
            verb: String::new(),
            config,
            is_chained: true,
            container: "container".to_owned(),
            netns: NETNS.to_owned(),
            ifname: self.ifname.clone(),
            args: self.args.clone(),
        };
        let scripts = setup.iter().chain(&self.setup).cloned();
        let mut steps: Vec<_> = scripts.map(Step::Shell).collect();
        for event in life {
            let verb = match event {
                Event::Add => "ADD",
                Event::Check => "CHECK",
                Event::Del => "DEL",
                Event::Gc => "GC",
                Event::Status => "STATUS",
                Event::Version => "VERSION",
                Event::DeleteNetns => {
                    steps.push(Step::Shell(DELETE_NETNS.to_owned()));
                    call.netns.clear();
                    continue;
                }
                Event::NoNetns => {
                    call.netns.clear();
                    continue;
                }
                Event::HostNetns => {
                    "/proc/self/ns/net".clone_into(&mut call.netns);
                    continue;
                }
                Event::OtherContainer => {
                    "other".clone_into(&mut call.container);
                    continue;
                }
            };
            let is_add = *event == Event::Add;
            steps.push(Step::Call(Call {
                plugins: plugins(*event).to_owned(),
                verb: verb.to_owned(),
                is_chained: !is_add,
                ..call.clone()
            }));
            if *event != Event::Check {
                steps.push(Step::Observe(format!("state after {verb}")));
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(wanted: &[(&str, &str)], differences: &[&str]) -> Result<(), String> {
        let mut case: Case = serde_yaml::from_str("name: a").unwrap();
        case.wanted = wanted
            .iter()
            .map(|(at, reason)| Wanted {
                at: (*at).to_owned(),
                reason: (*reason).to_owned(),
                without: None,
            })
            .collect();
        let differences: Vec<_> = differences
            .iter()
            .map(|at| Difference {
                at: (*at).to_owned(),
                values: [json!(1), json!(2)],
            })
            .collect();
        case.judge(&differences, false, &BTreeSet::new())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_file_is_read_and_names_its_cases_once() {
        for (plugin, cases) in all().unwrap() {
            let names: BTreeSet<_> = cases.cases.iter().map(|case| &case.name).collect();
            assert_eq!(names.len(), cases.cases.len(), "{plugin}");
            let has_version = cases.cases.iter().any(|case| case.life == [Event::Version]);
            assert!(has_version, "{plugin}");
        }
    }

    #[test]
    fn rows_for_everywhere_match_only_what_they_say() {
        let is_wanted = |at: &str, values: [Value; 2]| {
            let difference = Difference {
                at: at.to_owned(),
                values,
            };
            EVERYWHERE
                .iter()
                .any(|row| (row.matches)(&difference, false))
        };
        let veth = Difference {
            at: "/1 state after ADD/host/links".to_owned(),
            values: [json!(["lo", "veth#"]), json!(["lo"])],
        };
        let undone = EVERYWHERE[0].matches;
        assert!(undone(&veth, true));
        assert!(!undone(&veth, false));
        assert!(is_wanted("/3 DEL/status", [json!(1), json!(0)]));
        assert!(!is_wanted("/3 DEL/status", [json!(0), json!(1)]));
        assert!(!is_wanted("/3 CHECK/status", [json!(1), json!(0)]));
        assert!(is_wanted(
            "/3 DEL/answer",
            [json!({"code": 999}), Value::Null]
        ));
        assert!(is_wanted(
            "/4 state after DEL/files//var/lib/lock",
            [json!(""), Value::Null]
        ));
        assert!(!is_wanted(
            "/4 state after DEL/files//var/lib/lock",
            [Value::Null, json!("")]
        ));
        assert!(is_wanted(
            "/4 state after ADD/host/iptables",
            [json!(["*nat", "COMMIT"]), json!([])]
        ));
        assert!(!is_wanted(
            "/4 state after ADD/host/iptables",
            [json!(["*nat", "-A X"]), json!([])]
        ));
        let alias = "/1 state after ADD/pod/links/0/ifalias";
        let ours = json!("cni:container:eth0");
        assert!(is_wanted(alias, [Value::Null, ours.clone()]));
        assert!(!is_wanted(alias, [json!("nic0"), ours]));
        assert!(!is_wanted(alias, [Value::Null, json!("nic0")]));
    }

    #[test]
    fn a_reason_may_hold_only_without_a_feature() {
        let case: Case = serde_yaml::from_str(
            "{name: a, wanted: [{at: /1 DEL, reason: no links, without: vlan-filtering}]}",
        )
        .unwrap();
        let difference = Difference {
            at: "/1 DEL/status".to_owned(),
            values: [json!(1), json!(2)],
        };
        let without = BTreeSet::from([Feature::Vlan]);
        let with = BTreeSet::from([Feature::VlanFiltering]);
        let differences = [difference];
        assert!(case.judge(&differences, false, &without).is_ok());
        assert!(case.judge(&[], false, &without).is_err());
        assert!(case.judge(&differences, false, &with).is_err());
        assert!(case.judge(&[], false, &with).is_ok());
    }

    #[test]
    fn differences_need_a_reason_and_reasons_a_difference() {
        assert_eq!(judged(&[], &[]), Ok(()));
        assert_eq!(judged(&[("/1 DEL", "no leak")], &["/1 DEL/status"]), Ok(()));
        assert!(
            judged(&[("/1 DEL", "no leak")], &[])
                .unwrap_err()
                .ends_with("(no leak)")
        );
        assert!(
            judged(&[("/1 DEL", "no leak")], &["/1 DEL", "/0 ADD"])
                .unwrap_err()
                .contains("/0 ADD")
        );
    }
}
