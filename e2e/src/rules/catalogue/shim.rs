//! Sections 2 and 3: what every call of a plugin begins with, and the shim.

use super::{Rule, fix, must, should};

pub(super) const RULES: &[Rule] = &[
    should(
        "mux-2-version-flag",
        "-v and --version print one line that begins with the program's name, exit status 0",
    ),
    should(
        "mux-2-no-command",
        "without CNI_COMMAND: who it is and what it speaks on stderr, nothing on stdout, exit status 0",
    ),
    must(
        "mux-2-env",
        "missing variables are named together in one error of code 4",
    ),
    must(
        "mux-2-container-id",
        "a container id begins with a letter or digit and holds letters, digits, `_`, `.`, `-`",
    ),
    must(
        "mux-2-ifname",
        "an interface name has 1 to 15 characters without `/`, `:` and blanks, and is neither `.` nor `..`",
    ),
    must(
        "mux-2-netns",
        "CNI_NETNS is needed by ADD and CHECK, not by DEL, GC and STATUS",
    ),
    must(
        "mux-2-stdin",
        "a configuration that is no JSON is refused with code 6",
    ),
    must(
        "mux-2-name",
        "a configuration without a valid name is refused with code 7",
    ),
    must(
        "mux-2-cni-version",
        "an unknown cniVersion is refused with code 1",
    ),
    must(
        "mux-2-verb-version",
        "CHECK wants cniVersion 0.4.0, GC and STATUS want 1.1.0; less is refused with code 1",
    ),
    must(
        "mux-2-version",
        "VERSION is answered without configuration and without a daemon",
    ),
    must(
        "mux-2-error",
        "a failure is one JSON document with code and msg on stdout, exit status 1",
    ),
    fix(
        "mux-2-own-netns",
        "a shim inside CNI_NETNS refuses with code 8, and stdout holds one document",
    ),
    must(
        "mux-3.1-socket-dir",
        "daemonSocketDir says where the socket is",
    ),
    should(
        "mux-3.1-log-file",
        "logFile and logLevel say where the shim logs to",
    ),
    must(
        "mux-3.1-untouched",
        "all other keys reach the daemon untouched",
    ),
    should(
        "mux-3.2-wait",
        "ADD, CHECK and GC wait for a daemon that is on its way",
    ),
    must(
        "mux-3.2-healthz",
        "a daemon that knows no /readyz is used all the same",
    ),
    fix(
        "mux-3.2-del",
        "DEL without a daemon is written down, and made up for by the next daemon",
    ),
    must(
        "mux-3.2-del-succeeds",
        "DEL without a daemon does not keep the pod from going",
    ),
    must(
        "mux-3.3-request",
        "environment and configuration reach the daemon as they are",
    ),
    must(
        "mux-3.4-fragment",
        "errors say which verb of the shim failed, in the words that operators look for",
    ),
    fix(
        "mux-3.4-code",
        "codes and details of plugins reach the runtime",
    ),
    fix(
        "mux-3.4-del-error",
        "a DEL that failed in the daemon is not called a success",
    ),
    must(
        "mux-3.4-silent",
        "CHECK, DEL, GC and STATUS print nothing when they succeed",
    ),
    must(
        "mux-3.4-result-version",
        "ADD prints its result in the cniVersion of the configuration",
    ),
    fix(
        "mux-3.4-result-fields",
        "a result holds no fields that its version does not know",
    ),
    fix(
        "mux-3.4-empty",
        "an empty answer to ADD is refused, not crashed on",
    ),
];
