//! The networks of a cluster's pods, as a server of K3s answers an agent that joins (`GET /v1-k3s/config`).
//!
//! The token goes through curl's stdin, and only to a server whose CA has the hash in the token.

use std::{fs, net::IpAddr, path::Path};

use anyhow::{Context as _, ensure};
use archive::digest::sha256;
use serde::Deserialize;
use vpn::Prefix;

use super::curl::{OPTIONS, quoted};
use crate::settings::Settings;

/// Asks the server that the agent joins. The CA is in the directory as long as curl reads it.
pub(crate) fn ask(
    settings: &Settings,
    dir: &Path,
    curl: impl Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<Vec<Prefix>> {
    let server = settings.server.as_deref().context("no server is set")?;
    let base = base(server).with_context(|| format!("{server} is not an address of a server"))?;
    let token = match &settings.token_file {
        Some(file) => fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?,
        None => settings.token.0.clone().context("no token is set")?,
    };
    let (hash, credentials) = parse_token(token.trim()).context(
        "the token has no hash of the cluster's CA, as the one in the server's node-token has",
    )?;
    let ca = curl(&format!(
        "{OPTIONS}insecure\nurl = {}\n",
        quoted(&format!("{base}/cacerts"))
    ))?;
    ensure!(
        sha256(ca.as_bytes()).hex() == hash,
        "{base} has another CA than the token, or one of several certificates"
    );
    let file = dir.join("server-ca.pem");
    fs::write(&file, &ca).with_context(|| format!("cannot write {}", file.display()))?;
    let answer = curl(&format!(
        "{OPTIONS}{credentials}cacert = {}\nurl = {}\n",
        quoted(&file.to_string_lossy()),
        quoted(&format!("{base}/v1-k3s/config"))
    ));
    // The next request writes it anew.
    let _ = fs::remove_file(&file);
    parse_networks(&answer?).with_context(|| format!("{base} answers no networks of pods"))
}

/// Returns scheme, host and port of a server's URL.
fn base(server: &str) -> Option<String> {
    let host = server.strip_prefix("https://")?.split('/').next()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    (!host.is_empty() && host.chars().all(is_plain)).then(|| format!("https://{host}"))
}

/// Returns the hash of the CA in a token, and the option of curl with its secret: `K10HASH::USER:PASSWORD`, or `K10HASH::ID.SECRET`.
fn parse_token(token: &str) -> Option<(&str, String)> {
    let (hash, secret) = token.strip_prefix("K10")?.split_once("::")?;
    let is_usable = hash.len() == 64 && !secret.chars().any(char::is_control);
    let option = match secret.split_once(':') {
        // Agents are the user `node`, whatever the user in their token.
        Some((_, password)) => format!("user = {}\n", quoted(&format!("node:{password}"))),
        None => format!(
            "header = {}\n",
            quoted(&format!("Authorization: Bearer {secret}"))
        ),
    };
    is_usable.then_some((hash, option))
}

/// The part of a server's configuration that counts here, in the form of Go's `net.IPNet`.
#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "ClusterIPRanges")]
    networks: Vec<Network>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Network {
    #[serde(rename = "IP")]
    address: IpAddr,
    /// In base64.
    mask: String,
}

fn parse_networks(answer: &str) -> anyhow::Result<Vec<Prefix>> {
    let answer: Answer = serde_json::from_str(answer)?;
    ensure!(!answer.networks.is_empty(), "the list is empty");
    let networks = answer.networks.iter().map(|network| {
        // Ones come before zeros in a mask, so they are counted without decoding its bytes.
        let ones = network.mask.chars().map(|digit| match digit {
            'A'..='Z' => (digit as u32 - 'A' as u32).count_ones(),
            'a'..='z' => (digit as u32 - 'a' as u32 + 26).count_ones(),
            '0'..='9' => (digit as u32 - '0' as u32 + 52).count_ones(),
            '+' => 5,
            '/' => 6,
            _ => 0,
        });
        let length = u8::try_from(ones.sum::<u32>())?;
        Prefix::new(network.address, length).context("a mask is too long")
    });
    networks.collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use node::root::Root;

    use super::*;
    use crate::settings;

    const CA: &str = "-----BEGIN CERTIFICATE-----\n";
    const ANSWER: &str = r#"{"ClusterDNSs": ["10.43.0.10"], "ClusterIPRanges": [
        {"IP": "10.42.0.0", "Mask": "//8AAA=="}, {"IP": "10.9.0.0", "Mask": "///wAA=="},
        {"IP": "fd42::", "Mask": "/////////wAAAAAAAAAAAA=="}, {"IP": "10.32.0.0", "Mask": "/+AAAA=="}]}"#;

    /// Asks with these arguments of an agent; returns the networks, or the error and all requests.
    fn ask_server(args: &[&str], ca: &str, answer: &str) -> (Result<String, String>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let args: Vec<String> = ["k3s", "agent"]
            .iter()
            .chain(args)
            .map(|arg| (*arg).to_owned())
            .collect();
        let settings = settings::read(&root, &args, |_| None, None).unwrap();
        assert!(!format!("{settings:?}").contains("pass"), "{settings:?}");
        let requests = RefCell::new(Vec::new());
        let outcome = ask(&settings, dir.path(), |options: &str| {
            requests.borrow_mut().push(
                options
                    .replace(OPTIONS, "")
                    .replace(dir.path().to_str().unwrap(), "DIR"),
            );
            let file = dir.path().join("server-ca.pem");
            if options.contains("/cacerts") {
                assert!(!options.contains("pass"), "the CA is not known yet");
                return Ok(ca.to_owned());
            }
            assert_eq!(fs::read_to_string(file).unwrap(), ca);
            Ok(answer.to_owned())
        });
        let networks = outcome.map(|found| {
            found
                .iter()
                .map(Prefix::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        });
        (
            networks.map_err(|error| format!("{error:#}")),
            requests.take(),
        )
    }

    fn token(secret: &str) -> String {
        format!("K10{}::{secret}", sha256(CA.as_bytes()).hex())
    }

    #[test]
    fn server_whose_ca_is_in_the_token_is_asked_with_its_secret() {
        let server = "--server=https://[fd7a::1]:6443/";
        let check = |secret: &str, option: &str| {
            let (networks, requests) = ask_server(&[server, "--token", &token(secret)], CA, ANSWER);
            assert_eq!(
                networks.unwrap(),
                "10.42.0.0/16 10.9.0.0/20 fd42::/56 10.32.0.0/11"
            );
            let first = "insecure\nurl = \"https://[fd7a::1]:6443/cacerts\"\n";
            let second = format!(
                "{option}\ncacert = \"DIR/server-ca.pem\"\nurl = \"https://[fd7a::1]:6443/v1-k3s/config\"\n"
            );
            assert_eq!(requests, [first.to_owned(), second]);
        };
        check("server:pass", "user = \"node:pass\"");
        check("node:pa\"ss:x\\", "user = \"node:pa\\\"ss:x\\\\\"");
        check(
            "abcdef.0123456789abcdef",
            "header = \"Authorization: Bearer abcdef.0123456789abcdef\"",
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        fs::write(&file, token("server:pass") + "\n").unwrap();
        let (networks, _) = ask_server(
            &[server, "--token-file", file.to_str().unwrap()],
            CA,
            ANSWER,
        );
        assert!(networks.is_ok(), "{networks:?}");
    }

    #[test]
    fn secret_is_sent_to_no_other_server() {
        let server = "--server=https://a:6443";
        let check = |args: &[&str], ca: &str, answer: &str, count: usize, expected: &str| {
            let (networks, requests) = ask_server(args, ca, answer);
            let error = networks.unwrap_err();
            assert!(
                error.contains(expected) && !error.contains("pass"),
                "{error}"
            );
            assert_eq!(requests.len(), count, "{error}");
        };
        let full = token("server:pass");
        check(
            &[server, "-t", &full],
            "another",
            ANSWER,
            1,
            "https://a:6443 has another CA than the token",
        );
        check(
            &[server, "-t", "pass"],
            CA,
            ANSWER,
            0,
            "the token has no hash of the cluster's CA",
        );
        check(
            &[server, "-t", "K10::server:pass"],
            CA,
            ANSWER,
            0,
            "the token has no hash",
        );
        check(
            &[server, "-t", &token("server:pass\nurl")],
            CA,
            ANSWER,
            0,
            "the token has no hash",
        );
        check(&[server], CA, ANSWER, 0, "no token is set");
        check(&["-t", &full], CA, ANSWER, 0, "no server is set");
        for other in [
            "http://a:6443",
            "https://a\"\n",
            "https://b@a",
            "https:///x",
        ] {
            check(
                &["-s", other, "-t", &full],
                CA,
                ANSWER,
                0,
                "is not an address of a server",
            );
        }
        check(
            &[server, "-t", &full],
            CA,
            "{}",
            2,
            "answers no networks of pods: missing field",
        );
        check(
            &[server, "-t", &full],
            CA,
            "{\"ClusterIPRanges\": []}",
            2,
            "the list is empty",
        );
    }
}
