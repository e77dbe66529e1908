//! `bundle --base` and `apply`: a delta takes a medium to the next one, and the harm that is named.

use std::fs;

use airgap::tree::Tree;

use crate::{
    program::{FAILED, command, refused, succeeds, text},
    sample,
};

#[test]
fn delta_of_two_releases_makes_the_next_medium() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let [former, next, delta] = ["former", "next", "delta"].map(path);
    sample::write(&former, "5.0.0");
    sample::release("5.0.1", sample::COMMIT, "new")
        .write_new(&next)
        .unwrap();
    // The one side as a release, the other as what is on the nodes.
    let medium = former.join("airgap");
    let args = [
        "bundle",
        text(&next),
        "--base",
        text(&medium),
        "--out",
        text(&delta),
    ];
    succeeds(command(&args));
    let checked = succeeds(command(&["verify", text(&delta)]));
    assert!(
        checked.contains(
            "multus-airgap-delta-arm.tar.zst: 1 image for arm, sound; `multus-airgap apply`"
        ),
        "{checked}"
    );
    let explained = succeeds(command(&["explain", text(&delta)]));
    assert!(
        explained.contains("delta to a former release's archive for arm, "),
        "{explained}"
    );
    let out = path("applied");
    let apply = |base: &str, delta: &str, out: &str| {
        command(&["apply", delta, "--base", base, "--out", out])
    };
    succeeds(apply(text(&former), text(&delta), text(&out)));
    let expected = Tree::read(&next.join("airgap")).unwrap();
    assert_eq!(Tree::read(&out).unwrap(), expected);
    // A medium with deltas has no images to push.
    let expected = "is a delta: make the archives of it with `multus-airgap apply`";
    refused(
        command(&["push", text(&delta), "r.example"]),
        FAILED,
        expected,
    );
    let never = path("never");
    let next_medium = next.join("airgap");
    refused(
        apply(text(&next_medium), text(&delta), text(&never)),
        FAILED,
        "the delta is for the archive",
    );
    let piece = delta.join("multus-airgap-delta-amd64.tar.zst");
    sample::damage(&piece);
    refused(
        apply(text(&medium), text(&delta), text(&never)),
        FAILED,
        "multus-airgap-delta-amd64.tar.zst is not the file that sha256sum-amd64.txt names",
    );
    refused(
        apply(text(&medium), text(&piece), text(&never)),
        FAILED,
        "damaged",
    );
    fs::remove_file(delta.join("sha256sum-amd64.txt")).unwrap();
    fs::remove_file(delta.join("sha256sum-arm.txt")).unwrap();
    refused(
        apply(text(&medium), text(&delta), text(&never)),
        FAILED,
        "holds no sha256sum-<architecture>.txt",
    );
    assert!(!never.exists());
}
