//! Suite `whereabouts`: the end-to-end tests of whereabouts itself, on nodes that do not have its program: daemons give the addresses of its
//! pools.

mod choice;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{cluster::ClusterFixture, faults::fresh_seed, ipam::pool_kinds};
use crate::{
    cluster::{Cluster, RKE2_AND_K3S},
    node::runtime::IMAGE,
    programs::{EditedTests, Module, Needs},
    report::{Checked, Report, say},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: super::cri::NEEDS.debian,
    modules: &[
        Module::Containerd,
        Module::Helm,
        Module::Kubernetes,
        Module::Whereabouts,
    ],
};

/// The module of the tests and of the resource definitions.
pub(super) const MODULE: &str = "github.com/k8snetworkplumbingwg/whereabouts";
/// The image of the tests' pods, which a node without a registry cannot pull.
const THEIR_IMAGE: &str = "\"quay.io/dougbtv/alpine:latest\"";
/// A test writes a `StatefulSet` that it has read, and fails when the controller has written its status meanwhile.
const SCALED: &str = "statefulSet.Spec.Replicas = &newReplicas\n";
const SCALED_WHATEVER_CHANGED: &str =
    "statefulSet.Spec.Replicas = &newReplicas\n\tstatefulSet.ResourceVersion = \"\"\n";
/// A test looks at the pool once its pods are gone from the list, which may be before their sandboxes are.
const WITHOUT_PODS: &str = "\"cannot have leaked pods in the system\")\n";
const WITHOUT_SET: &str = r#"
	Eventually(func() bool {
		_, err := clientInfo.Client.AppsV1().StatefulSets(namespace).Get(context.Background(), serviceName, metav1.GetOptions{})
		pools, failed := clientInfo.WbClient.WhereaboutsV1alpha1().IPPools(ipPoolNamespace).List(context.Background(), metav1.ListOptions{})
		used := 0
		for _, pool := range pools.Items {
			used += len(pool.Spec.Allocations)
		}
		return err != nil && failed == nil && used == 0
	}, "30s").Should(BeTrue(), "the addresses of pods that are gone")
"#;
/// The specs of its own controllers, which are not there: addresses of pods that are gone are freed by the node of the pod.
const SKIPPED: &str = "Pod cleanup controller|whereabouts-reconciler";
/// The controller that gives nodes their slices, as a test.
const SLICES: &str =
    "package main\n\nimport \"testing\"\n\nfunc TestServe(*testing.T) { main() }\n";
/// The file of all definitions' common keys.
const FLAT_FILE: &str = "/etc/cni/net.d/whereabouts.d/whereabouts.conf";
/// How many specs are about slices.
const SLICED: u32 = 9;
/// A program of ours with its functions.
const CHOICE: &str = include_str!("whereabouts/choice_test.go");
/// How many specs are left at least.
const LEAST: u32 = 18;
/// How long all of them may take: two to three minutes where nothing else runs.
const SECONDS: &str = "1200";
/// How full one spec makes the nodes, in percent of 110 pods each.
const FILL: &str = "15";

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    let programs = report.check("the tests of whereabouts are built", build)?;
    report.check(
        "pools and addresses are those that its own functions choose",
        || {
            let program = programs.join("choice.test");
            let seed = fresh_seed();
            let refused = choice::compare(&program, &env.dir, seed)?;
            let count = choice::DEFINITIONS;
            say(&format!(
                "        {count} definitions of seed {seed}, {refused} of which give nothing"
            ));
            Ok(())
        },
    )?;
    let pools = |cluster: &Cluster| {
        let (server, kinds) = (cluster.server(), pool_kinds()?);
        cluster.control.apply_text(server, &kinds)
    };
    let fixture = ClusterFixture::installed(env, "ipam.whereabouts=true", pools, report)?;
    let cluster = &fixture.cluster;
    report.check(
        "its tests pass, without those of its own controllers",
        || {
            let skip = format!("-ginkgo.skip={SKIPPED}");
            let tests = programs.join("e2e.test");
            run_specs(cluster, &tests, &[&skip], LEAST)
        },
    )?;
    report.check(
        "its tests of slices of nodes pass, with its controller of slices",
        || {
            let server = cluster.server();
            // The controller reads no definition without one that names a kubeconfig.
            let file = json!({"kubernetes": {"kubeconfig": cluster.control.admin()}});
            server.write(FLAT_FILE, file.to_string())?;
            let controller = programs.join("nodeslicecontroller.test");
            let controller = server.serve("node-slice-controller", controller, |command| {
                command
                    .env("WHEREABOUTS_NAMESPACE", "kube-system")
                    .args(["-test.run=TestServe", "-test.timeout=0", "-kubeconfig"])
                    .arg(cluster.control.admin())
            })?;
            let tests = programs.join("e2e_node_slice.test");
            run_specs(cluster, &tests, &[], SLICED)?;
            server.end(&controller, "TERM")
        },
    )?;
    report.check("no pool and no reservation has an address", || {
        for kind in ["ippools", "overlappingrangeipreservations"] {
            let resource = format!("{kind}.whereabouts.cni.cncf.io");
            let list = cluster.get(&[&resource, "--all-namespaces"])?;
            let all = list["items"].as_array().context("it is a list")?;
            let used = all.iter().find(|one| match &one["spec"]["allocations"] {
                serde_json::Value::Null => true,
                entries => entries
                    .as_object()
                    .is_some_and(|entries| !entries.is_empty()),
            });
            ensure!(used.is_none(), "{used:?}");
        }
        Ok(())
    })
}

/// Runs a program of its tests; prints how many specs have passed, which must not be fewer.
fn run_specs(cluster: &Cluster, program: &Path, args: &[&str], least: u32) -> anyhow::Result<()> {
    let mut tests = cluster.server().command_within(SECONDS, program);
    tests
        .env("KUBECONFIG", cluster.control.admin())
        .env("NUMBER_OF_COMPUTE_NODES", RKE2_AND_K3S.len().to_string())
        .env("FILL_PERCENT_CAPACITY", FILL)
        .args(["-ginkgo.noColor", "-ginkgo.v"])
        .args(args);
    let output = sh::run(&mut tests)?;
    let passed = passed(&output).context("the tests print how many have passed")?;
    say(&format!("        {passed} specs"));
    ensure!(passed >= least, "only {passed} of {least} specs ran");
    Ok(())
}

/// Builds its tests: with pods of our image, and without a race of a test itself; and a program of ours with its functions. Returns their
/// directory.
fn build() -> anyhow::Result<PathBuf> {
    let module = (Module::Whereabouts, MODULE);
    let recipe = [include_str!("whereabouts.rs"), CHOICE].concat();
    let tests = EditedTests::build("whereabouts-suite", module, &recipe, |source| {
        let image = format!("{IMAGE:?}");
        edit(
            &source.join("e2e/entities/generators.go"),
            THEIR_IMAGE,
            &image,
        )?;
        let client = source.join("e2e/client/whereabouts.go");
        edit(&client, SCALED, SCALED_WHATEVER_CHANGED)?;
        for test in [
            "e2e/e2e_test.go",
            "e2e/e2e_node_slice/e2e_node_slice_test.go",
        ] {
            let waiting = [WITHOUT_PODS, WITHOUT_SET].concat();
            edit(&source.join(test), WITHOUT_PODS, &waiting)?;
        }
        let choice = source.join("pkg/choice");
        fs::create_dir(&choice)?;
        fs::write(choice.join("choice_test.go"), CHOICE)?;
        let slices = source.join("cmd/nodeslicecontroller");
        fs::write(slices.join("serve_test.go"), SLICES)?;
        Ok(vec![
            source.join("e2e"),
            source.join("e2e/e2e_node_slice"),
            slices,
            choice,
        ])
    })?;
    Ok(tests.programs)
}

fn edit(source: &Path, from: &str, to: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(source)?;
    let name = source.display();
    ensure!(text.contains(from), "{name} has changed: {from:?}");
    Ok(fs::write(source, text.replace(from, to))?)
}

/// Returns how many specs have passed, of the last line of a run.
fn passed(output: &str) -> Option<u32> {
    let line = output.lines().find(|line| line.contains(" Passed | "))?;
    let (before, _) = line.split_once(" Passed")?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_passed_specs_is_read() {
        let output = "Ran 2 of 3 Specs in 1.0 seconds\nSUCCESS! -- 17 Passed | 0 Failed | 0 Pending | 2 Skipped\nPASS\n";
        assert_eq!(passed(output), Some(17));
        assert_eq!(passed("PASS\n"), None);
    }
}
