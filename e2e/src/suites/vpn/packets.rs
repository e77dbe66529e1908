//! Settings of the VPN that change packets: the sources that pods see, and the servers of DNS. Each is shown with the choice of `vpn run`
//! and with tailscale's default.

use std::fs;

use anyhow::{Context as _, ensure};

use super::{Fixture, PODS};
use crate::{
    report::{Checked, Report},
    sh,
    vpn::tailnet,
};

/// The port on which a pod answers with the address of its client.
const PORT: u16 = 7000;
/// The DNS server of MagicDNS.
const MAGIC_DNS: &str = "100.100.100.100";

pub(super) fn run(fixture: &Fixture<'_>, report: &mut Report) -> Checked {
    report.check(
        "a pod sees the addresses of other nodes' pods, and that of its bridge with tailscale's default",
        || fixture.sources_are_kept(),
    )?;
    report.check(
        "resolv.conf stays as it was, and has the VPN's server with tailscale's default",
        || fixture.dns_is_left_alone(),
    )
}

impl Fixture<'_> {
    fn sources_are_kept(&self) -> anyhow::Result<()> {
        let serve = format!(
            "mkdir -p /www/cgi-bin && printf '#!/bin/sh\\necho; echo $REMOTE_ADDR\\n' >/www/cgi-bin/source && chmod 755 /www/cgi-bin/source && /bin/busybox httpd -p 0.0.0.0:{PORT} -h /www"
        );
        self.kubectl(&["exec", PODS[1], "--", "sh", "-c", &serve])?;
        let url = format!(
            "http://{}:{PORT}/cgi-bin/source",
            self.pod_address(PODS[1])?
        );
        let pod_sees = |expected: &str| {
            sh::until(30, &format!("the pod sees {expected}"), || {
                let get = ["/bin/busybox", "wget", "-qO-", &url];
                let seen = self.kubectl(&[&["exec", PODS[0], "--"], &get[..]].concat())?;
                ensure!(seen.trim() == expected, "it sees {seen}");
                Ok(())
            })
        };
        let own = self.pod_address(PODS[0])?;
        pod_sees(&own)?;
        let node_sees = self.node(0).run(&["busybox", "wget", "-qO-", &url])?;
        ensure!(
            node_sees.trim() == tailnet::address(self.node(0))?,
            "of the node it sees {node_sees}"
        );
        let bridge = self.pod_subnet(1)?.replace(".0/24", ".1");
        let node = &self.nodes[1];
        let keeper = node.keeper.as_ref().context("`vpn run` runs")?;
        // `vpn run` would take it back at its next look.
        node.node.while_stopped(keeper, |_| {
            tailnet::tailscale(&node.node, &["set", "--snat-subnet-routes=true"])?;
            pod_sees(&bridge)
        })?;
        pod_sees(&own)
    }

    fn dns_is_left_alone(&self) -> anyhow::Result<()> {
        let before = fs::read_to_string("/etc/resolv.conf")?;
        ensure!(!before.contains(MAGIC_DNS), "this machine has MagicDNS");
        let resolv_conf = |index: usize| {
            let path = self.node(index).path("/etc/resolv.conf");
            fs::read_to_string(path).context("there is no resolv.conf")
        };
        for index in 0..2 {
            let found = resolv_conf(index)?;
            ensure!(found == before, "{found} instead of {before}");
        }
        let takes_dns = |takes: bool| {
            let set = ["set", &format!("--accept-dns={takes}")];
            tailnet::tailscale(self.node(1), &set)
        };
        takes_dns(true)?;
        sh::until(30, "tailscaled writes resolv.conf", || {
            let found = resolv_conf(1)?;
            ensure!(found.contains(MAGIC_DNS), "{found}");
            Ok(())
        })?;
        let found = self.findings(1)?;
        let is_it = |text: &String| text.starts_with("resolv.conf may name the VPN's DNS server");
        ensure!(found.iter().any(is_it), "{found:#?}");
        takes_dns(false)?;
        sh::until(30, "resolv.conf is as before", || {
            let found = resolv_conf(1)?;
            ensure!(found == before, "{found} instead of {before}");
            Ok(())
        })
    }
}
