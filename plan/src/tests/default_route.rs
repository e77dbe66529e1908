//! Which selections of default routes are accepted.

use super::fixture::{Fixture, pod, with_default};

fn fixture() -> Fixture {
    Fixture::new()
        .bridge("shop", "a")
        .bridge("shop", "b")
        .bridge("kube-system", "d")
}

#[test]
fn one_gateway_per_family_is_accepted_on_any_network() {
    for networks in [
        r#"[{"name":"a","default-route":["10.0.0.1"]},{"name":"b"}]"#,
        r#"[{"name":"a","default-route":["10.0.0.1","fd00::1"]},{"name":"b"}]"#,
        r#"[{"name":"a","default-route":["10.0.0.1"]},{"name":"b","default-route":["fd00::1"]}]"#,
        r#"[{"name":"a","default-route":[]},{"name":"b"}]"#,
    ] {
        fixture().check(&pod(networks), "cbr0=eth0 shop/a=net1 shop/b=net2");
    }
    let with_default = with_default(pod(""), r#"[{"name":"d","default-route":["10.0.0.1"]}]"#);
    fixture().check(&with_default, "kube-system/d=eth0");
}

#[test]
fn two_gateways_of_one_family_are_refused() {
    fixture().check_error(
        &pod(r#"[{"name":"a","default-route":["10.0.0.1","10.0.0.2"]}]"#),
        &[
            "does not support ECMP for default-route",
            "shop/a asks for more",
            "IPv4",
        ],
    );
    fixture().check_error(
        &pod(r#"[{"name":"a","default-route":["fd00::1"]},{"name":"b","default-route":["fd00::2"]}]"#),
        &["does not support ECMP for default-route", "shop/a and shop/b ask for", "IPv6"],
    );
    let chosen = with_default(
        pod(r#"[{"name":"a","default-route":["10.0.0.1"]}]"#),
        r#"[{"name":"d","default-route":["10.0.0.2"]}]"#,
    );
    fixture().check_error(&chosen, &["ECMP", "kube-system/d and shop/a"]);
}

#[test]
fn an_empty_list_excludes_other_default_routes() {
    for other in ["[]", r#"["10.0.0.1"]"#] {
        let networks = format!(
            r#"[{{"name":"a","default-route":[]}},{{"name":"b","default-route":{other}}}]"#
        );
        fixture().check_error(&pod(&networks), &["shop/a and shop/b", "empty list"]);
    }
}
