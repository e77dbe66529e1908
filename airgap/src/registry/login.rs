//! Logins that other programs left for this one: docker's configuration file, which Helm, skopeo and containerd's tools read too.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The secret.
    pub password: String,
}

/// A secret is never printed.
impl std::fmt::Debug for Login {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:…", self.user)
    }
}

/// What a configuration says about a registry.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// The login itself.
    Login(Login),
    /// `docker-credential-<name> get` knows, asked for this server.
    Helper {
        /// The end of the program's name.
        name: String,
        /// What it keeps the login under.
        server: String,
    },
}

/// Looks for a registry in docker's `config.json`: a helper for it alone, a login that stands there, the helper for all.
pub fn in_docker_config(text: &str, host: &str) -> Result<Found, serde_json::Error> {
    let config: Value = serde_json::from_str(text)?;
    let is_hub = matches!(host, "docker.io" | "index.docker.io");
    let server = if is_hub {
        "https://index.docker.io/v1/"
    } else {
        host
    };
    let helper = |name: &Value| {
        let name = name.as_str().filter(|name| !name.is_empty())?;
        Some(Found::Helper {
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
        return Ok(Found::Login(login));
    }
    Ok(helper(&config["credsStore"]).unwrap_or(Found::Nothing))
}

/// The registry of a key, which older programs wrote as an address.
fn host_of(key: &str) -> &str {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// What helpers say where they keep nothing for a server.
const NOT_FOUND: &str = "credentials not found";

/// Reads what a helper answered to `get`; nothing where it has no login for the server.
pub fn of_helper(is_success: bool, answer: &str) -> Result<Option<Login>, String> {
    if !is_success {
        if answer.contains(NOT_FOUND) {
            return Ok(None);
        }
        let line = answer.lines().next().unwrap_or("it says nothing");
        return Err(line.trim().to_owned());
    }
    // What it answers may be a secret: none of it is told.
    let answer: Value =
        serde_json::from_str(answer).map_err(|_| "its answer is no JSON".to_owned())?;
    let word = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let (user, password) = (word("Username"), word("Secret"));
    match user.as_str() {
        "" => Err("its answer names no user".to_owned()),
        "<token>" => Err("it keeps a token instead of a password".to_owned()),
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

    fn check(config: &str, host: &str, expected: &Found) {
        assert_eq!(&in_docker_config(config, host).unwrap(), expected, "{host}");
    }

    #[test]
    fn a_login_is_found_where_docker_leaves_it() {
        let config = r#"{"auths": {"r.example:5000": {"auth": "bWU6YTpi"}, "https://index.docker.io/v1/": {"auth": "eDp5"},
            "https://old.example/v1/": {"auth": "eDp5"}, "both.example": {"auth": "eDp5"}, "kept.example": {}},
            "credHelpers": {"own.example": "other", "both.example": "other"}}"#;
        let login = |user: &str, password: &str| {
            Found::Login(Login {
                user: user.into(),
                password: password.into(),
            })
        };
        let helper = |name: &str, server: &str| Found::Helper {
            name: name.into(),
            server: server.into(),
        };
        check(config, "r.example:5000", &login("me", "a:b"));
        check(config, "docker.io", &login("x", "y"));
        check(config, "old.example", &login("x", "y"));
        check(config, "own.example", &helper("other", "own.example"));
        check(config, "both.example", &helper("other", "both.example"));
        check(config, "kept.example", &Found::Nothing);
        check(config, "r.example", &Found::Nothing);
        let store = r#"{"auths": {"r.example": {"auth": "eDp5"}}, "credsStore": "keeper"}"#;
        check(store, "r.example", &login("x", "y"));
        check(store, "kept.example", &helper("keeper", "kept.example"));
        check(
            store,
            "docker.io",
            &helper("keeper", "https://index.docker.io/v1/"),
        );
        check("{}", "r.example", &Found::Nothing);
        in_docker_config("{", "r.example").unwrap_err();
    }

    #[test]
    fn a_helper_knows_or_does_not() {
        let login = Login {
            user: "me".into(),
            password: "secret".into(),
        };
        let answer = r#"{"ServerURL": "r.example", "Username": "me", "Secret": "secret"}"#;
        assert_eq!(of_helper(true, answer), Ok(Some(login)));
        let nothing = "credentials not found in native keychain\n";
        assert_eq!(of_helper(false, nothing), Ok(None));
        for (is_success, answer, expected) in [
            (false, "no keyring\nmore", "no keyring"),
            (false, "", "it says nothing"),
            (true, "secret", "its answer is no JSON"),
            (true, "{}", "its answer names no user"),
            (
                true,
                r#"{"Username": "<token>", "Secret": "secret"}"#,
                "it keeps a token",
            ),
        ] {
            let told = of_helper(is_success, answer).unwrap_err();
            assert!(
                told.starts_with(expected) && !told.contains("secret"),
                "{told}"
            );
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        let login = Login {
            user: "me".into(),
            password: "hidden".into(),
        };
        assert_eq!(format!("{login:?}"), "me:…");
    }
}
