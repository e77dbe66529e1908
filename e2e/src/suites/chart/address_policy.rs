//! Writes to address blocks: the policy lets each daemon change those of its own node. A daemon is an impersonated user of a certificate.

use anyhow::{bail, ensure};
use serde_json::{Value, json};

use super::server::Server;
use crate::{
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

const MAIN: &str = "rke2-multus";
const CRD: &str = "rke2-multus-crd";
const ACCOUNT: &str = "system:serviceaccount:kube-system:multus";
const A: &str = "system:multus:a";
const B: &str = "system:multus:b";
const NAME: &str = "10.20.3.0";

pub(super) fn run(env: &TestEnv, server: &Server, report: &mut Report) -> Checked {
    report.check("a daemon makes blocks of its own node only", || {
        server.release("install", CRD, &env.chart(CRD)?, &[])?;
        let on = [
            "--set=ipam.enabled=true",
            "--set=perNodeCertificate.enabled=true",
        ];
        server.release("install", MAIN, &env.chart(MAIN)?, &on)?;
        sh::until(30, "the policy is in force", || {
            let outcome = create(server, B, &["--dry-run=server"]);
            ensure_refused(outcome, "node b may not make a block that is held by \"a\"")
        })?;
        let outcome = create(server, ACCOUNT, &[]);
        ensure_refused(outcome, "the user is a daemon of no node")?;
        create(server, A, &[]).map(drop)
    })?;
    report.check(
        "another node's block is changed in spec.wanted, or taken over with a greater turn",
        || changes(server),
    )?;
    report.check("a shared block is written by all, and held by none", || {
        shared(server)
    })?;
    report.check(
        "a deleted block gives no slot, and goes when a daemon that may lets go",
        || removal(server),
    )?;
    report.check("the policy does not concern an administrator", || {
        server.kubectl(&["patch", "addressblock", NAME, "--type=merge", "--patch={\"spec\": {\"mode\": \"node\", \"holder\": {\"node\": \"c\", \"uid\": \"u\", \"incarnation\": \"i\", \"boot\": \"o\"}}}"])?;
        ensure_refused(delete(server, A), "node a may not delete a block of node c")?;
        server.helm(&["uninstall", MAIN])?;
        server.helm(&["uninstall", CRD])?;
        server.existing("crd/addressblocks.ipam.multus-rs.cni.cncf.io")?;
        server.kubectl(&["delete", "addressblocks", "--all"])?;
        server.kubectl(&["delete", "crd", "--all"]).map(drop)
    })
}

fn changes(server: &Server) -> anyhow::Result<()> {
    let wanted = json!([{"op": "add", "path": "/spec/wanted", "value": ["b"]}]);
    patch(server, B, &wanted)?;
    let holder = json!({"op": "replace", "path": "/spec/holder/node", "value": "b"});
    let raised = json!({"op": "replace", "path": "/spec/turn", "value": 2});
    for change in [
        json!([raised]),
        json!([holder]),
        json!([{"op": "add", "path": "/spec/used", "value": "000000ff"}]),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"ipam.multus-rs.cni.cncf.io/node": "b"}}]),
    ] {
        let words = "node b may not change a block of node a but for spec.wanted";
        ensure_refused(patch(server, B, &change), words)?;
    }
    ensure_refused(delete(server, B), "node b may not delete a block of node a")?;
    let outcome = patch(server, A, &json!([holder, raised]));
    ensure_refused(outcome, "node a may not give its block to \"b\"")?;
    patch(server, B, &json!([holder, raised]))?;
    ensure_refused(delete(server, A), "node a may not delete a block of node b")
}

fn shared(server: &Server) -> anyhow::Result<()> {
    let mode = |mode: &str| json!({"op": "replace", "path": "/spec/mode", "value": mode});
    let free = vec![json!({"owner": ""}); 32];
    let slots = json!({"op": "add", "path": "/spec/slots", "value": free});
    patch(server, B, &json!([mode("shared"), slots]))?;
    let slot = json!([
        {"op": "test", "path": "/spec/slots/5/owner", "value": ""},
        {"op": "replace", "path": "/spec/slots/5/owner", "value": "pod/p/c/net1"}
    ]);
    patch(server, A, &slot)?;
    ensure!(
        patch(server, B, &slot).is_err(),
        "the slot was taken a second time"
    );
    let outcome = patch(server, B, &json!([mode("node")]));
    ensure_refused(outcome, "node b may not hold a block that is shared")
}

/// The block is shared before, and held by a after it.
fn removal(server: &Server) -> anyhow::Result<()> {
    let keep = json!([{"op": "add", "path": "/metadata/finalizers", "value": ["ipam.multus-rs.cni.cncf.io/in-use"]}]);
    let let_go = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    let take = |slot: u32| {
        let take = json!([
            {"op": "test", "path": "/metadata/deletionTimestamp", "value": null},
            {"op": "replace", "path": format!("/spec/slots/{slot}/owner"), "value": "pod/p/c/net1"}
        ]);
        patch(server, A, &take)
    };
    patch(server, A, &keep)?;
    take(6)?;
    delete(server, B)?;
    ensure!(take(7).is_err(), "a deleted block gives a slot");
    patch(server, B, &let_go)?;
    create(server, A, &[])?;
    patch(server, A, &keep)?;
    let words = "node b may not change a block of node a but for spec.wanted";
    ensure_refused(patch(server, B, &let_go), words)?;
    ensure_refused(delete(server, B), "node b may not delete a block of node a")?;
    delete(server, A)?;
    ensure_refused(patch(server, B, &let_go), words)?;
    patch(server, A, &let_go)?;
    create(server, A, &[]).map(drop)
}

fn create(server: &Server, user: &str, more: &[&str]) -> anyhow::Result<String> {
    let holder = json!({"node": "a", "uid": "u", "incarnation": "i", "boot": "o"});
    let block = json!({
        "apiVersion": "ipam.multus-rs.cni.cncf.io/v1alpha1", "kind": "AddressBlock", "metadata": {"name": NAME},
        "spec": {"schema": 1, "space": "", "first": NAME, "mode": "node", "turn": 1, "holder": holder}
    });
    let args = [&["create", "--filename=-"], more].concat();
    kubectl(server, user, &args, &block)
}

fn patch(server: &Server, user: &str, changes: &Value) -> anyhow::Result<String> {
    let changes = format!("--patch={changes}");
    let args = ["patch", "addressblock", NAME, "--type=json", &changes];
    kubectl(server, user, &args, &Value::Null)
}

fn delete(server: &Server, user: &str) -> anyhow::Result<String> {
    // A block with a finalizer is there until somebody lets it go.
    let args = ["delete", "addressblock", NAME, "--wait=false"];
    kubectl(server, user, &args, &Value::Null)
}

/// Runs kubectl as a user, with the group of certificates if it is one's.
fn kubectl(server: &Server, user: &str, args: &[&str], input: &Value) -> anyhow::Result<String> {
    let mut command = server.node.command("kubectl");
    command.arg("--kubeconfig").arg(server.control.admin());
    command.args(["--as", user]);
    if user != ACCOUNT {
        command.arg("--as-group=system:multus");
    }
    sh::feed(command.args(args), input.to_string().as_bytes())
}

fn ensure_refused(outcome: anyhow::Result<String>, words: &str) -> anyhow::Result<()> {
    match outcome {
        Ok(answer) => bail!("accepted: {answer}"),
        Err(error) => {
            let text = format!("{error:#}");
            ensure!(text.contains(words), "no `{words}` in {text}");
            Ok(())
        }
    }
}
