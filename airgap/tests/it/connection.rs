//! Connections to registries that are busy, require a login, or are behind a proxy.

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

use testkit::http_server::{Request, Server, response};

use crate::{
    program::{FAILED, command, output, succeeds, text},
    sample,
};

/// Responds as a registry that has nothing, accepts everything and requires no login.
pub(crate) fn accept(request: &Request) -> Vec<u8> {
    match request.method.as_str() {
        "HEAD" => response("404 Not Found", b""),
        "POST" => response("202 Accepted\r\nLocation: /upload?state=1", b""),
        _ => response("201 Created", b""),
    }
}

/// Pushes an archive with one image, which has two blobs and a manifest.
pub(crate) fn push(dir: &Path, host: &str, args: &[&str]) -> Command {
    let archive = sample::write_archive(dir);
    let mut command = command(&[&["push", text(&archive), host], args].concat());
    command.env("DOCKER_CONFIG", dir.join("docker"));
    command
}

/// Runs a command that must fail with all these parts in its stderr.
#[track_caller]
pub(crate) fn refused(command: Command, parts: &[&str]) {
    let (status, _, stderr) = output(command);
    assert_eq!(status, FAILED, "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "no `{part}` in {stderr}");
    }
}

/// Starts a registry that refuses the first manifest, and says for how long it is busy.
fn busy(status: &'static str, seconds: &'static str) -> Server {
    let manifests = AtomicUsize::new(0);
    Server::start(move |_, request| {
        let is_manifest = request.method == "PUT" && request.target.contains("/manifests/");
        if is_manifest && manifests.fetch_add(1, SeqCst) == 0 {
            return response(&format!("{status}\r\nRetry-After: {seconds}"), b"");
        }
        accept(request)
    })
}

#[test]
fn busy_registry_is_retried_after_the_time_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let (server, start) = (busy(status, "1"), Instant::now());
        succeeds(push(dir.path(), server.host(), &["--plain-http"]));
        assert!(start.elapsed() >= Duration::from_secs(1), "{status}");
        let requests = server.requests();
        let manifests = requests
            .iter()
            .filter(|one| one.target.contains("/manifests/"));
        let methods: Vec<_> = manifests.map(|one| one.method.as_str()).collect();
        assert_eq!(methods, ["HEAD", "PUT", "PUT"]);
    }
    let (server, start) = (busy("429 Too Many Requests", "3600"), Instant::now());
    let expected = ["is busy for 3600 s more"];
    refused(
        push(dir.path(), server.host(), &["--plain-http"]),
        &expected,
    );
    assert!(start.elapsed() < Duration::from_secs(30));
}

/// Starts a registry that requires the login `me` with the password `word`.
fn closed() -> Server {
    Server::start(|_, request: &Request| {
        if request.authorization.as_deref() == Some("Basic bWU6d29yZA==") {
            return accept(request);
        }
        let wanted = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"test\"";
        response(wanted, b"{}")
    })
}

/// Writes a credential helper that has one login.
fn helper(dir: &Path, server: &str) {
    helper_with(dir, server, "me", "word");
}

fn helper_with(dir: &Path, server: &str, user: &str, secret: &str) {
    let path = dir.join("bin/docker-credential-keeper");
    fs::create_dir_all(dir.join("bin")).expect("a directory of the test");
    fs::create_dir_all(dir.join("docker")).expect("a directory of the test");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = get ] || exit 2\ncase \"$(cat)\" in\n{server}) echo '{{\"Username\": \"{user}\", \"Secret\": \"{secret}\"}}';;\n*) echo 'credentials not found in native keychain'; exit 1;;\nesac\n"
    );
    fs::write(&path, script).expect("a directory of the test");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a directory of the test");
}

#[test]
fn credential_helpers_provide_logins() {
    let (dir, server) = (tempfile::tempdir().unwrap(), closed());
    let host = server.host();
    helper(dir.path(), host);
    let with = |config: &str| {
        fs::write(dir.path().join("docker/config.json"), config).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = dir.path().join("bin");
        let mut command = push(dir.path(), host, &["--plain-http"]);
        command.env("PATH", format!("{}:{path}", bin.display()));
        command
    };
    succeeds(with(&format!(
        r#"{{"credHelpers": {{"{host}": "keeper"}}}}"#
    )));
    succeeds(with(r#"{"credsStore": "keeper"}"#));
    let hint = ["give --user and MULTUS_REGISTRY_PASSWORD"];
    refused(with("{}"), &hint);
    // The helper has a login, but not for this registry.
    helper(dir.path(), "other.example");
    refused(with(r#"{"credsStore": "keeper"}"#), &hint);
    let file = dir.path().join("docker/config.json");
    let file = file.display().to_string();
    let absent = [&*file, "put docker-credential-NAME into PATH"];
    refused(with(r#"{"credsStore": "absent"}"#), &absent);
}

#[test]
fn proxies_are_used_except_for_no_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Server::start(|_, request| {
        if request.target.starts_with("http://registry.invalid/") {
            return accept(request);
        }
        response("403 Forbidden", b"")
    });
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        let mut command = push(dir.path(), "registry.invalid", &["--plain-http"]);
        command.env(name, &proxy.base);
        succeeds(command);
    }
    let mut command = push(dir.path(), "registry.invalid", &[]);
    command.env("HTTPS_PROXY", &proxy.base);
    refused(command, &["registry.invalid"]);
    let targets = proxy.targets();
    let last = targets.last().map(String::as_str);
    assert_eq!(last, Some("registry.invalid:443"));
    let direct = Server::start(|_, request| accept(request));
    let mut command = push(dir.path(), direct.host(), &["--plain-http"]);
    // A proxy never reaches this machine.
    command.env("HTTP_PROXY", &proxy.base);
    succeeds(command);
    assert!(direct.targets().len() > 3);
    assert_eq!(proxy.targets(), targets);
}

#[test]
fn faults_of_proxies_are_named_without_their_login() {
    let dir = tempfile::tempdir().unwrap();
    // A port that was just free, on which nothing listens.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap();
    drop(free);
    let with = |name: &str, value: &str, args: &[&str], expected: &str| {
        let mut command = push(dir.path(), "registry.invalid", args);
        command.env(name, value);
        let (status, _, stderr) = output(command);
        assert!(status == FAILED && stderr.contains(expected), "{stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
    };
    for (name, args) in [("HTTPS_PROXY", &[][..]), ("http_proxy", &["--plain-http"])] {
        let expected = format!("the proxy http://{at} of {name} refused the connection");
        with(name, &format!("http://me:secret@{at}"), args, &expected);
    }
    let closed = Server::start(|_, _| response("407 Proxy Authentication Required", b""));
    for (name, args) in [("HTTPS_PROXY", &[][..]), ("ALL_PROXY", &["--plain-http"])] {
        let expected = format!("the proxy {} of {name} requires a login", closed.base);
        with(name, &closed.base, args, &expected);
    }
    let expected = "HTTPS_PROXY names no proxy: write http://HOST:PORT";
    with("HTTPS_PROXY", "ftp://me:secret@x", &[], expected);
}

/// Starts a server of tokens, and a registry that requires them.
fn with_tokens(issue: impl Fn(usize, &Request) -> Vec<u8> + Send + 'static) -> (Server, Server) {
    let tokens = Server::start(issue);
    let realm = format!("{}/token?account=x", tokens.base);
    let registry = Server::start(move |_, request| {
        if request.authorization.as_deref() == Some("Bearer issued") {
            return accept(request);
        }
        let wanted = format!(
            "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"{realm}\",service=\"of tests\""
        );
        response(&wanted, b"{}")
    });
    (tokens, registry)
}

#[test]
fn tokens_are_requested_once_for_a_repository() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, registry) = with_tokens(|_, request| match request.authorization.as_deref() {
        None | Some("Basic bWU6d29yZA==") => response("200 OK", br#"{"token": "issued"}"#),
        _ => response("401 Unauthorized", b""),
    });
    succeeds(push(dir.path(), registry.host(), &["--plain-http"]));
    let expected =
        "/token?account=x&scope=repository%3Amultusrs%2Fmultus%3Apull%2Cpush&service=of+tests";
    assert_eq!(tokens.targets(), [expected]);
    let with = |password: &str| {
        let user = ["--plain-http", "--user", "me"];
        let mut command = push(dir.path(), registry.host(), &user);
        command.env("MULTUS_REGISTRY_PASSWORD", password);
        command
    };
    succeeds(with("word"));
    let expected = "does not accept user me with this password";
    refused(with("wrong"), &[registry.host(), expected]);
}

#[test]
fn identity_tokens_are_exchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, registry) = with_tokens(|_, request| {
        let body = String::from_utf8_lossy(&request.body);
        if request.method == "POST" && body.contains("&refresh_token=kept%2B") {
            return response("200 OK", br#"{"access_token": "issued"}"#);
        }
        response("400 Bad Request", br#"{"error": "invalid_grant"}"#)
    });
    let host = registry.host();
    let with = |config: &str| {
        fs::create_dir_all(dir.path().join("docker")).unwrap();
        fs::write(dir.path().join("docker/config.json"), config).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = dir.path().join("bin");
        let mut command = push(dir.path(), host, &["--plain-http"]);
        command.env("PATH", format!("{}:{path}", bin.display()));
        command
    };
    let stored = |token: &str| {
        with(&format!(
            r#"{{"auths": {{"{host}": {{"auth": "bWU6", "identitytoken": "{token}"}}}}}}"#
        ))
    };
    succeeds(stored("kept+"));
    let expected = "scope=repository%3Amultusrs%2Fmultus%3Apull%2Cpush&service=of+tests&grant_type=refresh_token&client_id=multus-rs&refresh_token=kept%2B";
    let [request] = &tokens.requests()[..] else {
        panic!("one token");
    };
    assert_eq!(String::from_utf8_lossy(&request.body), expected);
    assert_eq!(request.authorization, None);
    helper_with(dir.path(), host, "<token>", "kept+");
    succeeds(with(r#"{"credsStore": "keeper"}"#));
    let expected = format!("{host} does not accept the identity token");
    let (status, _, stderr) = output(stored("worn-out"));
    assert!(status == FAILED && stderr.contains(&expected), "{stderr}");
    assert!(!stderr.contains("worn-out"), "{stderr}");
    // A registry that wants a password gets none, and no token either.
    let closed = closed();
    let at = closed.host();
    let config = format!(r#"{{"auths": {{"{at}": {{"identitytoken": "kept+"}}}}}}"#);
    fs::write(dir.path().join("docker/config.json"), config).unwrap();
    let expected = format!("{at} does not accept the identity token");
    refused(push(dir.path(), at, &["--plain-http"]), &[&expected]);
    assert!(
        closed
            .requests()
            .iter()
            .all(|one| one.authorization.is_none())
    );
}

#[test]
fn login_is_not_sent_where_a_registry_redirects() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Server::start(|_, _| response("200 OK", b""));
    let elsewhere = storage.base.clone();
    let registry = Server::start(move |_, request| {
        if request.authorization.as_deref() != Some("Basic bWU6d29yZA==") {
            let wanted = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"test\"";
            return response(wanted, b"{}");
        }
        if request.target.contains("/blobs/sha256:") {
            let place = format!(
                "307 Temporary Redirect\r\nLocation: {elsewhere}{}",
                request.target
            );
            return response(&place, b"");
        }
        accept(request)
    });
    let user = ["--plain-http", "--user", "me"];
    let mut command = push(dir.path(), registry.host(), &user);
    command.env("MULTUS_REGISTRY_PASSWORD", "word");
    succeeds(command);
    let requests = storage.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|one| one.authorization.is_none()));
}

#[test]
fn login_is_not_sent_to_another_server_that_stores_blobs() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Server::start(|_, _| response("201 Created", b""));
    let place = format!("202 Accepted\r\nLocation: {}/upload", storage.base);
    let registry = Server::start(move |_, request| {
        if request.authorization.is_none() {
            let wanted = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"test\"";
            return response(wanted, b"{}");
        }
        match request.method.as_str() {
            "HEAD" => response("404 Not Found", b""),
            "POST" => response(&place, b""),
            _ => response("201 Created", b""),
        }
    });
    let user = ["--plain-http", "--user", "me"];
    let mut command = push(dir.path(), registry.host(), &user);
    command.env("MULTUS_REGISTRY_PASSWORD", "word");
    succeeds(command);
    let uploads = storage.requests();
    assert_eq!(uploads.len(), 2);
    assert!(uploads.iter().all(|one| one.authorization.is_none()));
}

#[test]
fn busy_token_server_is_retried_and_not_taken_for_a_refusal() {
    let dir = tempfile::tempdir().unwrap();
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let (tokens, registry) = with_tokens(move |nth, _| match nth {
            0 => response(&format!("{status}\r\nRetry-After: 1"), b""),
            _ => response("200 OK", br#"{"access_token": "issued"}"#),
        });
        let start = Instant::now();
        succeeds(push(dir.path(), registry.host(), &["--plain-http"]));
        assert!(start.elapsed() >= Duration::from_secs(1), "{status}");
        assert_eq!(tokens.targets().len(), 2);
        let (tokens, registry) = with_tokens(move |_, _| response(status, b""));
        let code = status.split(' ').next().unwrap();
        let at = registry.host();
        let expected = format!("{at}'s token server is busy ({code}); try again later");
        refused(push(dir.path(), at, &["--plain-http"]), &[&expected]);
        assert_eq!(tokens.targets().len(), 5);
    }
}

#[test]
fn faults_of_connections_are_named_with_a_hint() {
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
    refused(push(dir.path(), &at, &[]), &[&expected]);
    for (to, expected) in [
        (
            "http://registry.invalid",
            "leave http:// out and give --plain-http",
        ),
        ("https://registry.invalid", "leave https:// out"),
    ] {
        refused(push(dir.path(), to, &[]), &[expected]);
    }
}
