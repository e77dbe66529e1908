//! `download` against a mirror and a server of the test's own.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use archive::digest::sha256;

use crate::bad_input::{FAILED, output, refused, xtask};

const CONTENT: &[u8] = b"what somebody published";

/// Writes a lock that names one file at this address.
fn lock(dir: &Path, base: &str) {
    let line = format!("{} v1 {base}/file.tgz\n", sha256(CONTENT).hex());
    fs::write(dir.join("a.lock"), format!("# of others\n{line}"))
        .expect("sockets of the test work");
}

fn download(dir: &Path, mirror: Option<&str>) -> Command {
    let mut command = xtask(dir, &["download", "--lock", "a.lock"]);
    command.env_remove("MULTUS_MIRROR").env_remove("http_proxy");
    if let Some(mirror) = mirror {
        command.env("MULTUS_MIRROR", dir.join(mirror));
    }
    command
}

#[track_caller]
fn succeeds(command: Command, expected: &str) {
    let (status, said) = output(command);
    assert_eq!((status, said.trim()), (0, expected));
}

/// What is below target/download.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("target/download"));
    let names = entries.into_iter().flatten();
    names
        .map(|entry| {
            entry
                .expect("a folder of the test")
                .file_name()
                .into_string()
                .expect("a plain name")
        })
        .collect()
}

/// A server of these bytes; from which byte each request wanted them.
fn serve(bytes: &'static [u8]) -> (String, Arc<Mutex<Vec<usize>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("sockets of the test work");
    let base = format!(
        "http://{}",
        listener.local_addr().expect("sockets of the test work")
    );
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("sockets of the test work");
            let lines =
                BufReader::new(stream.try_clone().expect("sockets of the test work")).lines();
            let head: Vec<String> = lines
                .map(|line| line.expect("a request").to_lowercase())
                .take_while(|line| !line.is_empty())
                .collect();
            let range = head
                .iter()
                .find_map(|line| line.strip_prefix("range: bytes="));
            let from = range.map_or(0, |text| {
                text.trim_end_matches('-').parse().expect("an offset")
            });
            seen.lock().expect("nobody panicked").push(from);
            let answer = match (range, bytes.get(from..)) {
                (None, _) => format!("200 OK\r\nContent-Length: {}", bytes.len()),
                (_, Some(rest)) if !rest.is_empty() => format!(
                    "206 Partial Content\r\nContent-Range: bytes {from}-{}/{}\r\nContent-Length: {}",
                    bytes.len() - 1,
                    bytes.len(),
                    rest.len()
                ),
                _ => "416 Range Not Satisfiable\r\nContent-Length: 0".to_owned(),
            };
            let rest = if answer.starts_with("416") {
                b""
            } else {
                &bytes[from..]
            };
            let head = format!("HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n");
            stream
                .write_all(&[head.as_bytes(), rest].concat())
                .expect("sockets of the test work");
        }
    });
    (base, asked)
}

#[test]
fn a_mirror_comes_first_and_what_is_right_stays() {
    let dir = tempfile::tempdir().unwrap();
    lock(dir.path(), "https://host.invalid");
    fs::create_dir(dir.path().join("mirror")).unwrap();
    fs::write(dir.path().join("mirror/file.tgz"), CONTENT).unwrap();
    succeeds(
        download(dir.path(), Some("mirror")),
        "file.tgz v1: from the mirror",
    );
    let path = dir.path().join("target/download/file.tgz");
    assert_eq!(fs::read(&path).unwrap(), CONTENT);
    succeeds(download(dir.path(), None), "file.tgz v1: is there");
    fs::write(&path, "damaged").unwrap();
    succeeds(
        download(dir.path(), Some("mirror")),
        "file.tgz v1: from the mirror",
    );
}

#[test]
fn other_bytes_are_never_taken() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mirror")).unwrap();
    fs::write(dir.path().join("mirror/file.tgz"), "other").unwrap();
    let (base, _) = serve(b"other");
    lock(dir.path(), &base);
    let parts = ["mirror/file.tgz has the sha256", "unset MULTUS_MIRROR"];
    refused(download(dir.path(), Some("mirror")), FAILED, &parts);
    refused(
        download(dir.path(), None),
        FAILED,
        &[&base, "answers with a file"],
    );
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_transfer_goes_on_where_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (base, asked) = serve(CONTENT);
    lock(dir.path(), &base);
    let folder = dir.path().join("target/download");
    fs::create_dir_all(&folder).unwrap();
    for (begun, expected) in [
        (&CONTENT[..5], &[5][..]),
        // Nothing of it, then more than all of it: begun again.
        (b"xxxxx", &[5, 0]),
        (b"more than there is to be had of it", &[34, 0]),
        // All of it: nobody is asked.
        (CONTENT, &[]),
    ] {
        fs::write(folder.join("file.tgz.part"), begun).unwrap();
        succeeds(download(dir.path(), None), "file.tgz v1: fetched");
        assert_eq!(*asked.lock().unwrap(), expected);
        assert_eq!(fs::read(folder.join("file.tgz")).unwrap(), CONTENT);
        assert_eq!(names(dir.path()), ["file.tgz"]);
        asked.lock().unwrap().clear();
        fs::remove_file(folder.join("file.tgz")).unwrap();
    }
}

#[test]
fn what_cannot_be_had_comes_with_its_cure() {
    let dir = tempfile::tempdir().unwrap();
    // A port that was just free and is nobody's.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    lock(dir.path(), &format!("http://{address}"));
    let parts = [
        &format!("cannot fetch http://{address}/file.tgz: curl: "),
        "put file.tgz into a folder and name that in MULTUS_MIRROR",
    ];
    refused(download(dir.path(), None), FAILED, &parts);
    refused(
        download(dir.path(), Some("absent")),
        FAILED,
        &["absent, which is no folder"],
    );
    fs::write(dir.path().join("a.lock"), "x\n").unwrap();
    refused(download(dir.path(), None), FAILED, &["a.lock:1: 1 words"]);
    fs::remove_file(dir.path().join("a.lock")).unwrap();
    refused(download(dir.path(), None), FAILED, &["cannot read a.lock"]);
    assert_eq!(names(dir.path()), [""; 0]);
}
