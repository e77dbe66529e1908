//! Section 12: state, DEL, CHECK, STATUS and GC.

use super::{Rule, fix, must, should};

pub(super) const RULES: &[Rule] = &[
    must(
        "mux-12.1-place",
        "state is a file named by the container, mode 0600, in a directory of mode 0700",
    ),
    must(
        "mux-12.1-form",
        "it is a list with one object per network, in order, with its whole configuration",
    ),
    fix(
        "mux-12.1-lossless",
        "DEL of a list that came from a file has every key that its plugins had at ADD",
    ),
    must(
        "mux-12.1-requests",
        "it keeps requested names and addresses",
    ),
    must(
        "mux-12.1-upstream",
        "state that upstream wrote is torn down",
    ),
    must(
        "mux-12.1-upstream-list",
        "and lists by the bytes that it keeps for them",
    ),
    fix(
        "mux-12.1-runtime-config",
        "DEL gets the runtimeConfig of ADD",
    ),
    fix(
        "mux-12.1-damaged",
        "state that was cut off loses nothing, even with the pod gone",
    ),
    must(
        "mux-12.2-reverse",
        "DEL takes networks in reverse, each with the interface of its ADD",
    ),
    must("mux-12.2-all", "DEL goes on after a failure"),
    must(
        "mux-12.2-restart",
        "a daemon that was killed tears down from what is on disk alone, with the configuration of ADD",
    ),
    must("mux-12.2-alone", "DEL needs neither pod nor definitions"),
    must(
        "mux-12.2-no-netns",
        "DEL works with an empty network namespace",
    ),
    must(
        "mux-12.2-prev-result",
        "DEL hands the cached result to plugins",
    ),
    must(
        "mux-12.2-rebuilt",
        "without state and with the pod, DEL goes by the annotation",
    ),
    must("mux-12.2-nothing", "without state and pod, DEL succeeds"),
    must(
        "mux-12.2-corrupt",
        "state that cannot be read does not keep a pod from going",
    ),
    fix(
        "mux-12.2-corrupt-pod",
        "and what the pod asks for is torn down",
    ),
    fix(
        "mux-12.2-empty-list",
        "state that is an empty list is no crash",
    ),
    must(
        "mux-12.2-changed",
        "DEL goes by the configuration of ADD, whatever the definition says meanwhile",
    ),
    must(
        "mux-12.2-report",
        "errors of all networks are reported together",
    ),
    must("mux-12.3-removed", "DEL takes the state away"),
    must(
        "mux-12.2-version",
        "a list in the state without cniVersion has that of the configuration",
    ),
    must(
        "mux-12.2-cache",
        "a list whose cached result cannot be read is torn down all the same",
    ),
    must(
        "mux-12.3-wish",
        "retryDeleteOnError says whether state stays after a failure",
    ),
    fix(
        "mux-12.3-kept",
        "state stays while a network could not be torn down, for the runtime's next try",
    ),
    must("mux-12.4-twice", "a second DEL succeeds"),
    fix(
        "mux-12.5-check",
        "CHECK asks every network of the pod, in order",
    ),
    fix("mux-12.5-fails", "CHECK fails when a network does"),
    must("mux-12.5-well", "CHECK of a whole pod succeeds"),
    must(
        "mux-12.5-result",
        "CHECK hands the cached result to plugins",
    ),
    must("mux-12.6-master", "STATUS asks the default network alone"),
    must(
        "mux-12.6-old",
        "STATUS of a default network before 1.1.0 succeeds without asking",
    ),
    fix(
        "mux-12.6-code",
        "the code of a STATUS that failed reaches the runtime",
    ),
    fix(
        "mux-12.6-down",
        "STATUS without a daemon fails at once with code 50",
    ),
    must(
        "mux-12.6-missing",
        "STATUS fails where the default network is nowhere",
    ),
    fix(
        "mux-12.7-collect",
        "GC tears down what the runtime does not list",
    ),
    must("mux-12.7-keep", "GC leaves what the runtime lists"),
    must(
        "mux-12.7-no-results",
        "GC on a node without any results succeeds",
    ),
    fix(
        "mux-12.7-told",
        "and its plugins are told what the runtime lists, nothing else",
    ),
    fix(
        "mux-12.7-networks",
        "plugins of other networks are told what of theirs the runtime lists",
    ),
    should(
        "mux-12.7-plugins",
        "GC reaches the default network's plugins",
    ),
];
