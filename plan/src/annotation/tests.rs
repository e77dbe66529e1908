//! The grammar of annotations, case by case; no text makes the parser panic.

use super::*;

fn short(namespace: &str, name: &str, interface: Option<&str>) -> Selection {
    Selection {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        interface: interface.map(str::to_owned),
        ..Selection::default()
    }
}

fn check(text: &str, expected: &[Selection]) {
    assert_eq!(parse(text, "shop").unwrap(), expected, "{text}");
}

fn check_error(text: &str, fragment: &str) {
    let error = parse(text, "shop").unwrap_err().to_string();
    assert!(error.contains(fragment), "{text}: {error}");
}

#[test]
fn short_form() {
    check("", &[]);
    check("a", &[short("shop", "a", None)]);
    check("a,b", &[short("shop", "a", None), short("shop", "b", None)]);
    check("a,a", &[short("shop", "a", None), short("shop", "a", None)]);
    check(
        " infra / a @ ext0 , b ",
        &[short("infra", "a", Some("ext0")), short("shop", "b", None)],
    );
    check("a@Eth_0.1", &[short("shop", "a", Some("Eth_0.1"))]);
    check("a@", &[short("shop", "a", None)]);
    check("/a", &[short("shop", "a", None)]);
}

#[test]
fn short_form_errors() {
    check_error("a/b/c", "failed at '/'");
    check_error("a@b@c", "failed at '@'");
    check_error("a.b", "\"a.b\" in \"a.b\" is not a valid name");
    check_error("Infra/a", "\"Infra\"");
    check_error("-a", "not a valid name");
    check_error("a,,b", "entry 2 names no network");
    check_error("a,", "entry 2 names no network");
    check_error(" ", "entry 1 names no network");
    check_error("a@sixteen-letters1", "Failed to parse interface name");
    check_error("a@b c", "Failed to parse interface name");
}

#[test]
fn annotations_with_too_many_networks_are_refused_with_their_number() {
    let times = |entry: &str, count| vec![entry; count].join(",");
    assert_eq!(parse(&times("a", 64), "shop").unwrap().len(), 64);
    let objects = |count| format!("[{}]", times(r#"{"name":"a"}"#, count));
    assert_eq!(parse(&objects(64), "shop").unwrap().len(), 64);
    for (text, count) in [
        (times("a", 65), "65"),
        (times("x", 100_000), "100000"),
        (objects(65), "65"),
        (format!("[{}]", times("{}", 100_000)), "100000"),
        (format!("[{}]", times("7", 131_071)), "131071"),
    ] {
        let expected =
            format!("it requests {count} networks, but a pod may request 64: remove some");
        assert_eq!(parse(&text, "shop").unwrap_err().to_string(), expected);
    }
}

#[test]
fn errors_quote_long_and_odd_texts_shortly() {
    let long = "x".repeat(30_000);
    for text in [
        format!("a/b/{long}"),
        format!("{long}."),
        format!("a@{long}"),
        format!(r#"[{{"name":"{long}","mac":"\n{long}"}}]"#),
        format!(r#"[{{"name":"a","ips":["\n{long}"]}}]"#),
    ] {
        let error = parse(&text, "shop").unwrap_err().to_string();
        assert!(error.len() < 450 && !error.contains('\n'), "{error}");
    }
}

#[test]
fn json_form() {
    check("[]", &[]);
    check(
        r#"[{"name":"storage","interface":"stor0","ips":["10.20.0.5/24"],"mac":"02:aa:00:00:00:05"}]"#,
        &[Selection {
            ips: vec!["10.20.0.5/24".to_owned()],
            mac: Some("02:aa:00:00:00:05".to_owned()),
            ..short("shop", "storage", Some("stor0"))
        }],
    );
    check(
        r#"[{"Name":"my.net","NAMESPACE":"infra","unknown":{}},{"name":"b","interfaceRequest":"old0","ips":null}]"#,
        &[
            short("infra", "my.net", None),
            short("shop", "b", Some("old0")),
        ],
    );
    check(
        r#"[{"name":"b","interface":"new0","interfaceRequest":"old0"}]"#,
        &[short("shop", "b", Some("new0"))],
    );
}

#[test]
fn json_capabilities() {
    check(
        r#"[{"name":"a","infiniband-guid":"c2:11:22:33:44:55:66:77","bandwidth":{"ingressRate":5,"ingressBurst":6},
            "portMappings":[{"hostPort":80,"containerPort":8080,"protocol":"tcp"}],
            "cni-args":{"tier":"gold"},"default-route":["10.30.0.1"],"deviceID":"0000:00:01.0","ipam-claim-reference":"c"}]"#,
        &[Selection {
            infiniband_guid: Some("c2:11:22:33:44:55:66:77".to_owned()),
            bandwidth: Some(
                json!({"ingressRate":5,"ingressBurst":6,"egressRate":0,"egressBurst":0}),
            ),
            port_mappings: Some(json!([{"hostPort":80,"containerPort":8080,"protocol":"tcp"}])),
            cni_args: json!({"tier":"gold"}).as_object().cloned(),
            claim: Some("c".to_owned()),
            default_route: Some(vec!["10.30.0.1".parse().unwrap()]),
            device_id: Some("0000:00:01.0".to_owned()),
            ..short("shop", "a", None)
        }],
    );
    check(
        r#"[{"name":"a","default-route":[]}]"#,
        &[Selection {
            default_route: Some(vec![]),
            ..short("shop", "a", None)
        }],
    );
}

#[test]
fn json_errors() {
    check_error("[", "not valid JSON");
    check_error("lan\"", "not valid JSON");
    for mixed in [r#"lan, [{"name":"lan"}]"#, r#" lan,{"name":"lan"}"#] {
        check_error(mixed, "names and JSON cannot be mixed: use one form");
    }
    check_error(r#"{"name":"a"}"#, "must be a list of objects");
    check_error(r#""a""#, "must be a list of objects");
    check_error("[null]", "entry 1 of the list is not an object");
    check_error(
        r#"[{"name":"a"},"b"]"#,
        "entry 2 of the list is not an object",
    );
    check_error("[{}]", "entry 1 names no network");
    check_error(r#"[{"name":1}]"#, "\"name\" must be a string");
    check_error(
        r#"[{"name":"a","ips":"10.0.0.1"}]"#,
        "\"ips\" must be a list",
    );
    check_error(
        r#"[{"name":"a","ips":["x"]}]"#,
        "ips: \"x\" is not a valid address",
    );
    check_error(
        r#"[{"name":"a","mac":"x"}]"#,
        "failed to mac: entry 1 (network a): mac: \"x\"",
    );
    check_error(
        r#"[{"name":"a","infiniband-guid":"02:00:00:00:00:01"}]"#,
        "GUID of 8 bytes",
    );
    check_error(r#"[{"name":"a","default-route":["x"]}]"#, "default-route");
    check_error(
        r#"[{"name":"a","interface":"a/b"}]"#,
        "Failed to parse interface name",
    );
    check_error(
        r#"[{"name":"a","bandwidth":{"ingressRate":"5"}}]"#,
        "a whole number",
    );
    check_error(r#"[{"name":"a","portMappings":[3]}]"#, "portMappings");
    check_error(
        r#"[{"name":"a","ips":["10.0.0.1"],"ipam-claim-reference":"c"}]"#,
        "exclude each other",
    );
}

#[test]
fn port_mappings_need_valid_ports_and_protocols() {
    let ports = |mapping: &str| format!(r#"[{{"name":"a","portMappings":[{mapping}]}}]"#);
    for (written, protocol) in [
        ("", "tcp"),
        ("tcp", "tcp"),
        ("UDP", "UDP"),
        ("sctp", "sctp"),
    ] {
        let text = ports(&format!(
            r#"{{"hostPort":1,"containerPort":65535,"protocol":"{written}"}}"#
        ));
        let expected = json!([{"hostPort":1,"containerPort":65535,"protocol":protocol}]);
        let found = parse(&text, "shop").unwrap().remove(0).port_mappings;
        assert_eq!(found, Some(expected), "{text}");
    }
    for (mapping, fragment) in [
        (r#"{"hostPort":80}"#, "containerPort is missing"),
        (r#"{"containerPort":80}"#, "hostPort is missing"),
        (r#"{"hostPort":0,"containerPort":80}"#, "hostPort: \"0\""),
        (
            r#"{"hostPort":80,"containerPort":70000}"#,
            "containerPort: \"70000\"",
        ),
        (r#"{"hostPort":-1,"containerPort":80}"#, "hostPort: \"-1\""),
        (
            r#"{"hostPort":1,"containerPort":1,"protocol":"icmp"}"#,
            "protocol: \"icmp\"",
        ),
    ] {
        check_error(&ports(mapping), fragment);
    }
}

#[test]
fn bandwidth_needs_a_positive_rate_and_burst_per_direction() {
    let limits = |limits: &str| format!(r#"[{{"name":"a","bandwidth":{limits}}}]"#);
    for good in [
        r#"{"ingressRate":1,"ingressBurst":2}"#,
        r#"{"egressRate":1,"egressBurst":2}"#,
        r#"{"ingressRate":1,"ingressBurst":2,"egressRate":3,"egressBurst":4}"#,
    ] {
        assert!(parse(&limits(good), "shop").is_ok(), "{good}");
    }
    for (bad, fragment) in [
        ("{}", "no rate"),
        (r#"{"ingressRate":5}"#, "ingressRate has no ingressBurst"),
        (r#"{"egressBurst":5}"#, "egressBurst has no egressRate"),
        (
            r#"{"ingressRate":0,"ingressBurst":0}"#,
            "ingressRate: \"0\"",
        ),
        (
            r#"{"ingressRate":1,"ingressBurst":0}"#,
            "ingressBurst: \"0\"",
        ),
        (
            r#"{"ingressRate":-1,"ingressBurst":1}"#,
            "ingressRate: \"-1\"",
        ),
    ] {
        check_error(&limits(bad), fragment);
    }
}

#[test]
fn an_empty_list_of_addresses_is_an_error() {
    check_error(r#"[{"name":"a","ips":[]}]"#, "ips has no entry");
    check(r#"[{"name":"a","ips":null}]"#, &[short("shop", "a", None)]);
}

/// Parses every prefix of, and every one-character change to, texts that reach all branches, and pseudo-random texts.
#[test]
fn no_text_makes_the_parser_panic() {
    let seeds = [
        "infra/a@ext0,b",
        r#"[{"name":"a","namespace":"b","interface":"c","ips":["10.0.0.1/8"],"mac":"02:00:00:00:00:01"}]"#,
        r#"[{"bandwidth":{"ingressRate":1},"portMappings":[{"hostPort":1}],"cni-args":{},"default-route":[]},null]"#,
    ];
    let alphabet = "[]{}\",:/@-.0a Zé\u{0}\t\\n";
    for seed in seeds {
        for end in 0..=seed.len() {
            let _ = parse(&seed[..end], "shop");
            for letter in alphabet.chars() {
                let changed: String = seed[..end]
                    .chars()
                    .chain([letter])
                    .chain(seed[end..].chars().skip(1))
                    .collect();
                let _ = parse(&changed, "shop");
            }
        }
    }
    let letters: Vec<char> = alphabet.chars().collect();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..24 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            text.push(letters[usize::try_from(state % 1000).unwrap() % letters.len()]);
        }
        let _ = parse(&text, "shop");
    }
}

/// The page for people has each key with its meaning and an example, and those that a request for bandwidth or ports consists of.
#[test]
fn page_of_annotations_has_every_key() {
    let pages = docs::Pages::of_checkout().unwrap();
    let page = &pages.get("docs/networks.md").unwrap().text;
    let inner = [
        "ingressRate",
        "ingressBurst",
        "egressRate",
        "egressBurst",
        "hostPort",
        "containerPort",
        "protocol",
        "hostIP",
    ];
    let examples = ["docs/networks.md", "docs/pods.md", "docs/addresses.md"].map(|path| {
        let blocks = pages.get(path).unwrap().blocks.iter();
        blocks.map(|block| block.text.as_str()).collect::<String>()
    });
    for key in KEYS {
        assert!(
            page.contains(&format!("\n| `{key}` | ")),
            "docs/networks.md lacks {key}"
        );
        let example = format!("\"{key}\":");
        assert!(
            examples.iter().any(|text| text.contains(&example)),
            "no example has {key}"
        );
    }
    for key in inner {
        assert!(
            page.contains(&format!("\"{key}\"")),
            "docs/networks.md lacks {key}"
        );
    }
    for annotation in crate::pod::POD_ANNOTATIONS.iter().chain(&[
        crate::network_status::ANNOTATION,
        crate::inputs::RESOURCE_ANNOTATION,
    ]) {
        assert!(
            page.contains(&format!("\n| `{annotation}` | ")),
            "{annotation}"
        );
    }
}
