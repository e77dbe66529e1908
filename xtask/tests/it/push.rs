//! `airgap push`, and the names that it refuses before it sends anything.

use std::{fs, path::Path, process::Command};

use archive::{
    layout::Layout,
    oci::{self, Index, Manifest},
};

use testkit::http_server::{Request, Server, response, without_proxies};

use crate::{
    bad_input::{FAILED, output, refused, xtask},
    chart::published,
};

/// Responds as a registry that has nothing, accepts everything and requires no login.
fn accept(request: &Request) -> Vec<u8> {
    match request.method.as_str() {
        "HEAD" => response("404 Not Found", b""),
        "POST" => response("202 Accepted\r\nLocation: /upload?state=1", b""),
        _ => response("201 Created", b""),
    }
}

/// Starts such a registry.
fn registry() -> Server {
    Server::start(|_, request| accept(request))
}

/// Writes a release with one image of this name, and with a chart.
fn release(dir: &Path, name: &str) {
    let mut layout = Layout::default();
    let config = layout.add(oci::CONFIG, b"{}".to_vec());
    let layer = layout.add(oci::LAYER_GZIP, b"some bytes".to_vec());
    let manifest = oci::to_bytes(&Manifest::of(config, vec![layer]));
    let mut manifest = layout.add(oci::MANIFEST, manifest);
    manifest.platform = Some(oci::Platform {
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        variant: None,
    });
    let index = layout.add(oci::INDEX, oci::to_bytes(&Index::of(vec![manifest])));
    layout.images.push(index.named(name));
    let chart = (
        "charts/assets/c/c-1.0.0.tgz".to_owned(),
        published("c", "1.0.0", &[]),
    );
    let files = layout.files().into_iter();
    let files = files.map(|(path, bytes)| (format!("oci/{path}"), bytes));
    for (path, bytes) in files.chain([chart]) {
        let path = dir.join("dist").join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a directory of the test");
        fs::write(path, bytes).expect("a directory of the test");
    }
}

fn push(dir: &Path, args: &[&str]) -> Command {
    let args = [&["airgap", "push", "--plain-http"], args].concat();
    let mut command = without_proxies(xtask(dir, &args));
    command
        .env_remove("REGISTRY_AUTH_FILE")
        .env("DOCKER_CONFIG", dir.join("docker"));
    command
}

#[test]
fn charts_go_below_the_named_repository() {
    let dir = tempfile::tempdir().unwrap();
    release(dir.path(), "r.example/x/y:v1");
    for (path, args, chart) in [
        ("", &[][..], Some("charts/c")),
        ("/team", &[], Some("team/charts/c")),
        ("/team", &["--charts-to", "helm/own"], Some("helm/own/c")),
        ("/team", &["--images-only"], None),
    ] {
        let server = registry();
        let to = format!("{}{path}", server.host());
        let (status, stderr) = output(push(dir.path(), &[&[to.as_str()], args].concat()));
        assert_eq!(status, 0, "{stderr}");
        let image = format!("/v2{path}/x/y/manifests/v1");
        let chart = chart.map(|chart| format!("/v2/{chart}/manifests/1.0.0"));
        let put = server.requests().into_iter();
        let put = put.filter(|one| one.method == "PUT" && one.target.contains("/manifests/"));
        let mut put: Vec<_> = put.map(|one| one.target).collect();
        put.retain(|target| !target.contains("sha256:"));
        assert_eq!(
            put,
            [Some(image), chart]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        );
        let uploads = server.requests().into_iter();
        let mut uploads = uploads.filter(|one| one.target.starts_with("/upload"));
        assert!(uploads.all(|one| one.target.starts_with("/upload?state=1&digest=sha256%3A")));
    }
    // Images alone need no charts in the release.
    fs::remove_dir_all(dir.path().join("dist/charts")).unwrap();
    let server = registry();
    let (status, stderr) = output(push(dir.path(), &["--images-only", server.host()]));
    assert_eq!(status, 0, "{stderr}");
    let expected = ["cannot read charts from dist"];
    refused(push(dir.path(), &[server.host()]), FAILED, &expected);
}

#[test]
fn malformed_names_are_refused_before_a_request() {
    let (dir, server) = (tempfile::tempdir().unwrap(), registry());
    release(dir.path(), "r.example/x/y:v1");
    let at = server.host();
    let path = |path: &str| format!("{at}/{path}");
    let not_a_repository = "is not a repository: write lower-case letters";
    let long = "x".repeat(250);
    for (args, expected) in [
        (
            &["me@r.example"][..],
            "`me@r.example` in me@r.example is not",
        ),
        (&["r.example:port/x"], "write HOST or HOST:PORT"),
        (&[&path("Team")], "`Team` in REGISTRY is not a repository"),
        (&[&path("a//b")], not_a_repository),
        (&[&path("a:v1")], not_a_repository),
        (&[&path("a?b")], not_a_repository),
        (
            &[at, "--charts-to", "../charts"],
            "`../charts` in --charts-to is not",
        ),
        (&[at, "--charts-to", ""], not_a_repository),
        (&[&path(&long)], "is too long, or not the name of an image"),
    ] {
        refused(push(dir.path(), args), FAILED, &[expected]);
    }
    release(dir.path(), "r.example/X:v1");
    let expected = ["`r.example/X:v1` is not the name of an image: write HOST"];
    refused(push(dir.path(), &[at]), FAILED, &expected);
    assert_eq!(server.targets(), [""; 0]);
}

/// Adds a list of what is inside of the image `y` for amd64, which names a manifest.
fn add_list(dir: &Path, subject: &str) {
    let path = dir.join("dist/sbom/amd64/image-y.cdx.json");
    fs::create_dir_all(path.parent().expect("it has one")).expect("a directory of the test");
    fs::write(path, format!("list {subject}")).expect("a directory of the test");
}

#[test]
fn lists_of_what_is_inside_are_attached_to_the_image() {
    let dir = tempfile::tempdir().unwrap();
    release(dir.path(), "r.example/x/y:v1");
    let layout = Layout::read(&dir.path().join("dist/oci")).unwrap();
    let index: Index = oci::from_bytes(&layout.blobs[&layout.images[0].digest]).unwrap();
    let subject = index.manifests[0].digest;
    // Those of another image are not attached to this one.
    add_list(dir.path(), &"0".repeat(64));
    let server = registry();
    let args = ["--images-only", server.host()];
    let (status, stderr) = output(push(dir.path(), &args));
    assert_eq!(status, 0, "{stderr}");
    assert!(!server.targets().iter().any(|one| one.contains("referrers")));
    add_list(dir.path(), &subject.hex());
    for has_api in [false, true] {
        let server = Server::start(move |_, request| {
            let lists = request.target.contains("/referrers/");
            match request.method.as_str() {
                "GET" if lists && has_api => response("200 OK", b"{}"),
                "GET" => response("404 Not Found", b""),
                _ => accept(request),
            }
        });
        let args = ["--images-only", server.host()];
        let (status, stderr) = output(push(dir.path(), &args));
        assert_eq!(status, 0, "{stderr}");
        let put = server.requests().into_iter();
        let put = put.filter(|one| one.method == "PUT" && one.target.contains("/manifests/"));
        let put: Vec<_> = put.collect();
        let attached = put.iter().filter(|one| {
            let text = String::from_utf8_lossy(&one.body);
            text.contains(&format!("\"digest\":\"{subject}\"")) && text.contains("\"subject\":")
        });
        let bodies: Vec<_> = attached
            .map(|one| String::from_utf8_lossy(&one.body).into_owned())
            .collect();
        assert_eq!(bodies.len(), 1);
        assert!(bodies[0].contains("\"artifactType\":\"application/vnd.cyclonedx+json\""));
        let tag = format!("/v2/x/y/manifests/sha256-{}", subject.hex());
        let index = put.iter().find(|one| one.target == tag);
        assert_eq!(index.is_some(), !has_api);
        if let Some(index) = index {
            let index = String::from_utf8_lossy(&index.body);
            for body in &bodies {
                let digest = archive::digest::sha256(body.as_bytes()).to_string();
                assert!(index.contains(&digest), "{index}");
            }
        }
    }
}
