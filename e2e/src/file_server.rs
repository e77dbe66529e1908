//! An HTTP server on loopback for the files of a directory.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::Context as _;

/// The server, which serves until the test ends.
pub(crate) struct FileServer {
    pub(crate) url: String,
    requests: Arc<AtomicUsize>,
}

impl FileServer {
    pub(crate) fn serve(dir: &Path) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
        let url = format!("http://{}", listener.local_addr()?);
        let requests = Arc::new(AtomicUsize::new(0));
        let (dir, count) = (dir.to_owned(), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                // A client may close the connection at any time.
                let _ = answer(&dir, stream);
            }
        });
        Ok(Self { url, requests })
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn answer(dir: &Path, mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let target = first.split(' ').nth(1).unwrap_or_default();
    // Clients send a plus as it is or percent-encoded.
    let path = target.trim_start_matches('/').replace("%2B", "+");
    let is_plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    let path: PathBuf = dir.join(&path);
    let found = is_plain.then(|| fs::read(path).ok()).flatten();
    let (status, body) = found.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}
