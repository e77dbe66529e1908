//! `download` against mirrors, proxies, and servers that cut, redirect and lie.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use archive::digest::sha256;

use testkit::{
    authority::{Authority, to_pem},
    http_server::{Server, complete, part, response, rest, tls, without_proxies},
};

use crate::bad_input::{FAILED, output, refused, xtask};

const CONTENT: &[u8] = b"what somebody published";
/// A part of the message about a file with another digest.
const OTHER_FILE: &str = "has a file of sha256";

/// Writes a lock that names one file at these addresses.
fn lock(dir: &Path, bases: &[&str]) {
    let addresses: Vec<_> = bases
        .iter()
        .map(|base| format!("{base}/file.tgz"))
        .collect();
    let addresses = addresses.join(" ");
    let line = format!("{} v1 {addresses}\n", sha256(CONTENT).hex());
    fs::write(dir.join("a.lock"), format!("# of others\n{line}")).expect("a directory of the test");
}

fn download(dir: &Path) -> Command {
    let mut command = xtask(dir, &["download", "--lock", "a.lock"]);
    command.env_remove("MULTUS_MIRROR");
    without_proxies(command)
}

fn download_with(dir: &Path, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = download(dir);
    command.env(name, value);
    command
}

#[track_caller]
fn succeeds(command: Command, expected: &str) {
    let (status, stderr) = output(command);
    assert_eq!((status, stderr.trim()), (0, expected));
}

fn file(dir: &Path) -> PathBuf {
    dir.join("target/download/file.tgz")
}

/// Returns the names in target/download.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("target/download"));
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.expect("a directory of the test").file_name();
        name.into_string().expect("a plain name")
    };
    entries.into_iter().flatten().map(name).collect()
}

/// Makes a directory with a lock that names this server, and with the part that an earlier attempt left.
fn work_dir(server: &Server, begun: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory of the test");
    lock(dir.path(), &[&server.base]);
    if !begun.is_empty() {
        let part = dir.path().join("target/download/file.tgz.part");
        fs::create_dir_all(part.parent().expect("it has one")).expect("a directory of the test");
        fs::write(part, begun).expect("a directory of the test");
    }
    dir
}

/// Asserts that the file arrives, by requests from these offsets on.
#[track_caller]
fn arrives(server: &Server, begun: &[u8], offsets: &[usize]) {
    let dir = work_dir(server, begun);
    succeeds(download(dir.path()), "file.tgz v1: fetched");
    let found = fs::read(file(dir.path())).expect("it was fetched");
    assert_eq!(found, CONTENT);
    assert_eq!(names(dir.path()), ["file.tgz"]);
    assert_eq!(server.offsets(), offsets);
}

/// Asserts that the download fails and leaves no wrong file.
#[track_caller]
fn fails(server: &Server, parts: &[&str]) {
    let dir = work_dir(server, b"");
    let address = format!("{}/file.tgz", server.base);
    refused(download(dir.path()), FAILED, &[parts, &[&address]].concat());
    assert!(!file(dir.path()).exists());
}

#[test]
fn current_file_costs_no_connection() {
    let server = Server::start(|_, request| rest(CONTENT, request.range));
    let dir = work_dir(&server, b"");
    let path = file(dir.path());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, CONTENT).unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    succeeds(
        download_with(dir.path(), "PATH", dir.path()),
        "file.tgz v1: up to date",
    );
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time);
    assert_eq!(server.offsets(), [0; 0]);
    // No other program is needed for a download.
    fs::write(&path, "damaged").unwrap();
    succeeds(
        download_with(dir.path(), "PATH", dir.path()),
        "file.tgz v1: fetched",
    );
    assert_eq!(fs::read(&path).unwrap(), CONTENT);
}

#[test]
fn json_names_files_and_whether_they_were_there() {
    let server = Server::start(|_, request| rest(CONTENT, request.range));
    let dir = work_dir(&server, b"");
    let path = file(dir.path());
    for was_there in [false, true] {
        let output = download(dir.path()).arg("--json").output().unwrap();
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = serde_json::json!([
            {"path": path, "version": "v1", "sha256": sha256(CONTENT).hex(), "was_there": was_there}
        ]);
        assert_eq!(printed, expected);
    }
}

#[test]
fn mirrors_come_first() {
    let server = Server::start(|_, request| match request.target.as_str() {
        "/mirror/file.tgz" => complete(CONTENT),
        _ => response("404 Not Found", b""),
    });
    let dir = tempfile::tempdir().unwrap();
    let (path, mirror) = (file(dir.path()), dir.path().join("mirror"));
    lock(dir.path(), &["https://host.invalid"]);
    fs::create_dir(&mirror).unwrap();
    fs::write(mirror.join("file.tgz"), CONTENT).unwrap();
    succeeds(
        download_with(dir.path(), "MULTUS_MIRROR", &mirror),
        "file.tgz v1: from the mirror",
    );
    assert_eq!(fs::read(&path).unwrap(), CONTENT);
    assert_eq!(server.offsets(), [0; 0]);
    // Several mirrors: a directory without it, an address without it, an address with it.
    fs::remove_file(&path).unwrap();
    fs::remove_file(mirror.join("file.tgz")).unwrap();
    let several = format!(
        "{}, {}/x,{}/mirror/",
        mirror.display(),
        server.base,
        server.base
    );
    let expected = format!("file.tgz v1: fetched from {}/mirror/file.tgz", server.base);
    let (status, stderr) = output(download_with(dir.path(), "MULTUS_MIRROR", several));
    assert_eq!(
        (status, stderr.lines().last()),
        (0, Some(expected.as_str())),
        "{stderr}"
    );
    assert!(
        stderr.contains(&format!(
            "cannot fetch {}/x/file.tgz: 404 Not Found",
            server.base
        )),
        "{stderr}"
    );
    // Those of the lock file come last.
    fs::remove_file(&path).unwrap();
    lock(
        dir.path(),
        &[&server.base, &format!("{}/mirror", server.base)],
    );
    let (status, stderr) = output(download(dir.path()));
    assert_eq!(
        (status, stderr.lines().last()),
        (0, Some(expected.as_str())),
        "{stderr}"
    );
}

#[test]
fn login_of_a_mirror_is_sent_and_never_printed() {
    let login = Some("Basic bWU6czNjcix3MHJk");
    let server = Server::start(move |_, request| match request.target.as_str() {
        "/mirror/file.tgz" if request.authorization.as_deref() == login => complete(CONTENT),
        "/moved/file.tgz" => response("302 Found\r\nLocation: /mirror/file.tgz", b""),
        "/busy/file.tgz" => response("503 Service Unavailable", b""),
        _ => response("403 Forbidden", b"s3cr,w0rd"),
    });
    let dir = tempfile::tempdir().unwrap();
    lock(dir.path(), &["http://127.0.0.1:1"]);
    let host = server.base.replace("http://", "");
    let with = |login: &str, path: &str| {
        let mirror = format!("http://{login}@{host}/{path}");
        // No other program can get the login: none is found there.
        let mut command = download_with(dir.path(), "PATH", dir.path());
        command.env("MULTUS_MIRROR", mirror).arg("--json");
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        for secret in ["s3cr", "w0rd", "me:"] {
            assert!(!text.contains(secret), "{text}");
        }
        (output.status.success(), text)
    };
    for path in ["mirror", "moved"] {
        let (is_success, text) = with("me:s3cr%2Cw0rd", path);
        let expected = format!("file.tgz v1: fetched from http://{host}/{path}/file.tgz");
        assert!(is_success && text.contains(&expected), "{text}");
        fs::remove_file(file(dir.path())).unwrap();
    }
    for (login, path, expected) in [
        ("me:s3cr", "mirror", "403 Forbidden"),
        ("me:s3cr%2Cw0rd", "busy", "503 Service Unavailable"),
        (
            "me:s3cr,w0rd",
            "mirror",
            "MULTUS_MIRROR names an address in place 1",
        ),
        (
            "me:s3cr w0rd",
            "mirror",
            "MULTUS_MIRROR names an address in place 1",
        ),
    ] {
        let (is_success, text) = with(login, path);
        assert!(!is_success && text.contains(expected), "{text}");
    }
}

#[test]
fn file_that_is_too_large_is_refused_before_it_arrives() {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 5_u64 << 30);
    let server = Server::start(move |_, _| head.clone().into_bytes());
    fails(&server, &["more than 4294967296 bytes arrive"]);
    assert_eq!(server.offsets(), [0]);
}

#[test]
fn file_with_another_digest_is_never_taken() {
    let server = Server::start(|_, _| complete(b"other"));
    fails(
        &server,
        &[OTHER_FILE, &sha256(b"other").hex(), &sha256(CONTENT).hex()],
    );
    let dir = work_dir(&server, b"");
    fs::create_dir(dir.path().join("mirror")).unwrap();
    fs::write(dir.path().join("mirror/file.tgz"), "else").unwrap();
    let found = format!("mirror/file.tgz has the sha256 {}", sha256(b"else").hex());
    let parts = [
        found.as_str(),
        "unset MULTUS_MIRROR",
        &server.base,
        OTHER_FILE,
    ];
    refused(
        download_with(dir.path(), "MULTUS_MIRROR", dir.path().join("mirror")),
        FAILED,
        &parts,
    );
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn transfer_resumes_where_it_ended() {
    for (begun, offsets) in [
        (&b""[..], &[0][..]),
        (&CONTENT[..5], &[5]),
        // Wrong bytes, then more bytes than the file has: started again.
        (b"xxxxx", &[5, 0]),
        (b"more than there is to be had of it", &[34, 0]),
        // The complete file: no request is made.
        (CONTENT, &[]),
    ] {
        let server = Server::start(|_, request| rest(CONTENT, request.range));
        arrives(&server, begun, offsets);
    }
}

#[test]
fn transfer_resumes_after_cut_connections() {
    // Seven bytes of every response arrive.
    let server = Server::start(|_, request| {
        let full = rest(CONTENT, request.range);
        let body = full.len() - (CONTENT.len() - request.range.unwrap_or(0));
        full[..full.len().min(body + 7)].to_vec()
    });
    arrives(&server, b"", &[0, 7, 14, 21]);
    // Cut before the first byte of a response.
    let server = Server::start(|nth, _| {
        if nth < 2 {
            Vec::new()
        } else {
            complete(CONTENT)
        }
    });
    arrives(&server, b"", &[0, 0, 0]);
    // A server without ranges sends the complete file, and is asked once.
    let server = Server::start(|_, _| complete(CONTENT));
    arrives(&server, &CONTENT[..5], &[5]);
}

#[test]
fn part_stays_for_the_next_run_when_every_attempt_is_cut() {
    let server = Server::start(|_, request| match request.range {
        None => part(CONTENT, 5),
        Some(_) => Vec::new(),
    });
    let dir = work_dir(&server, b"");
    refused(download(dir.path()), FAILED, &["5 times in a row"]);
    assert_eq!(server.offsets(), [0, 5, 5, 5, 5, 5]);
    assert_eq!(names(dir.path()), ["file.tgz.part"]);
    let better = Server::start(|_, request| rest(CONTENT, request.range));
    lock(dir.path(), &[&better.base]);
    succeeds(download(dir.path()), "file.tgz v1: fetched");
    assert_eq!(better.offsets(), [5]);
}

#[test]
fn file_that_changes_while_its_transfer_is_cut_is_fetched_once_more() {
    let former = vec![b'x'; CONTENT.len()];
    let server = Server::start(move |nth, request| match nth {
        0 => part(&former, 5),
        _ => rest(CONTENT, request.range),
    });
    arrives(&server, b"", &[0, 5, 0]);
}

#[test]
fn second_run_waits_for_the_first() {
    let server = Server::start(|_, request| rest(CONTENT, request.range));
    let dir = work_dir(&server, b"");
    let downloads = dir.path().join("target/download");
    fs::create_dir_all(&downloads).unwrap();
    let first = fs::File::open(&downloads).unwrap();
    first.lock().unwrap();
    let mut second = download(dir.path());
    let mut second = second.stderr(Stdio::piped()).spawn().unwrap();
    let notes = BufReader::new(second.stderr.take().unwrap()).lines();
    let mut notes = notes.map(Result::unwrap);
    let waits = notes.find(|note| note.contains("another run downloads into"));
    assert!(waits.is_some(), "the second run did not wait");
    fs::write(file(dir.path()), CONTENT).unwrap();
    drop(first);
    assert_eq!(notes.last().unwrap(), "file.tgz v1: up to date");
    assert!(second.wait().unwrap().success());
    assert_eq!(server.offsets(), [0; 0]);
}

#[test]
fn redirects_are_followed() {
    let server = Server::start(|_, request| match request.target.as_str() {
        "/file.tgz" => response("302 Found\r\nLocation: /one", b"some text"),
        "/one" => response("307 Temporary Redirect\r\nLocation: ./two?x=y", b""),
        "/two?x=y" => rest(CONTENT, request.range),
        _ => response("404 Not Found", b""),
    });
    arrives(&server, &CONTENT[..5], &[5, 5, 5]);
    let server =
        Server::start(|_, _| response("301 Moved Permanently\r\nLocation: /file.tgz", b""));
    fails(&server, &["too many redirects"]);
    let server = Server::start(|_, _| response("302 Found\r\nLocation: file:///etc/passwd", b""));
    fails(&server, &["302 Found"]);
}

#[test]
fn wrong_responses_are_detected() {
    // Another range than the requested one, then the complete file.
    let wrong = |nth: usize| match nth {
        0 => response(
            "206 Partial Content\r\nContent-Range: bytes 3-22/23",
            &CONTENT[3..],
        ),
        _ => complete(CONTENT),
    };
    let server = Server::start(move |nth, _| wrong(nth));
    arrives(&server, &CONTENT[..5], &[5, 0]);
    // Another range than the requested one, every time.
    let server = Server::start(move |_, _| wrong(0));
    fails(
        &server,
        &["sends something else than the file", "5 times in a row"],
    );
    // More bytes than the length in the head, then more than the file has.
    let server = Server::start(|_, _| [complete(CONTENT), b" and more".to_vec()].concat());
    arrives(&server, b"", &[0]);
    let long = [CONTENT, b" and more"].concat();
    let server = Server::start(move |_, _| complete(&long));
    fails(&server, &[OTHER_FILE]);
    // A success without a file.
    let server = Server::start(|_, _| response("204 No Content", b""));
    fails(&server, &["sends something else than the file"]);
}

#[test]
fn temporary_errors_alone_are_retried() {
    let server = Server::start(|nth, _| match nth {
        0 => response("503 Service Unavailable", b"later"),
        1 => response("429 Too Many Requests", b""),
        _ => complete(CONTENT),
    });
    arrives(&server, b"", &[0, 0, 0]);
    let server = Server::start(|_, _| response("500 Internal Server Error", b""));
    fails(&server, &["5 times in a row: 500 Internal Server Error"]);
    let server =
        Server::start(|_, _| response("503 Service Unavailable\r\nRetry-After: 3600", b""));
    fails(&server, &["which is busy for 3600 s more: 503"]);
    assert_eq!(server.offsets(), [0]);
    let server = Server::start(|_, _| response("404 Not Found", b""));
    fails(&server, &["404 Not Found"]);
    assert_eq!(server.offsets(), [0]);
}

#[test]
fn proxies_are_used_except_for_no_proxy() {
    let proxy = Server::start(|_, request| match request.target.as_str() {
        "http://host.invalid/file.tgz" => complete(CONTENT),
        _ => response("403 Forbidden", b""),
    });
    let dir = tempfile::tempdir().unwrap();
    lock(dir.path(), &["http://host.invalid"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        succeeds(
            download_with(dir.path(), name, &proxy.base),
            "file.tgz v1: fetched",
        );
        fs::remove_file(file(dir.path())).unwrap();
    }
    lock(dir.path(), &["https://host.invalid"]);
    let named = format!("the proxy {} of HTTPS_PROXY", proxy.base);
    let parts = [
        "cannot fetch https://host.invalid/file.tgz, 5 times in a row",
        &named,
        "makes no connection to host.invalid",
    ];
    refused(
        download_with(dir.path(), "HTTPS_PROXY", &proxy.base),
        FAILED,
        &parts,
    );
    let targets = proxy.targets();
    assert_eq!(targets.last().map(String::as_str), Some("host.invalid:443"));
    let direct = Server::start(|_, _| complete(CONTENT));
    lock(dir.path(), &[&direct.base]);
    // A proxy never reaches this machine.
    let command = download_with(dir.path(), "HTTP_PROXY", &proxy.base);
    succeeds(command, "file.tgz v1: fetched");
    assert_eq!(direct.targets(), ["/file.tgz"]);
    lock(dir.path(), &["http://host.invalid"]);
    fs::remove_file(file(dir.path())).unwrap();
    let mut command = download_with(dir.path(), "HTTP_PROXY", &proxy.base);
    command.env("NO_PROXY", "example.com,.invalid");
    refused(
        command,
        FAILED,
        &["cannot fetch http://host.invalid/file.tgz"],
    );
    assert_eq!(proxy.targets(), targets);
}

#[test]
fn failures_are_reported_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    // A port that was just free, on which nothing listens.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    lock(dir.path(), &[&format!("http://{address}")]);
    let parts = [
        &format!("cannot fetch http://{address}/file.tgz, 5 times in a row: "),
        "put file.tgz into a directory and name that in MULTUS_MIRROR",
    ];
    refused(download(dir.path()), FAILED, &parts);
    let absent = dir.path().join("absent");
    refused(
        download_with(dir.path(), "MULTUS_MIRROR", absent),
        FAILED,
        &["absent, which is not a directory"],
    );
    fs::write(dir.path().join("a.lock"), "x\n").unwrap();
    refused(download(dir.path()), FAILED, &["a.lock:1: 1 field"]);
    fs::remove_file(dir.path().join("a.lock")).unwrap();
    refused(download(dir.path()), FAILED, &["cannot read a.lock"]);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn certificates_are_trusted_as_those_of_registries() {
    let dir = tempfile::tempdir().unwrap();
    let own = Authority::generate();
    let other = Authority::generate().certificate();
    for (name, certificate) in [("itself", own.self_signed_server()), ("other", other)] {
        fs::write(dir.path().join(name), to_pem("CERTIFICATE", &certificate)).unwrap();
    }
    let config = tls((own.self_signed_server(), own.pkcs8()), None);
    let server = Server::start_with(Some(config), |_, _| complete(CONTENT));
    lock(dir.path(), &[&server.base]);
    let download_with = |name: &str| {
        let mut command = download(dir.path());
        command
            .env_remove("SSL_CERT_DIR")
            .env("SSL_CERT_FILE", dir.path().join(name));
        command
    };
    let host = server.host();
    let expected = format!("{host}'s certificate is not trusted: name its CA");
    refused(download_with("other"), FAILED, &[&expected]);
    let (status, stderr) = output(download_with("itself"));
    assert_eq!(status, 0, "{stderr}");
}
