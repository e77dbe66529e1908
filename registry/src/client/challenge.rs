//! How a registry wants to be logged in to: by a password in each request, or by a token of another server.

use http_auth::{ChallengeRef, parse_challenges};
use reqwest::{Method, RequestBuilder, Url, header::AUTHORIZATION};
use serde_json::Value;

use super::{Login, Scope};
use crate::http::Http;

/// The name of this client at token servers.
const CLIENT: &str = "multus-rs";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer(Issuer),
}

/// A server that issues tokens.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Issuer {
    realm: String,
    service: Option<String>,
}

/// Returns the first challenge of a kind that this client can meet.
pub(super) fn find<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut challenges = headers.filter_map(|header| parse_challenges(header).ok());
    challenges.find_map(|challenges| challenges.iter().find_map(kind))
}

fn kind(challenge: &ChallengeRef<'_>) -> Option<Challenge> {
    if challenge.scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    let is_bearer = challenge.scheme.eq_ignore_ascii_case("bearer");
    let value = |key: &str| {
        let mut params = challenge.params.iter();
        let found = params.find(|(name, _)| name.eq_ignore_ascii_case(key))?;
        Some(found.1.to_unescaped())
    };
    let realm = value("realm").filter(|_| is_bearer)?;
    let service = value("service");
    Some(Challenge::Bearer(Issuer { realm, service }))
}

impl Issuer {
    /// Returns whether the server would read the login from a connection without TLS.
    pub(super) fn is_plain(&self) -> bool {
        let address: Option<Url> = self.realm.parse().ok();
        address.is_some_and(|address| address.scheme() != "https")
    }

    /// Returns the request for a token, or `None` when the server has no address.
    pub(super) fn request(
        &self,
        http: &Http,
        scope: &Scope,
        login: Option<&Login>,
    ) -> Option<RequestBuilder> {
        let mut address: Url = self.realm.parse().ok()?;
        let actions = if scope.is_push { "pull,push" } else { "pull" };
        let scope = format!("repository:{}:{actions}", scope.repository);
        let mut fields = vec![("scope", scope.as_str())];
        fields.extend(self.service.as_deref().map(|service| ("service", service)));
        if let Some(Login::IdentityToken(token)) = login {
            // RFC 6749, 6: the only grant in which a token is exchanged for another.
            fields.extend([
                ("grant_type", "refresh_token"),
                ("client_id", CLIENT),
                ("refresh_token", token),
            ]);
            return Some(http.request(Method::POST, address).form(&fields));
        }
        address.query_pairs_mut().extend_pairs(fields);
        let request = http.request(Method::GET, address);
        Some(match login.and_then(Login::basic) {
            Some(basic) => request.header(AUTHORIZATION, basic),
            None => request,
        })
    }
}

/// Returns the token in the response of a token server, which has one of two names.
pub(super) fn token(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let text = |key: &str| body[key].as_str().filter(|text| !text.is_empty());
    let token = text("token").or_else(|| text("access_token"))?;
    Some(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_known_challenge_counts() {
        let bearer = |service: Option<&str>| {
            Some(Challenge::Bearer(Issuer {
                realm: "https://t.example/token".to_owned(),
                service: service.map(str::to_owned),
            }))
        };
        for (headers, expected) in [
            (&["Basic realm=\"x\""][..], Some(Challenge::Basic)),
            (
                &["bearer realm=\"https://t.example/token\",service=\"r, x\",scope=\"a\""],
                bearer(Some("r, x")),
            ),
            (&["Bearer realm=\"https://t.example/token\""], bearer(None)),
            (
                &["Digest realm=\"x\"", "Basic realm=\"x\""],
                Some(Challenge::Basic),
            ),
            (
                &["Digest realm=\"x\", Basic realm=\"x\""],
                Some(Challenge::Basic),
            ),
            (&["Bearer service=\"x\""], None),
            (&["="], None),
            (&[], None),
        ] {
            assert_eq!(find(headers.iter().copied()), expected, "{headers:?}");
        }
    }

    #[test]
    fn servers_without_tls_are_known() {
        for (realm, expected) in [
            ("https://t.example/token", false),
            ("HTTP://t.example/token", true),
            ("http://t.example/token", true),
            ("ftp://t.example/", true),
        ] {
            let issuer = Issuer {
                realm: realm.to_owned(),
                service: None,
            };
            assert_eq!(issuer.is_plain(), expected, "{realm}");
        }
    }

    #[test]
    fn token_has_one_of_two_names() {
        for (body, expected) in [
            (r#"{"token": "a", "access_token": "b"}"#, Some("a")),
            (r#"{"access_token": "b"}"#, Some("b")),
            (r#"{"token": ""}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(token(body.as_bytes()).as_deref(), expected, "{body}");
        }
    }
}
