//! The daemon's socket.

use super::{
    Source::{Cni, LaterUpstream, Ours, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "socket",
    title: "The daemon's socket",
    introduction: "The daemon serves HTTP on the unix socket `multus.sock`. The cases use it without a shim.",
    rules: &[
        must("socket.mode", "The socket has mode 0600.", Upstream),
        must(
            "socket.directory-mode",
            "The socket's directory has mode 0700.",
            Upstream,
        ),
        fix(
            "socket.foreign-files",
            "At its start the daemon replaces its own socket and no other file in that directory.",
            Ours,
        ),
        should(
            "socket.connection-limit",
            "`connectionLimit` bounds the connections that are served at the same time.",
            Upstream,
        ),
        must("socket.close", "A connection serves one request.", Upstream),
        must(
            "socket.cni",
            "`POST /cni` serves the CNI verbs, with status 200 on success and 400 on any error.",
            Upstream,
        ),
        must(
            "socket.methods",
            "A method that a path does not have gets status 405 and a text.",
            Upstream,
        ),
        must(
            "socket.not-found",
            "A path that the daemon does not have gets status 404.",
            Upstream,
        ),
        must(
            "socket.healthz",
            "`/healthz` answers `GET` and `POST` with status 200 and no body.",
            Upstream,
        ),
        must(
            "socket.readyz",
            "`/readyz` answers `GET` and `POST` with status 200 while `ADD` can be served.",
            LaterUpstream,
        ),
        must(
            "socket.request",
            "A request to `/cni` is an object with `env`, the environment, and `config`, the configuration as base64.",
            Upstream,
        ),
        should(
            "socket.interface-attributes",
            "`/cni` ignores `interfaceAttributes`.",
            Upstream,
        ),
        must(
            "socket.result",
            "The answer to `ADD` is an object with the key `Result`, a result of CNI 1.1.0.",
            Upstream,
        ),
        must(
            "socket.empty-answer",
            "The answer to `DEL`, `CHECK`, `GC` and `STATUS` has status 200 and no body.",
            Upstream,
        ),
        should(
            "socket.command",
            "A request whose `CNI_COMMAND` is missing or unknown is refused, and the error names it.",
            Upstream,
        ),
        must(
            "socket.no-container",
            "`STATUS` and `GC` need no variables of a container.",
            Cni("SPEC 1.1.0, section 2: CNI operations"),
        ),
        must(
            "socket.missing-args",
            "`ADD` without `CNI_ARGS` is refused.",
            Upstream,
        ),
        must(
            "socket.pod-name",
            "`CNI_ARGS` must name a pod and its namespace.",
            Upstream,
        ),
        fix(
            "socket.args-syntax",
            "`CNI_ARGS` may end with `;`, and its values may hold `=`.",
            Ours,
        ),
        must(
            "socket.no-uid",
            "Without `K8S_POD_UID` the pod is found by its name.",
            Upstream,
        ),
        fix(
            "socket.no-uid-del",
            "`DEL` without `K8S_POD_UID` succeeds when the pod no longer exists.",
            Cni("SPEC 1.1.0, section 2: DEL"),
        ),
        fix(
            "socket.no-netns-del",
            "`DEL` without `CNI_NETNS` is served like one with an empty `CNI_NETNS`.",
            Cni("SPEC 1.1.0, section 2: DEL"),
        ),
        must(
            "socket.no-interface",
            "Without `CNI_IFNAME` the interface is `eth0`.",
            Upstream,
        ),
        fix(
            "socket.container-id",
            "A container ID that leads out of the state directory is refused, and no file is written or removed.",
            Cni("SPEC 1.1.0, section 2: Parameters"),
        ),
    ],
};
