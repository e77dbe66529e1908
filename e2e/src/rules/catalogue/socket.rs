//! Section 4: the daemon's interface on the unix socket.

use super::{Rule, fix, must, should};

pub(super) const RULES: &[Rule] = &[
    must("mux-4-socket-mode", "the socket has mode 0600"),
    must(
        "mux-4-directory-mode",
        "the socket's directory has mode 0700",
    ),
    fix(
        "mux-4-directory-kept",
        "of what lies in the socket's directory, only the own socket is replaced",
    ),
    must(
        "mux-4-cni",
        "POST /cni serves the verbs: 200, or 400 for any error",
    ),
    must("mux-4-methods", "other methods get 405 with a text"),
    must(
        "mux-4-healthz",
        "/healthz answers GET and POST with 200 and nothing",
    ),
    must(
        "mux-4-readyz",
        "/readyz answers GET and POST with 200 while ADD can be served",
    ),
    must("mux-4-not-found", "any other path gets 404"),
    must(
        "mux-4-typed-error",
        "a typed error is JSON with code, msg and details",
    ),
    must("mux-4-error-words", "an error names the pod and the cause"),
    should(
        "mux-4-errored",
        "an error that is text, not typed, names container, network namespace and interface before the word ERRORED",
    ),
    must("mux-4-close", "a connection serves one request"),
    must(
        "mux-4.1-request",
        "a request is env and config, the latter as base64",
    ),
    should(
        "mux-4.1-interface-attributes",
        "/cni passes over interfaceAttributes",
    ),
    must(
        "mux-4.2-result",
        "the answer to ADD is an object with the key Result, in CNI 1.1.0",
    ),
    must(
        "mux-4.2-empty",
        "other verbs are answered with an empty 200",
    ),
    should(
        "mux-4.3-command",
        "a missing or unknown CNI_COMMAND is refused and named",
    ),
    must(
        "mux-4.3-no-pod",
        "STATUS and GC need no variables about a container",
    ),
    must(
        "mux-4.3-keys",
        "ADD without CNI_ARGS, and so without a pod's name, is refused",
    ),
    fix(
        "mux-4.3-netns",
        "DEL without CNI_NETNS is served as with an empty one",
    ),
    must("mux-4.3-ifname", "without CNI_IFNAME the interface is eth0"),
    fix(
        "mux-4.3-container-id",
        "a container id that leads out of the state directory is refused and touches nothing",
    ),
    fix(
        "mux-4.3-args",
        "CNI_ARGS may end in `;` and hold values with `=`",
    ),
    must(
        "mux-4.3-pod-name",
        "CNI_ARGS must name a pod and its namespace",
    ),
    must(
        "mux-4.3-no-uid",
        "without K8S_POD_UID the pod is found by its name",
    ),
    fix("mux-4.3-no-uid-del", "DEL without K8S_POD_UID needs no pod"),
    must(
        "mux-4.4-overlay",
        "keys of the daemon's file replace those of the request, whole and at the top level",
    ),
    must(
        "mux-4.4-unknown",
        "keys that nobody knows may stand in the daemon's file",
    ),
    should(
        "mux-4.4-readiness",
        "in auto mode the readiness indicator of the request is not waited for",
    ),
];
