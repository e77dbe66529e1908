//! Logins, and where other programs keep them: docker's configuration file, which Helm, podman, skopeo and containerd's tools have too.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use docker_credential::{
    CredentialRetrievalError as Fault, DockerCredential, get_credential_from_reader,
};

/// A user of a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    Password {
        user: String,
        password: String,
    },
    /// A token that a token server exchanges for one that registries accept.
    IdentityToken(String),
}

impl Login {
    /// Returns the header that has the password.
    pub(super) fn basic(&self) -> Option<String> {
        match self {
            Self::Password { user, password } => {
                let login = STANDARD.encode(format!("{user}:{password}"));
                Some(format!("Basic {login}"))
            }
            Self::IdentityToken(_) => None,
        }
    }
}

/// Prints no password and no token.
impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => write!(formatter, "{user}:…"),
            Self::IdentityToken(_) => write!(formatter, "identity token"),
        }
    }
}

/// Why a stored login cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredLoginError {
    #[error("it is damaged: log in again")]
    File,
    #[error("its login for {0} is damaged: log in again")]
    Login(String),
    #[error(
        "it names a credential helper for {0} that cannot be started: put docker-credential-NAME into PATH"
    )]
    Start(String),
    #[error("its credential helper for {0} prints no login: log in again")]
    Output(String),
    #[error("{helper} has no login for {host}: {reason}")]
    Helper {
        helper: String,
        host: String,
        reason: String,
    },
}

/// The message of helpers that have no login for a server.
const NOT_FOUND: &str = "credentials not found";

/// Returns the login of a registry in docker's `config.json`: of a helper for it alone, in the file, or of the helper for all registries.
///
/// Starts the helper that the file names.
pub fn stored_login(config: &[u8], host: &str) -> Result<Option<Login>, StoredLoginError> {
    // Docker has an older name for its own registry; podman uses the newer one.
    let names: &[&str] = match host {
        "docker.io" | "index.docker.io" => &["https://index.docker.io/v1/", "docker.io"],
        _ => &[host],
    };
    for name in names {
        let error = match get_credential_from_reader(config, name) {
            Ok(DockerCredential::IdentityToken(token)) => {
                return Ok(Some(Login::IdentityToken(token)));
            }
            Ok(DockerCredential::UsernamePassword(user, password)) => {
                return Ok(Some(Login::Password { user, password }));
            }
            Err(Fault::NoCredentialConfigured) => continue,
            Err(Fault::HelperFailure { stdout, .. }) if stdout.contains(NOT_FOUND) => continue,
            Err(error) => error,
        };
        let host = host.to_owned();
        return Err(match error {
            Fault::CredentialDecodingError | Fault::CredentialMismatchError => {
                StoredLoginError::Login(host)
            }
            Fault::HelperCommunicationError => StoredLoginError::Start(host),
            // The output may be a secret, so no error quotes it.
            Fault::MalformedHelperResponse => StoredLoginError::Output(host),
            Fault::HelperFailure { helper, stdout, .. } => {
                let line = stdout.lines().next().unwrap_or("it gave no reason");
                let reason = line.trim().to_owned();
                StoredLoginError::Helper {
                    helper,
                    host,
                    reason,
                }
            }
            Fault::NoCredentialConfigured | Fault::ConfigNotFound | Fault::ConfigReadError => {
                StoredLoginError::File
            }
        });
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(user: &str, password: &str) -> Login {
        Login::Password {
            user: user.into(),
            password: password.into(),
        }
    }

    #[track_caller]
    fn check(config: &str, host: &str, expected: &Result<Option<Login>, StoredLoginError>) {
        assert_eq!(&stored_login(config.as_bytes(), host), expected, "{host}");
    }

    #[test]
    fn login_is_found_in_docker_configuration() {
        let config = r#"{"auths": {"r.example:5000": {"auth": "bWU6YTpi"}, "https://index.docker.io/v1/": {"auth": "eDp5"},
            "https://old.example/v1/": {"auth": "eDp5"}, "kept.example": {}, "damaged.example": {"auth": "="},
            "t.example": {"auth": "eDo=", "identitytoken": "secret"}, "plain.example": {"username": "u", "password": "p"}}}"#;
        check(config, "r.example:5000", &Ok(Some(password("me", "a:b"))));
        check(config, "docker.io", &Ok(Some(password("x", "y"))));
        check(config, "old.example", &Ok(Some(password("x", "y"))));
        check(config, "plain.example", &Ok(Some(password("u", "p"))));
        let token = Login::IdentityToken("secret".into());
        check(config, "t.example", &Ok(Some(token)));
        check(config, "kept.example", &Ok(None));
        check(config, "r.example", &Ok(None));
        check("{}", "r.example", &Ok(None));
        let podman = r#"{"auths": {"docker.io": {"auth": "eDp5"}}}"#;
        check(podman, "docker.io", &Ok(Some(password("x", "y"))));
        let damaged = StoredLoginError::Login("damaged.example".into());
        check(config, "damaged.example", &Err(damaged));
        check("{", "r.example", &Err(StoredLoginError::File));
    }

    #[test]
    fn secrets_are_not_printed() {
        let login = password("me", "hidden");
        assert_eq!(format!("{login:?}"), "me:…");
        let token = Login::IdentityToken("hidden".into());
        assert_eq!(format!("{token:?}"), "identity token");
    }
}
