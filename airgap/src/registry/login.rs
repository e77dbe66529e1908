//! Logins that other programs stored: docker's configuration file, which Helm, skopeo and containerd's tools read too.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

/// A user of a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
}

/// Prints no password.
impl std::fmt::Debug for Login {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:…", self.user)
    }
}

/// The login of a registry in a configuration.
#[derive(Debug, PartialEq, Eq)]
pub enum StoredLogin {
    /// No login.
    None,
    /// The login itself.
    Login(Login),
    /// `docker-credential-<name> get` returns the login of this server.
    Helper {
        /// The end of the program's name.
        name: String,
        /// The server that the program is asked for.
        server: String,
    },
}

/// Finds a registry in docker's `config.json`: a helper for it alone, a login in the file, the helper for all registries.
pub fn in_docker_config(text: &str, host: &str) -> Result<StoredLogin, serde_json::Error> {
    let config: Value = serde_json::from_str(text)?;
    let is_hub = matches!(host, "docker.io" | "index.docker.io");
    let server = if is_hub {
        "https://index.docker.io/v1/"
    } else {
        host
    };
    let helper = |name: &Value| {
        let name = name.as_str().filter(|name| !name.is_empty())?;
        Some(StoredLogin::Helper {
            name: name.to_owned(),
            server: server.to_owned(),
        })
    };
    if let Some(found) = helper(&config["credHelpers"][server]) {
        return Ok(found);
    }
    let auths = config["auths"].as_object();
    let mut entries = auths.into_iter().flatten();
    let entry = entries.find(|(key, _)| *key == server || !is_hub && host_of(key) == host);
    let login = entry.and_then(|(_, entry)| decode(entry["auth"].as_str()?));
    if let Some(login) = login {
        return Ok(StoredLogin::Login(login));
    }
    Ok(helper(&config["credsStore"]).unwrap_or(StoredLogin::None))
}

/// Returns the registry of a key, which older programs wrote as an address.
fn host_of(key: &str) -> &str {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// The message of helpers that have no login for a server.
const NOT_FOUND: &str = "credentials not found";

/// Parses the output of a helper's `get`; returns `None` when the helper has no login for the server.
pub fn of_helper(is_success: bool, output: &str) -> Result<Option<Login>, String> {
    if !is_success {
        if output.contains(NOT_FOUND) {
            return Ok(None);
        }
        let line = output.lines().next().unwrap_or("it gave no reason");
        return Err(line.trim().to_owned());
    }
    // The output may be a secret, so no error quotes it.
    let output: Value =
        serde_json::from_str(output).map_err(|_| "its output is not JSON".to_owned())?;
    let text = |key: &str| output[key].as_str().unwrap_or_default().to_owned();
    let (user, password) = (text("Username"), text("Secret"));
    match user.as_str() {
        "" => Err("its output names no user".to_owned()),
        "<token>" => Err("it has a token instead of a password".to_owned()),
        _ => Ok(Some(Login { user, password })),
    }
}

fn decode(auth: &str) -> Option<Login> {
    let text = String::from_utf8(STANDARD.decode(auth).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Login {
        user: user.to_owned(),
        password: password.trim_end_matches('\0').to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &str, host: &str, expected: &StoredLogin) {
        assert_eq!(&in_docker_config(config, host).unwrap(), expected, "{host}");
    }

    #[test]
    fn login_is_found_in_docker_configuration() {
        let config = r#"{"auths": {"r.example:5000": {"auth": "bWU6YTpi"}, "https://index.docker.io/v1/": {"auth": "eDp5"},
            "https://old.example/v1/": {"auth": "eDp5"}, "both.example": {"auth": "eDp5"}, "kept.example": {}},
            "credHelpers": {"own.example": "other", "both.example": "other"}}"#;
        let login = |user: &str, password: &str| {
            StoredLogin::Login(Login {
                user: user.into(),
                password: password.into(),
            })
        };
        let helper = |name: &str, server: &str| StoredLogin::Helper {
            name: name.into(),
            server: server.into(),
        };
        check(config, "r.example:5000", &login("me", "a:b"));
        check(config, "docker.io", &login("x", "y"));
        check(config, "old.example", &login("x", "y"));
        check(config, "own.example", &helper("other", "own.example"));
        check(config, "both.example", &helper("other", "both.example"));
        check(config, "kept.example", &StoredLogin::None);
        check(config, "r.example", &StoredLogin::None);
        let store = r#"{"auths": {"r.example": {"auth": "eDp5"}}, "credsStore": "keeper"}"#;
        check(store, "r.example", &login("x", "y"));
        check(store, "kept.example", &helper("keeper", "kept.example"));
        check(
            store,
            "docker.io",
            &helper("keeper", "https://index.docker.io/v1/"),
        );
        check("{}", "r.example", &StoredLogin::None);
        in_docker_config("{", "r.example").unwrap_err();
    }

    #[test]
    fn output_of_a_helper_is_a_login_or_a_reason() {
        let login = Login {
            user: "me".into(),
            password: "secret".into(),
        };
        let output = r#"{"ServerURL": "r.example", "Username": "me", "Secret": "secret"}"#;
        assert_eq!(of_helper(true, output), Ok(Some(login)));
        let not_found = "credentials not found in native keychain\n";
        assert_eq!(of_helper(false, not_found), Ok(None));
        for (is_success, output, expected) in [
            (false, "no keyring\nmore", "no keyring"),
            (false, "", "it gave no reason"),
            (true, "secret", "its output is not JSON"),
            (true, "{}", "its output names no user"),
            (
                true,
                r#"{"Username": "<token>", "Secret": "secret"}"#,
                "it has a token",
            ),
        ] {
            let reason = of_helper(is_success, output).unwrap_err();
            assert!(
                reason.starts_with(expected) && !reason.contains("secret"),
                "{reason}"
            );
        }
    }

    #[test]
    fn password_is_not_printed() {
        let login = Login {
            user: "me".into(),
            password: "hidden".into(),
        };
        assert_eq!(format!("{login:?}"), "me:…");
    }
}
