//! The proxies that the environment names, and the hosts that need none.

use std::{fmt, sync::Arc};

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;

use super::SetupError;

/// The hosts of this machine, which no proxy reaches.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// A proxy, and the variable that names it.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// With user and password where it requires them.
    address: String,
    variable: &'static str,
}

/// Prints no password.
impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self
            .address
            .split_once("://")
            .unwrap_or(("http", &self.address));
        let host = rest.rsplit('@').next().unwrap_or(rest);
        let host = host.trim_end_matches('/');
        write!(
            formatter,
            "the proxy {scheme}://{host} of {}",
            self.variable
        )
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The proxy of each address.
#[derive(Clone)]
pub(super) struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    matcher: Arc<Matcher>,
}

impl Proxies {
    pub(super) fn new(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, SetupError> {
        let all = ["ALL_PROXY", "all_proxy"];
        let http = named(variable, [&["HTTP_PROXY", "http_proxy"], &all[..]].concat())?;
        let https = named(
            variable,
            [&["HTTPS_PROXY", "https_proxy"], &all[..]].concat(),
        )?;
        let address = |proxy: &Option<Proxy>| {
            let address = proxy.as_ref().map(|proxy| proxy.address.clone());
            address.unwrap_or_default()
        };
        let own = ["NO_PROXY", "no_proxy"]
            .iter()
            .find_map(|name| variable(name));
        let direct = format!("{LOOPBACK},{}", own.unwrap_or_default());
        let builder = Matcher::builder()
            .http(address(&http))
            .https(address(&https));
        Ok(Self {
            matcher: Arc::new(builder.no(direct).build()),
            http,
            https,
        })
    }

    /// Returns the proxy of an address, or `None` when the connection is direct.
    pub(super) fn of(&self, address: &Url) -> Option<&Proxy> {
        let address = address.as_str().parse().ok()?;
        self.matcher.intercept(&address)?;
        match address.scheme_str() {
            Some("https") => self.https.as_ref(),
            _ => self.http.as_ref(),
        }
    }

    /// Returns the rule for the HTTP library.
    pub(super) fn rule(&self) -> reqwest::Proxy {
        let proxies = self.clone();
        reqwest::Proxy::custom(move |address| {
            proxies.of(address).map(|proxy| proxy.address.clone())
        })
    }
}

/// Returns the proxy of the first variable that has a value.
fn named(
    variable: &dyn Fn(&str) -> Option<String>,
    names: Vec<&'static str>,
) -> Result<Option<Proxy>, SetupError> {
    let mut values = names
        .into_iter()
        .filter_map(|name| Some((name, variable(name).filter(|value| !value.is_empty())?)));
    let Some((variable, address)) = values.next() else {
        return Ok(None);
    };
    let scheme = address
        .split_once("://")
        .map_or("http", |(scheme, _)| scheme);
    let matcher = Matcher::builder().http(address.clone()).build();
    let is_known = matcher
        .intercept(&http::Uri::from_static("http://host.invalid/"))
        .is_some();
    if !is_known || !matches!(scheme, "http" | "https") {
        return Err(SetupError::Proxy(variable));
    }
    Ok(Some(Proxy { address, variable }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, SetupError> {
        Proxies::new(&|name| {
            let found = variables.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[track_caller]
    fn check(variables: &[(&str, &str)], address: &str, expected: Option<&str>) {
        let proxies = proxies(variables).unwrap();
        let found = proxies.of(&address.parse().unwrap()).map(Proxy::to_string);
        assert_eq!(found.as_deref(), expected, "{address}");
    }

    #[test]
    fn proxy_depends_on_the_scheme_and_is_shown_without_its_login() {
        let both = [
            ("HTTPS_PROXY", "http://me:se@cret@p.example:1/"),
            ("all_proxy", "q.example:2"),
        ];
        let expected = Some("the proxy http://p.example:1 of HTTPS_PROXY");
        check(&both, "https://r.example/v2/", expected);
        let expected = Some("the proxy http://q.example:2 of all_proxy");
        check(&both, "http://r.example/", expected);
        check(&[("HTTP_PROXY", "")], "http://r.example/", None);
        for value in ["socks5://p.example:1", "http://", "not a proxy"] {
            let Err(error) = proxies(&[("HTTP_PROXY", value)]) else {
                panic!("{value} is taken");
            };
            assert!(error.to_string().starts_with("HTTP_PROXY names no proxy"));
        }
    }

    #[test]
    fn this_machine_and_hosts_of_no_proxy_are_reached_directly() {
        let variables = [
            ("ALL_PROXY", "http://p.example:1"),
            ("NO_PROXY", ".example.com, 10.0.0.0/8"),
        ];
        for host in [
            "localhost",
            "127.0.0.1:5000",
            "127.1.2.3",
            "[::1]:5000",
            "a.example.com",
            "10.1.2.3",
        ] {
            for scheme in ["http", "https"] {
                check(&variables, &format!("{scheme}://{host}/"), None);
            }
        }
        let proxy = Some("the proxy http://p.example:1 of ALL_PROXY");
        check(&variables, "https://localhost.example/", proxy);
        check(&variables, "http://11.1.2.3/", proxy);
    }
}
