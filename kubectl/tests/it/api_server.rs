//! A fake API server that answers paths with fixed statuses and objects.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

/// A server that answers until the test ends.
pub(crate) struct ApiServer {
    dir: tempfile::TempDir,
    /// The `Authorization` header of each request.
    credentials: Arc<Mutex<Vec<String>>>,
}

impl ApiServer {
    /// Starts a server that answers these paths with these statuses and objects, all others with 404.
    pub(crate) fn start(answers: &[(&str, u16, Value)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers = answers.iter().map(|(path, status, body)| {
            let (path, body) = ((*path).to_owned(), body.clone());
            (path, (*status, body))
        });
        let answers: Arc<BTreeMap<_, _>> = Arc::new(answers.collect());
        let credentials = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&credentials);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answers, seen) = (Arc::clone(&answers), Arc::clone(&seen));
                thread::spawn(move || serve(stream.unwrap(), &answers, &seen));
            }
        });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {}}, {"name": "commanded", "user": {"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": [dir.path().join("credential")],
                "interactiveMode": "Never",
            }}}],
            "contexts": [
                {"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "shop"}},
                {"name": "commanded", "context": {"cluster": "k", "user": "commanded", "namespace": "shop"}},
                {"name": "other", "context": {"cluster": "k", "user": "u", "namespace": "empty"}},
            ],
        });
        std::fs::write(dir.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "secret"}});
        std::fs::write(dir.path().join("credential"), credential.to_string()).unwrap();
        Self { dir, credentials }
    }

    pub(crate) fn credentials(&self) -> Vec<String> {
        self.credentials.lock().unwrap().clone()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }
}

fn serve(
    mut stream: TcpStream,
    answers: &BTreeMap<String, (u16, Value)>,
    credentials: &Mutex<Vec<String>>,
) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let mut credential = String::new();
    for line in lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
    {
        if let Some(("authorization", value)) = line.to_lowercase().split_once(": ") {
            value.clone_into(&mut credential);
        }
    }
    credentials.lock().unwrap().push(credential);
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
