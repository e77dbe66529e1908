//! A registry in memory, with one user where it wants one: it keeps what is pushed and serves it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use archive::digest::sha256;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use testkit::http_server::{Request, Server, response};

pub(crate) const USER: &str = "operator";
pub(crate) const PASSWORD: &str = "a word for this test";

/// The content of the registry: blobs by digest, and manifests by repository and tag or digest, with their media types.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
    pub(crate) manifests: BTreeMap<(String, String), (String, Vec<u8>)>,
    /// The method and path of each request that was let in.
    pub(crate) requests: Vec<String>,
    /// The answer to every request for a list of tags.
    pub(crate) tag_list: Option<&'static str>,
}

pub(crate) struct Registry {
    pub(crate) host: String,
    content: Arc<Mutex<Content>>,
}

impl Registry {
    /// Serves one request per connection until the test ends.
    pub(crate) fn start(wants_login: bool) -> Self {
        let content = Arc::new(Mutex::new(Content::default()));
        let shared = Arc::clone(&content);
        let login = STANDARD.encode(format!("{USER}:{PASSWORD}"));
        let login = wants_login.then(|| format!("Basic {login}"));
        let server = Server::start(move |_, request| {
            if login.is_some() && request.authorization != login {
                let head = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"test\"";
                return response(head, b"{}");
            }
            let mut content = shared.lock().expect("no thread panicked");
            answer(&mut content, request)
        });
        Self {
            host: server.host().to_owned(),
            content,
        }
    }

    /// Calls a function with what the registry has now.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&mut Content) -> T) -> T {
        read(&mut self.content.lock().expect("no thread panicked"))
    }
}

fn answer(content: &mut Content, request: &Request) -> Vec<u8> {
    let Request { method, body, .. } = request;
    let (path, query) = request
        .target
        .split_once('?')
        .unwrap_or((&request.target, ""));
    content.requests.push(format!("{method} {path}"));
    let absent = || response("404 Not Found", b"{}");
    let Some(rest) = path.strip_prefix("/v2/") else {
        return absent();
    };
    if let Some((repository, name)) = rest.split_once("/manifests/") {
        let key = (repository.to_owned(), name.to_owned());
        if method == "PUT" {
            let manifest = (request.content_type.clone(), body.clone());
            let by_digest = (repository.to_owned(), sha256(body).to_string());
            content.manifests.insert(by_digest, manifest.clone());
            content.manifests.insert(key, manifest);
            return response("201 Created", b"");
        }
        return match content.manifests.get(&key) {
            Some((kind, bytes)) => {
                let digest = sha256(bytes);
                let head =
                    format!("200 OK\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {digest}");
                response(&head, bytes)
            }
            None => absent(),
        };
    }
    if let Some(repository) = rest.strip_suffix("/tags/list") {
        if let Some(list) = content.tag_list {
            return response("200 OK", list.as_bytes());
        }
        return match tags(content, repository, query) {
            Some(list) => response("200 OK", list.as_bytes()),
            None => absent(),
        };
    }
    match (method.as_str(), rest.split_once("/blobs/")) {
        ("POST", Some((repository, _))) => {
            let head = format!("202 Accepted\r\nLocation: /v2/{repository}/blobs/uploads/1");
            response(&head, b"")
        }
        ("PUT", _) => {
            let digest = query.replace("%3A", ":");
            let digest = digest.rsplit("digest=").next().unwrap_or_default();
            content.blobs.insert(digest.to_owned(), body.clone());
            response("201 Created", b"")
        }
        (_, Some((_, digest))) => match content.blobs.get(digest) {
            Some(bytes) => response("200 OK", bytes),
            None => absent(),
        },
        _ => absent(),
    }
}

/// Returns two of a repository's tags at most, after the one in the query.
fn tags(content: &Content, repository: &str, query: &str) -> Option<String> {
    let keys = content.manifests.keys();
    let mut tags: Vec<_> = keys
        .filter(|(of, name)| of == repository && !name.contains(':'))
        .map(|(_, tag)| tag.as_str())
        .collect();
    if tags.is_empty() {
        return None;
    }
    tags.sort_unstable();
    let last = query.split('&').find_map(|part| part.strip_prefix("last="));
    tags.retain(|tag| last.is_none_or(|last| *tag > last));
    tags.truncate(2);
    Some(serde_json::json!({"name": repository, "tags": tags}).to_string())
}
