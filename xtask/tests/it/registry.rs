//! `airgap pull` from a registry on loopback that is busy, requires a login, or is behind a proxy.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

use archive::{
    digest::Digest,
    layout::Layout,
    oci::{self, Index, Manifest, Platform},
};

use crate::{
    bad_input::{FAILED, output, refused, xtask},
    server::{Request, Server, response, without_proxies},
};

/// An image for one architecture, and the digest of its index.
struct Image {
    layout: Layout,
    digest: Digest,
}

impl Image {
    fn new() -> Self {
        let mut layout = Layout::default();
        let config = layout.add(oci::CONFIG, b"{}".to_vec());
        let layer = layout.add(oci::LAYER_GZIP, b"some bytes".to_vec());
        let manifest = oci::to_bytes(&Manifest::of(config, vec![layer]));
        let mut manifest = layout.add(oci::MANIFEST, manifest);
        manifest.platform = Some(Platform {
            architecture: "amd64".to_owned(),
            os: "linux".to_owned(),
            variant: None,
        });
        let index = layout.add(oci::INDEX, oci::to_bytes(&Index::of(vec![manifest])));
        let digest = index.digest;
        Self { layout, digest }
    }

    /// Responds as a registry that requires no login.
    fn respond(&self, target: &str) -> Vec<u8> {
        let path = target.split("://").last().unwrap_or_default();
        let path = &path[path.find('/').unwrap_or_default()..];
        if path == "/v2/" {
            return response("200 OK", b"{}");
        }
        let digest = path.rsplit('/').next().and_then(|word| word.parse().ok());
        let Some(bytes) = digest.and_then(|digest| self.layout.blobs.get(&digest)) else {
            return response("404 Not Found", b"");
        };
        let kind = if digest == Some(self.digest) {
            oci::INDEX
        } else {
            oci::MANIFEST
        };
        response(&format!("200 OK\r\nContent-Type: {kind}"), bytes)
    }
}

/// Fetches the image that the registry has, into an empty store.
fn pull(dir: &Path, host: &str, args: &[&str]) -> Command {
    let image = Image::new();
    let line = format!("core {host}/x/y:1 {}\n", image.digest);
    fs::write(dir.join("images.lock"), line).expect("a directory of the test");
    let _ = fs::remove_dir_all(dir.join("store"));
    let common = [
        "airgap",
        "pull",
        "--lock",
        "images.lock",
        "--store",
        "store",
        "--arch",
        "amd64",
    ];
    let mut command = without_proxies(xtask(dir, &[&common, args].concat()));
    command
        .env_remove("REGISTRY_AUTH_FILE")
        .env("DOCKER_CONFIG", dir.join("docker"));
    command
}

#[track_caller]
fn succeeds(command: Command) {
    let (status, stderr) = output(command);
    assert_eq!(status, 0, "{stderr}");
}

fn host(server: &Server) -> String {
    server.base.replace("http://", "")
}

/// Starts a registry that refuses one request, and says for how long it is busy.
fn busy(status: &'static str, seconds: &'static str) -> Server {
    let (image, manifests) = (Image::new(), AtomicUsize::new(0));
    Server::start(move |_, request| {
        let is_manifest = request.target.contains("/manifests/");
        // The refusal, and the request by which the client learns how long it lasts.
        if is_manifest && manifests.fetch_add(1, SeqCst) < 2 {
            return response(&format!("{status}\r\nRetry-After: {seconds}"), b"");
        }
        image.respond(&request.target)
    })
}

#[test]
fn busy_registry_is_retried_after_the_time_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let (server, start) = (busy(status, "1"), Instant::now());
        succeeds(pull(dir.path(), &host(&server), &["--plain-http"]));
        assert!(start.elapsed() >= Duration::from_secs(1), "{status}");
        let requests = server.requests();
        let methods = requests
            .iter()
            .filter(|one| one.target.contains("/manifests/"))
            .map(|one| one.method.as_str());
        assert_eq!(methods.collect::<Vec<_>>(), ["GET", "HEAD", "GET", "GET"]);
    }
    let (server, start) = (busy("429 Too Many Requests", "3600"), Instant::now());
    let expected = ["is busy for 3600 s more"];
    refused(
        pull(dir.path(), &host(&server), &["--plain-http"]),
        FAILED,
        &expected,
    );
    assert!(start.elapsed() < Duration::from_secs(30));
}

/// Starts a registry that requires the login `me` with the password `word`.
fn closed() -> Server {
    let image = Image::new();
    Server::start(move |_, request: &Request| {
        if request.authorization.as_deref() == Some("Basic bWU6d29yZA==") {
            return image.respond(&request.target);
        }
        let wanted = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"test\"";
        response(wanted, b"{}")
    })
}

/// Writes a credential helper that has one login.
fn helper(dir: &Path, server: &str) {
    let path = dir.join("bin/docker-credential-keeper");
    fs::create_dir_all(dir.join("bin")).expect("a directory of the test");
    fs::create_dir_all(dir.join("docker")).expect("a directory of the test");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = get ] || exit 2\ncase \"$(cat)\" in\n{server}) echo '{{\"Username\": \"me\", \"Secret\": \"word\"}}';;\n*) echo 'credentials not found in native keychain'; exit 1;;\nesac\n"
    );
    fs::write(&path, script).expect("a directory of the test");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a directory of the test");
}

#[test]
fn credential_helpers_provide_logins() {
    let (dir, server) = (tempfile::tempdir().unwrap(), closed());
    let host = host(&server);
    helper(dir.path(), &host);
    let with = |config: &str| {
        fs::write(dir.path().join("docker/config.json"), config).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = dir.path().join("bin");
        let mut command = pull(dir.path(), &host, &["--plain-http"]);
        command.env("PATH", format!("{}:{path}", bin.display()));
        command
    };
    succeeds(with(&format!(
        r#"{{"credHelpers": {{"{host}": "keeper"}}}}"#
    )));
    succeeds(with(r#"{"credsStore": "keeper"}"#));
    let hint = ["give --user and MULTUS_REGISTRY_PASSWORD"];
    refused(with("{}"), FAILED, &hint);
    // The helper has a login, but not for this registry.
    helper(dir.path(), "other.example");
    refused(with(r#"{"credsStore": "keeper"}"#), FAILED, &hint);
    let absent = ["docker-credential-absent", "put it into PATH"];
    refused(with(r#"{"credsStore": "absent"}"#), FAILED, &absent);
}

#[test]
fn proxies_are_used_except_for_no_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let (image, other) = (Image::new(), Image::new());
    let proxy = Server::start(move |_, request| {
        if request.target.starts_with("http://registry.invalid/v2/") {
            return image.respond(&request.target);
        }
        response("403 Forbidden", b"")
    });
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        let mut command = pull(dir.path(), "registry.invalid", &["--plain-http"]);
        command.env(name, &proxy.base);
        succeeds(command);
    }
    let mut command = pull(dir.path(), "registry.invalid", &[]);
    command.env("HTTPS_PROXY", &proxy.base);
    refused(command, FAILED, &["registry.invalid"]);
    let targets = proxy.targets();
    let last = targets.last().map(String::as_str);
    assert_eq!(last, Some("registry.invalid:443"));
    let direct = Server::start(move |_, request| other.respond(&request.target));
    let mut command = pull(dir.path(), &host(&direct), &["--plain-http"]);
    command
        .env("HTTP_PROXY", &proxy.base)
        .env("NO_PROXY", "example.com,127.0.0.1");
    succeeds(command);
    assert!(direct.targets().len() > 3);
    assert_eq!(proxy.targets(), targets);
}

#[test]
fn logins_and_plain_http_are_per_host() {
    let dir = tempfile::tempdir().unwrap();
    let (mirror, origin) = (closed(), closed());
    let (at_mirror, at_origin) = (host(&mirror), host(&origin));
    let rule = format!("*={at_mirror}");
    let with = |password: &str, more: &[&str]| {
        let args = [&["--mirror", &rule], more].concat();
        let mut command = pull(dir.path(), &at_origin, &args);
        command.env("MULTUS_REGISTRY_PASSWORD", password);
        command
    };
    let is_sent = |server: &Server| {
        let requests = server.requests();
        requests.iter().any(|one| one.authorization.is_some())
    };
    // The mirror refuses the password, and the origin is asked without it.
    let origin_plain = format!("--plain-http={at_origin}");
    let both = ["--user", "me", "--plain-http", &origin_plain];
    refused(with("wrong", &both), FAILED, &[&at_origin, "give --user"]);
    assert!(is_sent(&mirror) && !is_sent(&origin));
    assert!(!origin.targets().is_empty());
    // Each host has its own login.
    let user = format!("{at_origin}=me");
    succeeds(with(
        "word",
        &["--user", &user, "--plain-http", &origin_plain],
    ));
    assert!(is_sent(&origin));
    succeeds(with("word", &["--user", "me", "--plain-http"]));
    // Without an origin.
    let before = origin.targets().len();
    let only = ["--user", "me", "--plain-http", "--mirror-only"];
    succeeds(with("word", &only));
    let expected = [&*at_mirror, "does not accept user me with this password"];
    refused(with("wrong", &only), FAILED, &expected);
    assert_eq!(origin.targets().len(), before);
    let args = ["--mirror", "other.example=x", "--mirror-only"];
    let expected = format!("no --mirror is for {at_origin}");
    refused(pull(dir.path(), &at_origin, &args), FAILED, &[&expected]);
}

#[test]
fn faults_of_connections_are_named_with_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = plain.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            // A client may close the connection at any time.
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(&response("400 Bad Request", b""));
        }
    });
    let expected = format!("{at} speaks no TLS: give --plain-http");
    refused(pull(dir.path(), &at, &[]), FAILED, &[&expected]);
    let push = |to: &str| without_proxies(xtask(dir.path(), &["airgap", "push", to]));
    let expected = ["leave http:// out and give --plain-http"];
    refused(push("http://registry.invalid"), FAILED, &expected);
    let expected = ["leave https:// out"];
    refused(push("https://registry.invalid"), FAILED, &expected);
}
