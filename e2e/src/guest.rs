//! A machine in a pod: QEMU with a Linux that answers pings, on the tap device of the pod's network namespace. Its processor is emulated,
//! since not every machine that has `/dev/kvm` can start one.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use crate::{
    node::{Node, Service},
    plumbing::{self, Plumbing},
    programs::{self, Module, Needs},
    report::say,
    sh::{self, words},
    test_env::{self, TestEnv},
};

const NEEDS: Needs = Needs {
    debian: "busybox ping qemu-system-x86_64 sysctl",
    modules: &[],
};
const KERNEL: &str = "github.com/gokrazy/kernel.amd64";
/// The guest's first process. The kernel gives it words of its command line as variables.
const INIT: &str = "#!/busybox sh\n/busybox ip address add \"$address\" dev eth0\n/busybox ip link set eth0 up\necho the guest is up\nexec /busybox sleep 2147483647\n";
const UP: &str = "the guest is up";
/// Seconds between two packets: a guest answers in less, and their numbers, of 16 bits, begin again after 21 minutes.
const PAUSE: &str = "0.02";
/// A guest that is busy has so many packets to answer at the end, at most.
const MOST_UNDER_WAY: usize = 50;

/// A running machine.
pub(crate) struct Guest {
    /// Its own, which the pod does not use.
    address: String,
    qemu: Service,
}

impl Guest {
    /// Starts a machine behind an interface of a pod, whose address it gets, and waits until it is up.
    pub(crate) fn start(env: &TestEnv, pod: &Plumbing, interface: &str) -> anyhow::Result<Self> {
        ensure!(
            test_env::arch() == "amd64",
            "the kernel of guests is for amd64"
        );
        programs::ensure(&NEEDS, env.install)?;
        let kernel = programs::directory_of(Module::GuestKernel, KERNEL)?.join("vmlinuz");
        let files = initial_files(&env.dir)?;
        pod.connect(interface)?;
        let addresses = pod.addresses(interface)?;
        let address = addresses.first().context("the pod has no address there")?;
        let (node, namespace, tap) = (pod.node, &pod.namespace, plumbing::tap(interface));
        let qemu = node.serve("guest", "ip", |command| {
            command
                .args(["netns", "exec", namespace, "qemu-system-x86_64"])
                .args(words!(
                    "-accel tcg -m 128 -nodefaults -no-user-config -no-reboot -display none"
                ))
                .args(words!(
                    "-netdev tap,id=lan,ifname={tap},script=no,downscript=no"
                ))
                .args(words!(
                    "-device virtio-net-pci,netdev=lan,romfile= -serial stdio"
                ))
                .args([OsStr::new("-kernel"), kernel.as_ref()])
                .args([OsStr::new("-initrd"), files.as_ref(), OsStr::new("-append")])
                .arg(format!("console=ttyS0 quiet panic=-1 address={address}"))
        })?;
        let (address, _) = address.split_once('/').context("an address has a length")?;
        sh::until(120, "the guest starts", || {
            let console = fs::read_to_string(node.log("guest"))?;
            ensure!(console.contains(UP), "it has printed {console}");
            Ok(())
        })?;
        Ok(Self {
            address: address.to_owned(),
            qemu,
        })
    }

    /// Begins to send it packets.
    pub(crate) fn ping(&self, node: &Node) -> anyhow::Result<Packets> {
        let _ = fs::remove_file(node.log("ping"));
        let address = &self.address;
        let ping = node.serve("ping", "ping", |command| {
            command.args(words!("-i {PAUSE} {address}"))
        })?;
        Ok(Packets(ping))
    }

    /// Ends the machine, and takes its links out of the pod.
    pub(crate) fn end(self, pod: &Plumbing, interface: &str) -> anyhow::Result<()> {
        pod.node.end(&self.qemu, "KILL")?;
        pod.disconnect(interface)
    }
}

/// Packets that are sent to a machine.
pub(crate) struct Packets(Service);

impl Packets {
    /// Ends them; fails unless each was answered.
    pub(crate) fn end(self, node: &Node) -> anyhow::Result<()> {
        node.end(&self.0, "INT")?;
        let answered = all_answered(&fs::read_to_string(node.log("ping"))?)?;
        say(&format!("        {answered} packets, each answered"));
        Ok(())
    }
}

/// Writes the archive with the guest's files; returns its path.
fn initial_files(directory: &Path) -> anyhow::Result<PathBuf> {
    let root = directory.join("guest");
    fs::create_dir_all(&root)?;
    fs::copy("/bin/busybox", root.join("busybox"))?;
    fs::write(root.join("init"), INIT)?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
    let mut pack = Command::new("busybox");
    pack.current_dir(&root).args(words!("cpio -o -H newc"));
    let archive = sh::output(&mut pack, b"busybox\ninit\n")?.stdout;
    let path = directory.join("guest.cpio");
    fs::write(&path, archive)?;
    Ok(path)
}

/// Returns how many packets were answered; fails when the answer of one is missing. `log` is what ping has printed until it was
/// interrupted, which the last packets' answers came too late for.
fn all_answered(log: &str) -> anyhow::Result<usize> {
    let number = |line: &str| -> Option<usize> {
        let (_, rest) = line.split_once(" bytes from ")?.1.split_once("icmp_seq=")?;
        rest.split(' ').next()?.parse().ok()
    };
    let answered: BTreeSet<_> = log.lines().filter_map(number).collect();
    let sent = log.lines().find_map(|line| {
        let (count, _) = line.split_once(" packets transmitted")?;
        count.parse::<usize>().ok()
    });
    let sent = sent.context("ping has printed no count")?;
    let last = *answered.last().context("no packet was answered")?;
    ensure!(
        sent - last <= MOST_UNDER_WAY,
        "none of the last {} packets was answered",
        sent - last
    );
    let missing: Vec<_> = (1..last).filter(|one| !answered.contains(one)).collect();
    ensure!(
        missing.is_empty(),
        "of {sent} packets these were lost: {missing:?}"
    );
    Ok(answered.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(answered: &[usize], sent: usize) -> String {
        let line = |one| format!("64 bytes from 10.20.0.2: icmp_seq={one} ttl=64 time=0.9 ms\n");
        let lines: String = answered.iter().map(line).collect();
        format!(
            "PING 10.20.0.2 (10.20.0.2) 56(84) bytes of data.\n{lines}\n{sent} packets transmitted, 9 received, 1% packet loss\n"
        )
    }

    #[test]
    fn packet_without_an_answer_is_found() {
        assert_eq!(all_answered(&log(&[1, 3, 2], 4)).unwrap(), 3);
        let error = all_answered(&log(&[1, 2, 4], 4)).unwrap_err().to_string();
        assert_eq!(error, "of 4 packets these were lost: [3]");
        let error = all_answered(&log(&[1, 2], 60)).unwrap_err().to_string();
        assert_eq!(error, "none of the last 58 packets was answered");
        all_answered(&log(&[], 4)).unwrap_err();
    }
}
