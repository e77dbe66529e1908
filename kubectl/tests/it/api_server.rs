//! As much of an API server as is asked: objects by path, and refusals.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::Arc,
    thread,
};

use serde_json::{Value, json};

/// Answers until the test ends.
pub(crate) struct ApiServer {
    pub(crate) dir: tempfile::TempDir,
}

impl ApiServer {
    /// Answers these paths with these statuses and objects, all others with 404.
    pub(crate) fn start(answers: &[(&str, u16, Value)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers = answers.iter().map(|(path, status, body)| {
            let (path, body) = ((*path).to_owned(), body.clone());
            (path, (*status, body))
        });
        let answers: Arc<BTreeMap<_, _>> = Arc::new(answers.collect());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let answers = Arc::clone(&answers);
                thread::spawn(move || serve(stream.unwrap(), &answers));
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [
                {"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "shop"}},
                {"name": "other", "context": {"cluster": "k", "user": "u", "namespace": "empty"}},
            ],
        });
        std::fs::write(dir.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { dir }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }
}

fn serve(mut stream: TcpStream, answers: &BTreeMap<String, (u16, Value)>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
    let path = first.split(' ').nth(1).unwrap();
    let path = path.split('?').next().unwrap();
    let absent = (
        404,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404}),
    );
    let (status, body) = answers.get(path).unwrap_or(&absent);
    let body = body.to_string();
    let _ = write!(
        stream,
        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
}
