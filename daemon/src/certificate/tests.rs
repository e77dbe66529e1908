//! Which certificates of a test authority are usable, and when their renewal is due.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use testkit::authority::Authority;

use super::{Held, Unusable, request::Key};

const VALIDITY: Duration = Duration::from_secs(1000);

struct Issued {
    key: Key,
    certificate: String,
    begin: Timestamp,
}

fn issued(node: &str) -> Issued {
    let (authority, key) = (Authority::generate(), Key::generate().unwrap());
    let begin = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    let request = key.request(node).unwrap();
    Issued {
        certificate: authority.sign(&request, VALIDITY),
        key,
        begin,
    }
}

impl Issued {
    fn pem(&self) -> String {
        self.certificate.clone() + &self.key.pem().unwrap()
    }

    fn judge(&self, pem: &str, node: &str, after: i64) -> Result<Held, Unusable> {
        Held::judge(pem, node, self.begin + SignedDuration::from_secs(after))
    }
}

#[test]
fn a_valid_certificate_of_this_node_and_key_is_usable() {
    let issued = issued("node-a");
    let held = issued.judge(&issued.pem(), "node-a", 0).unwrap();
    assert!(
        held.certificate()
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
    assert!(held.key().starts_with("-----BEGIN PRIVATE KEY-----"));
    assert!(!held.certificate().contains("KEY") && !held.key().contains("CERTIFICATE"));
    issued.judge(&issued.pem(), "node-a", -300).unwrap();
    issued.judge(&issued.pem(), "node-a", 998).unwrap();
    let late = issued.judge(&issued.pem(), "node-a", 1002).unwrap_err();
    assert!(matches!(late, Unusable::Expired(_)), "{late}");
}

#[test]
fn a_certificate_of_another_node_or_key_is_refused() {
    let issued = issued("node-a");
    let other = issued.judge(&issued.pem(), "node-b", 0).unwrap_err();
    assert_eq!(
        other.to_string(),
        "it is for system:multus:node-a, not for system:multus:node-b"
    );
    let foreign = issued.certificate.clone() + &Key::generate().unwrap().pem().unwrap();
    assert_eq!(
        issued.judge(&foreign, "node-a", 0).unwrap_err(),
        Unusable::OtherKey
    );
}

#[test]
fn incomplete_files_are_refused() {
    let issued = issued("node-a");
    let pem = issued.pem();
    let key = pem.find("-----BEGIN PRIVATE").unwrap();
    for (text, missing) in [
        ("", "certificate"),
        (&pem[..key / 2], "certificate"),
        (&pem[key..], "certificate"),
        (&pem[..key], "key"),
        (&pem[..pem.len() - 10], "key"),
    ] {
        let why = issued.judge(text, "node-a", 0).unwrap_err();
        assert_eq!(why, Unusable::Missing(missing));
    }
}

#[test]
fn renewal_is_due_between_70_and_90_per_cent_of_the_validity() {
    for _ in 0..5 {
        let issued = issued("node-a");
        let held = issued.judge(&issued.pem(), "node-a", 0).unwrap();
        let due = held.renew_at().duration_since(issued.begin).as_secs();
        assert!((700..=901).contains(&due), "{due}");
        let again = issued.judge(&issued.pem(), "node-a", 5).unwrap();
        assert_eq!(
            again.renew_at(),
            held.renew_at(),
            "a restart changes nothing"
        );
    }
}

#[test]
fn keys_are_not_printed() {
    let issued = issued("node-a");
    let held = issued.judge(&issued.pem(), "node-a", 0).unwrap();
    let printed = format!("{held:?}");
    assert!(
        printed.contains("not_after") && !printed.contains("BEGIN"),
        "{printed}"
    );
}
