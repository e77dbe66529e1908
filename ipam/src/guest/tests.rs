//! The reference's own cases, v0.9.4: the inputs and results of its tables of `allocate`, `iphelpers`, `config` and pool names, and objects
//! as it writes them.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::{object, range};

fn definition(keys: &Value) -> Result<Definition, String> {
    let mut ipam = keys.as_object().unwrap().clone();
    ipam.insert("type".to_owned(), TYPE.into());
    Definition::parse(&ipam).map_err(|error| error.to_string())
}

fn owner(pod: &str) -> Owner {
    Owner {
        container: format!("container-{pod}"),
        pod: format!("default/{pod}"),
        ifname: "net1".to_owned(),
    }
}

/// Returns a range's pool in which these addresses are in use.
fn pool(range: &Range, used: &[&str]) -> Pool {
    let subnet = range.subnet();
    let mut object = pool::object("kube-system", &pool::name("", "", subnet), subnet);
    object["metadata"]["resourceVersion"] = "7".into();
    for used in used {
        let offset = subnet.offset(used.parse().unwrap()).unwrap().to_string();
        object["spec"]["allocations"][offset] = json!({"id": "c", "podref": "default/pod1"});
    }
    Pool::parse(&object, subnet).unwrap()
}

/// The first free address, or `full`, or the beginning of the error.
#[track_caller]
fn check_choice(keys: &Value, used: &[&str], expected: &str) {
    let found = definition(keys).map(|definition| {
        let range = &definition.ranges[0];
        let choice = pool(range, used).choose(range, &owner("dummy-0"), |_| false);
        choice.map_or("full".to_owned(), |choice| choice.address.to_string())
    });
    let found = found.unwrap_or_else(|error| error);
    assert!(found.starts_with(expected), "{keys} {used:?}: {found}");
}

#[test]
fn lowest_free_address_is_that_of_the_reference() {
    for (range, exclude, expected) in [
        ("192.168.1.1/24", &[][..], "192.168.1.1"),
        ("caa5::0/112", &[], "caa5::1"),
        ("fd::1/116", &[], "fd::1"),
        ("100::2:1/126", &[], "100::2:1"),
        ("192.168.0.0/29", &["192.168.0.0/30"], "192.168.0.4"),
        ("192.168.0.0/29", &["192.168.0.1"], "192.168.0.2"),
        ("100::2:1/125", &["100::2:1/126"], "100::2:4"),
        ("100::2:1/125", &["100::2:1"], "100::2:2"),
        // The reference gives 2001:db9::, whose offset its key cannot say: the next one that it gives has the same key.
        (
            "2001:db8::/30",
            &["2001:db8::0/32"],
            "ipam: whereabouts gives no address of 2001:db8::/30, which begins too far",
        ),
        ("2001:db8::/33", &["2001:db8::0/66"], "2001:db8:0:0:4000::"),
        (
            "192.168.0.0/28",
            &[
                "192.168.0.0/30",
                "192.168.0.6/31",
                "192.168.0.8/31",
                "192.168.0.4/30",
            ],
            "192.168.0.10",
        ),
        (
            "192.168.0.0/28",
            &[
                "192.168.0.0/30",
                "192.168.0.14/31",
                "192.168.0.4/30",
                "192.168.0.6/31",
                "192.168.0.8/31",
            ],
            "192.168.0.10",
        ),
        ("192.168.0.0/29", &["192.168.0.1/123"], "ipam.exclude[0]: "),
        ("100::2:1/125", &["100::2::1"], "ipam.exclude[0]: "),
    ] {
        check_choice(&json!({"range": range, "exclude": exclude}), &[], expected);
    }
}

#[test]
fn addresses_in_use_are_passed_over() {
    let limited = json!({"range": "192.168.0.0/28", "range_start": "192.168.0.1", "range_end": "192.168.0.6"});
    let up_to_3 = ["192.168.0.1", "192.168.0.2", "192.168.0.3"];
    check_choice(&limited, &[], "192.168.0.1");
    check_choice(&limited, &up_to_3, "192.168.0.4");
    check_choice(
        &limited,
        &["192.168.0.1", "192.168.0.2", "192.168.0.5"],
        "192.168.0.3",
    );
    let mut excluded = limited;
    excluded["exclude"] = json!(["192.168.0.4/30"]);
    check_choice(&excluded, &up_to_3, "full");
    let small = |exclude: &str| json!({"range": "192.168.0.0/29", "exclude": [exclude]});
    check_choice(
        &small("192.168.0.0/30"),
        &["192.168.0.4", "192.168.0.5", "192.168.0.6"],
        "full",
    );
    check_choice(&small("192.168.0.4/30"), &up_to_3, "full");
    let v6 = json!({"range": "100::2:1/125", "exclude": ["100::2:4/126"]});
    check_choice(&v6, &["100::2:1", "100::2:2", "100::2:3"], "full");
}

/// Range, start and end, `-` for none; then the first and the last address. Where the reference passes over a limit that is outside, or
/// behind the other one, we refuse the definition: a limit without effect gives addresses that nobody meant.
const ENDS: &str = "\
192.168.21.100/30 - - 192.168.21.101 192.168.21.102
192.168.0.0/23 - - 192.168.0.1 192.168.1.254
192.168.2.200/24 - - 192.168.2.1 192.168.2.254
192.168.2.200/24 192.168.2.23 - 192.168.2.23 192.168.2.254
192.168.2.200/27 - - 192.168.2.193 192.168.2.222
192.168.2.200/24 - 192.168.2.100 192.168.2.1 192.168.2.100
192.168.2.200/24 192.168.2.50 192.168.2.100 192.168.2.50 192.168.2.100
192.168.2.200/24 192.168.2.50 192.168.2.50 192.168.2.50 192.168.2.50
192.168.0.0/29 192.168.0.0 - 192.168.0.1 192.168.0.6
192.168.0.0/29 192.168.0.0 192.168.0.7 192.168.0.1 192.168.0.6
2000::/126 - - 2000::1 2000::2
2001::0/116 - - 2001::1 2001::ffe
fd:db8:abcd:0012::0/96 - - fd:db8:abcd:12::1 fd:db8:abcd:12::ffff:fffe
2001:db8:abcd:0012::0/64 - - 2001:db8:abcd:12::1 2001:db8:abcd:12:ffff:ffff:ffff:fffe
2001:db8:abcd:0012::0/64 - 2001:db8:abcd:0012::100 2001:db8:abcd:12::1 2001:db8:abcd:12::100
2001:db8:abcd:0012::0/64 2001:db8:abcd:0012::50 2001:db8:abcd:0012::100 2001:db8:abcd:12::50 2001:db8:abcd:12::100
2001:db8:480:603d::/64 2001:db8:480:603d:304:403:: 2001:db8:480:603d:304:403:0:4 2001:db8:480:603d:304:403:: 2001:db8:480:603d:304:403:0:4
192.168.2.200/24 192.168.1.150 192.168.3.100 is outside
2001:db8:abcd:0012::0/64 2000:db8:abcd:0012::50 - is outside
192.168.0.0/29 192.168.0.0 192.168.0.8 is outside
192.168.2.200/24 192.168.2.100 192.168.2.50 exchange the two
192.168.0.0/32 - - none but its first and its last
192.168.21.100/31 - - none but its first and its last
2000::/128 - - none but its first and its last
2000::/127 - - none but its first and its last
";

#[test]
fn ends_of_a_range_are_those_of_the_reference() {
    for line in ENDS.lines() {
        let [range, start, end, expected] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let mut keys = json!({"range": range});
        for (key, limit) in [("range_start", start), ("range_end", end)] {
            if limit != "-" {
                keys[key] = limit.into();
            }
        }
        let found = definition(&keys).map(|definition| {
            let range = &definition.ranges[0];
            format!("{} {}", range.first(), range.last())
        });
        let found = found.unwrap_or_else(|error| error);
        assert!(found.contains(expected), "{line}: {found}");
    }
}

/// Subnet, first and last address, and gateway, as `config` reads them.
#[test]
fn keys_are_read_as_the_reference_reads_them() {
    let seen = |keys: &Value| {
        let definition = definition(keys).unwrap();
        let ranges = definition.ranges.iter();
        let ranges = ranges.map(|range| {
            let gateway = definition.gateway(range);
            let gateway = gateway.map(|gateway| gateway.to_string());
            format!(
                "{} {} {} {}",
                range.subnet(),
                range.first(),
                range.last(),
                gateway.unwrap_or_default()
            )
        });
        ranges.collect::<Vec<_>>()
    };
    let five_to_25 = "192.168.1.0/24 192.168.1.5 192.168.1.25 192.168.10.1";
    for (keys, expected) in [
        (
            json!({"range": "192.168.1.5-192.168.1.25/24", "gateway": "192.168.10.1"}),
            five_to_25,
        ),
        (
            json!({"range": "00192.00168.1.5-000000192.168.1.25/24", "gateway": "192.168.10.1"}),
            five_to_25,
        ),
        // The limits of the range itself count more.
        (
            json!({"range": "192.168.1.5-192.168.1.25/24", "range_start": "192.168.1.9", "range_end": "192.168.1.10", "gateway": "192.168.10.1"}),
            five_to_25,
        ),
        (
            json!({"range": "00192.00168.1.0/24", "range_start": "00192.00168.1.44", "range_end": "00192.00168.01.209"}),
            "192.168.1.0/24 192.168.1.44 192.168.1.209 ",
        ),
        (
            json!({"range": "192.168.2.230/24", "range_start": "192.168.2.223", "gateway": "192.168.10.1"}),
            "192.168.2.0/24 192.168.2.223 192.168.2.254 192.168.10.1",
        ),
    ] {
        assert_eq!(seen(&keys), [expected], "{keys}");
    }
    let both = json!({"range": "abcd::1/64", "ipRanges": [{"range": "192.168.10.1/24"}], "gateway": "192.168.10.1"});
    let expected = [
        "abcd::/64 abcd::1 abcd::ffff:ffff:ffff:fffe ",
        "192.168.10.0/24 192.168.10.2 192.168.10.254 192.168.10.1",
    ];
    assert_eq!(seen(&both), expected);
    assert!(definition(&both).unwrap().is_reserved);
    let alone = json!({"range": "192.168.2.230/24", "enable_overlapping_ranges": false});
    assert!(!definition(&alone).unwrap().is_reserved);
    let error = definition(&json!({"range": "192.168.1.5-192.168.2.25/28"})).unwrap_err();
    assert!(
        error.contains("start 192.168.1.5 is outside 192.168.2.16/28"),
        "{error}"
    );
}

#[test]
fn what_is_not_served_is_refused_with_its_cure() {
    for (keys, expected) in [
        (
            json!({"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}], "node_slice_size": "/26"}),
            "ipam.node_slice_size: slices of nodes are those of one range",
        ),
        (
            json!({"range": "10.0.0.0/24", "network_name": "Blue"}),
            "ipam.network_name: the pool's name would be \"Blue-10.0.0.0-24\"",
        ),
        (
            json!({"range": "10.0.0.0/24", "network_name": "a/b"}),
            "ipam.network_name",
        ),
        (
            json!({"range": "::/64"}),
            "ipam.network_name: the pool's name would be \"---64\"",
        ),
        (
            json!({"range": "10.0.0.0/24", "enable_overlapping_ranges": "no"}),
            "ipam.enable_overlapping_ranges: the value is not true or false",
        ),
        (
            json!({"range": "fd00::/48", "range_start": "fd00:0:0:1::"}),
            "ipam: whereabouts gives no address of fd00::/48, which begins too far behind",
        ),
    ] {
        let error = definition(&keys).unwrap_err();
        assert!(error.starts_with(expected), "{keys}: {error}");
    }
}

#[test]
fn names_of_objects_are_those_of_the_reference() {
    for (network, subnet, expected) in [
        ("", "10.0.0.0/8", "10.0.0.0-8"),
        ("test", "10.0.0.0/8", "test-10.0.0.0-8"),
        ("", "fd00:20::/64", "fd00-20---64"),
        (
            "blue",
            "2001:db8:480:603d::/64",
            "blue-2001-db8-480-603d---64",
        ),
    ] {
        assert_eq!(pool::name(network, "", subnet.parse().unwrap()), expected);
    }
    for (network, address, expected) in [
        ("", "10.0.0.7", "10.0.0.7"),
        ("blue", "10.0.0.7", "blue-10.0.0.7"),
        ("", "fd00:20::a", "fd00-20--a"),
        (
            "",
            "2001:db8:480:603d:304:403::",
            "2001-db8-480-603d-304-403--0",
        ),
    ] {
        assert_eq!(
            reservation::name(network, address.parse().unwrap()),
            expected
        );
    }
}

/// Offsets of `iphelpers`, where the first address is that of a subnet.
#[test]
fn offsets_are_those_of_the_reference() {
    for (subnet, address, offset) in [
        ("192.168.1.0/24", "192.168.1.1", 1),
        ("192.168.0.0/21", "192.168.1.0", 256),
        ("192.168.0.0/21", "192.168.1.255", 511),
        ("ff02::/64", "ff02::ff", 255),
        ("ff02::/64", "ff02::1:0", 0x1_0000),
        ("2000::/64", "2000::1:0", 65_536),
    ] {
        let subnet: Subnet = subnet.parse().unwrap();
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(subnet.offset(address), Some(offset));
        assert_eq!(subnet.at(offset), Some(address));
    }
    let subnet: Subnet = "192.168.3.0/24".parse().unwrap();
    assert_eq!(subnet.offset("ff02::1".parse().unwrap()), None);
    assert_eq!((subnet.at(255).is_some(), subnet.at(256)), (true, None));
}

/// A pool as the reference writes it, of which one entry is older than interface names.
fn written() -> Value {
    json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
        "metadata": {"name": "10.0.0.0-29", "namespace": "kube-system", "resourceVersion": "41"},
        "spec": {"range": "10.0.0.0/29", "allocations": {
            "1": {"id": "c1", "podref": "shop/web-0", "ifname": "net1"},
            "2": {"id": "c1", "podref": "shop/web-0", "ifname": "net2"},
            "4": {"id": "c2", "podref": "shop/old"},
            "none": {"id": "c3", "podref": "shop/odd"},
        }},
    })
}

fn read() -> (Pool, Range) {
    let range = definition(&json!({"range": "10.0.0.0/29"}))
        .unwrap()
        .ranges
        .remove(0);
    (Pool::parse(&written(), range.subnet()).unwrap(), range)
}

#[test]
fn pool_of_the_reference_is_read_and_patched() {
    let (pool, range) = read();
    assert_eq!(pool.used(&range), 3);
    let next = owner("web-1");
    let choice = pool.choose(&range, &next, |_| false).unwrap();
    assert_eq!(
        (choice.address.to_string().as_str(), choice.is_taken),
        ("10.0.0.3", false)
    );
    assert_eq!(
        pool.take(choice.address, &next),
        json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": "41"},
            {"op": "add", "path": "/spec/allocations/3", "value": {"id": "container-web-1", "podref": "default/web-1", "ifname": "net1"}},
        ])
    );
    let own = pool.of("c1", "net2");
    assert_eq!(own, ["10.0.0.2".parse::<IpAddr>().unwrap()]);
    assert_eq!(
        pool.free(&own),
        json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": "41"},
            {"op": "remove", "path": "/spec/allocations/2"},
        ])
    );
}

/// The API server spends most of a write on the list of which client has written which entry, which no program reads.
#[test]
fn first_write_to_a_pool_ends_that_its_fields_are_tracked() {
    let mut object = written();
    let patch = |object: &Value| {
        let pool = Pool::parse(object, "10.0.0.0/29".parse().unwrap()).unwrap();
        let steps = pool.take("10.0.0.3".parse().unwrap(), &owner("web-1"));
        steps.as_array().unwrap().clone()
    };
    assert_eq!(patch(&object).len(), 2);
    object["metadata"]["managedFields"] =
        json!([{"manager": "whereabouts", "operation": "Update"}]);
    let untrack = json!({"op": "add", "path": "/metadata/managedFields", "value": [{}]});
    assert_eq!(patch(&object)[1], untrack);
    let stored = moving::StoredPool::parse(&object).unwrap();
    for steps in [stored.stamp("adopting"), stored.reopen(None)] {
        assert_eq!(steps[1], untrack);
    }
}

#[test]
fn next_container_of_a_pod_has_the_address_of_its_interface() {
    let (pool, range) = read();
    let own = |container: &str, ifname: &str| {
        let owner = Owner {
            container: container.to_owned(),
            pod: "shop/web-0".to_owned(),
            ifname: ifname.to_owned(),
        };
        let choice = pool.choose(&range, &owner, |_| false).unwrap();
        (choice.address.to_string(), choice.is_taken)
    };
    assert_eq!(own("c1", "net1"), ("10.0.0.1".to_owned(), true));
    assert_eq!(own("c9", "net1"), ("10.0.0.1".to_owned(), false));
    assert_eq!(own("c9", "net2"), ("10.0.0.2".to_owned(), false));
    assert_eq!(own("c1", "net3"), ("10.0.0.3".to_owned(), false));
}

#[test]
fn edited_pools_are_not_used() {
    let (_, range) = read();
    for (path, value, expected) in [
        (
            "range",
            json!("10.0.1.0/29"),
            "IPPool 10.0.0.0-29: spec.range is 10.0.1.0/29, and not 10.0.0.0/29; restore it",
        ),
        (
            "range",
            json!("10.0.0.3/29"),
            "IPPool 10.0.0.0-29: spec.range is 10.0.0.3/29, and not 10.0.0.0/29; restore it",
        ),
        (
            "range",
            json!(1),
            "IPPool 10.0.0.0-29: spec.range is missing or not a subnet; restore it",
        ),
        (
            "allocations",
            json!([]),
            "IPPool 10.0.0.0-29: spec.allocations is missing or not an object; restore it",
        ),
    ] {
        let mut object = written();
        object["spec"][path] = value;
        let error = Pool::parse(&object, range.subnet()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn offsets_that_the_reference_cannot_read_are_not_written() {
    let keys = json!({"range": "fd00::/32", "range_start": "fd00::7fff:ffff:ffff:fffe"});
    let range = definition(&keys).unwrap().ranges.remove(0);
    let choose = |used: &[&str]| {
        let choice = pool(&range, used).choose(&range, &owner("a"), |_| false);
        choice.map(|choice| choice.address.to_string())
    };
    let last = "fd00::7fff:ffff:ffff:ffff";
    assert_eq!(
        choose(&["fd00::7fff:ffff:ffff:fffe"]).as_deref(),
        Some(last)
    );
    assert_eq!(choose(&["fd00::7fff:ffff:ffff:fffe", last]), None);
}

#[test]
fn reservations_say_whose_they_are() {
    let own = owner("web-0");
    let object = reservation::object("kube-system", "10.0.0.7", &own);
    assert_eq!(
        object["spec"],
        json!({"containerid": "container-web-0", "podref": "default/web-0", "ifname": "net1"})
    );
    let read = |spec: Value| {
        let metadata = json!({"name": "10.0.0.7", "uid": "u", "resourceVersion": "3"});
        Reservation::parse(&json!({"metadata": metadata, "spec": spec}))
    };
    let is = |spec: Value| {
        let seen = read(spec);
        (
            seen.is_of(&own),
            seen.is_of_pod(&own),
            seen.is_of_reference(&own),
        )
    };
    assert_eq!(is(object["spec"].clone()), (true, true, false));
    assert_eq!(
        is(json!({"podref": "default/web-0", "ifname": "net1"})),
        (false, true, true)
    );
    assert_eq!(is(json!({"podref": "default/web-0"})), (false, true, true));
    assert_eq!(
        is(json!({"podref": "default/web-0", "ifname": "net2"})),
        (false, true, false)
    );
    assert_eq!(
        is(json!({"podref": "default/web-1", "ifname": "net1"})),
        (false, false, false)
    );
    let seen = read(json!({"podref": "default/web-0"}));
    assert_eq!(
        seen.delete_options()["preconditions"],
        json!({"uid": "u", "resourceVersion": "3"})
    );
    assert_eq!(seen.take_over(&own)[1]["value"], "3");
}

#[test]
fn node_slice_pool_names_the_slice_of_a_node() {
    let keys = json!({"range": "10.0.0.0/16", "exclude": ["10.0.0.64/30"], "node_slice_size": "/26", "network_name": "blue"});
    let sliced = definition(&keys).unwrap();
    assert_eq!(sliced.slices("net").as_deref(), Some("blue"));
    let unnamed = json!({"range": "10.0.0.0/16", "node_slice_size": "/26"});
    assert_eq!(
        definition(&unnamed).unwrap().slices("net").as_deref(),
        Some("net")
    );
    let whole = json!({"range": "10.0.0.0/16"});
    assert_eq!(definition(&whole).unwrap().slices("net"), None);
    let pool = |slice: &str| {
        json!({"metadata": {"name": "blue"}, "status": {"allocations": [
            {"nodeName": "", "sliceRange": "10.0.0.0/26"}, {"nodeName": "a", "sliceRange": slice}]}})
    };
    let own = sliced
        .clone()
        .of_node(&pool("10.0.0.64/26"), "a")
        .unwrap()
        .unwrap();
    let range = &own.ranges[0];
    assert_eq!(own.pools().collect::<Vec<_>>(), ["blue-a-10.0.0.64-26"]);
    // Neither the slice's first address nor those that the definition excludes; the mask is that of the whole range.
    assert_eq!(range.first().to_string(), "10.0.0.68");
    assert_eq!(range.last().to_string(), "10.0.0.126");
    assert_eq!(own.length(range), 16);
    let of_b = sliced.clone().of_node(&pool("10.0.0.64/26"), "b");
    assert_eq!(of_b, Ok(None));
    for wrong in ["10.1.0.0/26", "10.0.0.64/30", "10.0.0.0/8", "x"] {
        let error = sliced.clone().of_node(&pool(wrong), "a").unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&format!("of node a, {wrong}, has no address")),
            "{error}"
        );
    }
}

/// A pool of a network's name, which may be empty.
fn stored(network: &str, range: &str) -> moving::StoredPool {
    let name = range.replace([':', '/'], "-");
    let name = [network, &name].into_iter().filter(|word| !word.is_empty());
    let name = name.collect::<Vec<_>>().join("-");
    let object = json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": {"range": range, "allocations": {}}});
    moving::StoredPool::parse(&object).unwrap()
}

#[test]
fn pools_that_depend_on_each_other_are_one_part() {
    let ranges = [
        "10.48.0.0/20",
        "10.48.0.0/22",
        "10.48.2.0/29",
        "10.48.2.16/29",
        "10.48.2.32/29",
        "10.48.16.0/20",
        "10.60.0.0/25",
        "10.60.0.128/25",
        "fd00::/64",
        "fd00::/120",
        "fd00:1::/64",
    ];
    let networks = ["", "blue"].into_iter();
    let pools = networks.flat_map(|network| ranges.map(|range| stored(network, range)));
    let pools: Vec<_> = pools.collect();
    let joint = ["10.60.0.0-25", "fd00--120", "of-another-cluster"].map(str::to_owned);
    let joint = BTreeSet::from([BTreeSet::from(joint)]);
    let found = mover::parts(&pools, &joint);
    assert_eq!(found.iter().map(Vec::len).sum::<usize>(), pools.len());
    let part_of = |name: &str| {
        let mut parts = found.iter();
        parts.position(|part| part.iter().any(|pool| pool.name == name))
    };
    // Parts are the same as those of connecting all pairs until nothing changes.
    let mut expected: Vec<_> = (0..pools.len()).collect();
    for _ in &pools {
        for (at, one) in pools.iter().enumerate() {
            for (other_at, other) in pools.iter().enumerate() {
                let mut both = joint.iter();
                let is_joint =
                    both.any(|names| names.contains(&one.name) && names.contains(&other.name));
                if is_joint || one.shares_blocks(other) {
                    expected[at] = expected[at].min(expected[other_at]);
                }
            }
        }
    }
    for (at, one) in pools.iter().enumerate() {
        for (other_at, other) in pools.iter().enumerate() {
            let is_one = part_of(&one.name) == part_of(&other.name);
            assert_eq!(
                is_one,
                expected[at] == expected[other_at],
                "{} and {}",
                one.name,
                other.name
            );
        }
    }
}

#[test]
fn blocks_of_pools_are_named_all_or_not_at_all() {
    let pool = |range: &str| stored("", range);
    let small = pool("10.60.0.8/29");
    let block = range::Block::of([10, 60, 0, 0].into());
    let own = object::name(&own_space("10.60.0.8-29"), block);
    let names = |pools: &[moving::StoredPool]| {
        let pools: Vec<_> = pools.iter().collect();
        mover::block_names(&pools)
    };
    assert_eq!(names(&[small]), Some(["10.60.0.0".to_owned(), own].into()));
    // Half of the names of those that overlap are the same.
    let overlapping = (20..28).map(|length| pool(&format!("10.48.0.0/{length}")));
    let mut pools: Vec<_> = overlapping.collect();
    assert!(names(&pools).unwrap().len() < 400);
    pools.push(pool("10.60.0.0/24"));
    assert_eq!(names(&pools), None);
    assert_eq!(names(&[pool("fd00::/64")]), None);
}
