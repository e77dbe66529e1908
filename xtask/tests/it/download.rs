//! `download` against mirrors, proxies, and servers that cut, redirect and lie.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use archive::digest::sha256;

use crate::{
    bad_input::{FAILED, output, refused, xtask},
    server::{Server, answer, part, rest, whole, without_proxies},
};

const CONTENT: &[u8] = b"what somebody published";

/// Writes a lock that names one file at these addresses.
fn lock(dir: &Path, bases: &[&str]) {
    let addresses: Vec<_> = bases
        .iter()
        .map(|base| format!("{base}/file.tgz"))
        .collect();
    let addresses = addresses.join(" ");
    let line = format!("{} v1 {addresses}\n", sha256(CONTENT).hex());
    fs::write(dir.join("a.lock"), format!("# of others\n{line}")).expect("a folder of the test");
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
    let (status, said) = output(command);
    assert_eq!((status, said.trim()), (0, expected));
}

fn file(dir: &Path) -> PathBuf {
    dir.join("target/download/file.tgz")
}

/// What is below target/download.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("target/download"));
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.expect("a folder of the test").file_name();
        name.into_string().expect("a plain name")
    };
    entries.into_iter().flatten().map(name).collect()
}

/// A folder with a lock on this server, and with what an earlier attempt left.
fn folder(server: &Server, begun: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder of the test");
    lock(dir.path(), &[&server.base]);
    if !begun.is_empty() {
        let part = dir.path().join("target/download/file.tgz.part");
        fs::create_dir_all(part.parent().expect("it has one")).expect("a folder of the test");
        fs::write(part, begun).expect("a folder of the test");
    }
    dir
}

/// The file comes, by requests from these offsets on.
#[track_caller]
fn arrives(server: &Server, begun: &[u8], offsets: &[usize]) {
    let dir = folder(server, begun);
    succeeds(download(dir.path()), "file.tgz v1: fetched");
    let found = fs::read(file(dir.path())).expect("it was fetched");
    assert_eq!(found, CONTENT);
    assert_eq!(names(dir.path()), ["file.tgz"]);
    assert_eq!(server.offsets(), offsets);
}

/// The file does not come, and nothing is left that is wrong.
#[track_caller]
fn fails(server: &Server, parts: &[&str]) {
    let dir = folder(server, b"");
    let place = format!("{}/file.tgz", server.base);
    refused(download(dir.path()), FAILED, &[parts, &[&place]].concat());
    assert!(!file(dir.path()).exists());
}

#[test]
fn what_is_right_costs_nothing() {
    let server = Server::start(|_, request| rest(CONTENT, request.range));
    let dir = folder(&server, b"");
    let path = file(dir.path());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, CONTENT).unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    // There is no curl in an empty folder.
    succeeds(
        download_with(dir.path(), "PATH", dir.path()),
        "file.tgz v1: is there",
    );
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time);
    assert_eq!(server.offsets(), [0; 0]);
    // The same without the file, so that the test proves what it says.
    fs::write(&path, "damaged").unwrap();
    refused(
        download_with(dir.path(), "PATH", dir.path()),
        FAILED,
        &["cannot start curl: install it"],
    );
    succeeds(download(dir.path()), "file.tgz v1: fetched");
    assert_eq!(fs::read(&path).unwrap(), CONTENT);
}

#[test]
fn scripts_are_told_what_is_there() {
    let server = Server::start(|_, request| rest(CONTENT, request.range));
    let dir = folder(&server, b"");
    let path = file(dir.path());
    for was_there in [false, true] {
        let output = download(dir.path()).arg("--json").output().unwrap();
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = serde_json::json!([
            {"path": path, "version": "v1", "sha256": sha256(CONTENT).hex(), "was_there": was_there}
        ]);
        assert_eq!(told, expected);
    }
}

#[test]
fn mirrors_come_first() {
    let server = Server::start(|_, request| match request.target.as_str() {
        "/mirror/file.tgz" => whole(CONTENT),
        _ => answer("404 Not Found", b""),
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
    // Several: a folder without it, an address without it, an address with it.
    fs::remove_file(&path).unwrap();
    fs::remove_file(mirror.join("file.tgz")).unwrap();
    let several = format!(
        "{}, {}/x,{}/mirror/",
        mirror.display(),
        server.base,
        server.base
    );
    let expected = format!("file.tgz v1: fetched from {}/mirror/file.tgz", server.base);
    let (status, said) = output(download_with(dir.path(), "MULTUS_MIRROR", several));
    assert_eq!(
        (status, said.lines().last()),
        (0, Some(expected.as_str())),
        "{said}"
    );
    assert!(
        said.contains(&format!(
            "cannot fetch {}/x/file.tgz: curl: (22)",
            server.base
        )),
        "{said}"
    );
    // Those of the lock file come last.
    fs::remove_file(&path).unwrap();
    lock(
        dir.path(),
        &[&server.base, &format!("{}/mirror", server.base)],
    );
    let (status, said) = output(download(dir.path()));
    assert_eq!(
        (status, said.lines().last()),
        (0, Some(expected.as_str())),
        "{said}"
    );
}

#[test]
fn other_bytes_are_never_taken() {
    let server = Server::start(|_, _| whole(b"other"));
    fails(
        &server,
        &[
            "answers with a file of sha256",
            &sha256(b"other").hex(),
            &sha256(CONTENT).hex(),
        ],
    );
    let dir = folder(&server, b"");
    fs::create_dir(dir.path().join("mirror")).unwrap();
    fs::write(dir.path().join("mirror/file.tgz"), "else").unwrap();
    let found = format!("mirror/file.tgz has the sha256 {}", sha256(b"else").hex());
    let parts = [
        found.as_str(),
        "unset MULTUS_MIRROR",
        &server.base,
        "answers with a file",
    ];
    refused(
        download_with(dir.path(), "MULTUS_MIRROR", dir.path().join("mirror")),
        FAILED,
        &parts,
    );
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_transfer_goes_on_where_it_ended() {
    for (begun, offsets) in [
        (&b""[..], &[0][..]),
        (&CONTENT[..5], &[5]),
        // Nothing of it, then more than all of it: begun again.
        (b"xxxxx", &[5, 0]),
        (b"more than there is to be had of it", &[34, 0]),
        // All of it: nobody is asked.
        (CONTENT, &[]),
    ] {
        let server = Server::start(|_, request| rest(CONTENT, request.range));
        arrives(&server, begun, offsets);
    }
}

#[test]
fn cut_connections_are_gone_on_with() {
    // Seven bytes of every answer arrive.
    let server = Server::start(|_, request| {
        let full = rest(CONTENT, request.range);
        let body = full.len() - (CONTENT.len() - request.range.unwrap_or(0));
        full[..full.len().min(body + 7)].to_vec()
    });
    arrives(&server, b"", &[0, 7, 14, 21]);
    // Cut before the first byte of an answer.
    let server = Server::start(|nth, _| if nth < 2 { Vec::new() } else { whole(CONTENT) });
    arrives(&server, b"", &[0, 0, 0]);
    // A server without ranges is asked for all of it, and once.
    let server = Server::start(|_, _| whole(CONTENT));
    arrives(&server, &CONTENT[..5], &[5]);
}

#[test]
fn what_is_cut_for_ever_stays_for_the_next_time() {
    let server = Server::start(|_, request| match request.range {
        None => part(CONTENT, 5),
        Some(_) => Vec::new(),
    });
    let dir = folder(&server, b"");
    refused(download(dir.path()), FAILED, &["4 times in a row"]);
    assert_eq!(server.offsets(), [0, 5, 5, 5, 5]);
    assert_eq!(names(dir.path()), ["file.tgz.part"]);
    let better = Server::start(|_, request| rest(CONTENT, request.range));
    lock(dir.path(), &[&better.base]);
    succeeds(download(dir.path()), "file.tgz v1: fetched");
    assert_eq!(better.offsets(), [5]);
}

#[test]
fn redirects_are_followed() {
    let server = Server::start(|_, request| match request.target.as_str() {
        "/file.tgz" => answer("302 Found\r\nLocation: /one", b"some text"),
        "/one" => answer("307 Temporary Redirect\r\nLocation: ./two?x=y", b""),
        "/two?x=y" => rest(CONTENT, request.range),
        _ => answer("404 Not Found", b""),
    });
    arrives(&server, &CONTENT[..5], &[5, 5, 5]);
    let server = Server::start(|_, _| answer("301 Moved Permanently\r\nLocation: /file.tgz", b""));
    fails(&server, &["curl: (47)"]);
    let server = Server::start(|_, _| answer("302 Found\r\nLocation: file:///etc/passwd", b""));
    fails(&server, &["curl: (1)"]);
}

#[test]
fn lies_are_seen_through() {
    // Another part than the one that was asked for, then all of it.
    let wrong = |nth: usize| match nth {
        0 => answer(
            "206 Partial Content\r\nContent-Range: bytes 3-22/23",
            &CONTENT[3..],
        ),
        _ => whole(CONTENT),
    };
    let server = Server::start(move |nth, _| wrong(nth));
    arrives(&server, &CONTENT[..5], &[5, 0]);
    // A part that nobody asked for, whenever it is asked.
    let server = Server::start(move |_, _| wrong(0));
    fails(&server, &["contradicts itself", "4 times in a row"]);
    // More than there is, in its length and in its bytes.
    let server = Server::start(|_, _| [whole(CONTENT), b" and more".to_vec()].concat());
    arrives(&server, b"", &[0]);
    let long = [CONTENT, b" and more"].concat();
    let server = Server::start(move |_, _| whole(&long));
    fails(&server, &["answers with a file of sha256"]);
    // A success without a file.
    let server = Server::start(|_, _| answer("204 No Content", b""));
    fails(
        &server,
        &["answers with a file of sha256", &sha256(b"").hex()],
    );
}

#[test]
fn what_may_pass_is_waited_for_and_nothing_else() {
    let server = Server::start(|nth, _| match nth {
        0 => answer("503 Service Unavailable", b"later"),
        1 => answer("429 Too Many Requests", b""),
        _ => whole(CONTENT),
    });
    arrives(&server, b"", &[0, 0, 0]);
    let server = Server::start(|_, _| answer("500 Internal Server Error", b""));
    fails(&server, &["curl: (22)", "500", "4 times in a row"]);
    let server = Server::start(|_, _| answer("404 Not Found", b""));
    fails(&server, &["curl: (22)", "404"]);
    assert_eq!(server.offsets(), [0]);
}

#[test]
fn proxies_are_used_but_for_those_that_need_none() {
    let proxy = Server::start(|_, request| match request.target.as_str() {
        "http://host.invalid/file.tgz" => whole(CONTENT),
        _ => answer("403 Forbidden", b""),
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
    let parts = ["cannot fetch https://host.invalid/file.tgz: curl: ", "403"];
    refused(
        download_with(dir.path(), "HTTPS_PROXY", &proxy.base),
        FAILED,
        &parts,
    );
    let targets = proxy.targets();
    assert_eq!(targets.last().map(String::as_str), Some("host.invalid:443"));
    let direct = Server::start(|_, _| whole(CONTENT));
    lock(dir.path(), &[&direct.base]);
    let mut command = download_with(dir.path(), "HTTP_PROXY", &proxy.base);
    command.env("NO_PROXY", "example.com,127.0.0.1");
    succeeds(command, "file.tgz v1: fetched");
    assert_eq!(direct.targets(), ["/file.tgz"]);
    assert_eq!(proxy.targets(), targets);
}

#[test]
fn what_cannot_be_had_comes_with_its_cure() {
    let dir = tempfile::tempdir().unwrap();
    // A port that was just free and is nobody's.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    lock(dir.path(), &[&format!("http://{address}")]);
    let parts = [
        &format!("cannot fetch http://{address}/file.tgz: curl: "),
        "put file.tgz into a folder and name that in MULTUS_MIRROR",
    ];
    refused(download(dir.path()), FAILED, &parts);
    let absent = dir.path().join("absent");
    refused(
        download_with(dir.path(), "MULTUS_MIRROR", absent),
        FAILED,
        &["absent, which is no folder"],
    );
    fs::write(dir.path().join("a.lock"), "x\n").unwrap();
    refused(download(dir.path()), FAILED, &["a.lock:1: 1 words"]);
    fs::remove_file(dir.path().join("a.lock")).unwrap();
    refused(download(dir.path()), FAILED, &["cannot read a.lock"]);
    assert_eq!(names(dir.path()), [""; 0]);
}
