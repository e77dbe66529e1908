//! Certificates of an authority for tests: whether they serve, and when they are due.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use testkit::authority::Authority;

use super::{Held, Unusable, request::Key};

const LIFE: Duration = Duration::from_secs(1000);

struct Made {
    key: Key,
    certificate: String,
    begin: Timestamp,
}

fn made(node: &str) -> Made {
    let (authority, key) = (Authority::generate(), Key::generate().unwrap());
    let begin = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    let request = key.request(node).unwrap();
    Made {
        certificate: authority.sign(&request, LIFE),
        key,
        begin,
    }
}

impl Made {
    fn pem(&self) -> String {
        self.certificate.clone() + &self.key.pem().unwrap()
    }

    fn judge(&self, pem: &str, node: &str, after: i64) -> Result<Held, Unusable> {
        Held::judge(pem, node, self.begin + SignedDuration::from_secs(after))
    }
}

#[test]
fn one_for_this_node_and_key_serves_while_it_is_valid() {
    let made = made("node-a");
    let held = made.judge(&made.pem(), "node-a", 0).unwrap();
    assert!(
        held.certificate()
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
    assert!(held.key().starts_with("-----BEGIN PRIVATE KEY-----"));
    assert!(!held.certificate().contains("KEY") && !held.key().contains("CERTIFICATE"));
    made.judge(&made.pem(), "node-a", -300).unwrap();
    made.judge(&made.pem(), "node-a", 998).unwrap();
    let late = made.judge(&made.pem(), "node-a", 1002).unwrap_err();
    assert!(matches!(late, Unusable::Expired(_)), "{late}");
}

#[test]
fn one_of_another_node_or_key_does_not() {
    let made = made("node-a");
    let other = made.judge(&made.pem(), "node-b", 0).unwrap_err();
    assert_eq!(
        other.to_string(),
        "it is for system:multus:node-a, not for system:multus:node-b"
    );
    let foreign = made.certificate.clone() + &Key::generate().unwrap().pem().unwrap();
    assert_eq!(
        made.judge(&foreign, "node-a", 0).unwrap_err(),
        Unusable::OtherKey
    );
}

#[test]
fn torn_files_do_not() {
    let made = made("node-a");
    let pem = made.pem();
    let key = pem.find("-----BEGIN PRIVATE").unwrap();
    for (text, missing) in [
        ("", "certificate"),
        (&pem[..key / 2], "certificate"),
        (&pem[key..], "certificate"),
        (&pem[..key], "key"),
        (&pem[..pem.len() - 10], "key"),
    ] {
        let why = made.judge(text, "node-a", 0).unwrap_err();
        assert_eq!(why, Unusable::Missing(missing));
    }
}

#[test]
fn renewal_is_due_between_70_and_90_hundredths() {
    for _ in 0..5 {
        let made = made("node-a");
        let held = made.judge(&made.pem(), "node-a", 0).unwrap();
        let due = held.renew_at().duration_since(made.begin).as_secs();
        assert!((700..=901).contains(&due), "{due}");
        let again = made.judge(&made.pem(), "node-a", 5).unwrap();
        assert_eq!(
            again.renew_at(),
            held.renew_at(),
            "a restart changes nothing"
        );
    }
}

#[test]
fn keys_are_not_printed() {
    let made = made("node-a");
    let held = made.judge(&made.pem(), "node-a", 0).unwrap();
    let printed = format!("{held:?}");
    assert!(
        printed.contains("not_after") && !printed.contains("BEGIN"),
        "{printed}"
    );
}
