//! `push`: releases, media and archives into a registry with a login.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use airgap::commands::{
    connection::ConnectionOptions,
    push::{Destination, Push},
};
use archive::oci;
use release::source::Source;

use crate::{
    fake_registry::{PASSWORD, Registry, USER},
    program::{BAD_USAGE, FAILED, command, output, refused, succeeds, text},
    sample, signatures,
};

/// Returns a push as the registry's user.
fn push(args: &[&str]) -> Command {
    let args = [&["push", "--plain-http", "--user", USER], args].concat();
    let mut command = command(&args);
    command.env("MULTUS_REGISTRY_PASSWORD", PASSWORD);
    command
}

#[test]
fn release_is_pushed_with_its_charts_and_a_second_push_sends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path(), "9.8.7");
    let registry = Registry::start(true);
    let to = format!("oci://{}/team", registry.host);
    let sent = succeeds(push(&[text(dir.path()), &to]));
    let image = format!("{}/team/multusrs/multus:v9.8.7: ", registry.host);
    assert!(sent.contains(&image), "{sent}");
    assert!(
        sent.contains("/team/charts/k3s-multus-crd:9.8.7: "),
        "{sent}"
    );
    // The lists of what is inside, where clients look in a registry without the API for them.
    let attached = registry.with(|content| {
        let names = content.manifests.keys();
        names.filter(|(_, tag)| tag.starts_with("sha256-")).count()
    });
    assert_eq!(attached, sample::ARCHES.len(), "{sent}");
    let puts = |registry: &Registry| {
        registry.with(|content| {
            let requests = content.requests.iter();
            let is_read = |one: &&String| one.starts_with("HEAD ") || one.starts_with("GET ");
            requests.filter(|one| !is_read(one)).count()
        })
    };
    let before = puts(&registry);
    let again = succeeds(push(&[text(dir.path()), &to, "--json"]));
    assert!(again.starts_with("{\"sent\":0,"), "{again}");
    assert_eq!(puts(&registry), before);
}

/// The options of a push that no program parses.
#[derive(clap::Parser)]
struct Options {
    #[command(flatten)]
    to: Destination,
    #[command(flatten)]
    login: ConnectionOptions,
}

/// Returns the push of a release to a registry without a login.
fn prepared(dist: &Path, registry: &Registry) -> Push {
    let args = ["push", "--plain-http", &registry.host];
    let Options { to, login } = clap::Parser::parse_from(args);
    Push::prepare(&to, &login, &Source::Release(dist.to_owned())).expect("a sound release")
}

#[test]
fn published_names_keep_their_bytes_and_other_tags_move() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sample::write(dir.path(), "9.8.7");
    let registry = Registry::start(false);
    let push = prepared(dir.path(), &registry);
    push.ensure_unpublished().unwrap();
    let none = |_: &BTreeSet<String>| -> Vec<String> { panic!("the image has another tag") };
    assert!(push.retag("v9.8.8", none).unwrap().is_empty());
    push.send().unwrap();
    push.ensure_unpublished().unwrap();
    let tags = ["v9.8", "v9", "latest"].map(str::to_owned).to_vec();
    let moved = push.retag("v9.8.7", |_| tags.clone()).unwrap();
    let expected = ["v9.8", "v9", "latest"];
    let expected = expected.map(|tag| format!("{}/multusrs/multus:{tag}", registry.host));
    assert_eq!(moved, expected);
    // The registry lists them in pages.
    let all = |found: &BTreeSet<String>| -> Vec<String> {
        let is_tag = |tag: &&str| found.contains(*tag);
        let known = ["latest", "v9", "v9.8", "v9.8.7"];
        assert_eq!(
            known.iter().filter(|tag| is_tag(tag)).count(),
            4,
            "{found:?}"
        );
        tags.clone()
    };
    assert!(push.retag("v9.8.7", all).unwrap().is_empty());
    // Without the tags that are there, tags would move back to an older release.
    for (list, words) in [
        ("<html>", "is not a list of tags"),
        (r#"{"tags": ["v1"]}"#, "does not list it"),
        (r#"{"tags": null}"#, "does not list it"),
    ] {
        registry.with(|content| content.tag_list = Some(list));
        let choose = |_: &BTreeSet<String>| -> Vec<String> { panic!("{list}") };
        let error = format!("{:#}", push.retag("v9.8.7", choose).unwrap_err());
        assert!(error.contains(words), "{error}");
    }

    let changed = sample::release("9.8.7", sample::COMMIT, "other bytes");
    changed.write_new(other.path()).unwrap();
    let before = registry.with(|content| content.manifests.len());
    let push = prepared(other.path(), &registry);
    let error = push.ensure_unpublished().unwrap_err().to_string();
    let image = format!("{}/multusrs/multus:v9.8.7 is sha256:", registry.host);
    assert!(
        error.contains(&image) && error.contains("a new version"),
        "{error}"
    );
    assert!(!error.contains("/charts/"), "{error}");
    assert_eq!(registry.with(|content| content.manifests.len()), before);
}

#[test]
fn signed_release_is_pushed_with_its_signatures() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = sample::release("9.8.7", sample::COMMIT, "");
    signatures::sign(&mut tree);
    tree.write_new(dir.path()).unwrap();
    let registry = Registry::start(true);
    let to = format!("{}/team", registry.host);
    // Statements by keys that are not named stay here.
    let keys = tempfile::tempdir().unwrap();
    signatures::write_keys(keys.path());
    let [owner, other] = ["owner.pub", "other.pub"].map(|name| keys.path().join(name));
    let key = ["--key", text(&owner)];
    let trust = [&key[..], &["--attested-by", text(&other)]].concat();
    let one = Registry::start(true);
    let mut by_owner = push(&[text(dir.path()), &one.host]);
    by_owner.args(key);
    let (status, _, stderr) = output(by_owner);
    assert_eq!(status, 0, "{stderr}");
    assert!(
        stderr.contains(".sigstore.json is not sent: name the key"),
        "{stderr}"
    );
    let statements = |registry: &Registry, path: &str| {
        registry.with(|content| {
            let find = |tag: &str| {
                let key = (format!("{path}multusrs/multus"), tag.to_owned());
                content.manifests[&key].1.clone()
            };
            let image = archive::digest::sha256(&find("v9.8.7"));
            let attached = find(&format!("sha256-{}", image.hex()));
            let attached: oci::Index = oci::from_bytes(&attached).unwrap();
            attached.manifests.len()
        })
    };
    assert_eq!(statements(&one, ""), 2);
    let unchecked = Registry::start(true);
    succeeds(push(&[text(dir.path()), &unchecked.host]));
    assert_eq!(statements(&unchecked, ""), 1);
    let sent = succeeds(push(&[&[text(dir.path()), &to][..], &trust].concat()));
    assert!(sent.contains("signatures of "), "{sent}");
    assert_eq!(statements(&registry, "team/"), 3);
    registry.with(|content| {
        let find = |repository: &str, tag: &str| {
            let key = (repository.to_owned(), tag.to_owned());
            content.manifests[&key].1.clone()
        };
        for (repository, tag, statements) in [
            ("team/multusrs/multus", "v9.8.7", 3),
            ("team/charts/k3s-multus", "9.8.7", 1),
        ] {
            let signed = archive::digest::sha256(&find(repository, tag));
            let signature = format!("sha256-{}.sig", signed.hex());
            let signature: oci::Manifest = oci::from_bytes(&find(repository, &signature)).unwrap();
            let annotations = &signature.layers[0].annotations;
            assert!(annotations.contains_key("dev.cosignproject.cosign/signature"));
            let path = format!("signatures/{}.json", signed.hex());
            let payload = archive::digest::sha256(tree.get(&path).unwrap());
            assert_eq!(signature.layers[0].digest, payload);
            // The signature, and the statement of each builder about an image.
            let attached = find(repository, &format!("sha256-{}", signed.hex()));
            let attached: oci::Index = oci::from_bytes(&attached).unwrap();
            assert_eq!(attached.manifests.len(), statements, "{repository}");
        }
        let chart = find("team/charts/k3s-multus", "9.8.7");
        let chart: oci::Manifest = oci::from_bytes(&chart).unwrap();
        assert_eq!(chart.layers[1].media_type, chart::oci::PROVENANCE);
    });
    let again = push(&[&[text(dir.path()), &to, "--json"][..], &trust].concat());
    let again = succeeds(again);
    assert!(again.starts_with("{\"sent\":0,"), "{again}");
    // A second signature of the image stays next to the one of others.
    let image = tree
        .0
        .keys()
        .find(|path| path.ends_with(".json.sig"))
        .unwrap();
    fs::write(dir.path().join(image), "QUJD\n").unwrap();
    succeeds(push(&[text(dir.path()), &to]));
    let layers = registry.with(|content| {
        let manifests = content.manifests.iter();
        let tags = manifests.filter(|((_, tag), _)| tag.rsplit('.').next() == Some("sig"));
        let count = |bytes: &[u8]| {
            oci::from_bytes::<oci::Manifest>(bytes)
                .unwrap()
                .layers
                .len()
        };
        tags.map(|(_, (_, bytes))| count(bytes)).max()
    });
    assert_eq!(layers, Some(2));
}

#[test]
fn medium_is_pushed_with_the_indexes_of_the_release() {
    let dir = tempfile::tempdir().unwrap();
    let tree = sample::write(dir.path(), "9.8.7");
    let medium = dir.path().join("airgap");
    let registry = Registry::start(true);
    let (status, _, stderr) = output(push(&[text(&medium), &registry.host]));
    assert_eq!(status, 0, "{stderr}");
    assert!(!stderr.contains("digest"), "{stderr}");
    let pushed = |registry: &Registry| {
        registry.with(|content| {
            let key = ("multusrs/multus".to_owned(), "v9.8.7".to_owned());
            content.manifests[&key].clone()
        })
    };
    let (kind, index) = pushed(&registry);
    assert_eq!(kind, oci::INDEX);
    let list = tree.get("airgap/multus-images-digests.txt").unwrap();
    let digest = archive::digest::sha256(&index);
    let expected = format!("{}@{digest}\n", sample::image_of("9.8.7"));
    assert_eq!(String::from_utf8_lossy(list), expected);
    // With the files of one architecture, the index has this one alone, and a line says so.
    for name in [
        "multus-airgap-images-amd64.tar",
        "sha256sum-amd64.txt",
        "multus-airgap-amd64",
        "multus-images.linux-amd64.txt",
        "multus-images-digests.linux-amd64.txt",
        "rke2/rke2-images-multus.linux-amd64.txt",
    ] {
        fs::remove_file(medium.join(name)).unwrap();
    }
    let (status, _, stderr) = output(push(&[text(&medium), &registry.host]));
    assert_eq!(status, 0, "{stderr}");
    assert!(
        stderr.contains("the digest is not the one of multus-images-digests.txt"),
        "{stderr}"
    );
    let index: oci::Index = oci::from_bytes(&pushed(&registry).1).unwrap();
    assert_eq!(index.manifests.len(), 1);
    assert_eq!(
        index.manifests[0].platform.as_ref().unwrap().architecture,
        "arm"
    );
    // An archive alone is pushed as it is.
    let archive = medium.join(sample::archive(sample::ARCHES[1]));
    succeeds(push(&[text(&archive), &registry.host]));
    assert_eq!(pushed(&registry).0, oci::MANIFEST);
}

#[test]
fn harm_and_missing_logins_are_named_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path(), "9.8.7");
    let medium = dir.path().join("airgap");
    let registry = Registry::start(true);
    let anonymous = command(&["push", text(&medium), &registry.host, "--plain-http"]);
    refused(
        anonymous,
        FAILED,
        "give --user and MULTUS_REGISTRY_PASSWORD",
    );
    let mut wrong = push(&[text(&medium), &registry.host]);
    wrong.env("MULTUS_REGISTRY_PASSWORD", "not the word");
    let (status, _, stderr) = output(wrong);
    assert_eq!(status, FAILED);
    assert!(
        stderr.contains("with this password") && !stderr.contains("not the word"),
        "{stderr}"
    );
    let mut unset = push(&[text(&medium), &registry.host]);
    unset.env_remove("MULTUS_REGISTRY_PASSWORD");
    let expected = "--user requires its password in MULTUS_REGISTRY_PASSWORD";
    refused(unset, FAILED, expected);
    let usage = push(&[text(&medium), &registry.host, "--charts-to", "helm"]);
    refused(usage, BAD_USAGE, "--charts-to is for a release");
    let expected = "`Team` in REGISTRY is not a repository";
    let to = format!("{}/Team", registry.host);
    refused(push(&[text(&medium), &to]), FAILED, expected);
    let archive = sample::archive(sample::ARCHES[0]);
    sample::damage(&medium.join(&archive));
    let expected = format!("{archive} is not the file that sha256sum-amd64.txt names");
    refused(push(&[text(&medium), &registry.host]), FAILED, &expected);
    // Of a release every file is compared with what describes it, and none is sent that it does not name.
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path(), "9.8.7");
    let theirs = dir.path().join("charts/assets/evil");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("evil-1.0.0.tgz"), "x").unwrap();
    let release = || push(&[text(dir.path()), &registry.host]);
    refused(release(), FAILED, "charts/assets/evil/evil-1.0.0.tgz");
    fs::remove_dir_all(theirs).unwrap();
    let mut signed = release();
    let keys = tempfile::tempdir().unwrap();
    crate::signatures::write_keys(keys.path());
    signed.args(["--key", text(&keys.path().join("owner.pub"))]);
    refused(signed, FAILED, "is not to be trusted");
    let blobs = dir.path().join("oci/blobs/sha256");
    let blob = fs::read_dir(&blobs).unwrap().next().unwrap().unwrap();
    sample::damage(&blob.path());
    let expected = blob.file_name().to_string_lossy().into_owned();
    refused(release(), FAILED, &expected);
    assert_eq!(registry.with(|content| content.requests.clone()), [""; 0]);
}
