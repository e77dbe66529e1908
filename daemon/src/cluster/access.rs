//! Who the daemon is towards the API server, for as long as it runs.
//!
//! The kube crate reads a token file again when a minute has passed by the wall clock. A clock that was ahead and is set right keeps it
//! from doing so until the wrong time has come: years, while the kubelet replaces the token within the hour. Here no clock is asked:
//! the file is read with each request, which costs microseconds.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use hyper::{Request, header::AUTHORIZATION, header::HeaderValue};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
    config::InferConfigError,
};
use tower::util::MapRequestLayer;

/// There is no identity, or none that can be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Neither a kubeconfig nor a service account.
    #[error("neither a kubeconfig nor a service account says where the API server is")]
    Nobody(#[from] InferConfigError),
    /// The token of the service account or kubeconfig.
    #[error("{}: there is no token that can be read", .0.display())]
    NoToken(PathBuf),
    /// Something else that the identity consists of.
    #[error("the identity cannot be used")]
    Unusable(#[from] kube::Error),
}

/// A client as whoever this process is: its pod's service account, or the user of its kubeconfig.
pub async fn client() -> Result<Client, AccessError> {
    let mut config = Config::infer().await?;
    let account = &mut config.auth_info;
    // A token wins over a file, as it does for every other client.
    let file = account.token_file.take_if(|_| account.token.is_none());
    let Some(file) = file else {
        return Ok(Client::try_from(config)?);
    };
    let token = Arc::new(TokenFile::new(file.into()));
    // At its first reading it has to be there; later on it may be away.
    token
        .now()
        .ok_or_else(|| AccessError::NoToken(token.path.clone()))?;
    let show = move |mut request: Request<Body>| {
        if let Some(value) = token.now() {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        request
    };
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&MapRequestLayer::new(show)).build())
}

/// A file that holds a token, and what was last read there.
struct TokenFile {
    path: PathBuf,
    last: Mutex<Option<HeaderValue>>,
}

impl TokenFile {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            last: Mutex::default(),
        }
    }

    /// The token as it stands there; the last one while none can be read.
    fn now(&self) -> Option<HeaderValue> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let token = std::fs::read_to_string(&self.path).unwrap_or_default();
        if !token.trim().is_empty()
            && let Ok(mut value) = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        {
            value.set_sensitive(true);
            *last = Some(value);
        }
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_the_one_of_the_moment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = TokenFile::new(path.clone());
        let now = || token.now().map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(now(), None);
        let first = Some("Bearer one".to_owned());
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(now(), first);
        // Somebody is about to write it, or has taken it away.
        std::fs::write(&path, "").unwrap();
        assert_eq!(now(), first);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(now(), first);
        std::fs::write(&path, "two").unwrap();
        assert_eq!(now(), Some("Bearer two".to_owned()));
        assert!(!format!("{:?}", token.now()).contains("two"));
    }
}
