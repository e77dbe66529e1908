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
    /// `docker-credential-<name> get` knows.
    Helper(String),
}

/// Looks for a registry in docker's `config.json`.
pub fn in_docker_config(text: &str, host: &str) -> Result<Found, serde_json::Error> {
    let config: Value = serde_json::from_str(text)?;
    let is_hub = matches!(host, "docker.io" | "index.docker.io");
    let key = if is_hub {
        "https://index.docker.io/v1/"
    } else {
        host
    };
    if let Some(helper) = config["credHelpers"][key].as_str() {
        return Ok(Found::Helper(helper.to_owned()));
    }
    let entry = &config["auths"][key];
    if let Some(login) = entry["auth"].as_str().and_then(decode) {
        return Ok(Found::Login(login));
    }
    match config["credsStore"].as_str() {
        Some(helper) if entry.is_object() => Ok(Found::Helper(helper.to_owned())),
        _ => Ok(Found::Nothing),
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
            "kept.example": {}}, "credsStore": "keeper", "credHelpers": {"own.example": "other"}}"#;
        let login = |user: &str, password: &str| {
            Found::Login(Login {
                user: user.into(),
                password: password.into(),
            })
        };
        check(config, "r.example:5000", &login("me", "a:b"));
        check(config, "docker.io", &login("x", "y"));
        check(config, "kept.example", &Found::Helper("keeper".into()));
        check(config, "own.example", &Found::Helper("other".into()));
        check(config, "else.example", &Found::Nothing);
        check("{}", "r.example", &Found::Nothing);
        in_docker_config("{", "r.example").unwrap_err();
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
