//! `bundle`: further images from a registry, next to those of a release.

use std::{fs, process::Command};

use archive::{
    digest::Digest,
    layout::Layout,
    oci::{self, ImageConfig, Index, Manifest, RootFs, RunConfig},
    tar::{self, Entry},
};

use airgap::{arch::Arch, zstd};

use crate::{
    program::{BAD_USAGE, FAILED, command, output, refused, succeeds, text},
    registry::{PASSWORD, Registry, USER},
    sample, signatures,
};

const NAME: &str = "registry.invalid/others/helper:1";

/// Puts an image for these architectures into the registry; returns the digest of its index.
fn publish(registry: &Registry, arches: &[Arch]) -> Digest {
    let mut layout = Layout::default();
    let mut manifests = Vec::new();
    for arch in arches {
        let tar =
            tar::write(&[Entry::file("helper", 0o755, arch.name())]).expect("it has plain paths");
        let config = ImageConfig {
            created: String::new(),
            platform: arch.platform(),
            config: RunConfig::default(),
            rootfs: RootFs {
                kind: "layers".to_owned(),
                diff_ids: vec![archive::digest::sha256(&tar)],
            },
            history: Vec::new(),
        };
        let config = layout.add(oci::CONFIG, oci::to_bytes(&config));
        let layer = layout.add(
            oci::LAYER_ZSTD,
            zstd::compress(&tar, zstd::LAYER).expect("memory takes it"),
        );
        let manifest = oci::to_bytes(&Manifest::of(config, vec![layer]));
        let mut manifest = layout.add(oci::MANIFEST, manifest);
        manifest.platform = Some(arch.platform());
        manifests.push(manifest);
    }
    let index = oci::to_bytes(&Index::of(manifests.clone()));
    let digest = archive::digest::sha256(&index);
    registry.with(|content| {
        let mut put = |name: &str, kind: &str, bytes: &[u8]| {
            let key = ("others/helper".to_owned(), name.to_owned());
            content
                .manifests
                .insert(key, (kind.to_owned(), bytes.to_vec()));
        };
        for manifest in &manifests {
            let bytes = &layout.blobs[&manifest.digest];
            put(&manifest.digest.to_string(), oci::MANIFEST, bytes);
        }
        put("1", oci::INDEX, &index);
        put(&digest.to_string(), oci::INDEX, &index);
        for (digest, bytes) in layout.blobs {
            content.blobs.insert(digest.to_string(), bytes);
        }
    });
    digest
}

/// Returns a bundle as the user of the registry, which is a mirror of any other.
fn bundle(registry: &Registry, args: &[&str]) -> Command {
    let mirror = format!("*={}", registry.host);
    let common = [
        "bundle",
        "--plain-http",
        "--mirror",
        &mirror,
        "--mirror-only",
    ];
    let mut command = command(&[&common[..], &["--user", USER], args].concat());
    command.env("MULTUS_REGISTRY_PASSWORD", PASSWORD);
    command
}

#[test]
fn image_of_a_registry_is_in_archives_and_lists() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    sample::write(&path("dist"), "9.8.7");
    let registry = Registry::start(true);
    let digest = publish(&registry, &sample::ARCHES);
    let (release, medium) = (path("dist"), path("dist/airgap"));
    let list = path("images.txt");
    fs::write(&list, format!("{NAME}\n\n{NAME}\n")).unwrap();
    let pinned = format!("{NAME}@{digest}");
    // A release and its medium have the same images, and a list says the same as an option.
    let [one, other] = ["one", "other"].map(path);
    let args = [text(&release), "--image", &pinned, "--out", text(&one)];
    succeeds(bundle(&registry, &args));
    let store = path("store");
    let store = ["--store", text(&store)];
    let args = [text(&medium), "--list", text(&list), "--out", text(&other)];
    succeeds(bundle(&registry, &[&args[..], &store].concat()));
    let read = |dir| airgap::tree::Tree::read(dir).unwrap();
    assert_eq!(read(&one), read(&other));
    succeeds(command(&["verify", text(&one)]));
    let names = fs::read_to_string(one.join("multus-images.txt")).unwrap();
    assert_eq!(names, format!("{}\n{NAME}\n", sample::image_of("9.8.7")));
    let digests = fs::read_to_string(one.join("multus-images-digests.txt")).unwrap();
    assert!(digests.contains(&pinned), "{digests}");
    let explained = succeeds(command(&["explain", text(&one)]));
    assert!(
        explained.contains("archive of 2 images for arm, "),
        "{explained}"
    );
    // The store has everything of the second run, so the third one connects to nothing.
    let before = registry.with(|content| content.requests.len());
    let third = path("third");
    let args = [text(&medium), "--image", &pinned, "--out", text(&third)];
    succeeds(bundle(&registry, &[&args[..], &store].concat()));
    assert_eq!(registry.with(|content| content.requests.len()), before);
    assert_eq!(read(&third), read(&one));
}

#[test]
fn signed_release_is_verified_before_it_is_bundled_and_keeps_its_signatures() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = sample::release("9.8.7", sample::COMMIT, "");
    signatures::sign(&mut tree);
    tree.write_new(&dir.path().join("dist")).unwrap();
    signatures::write_keys(dir.path());
    let run = |args: &[&str]| {
        let mut command = command(args);
        command.current_dir(dir.path());
        command
    };
    let bundle = |from: &str, out: &str, args: &[&str]| {
        run(&[&["bundle", from, "--out", out], args].concat())
    };
    let key = ["--key", "owner.pub"];
    let both = [&key[..], &["--attested-by", "other.pub"]].concat();
    succeeds(bundle("dist", "all", &both));
    for from in ["dist", "dist/airgap"] {
        let out = format!("arm of {from}").replace('/', " ");
        succeeds(bundle(from, &out, &[&["--arch", "arm"], &key[..]].concat()));
        assert!(!dir.path().join(&out).join("sha256sum-amd64.txt").exists());
        succeeds(run(&[&["verify", &out], &key[..]].concat()));
    }
    succeeds(run(&[&["verify", "all"], &key[..]].concat()));
    // With a further image the checksums are other ones, which nobody signed.
    let registry = Registry::start(true);
    publish(&registry, &sample::ARCHES);
    let mut more = self::bundle(&registry, &["dist", "--image", NAME, "--out", "more"]);
    more.current_dir(dir.path()).args(key);
    let (status, _, stderr) = output(more);
    assert_eq!(status, 0, "{stderr}");
    for arch in ["amd64", "arm"] {
        let note = format!("sha256sum-{arch}.txt is not signed, since it names other files");
        assert!(stderr.contains(&note), "{stderr}");
    }
    // Nothing is made of what is not whole, or not by the named keys.
    let never = |from: &str, args: &[&str], status: i32, expected: &str| {
        refused(bundle(from, "never", args), status, expected);
        assert!(!dir.path().join("never").exists());
    };
    let other = ["--key", "other.pub"];
    never("dist", &other, FAILED, "dist is not to be trusted");
    never(
        "dist/airgap",
        &other,
        FAILED,
        "dist/airgap is not to be trusted",
    );
    never("dist/airgap", &both, BAD_USAGE, "an archive has neither");
    fs::write(dir.path().join("dist/notes"), "").unwrap();
    never("dist", &[], FAILED, "notes is not in SHA256SUMS");
}

#[test]
fn what_cannot_be_bundled_is_named_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path(), "9.8.7");
    let medium = dir.path().join("airgap");
    let medium = text(&medium);
    let registry = Registry::start(true);
    publish(&registry, &[Arch::Amd64]);
    let out = dir.path().join("never");
    let check = |args: &[&str], expected: &str| {
        let args = [&[medium, "--out", text(&out)], args].concat();
        refused(bundle(&registry, &args), FAILED, expected);
        assert!(!out.exists());
    };
    check(&["--image", NAME], "is not made for arm");
    let absent = "registry.invalid/others/absent:1";
    check(
        &["--image", absent],
        "no registry provides registry.invalid/others/absent:1",
    );
    let pinned = format!("{NAME}@{}", archive::digest::sha256(b"other"));
    check(
        &["--image", &pinned],
        "no registry provides registry.invalid/others/helper:1",
    );
    check(
        &["--image", "r.example/X:1"],
        "`r.example/X:1` is not the name of an image",
    );
    check(
        &["--image", &sample::image_of("9.8.7")],
        "has docker.io/multusrs/multus:v9.8.7 already",
    );
    check(
        &["--image", NAME, "--image", &pinned],
        "is named twice, with different digests",
    );
    check(&["--arch", "arm64"], "it has no images for arm64");
    let list = dir.path().join("list");
    fs::write(&list, format!("{NAME}\nA b\n")).unwrap();
    check(
        &["--list", text(&list)],
        "list:2: `A b` is not the name of an image",
    );
    // For the architecture that it is made for, the image is added.
    let args = [
        medium,
        "--arch",
        "amd64",
        "--image",
        NAME,
        "--out",
        text(&out),
    ];
    succeeds(bundle(&registry, &args));
    let files = airgap::tree::Tree::read(&out).unwrap().0;
    assert!(files.keys().all(|name| !name.contains("arm")), "{files:?}");
    let expected = "is not empty: give --out a new directory";
    refused(bundle(&registry, &args), FAILED, expected);
}
