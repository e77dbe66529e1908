//! dhcp: an address from a DHCP server. A lease outlives the plugin's process, so a service holds it: that of `multus-daemon`, or
//! without Multus `dhcp daemon`, which is the same program as the plugin. The plugin sends it one request for each verb.

pub(crate) mod daemon;

use cni::CniResult;
use cni::types::{IpConfig, Route as ResultRoute};
use dhcp::options::{code, code_of};
use dhcp::wire::{self, Answer, Ask, Grant, Verb};

use crate::call::Call;
use crate::config::dhcp::{Ipam, Provide, Request, load};
use crate::error::{Context, Result, failure, warn};
use crate::ip::Cidr;
use crate::ipam::service::{Service, Unserved};
use crate::kernel::route::RT_SCOPE_LINK;

/// The options that are requested unless the configuration says otherwise.
const DEFAULT_REQUEST: [u8; 2] = [code::ROUTER, code::SUBNET_MASK];
/// The options that are requested when a configuration skips those and names none: a client that requests nothing gets whatever the
/// server likes.
const LEAST_REQUEST: [u8; 4] = [
    code::SUBNET_MASK,
    code::ROUTER,
    code::DOMAIN_NAME,
    code::NAME_SERVERS,
];
/// How long an option's value may be.
const VALUE_LENGTH: usize = 255;

/// Returns the address with its routes.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let ipam = load(call)?;
    let grant = exchange(call, &ipam, Verb::Allocate)
        .map_err(Unserved::into_error)?
        .ok_or_else(|| failure!("the DHCP daemon has granted no lease"))?;
    Ok(result(grant, &ipam))
}

/// Gives the lease back. The service knows nothing of a lease that was given back before. Without a service DEL succeeds, so that the
/// pod can be deleted: the next service gives the leases of deleted pods back.
pub(crate) fn del(call: &Call) -> Result<()> {
    match exchange(call, &load(call)?, Verb::Release) {
        Err(Unserved::NoService(error)) => {
            warn(&format!("the lease was not given back: {error}"));
            Ok(())
        }
        other => other.map(|_| ()).map_err(Unserved::into_error),
    }
}

/// Fails unless the daemon holds a lease.
pub(crate) fn check(call: &Call) -> Result<()> {
    exchange(call, &load(call)?, Verb::Check)
        .map(|_| ())
        .map_err(Unserved::into_error)
}

/// Fails unless the daemon accepts requests.
pub(crate) fn status(call: &Call) -> Result<()> {
    load(call)?.service().status()
}

impl Ipam {
    fn service(&self) -> Service<'_> {
        Service {
            name: "DHCP",
            own: wire::SOCKET,
            sockets: wire::sockets(&self.socket),
        }
    }
}

fn exchange(call: &Call, ipam: &Ipam, verb: Verb) -> std::result::Result<Option<Grant>, Unserved> {
    let method = match verb {
        Verb::Allocate => "DHCP.Allocate",
        Verb::Check => "DHCP.Check",
        Verb::Release => "DHCP.Release",
    };
    let what = || format!("error calling {method}");
    let mut ask = Ask {
        verb,
        client: client_identifier(&call.container_id, &call.network, &call.ifname),
        netns: absolute(&call.netns)?,
        ifname: call.ifname.clone(),
        provide: Vec::new(),
        request: Vec::new(),
        broadcast: ipam.broadcast,
    };
    // A lease keeps the options of its ADD, and a definition that was changed since then must not stop a DEL.
    if verb == Verb::Allocate {
        ask.provide = provided(&ipam.provide, &call.args).context(what)?;
        ask.request = requested(&ipam.request).context(what)?;
    }
    let bytes = serde_json::to_vec(&ask).context(what)?;
    let answer = ipam.service().request(&bytes, verb != Verb::Check, what)?;
    if answer.starts_with(b"HTTP/") {
        // The reference's daemon holds a lease of a pod that is older than this plugin. It ends when the interface does.
        if verb == Verb::Release {
            return Ok(None);
        }
        return Err(Unserved::Failed(failure!(
            "{}: the DHCP daemon is that of another program: set manifests.dhcpDaemonSet in Multus' chart, or start this program's `dhcp daemon` in its place",
            what()
        )));
    }
    match serde_json::from_slice(&answer).context(what)? {
        Answer::Done(grant) => Ok(grant),
        Answer::Failed(error) => Err(failure!("{}: {error}", what()).into()),
    }
}

/// Returns the name of a lease: what the server sees as the client's identifier.
fn client_identifier(container_id: &str, network: &str, ifname: &str) -> String {
    let mut identifier = format!("{container_id}/{network}/{ifname}");
    // The parts of an identifier are ASCII.
    identifier.truncate(254);
    identifier
}

/// The service may have another working directory. Without a namespace there is no path.
fn absolute(netns: &str) -> Result<String> {
    if netns.is_empty() {
        return Ok(String::new());
    }
    let path = std::path::absolute(netns)
        .context(|| format!("failed to make {netns:?} an absolute path"))?;
    Ok(path.to_string_lossy().into_owned())
}

fn parse_code(name: &str) -> Result<u8> {
    code_of(name).ok_or_else(|| {
        failure!("Can not parse option {name:?}: it is neither a known name nor a number below 256")
    })
}

/// Returns the options that the server gets.
fn provided(provide: &[Provide], args: &str) -> Result<Vec<(u8, String)>> {
    let mut options = Vec::new();
    for entry in provide {
        let code = parse_code(&entry.option)?;
        let too_long = |from: &str| failure!("value too long for option {:?}{from}", entry.option);
        if entry.value.len() > VALUE_LENGTH {
            return Err(too_long(""));
        }
        if !entry.value.is_empty() {
            options.push((code, entry.value.clone()));
        }
        let mut pairs = args.split(';').filter_map(|pair| pair.split_once('='));
        if let Some((key, value)) = pairs.rfind(|(key, _)| *key == entry.fromarg) {
            if value.len() > VALUE_LENGTH {
                return Err(too_long(&format!(" from CNI_ARGS {key:?}")));
            }
            options.push((code, value.to_owned()));
        }
    }
    Ok(options)
}

/// Returns the options that the server is to send.
fn requested(request: &[Request]) -> Result<Vec<u8>> {
    let mut codes = Vec::new();
    for entry in request.iter().filter(|entry| !entry.option.is_empty()) {
        codes.push(parse_code(&entry.option)?);
    }
    if !request.iter().any(|entry| entry.skipdefault) {
        codes.extend(DEFAULT_REQUEST);
    } else if codes.is_empty() {
        codes.extend(LEAST_REQUEST);
    }
    let mut seen = Vec::new();
    codes.retain(|code| {
        let is_new = !seen.contains(code);
        seen.push(*code);
        is_new
    });
    Ok(codes)
}

/// Returns the result of a granted lease. A route to the link has the scope of the link and a gateway of zeros.
fn result(grant: Grant, ipam: &Ipam) -> CniResult {
    let skips = |route: &wire::Route| {
        let destination = route.destination.parse::<Cidr>();
        ipam.skip_default && destination.is_ok_and(|destination| destination.length == 0)
    };
    let routes = grant.routes.into_iter().filter(|route| !skips(route));
    let routes = routes.map(|route| ResultRoute {
        dst: route.destination,
        scope: route.gateway.is_none().then_some(RT_SCOPE_LINK.into()),
        gw: route.gateway.unwrap_or_else(|| "0.0.0.0".to_owned()),
        priority: ipam.priority,
        ..ResultRoute::default()
    });
    CniResult {
        routes: routes.collect(),
        ips: vec![IpConfig {
            interface: None,
            address: grant.address,
            gateway: if ipam.skip_default {
                String::new()
            } else {
                grant.gateway
            },
        }],
        ..CniResult::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::thread;

    use super::*;

    #[test]
    fn options_come_from_configuration_and_args() {
        let entry = |option: &str, value: &str, fromarg: &str| Provide {
            option: option.to_owned(),
            value: value.to_owned(),
            fromarg: fromarg.to_owned(),
        };
        let args = "IgnoreUnknown=1;K8S_POD_NAME=a=b;K8S_POD_NAME=web-0";
        let provide = [
            entry("host-name", "", "K8S_POD_NAME"),
            entry("60", "class", ""),
            entry("77", "", "MISSING"),
        ];
        assert_eq!(
            provided(&provide, args).unwrap(),
            [(12, "web-0".to_owned()), (60, "class".to_owned())]
        );
        for (wrong, expected) in [
            (
                entry("hostname", "x", ""),
                "Can not parse option \"hostname\"",
            ),
            (
                entry("12", &"x".repeat(256), ""),
                "value too long for option \"12\"",
            ),
        ] {
            let error = provided(&[wrong], args).unwrap_err();
            assert!(error.msg.starts_with(expected), "{error}");
        }
        let long = format!("A={}", "x".repeat(256));
        let error = provided(&[entry("12", "", "A")], &long).unwrap_err();
        assert_eq!(
            error.msg,
            "value too long for option \"12\" from CNI_ARGS \"A\""
        );
    }

    #[test]
    fn defaults_are_requested_unless_they_are_skipped() {
        let check = |text: &str, expected: &[u8]| {
            let request: Vec<Request> = serde_json::from_str(text).unwrap();
            assert_eq!(requested(&request).unwrap(), expected, "{text}");
        };
        check("[]", &[3, 1]);
        check(
            r#"[{"option": "121"}, {"option": "subnet-mask"}]"#,
            &[121, 1, 3],
        );
        check(r#"[{"skipdefault": true}, {"option": "routers"}]"#, &[3]);
        check(r#"[{"skipdefault": true}]"#, &[1, 3, 15, 6]);
    }

    fn named(socket: &str) -> Ipam {
        Ipam {
            socket: socket.to_owned(),
            ..Ipam::default()
        }
    }

    #[test]
    fn service_of_the_daemon_comes_before_that_of_the_reference() {
        let default = ["/run/cni/multus-dhcp.sock", "/run/cni/dhcp.sock"];
        assert_eq!(named("").service().sockets, default);
        assert_eq!(named("/run/cni/dhcp.sock").service().sockets, default);
        assert_eq!(named("/run/x.sock").service().sockets, ["/run/x.sock"]);
    }

    #[test]
    fn keys_of_a_definition_reach_service_and_routes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dhcp.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let service = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            stream.read_to_string(&mut request).unwrap();
            let grant = Grant {
                address: "10.0.0.5/24".to_owned(),
                gateway: "10.0.0.1".to_owned(),
                routes: vec![wire::Route {
                    destination: "0.0.0.0/0".to_owned(),
                    gateway: Some("10.0.0.1".to_owned()),
                }],
            };
            let answer = serde_json::to_vec(&Answer::Done(Some(grant))).unwrap();
            stream.write_all(&answer).unwrap();
            serde_json::from_str::<Ask>(&request).unwrap()
        });
        let config = serde_json::json!({"ipam": {
            "type": "dhcp", "daemonSocketPath": path, "priority": 77, "broadcast": true,
            "provide": [{"option": "12", "fromArg": "K8S_POD_NAME"}, {"option": "60", "value": "class"}],
            "request": [{"skipDefault": true}, {"option": "121"}],
        }});
        let args = "IgnoreUnknown=1;K8S_POD_NAME=web-0";
        let result = add(&Call::with_config(&config.to_string(), args)).unwrap();
        assert_eq!(result.routes[0].priority, 77);
        let ask = service.join().unwrap();
        let provided = [(12, "web-0".to_owned()), (60, "class".to_owned())];
        assert_eq!(ask.provide, provided);
        assert_eq!(ask.request, [121]);
        assert!(ask.broadcast);
        assert_eq!(ask.verb, Verb::Allocate);
    }

    #[test]
    fn unknown_option_fails_an_add_and_not_a_del() {
        let socket = tempfile::tempdir().unwrap().path().join("none.sock");
        let config = serde_json::json!({"ipam": {
            "type": "dhcp", "daemonSocketPath": socket,
            "provide": [{"option": "hostname", "value": "x"}], "request": [{"option": "router"}],
        }});
        let call = Call::with_config(&config.to_string(), "");
        let error = add(&call).unwrap_err();
        assert!(error.msg.contains("Can not parse option"), "{error}");
        del(&call).unwrap();
    }

    #[test]
    fn identifier_has_the_length_of_an_option() {
        assert_eq!(client_identifier("c", "net", "eth0"), "c/net/eth0");
        assert_eq!(
            client_identifier(&"c".repeat(300), "net", "eth0").len(),
            254
        );
    }

    /// Destination, gateway, scope and metric.
    type ShownRoute = (String, String, Option<i64>, i64);

    /// Returns the gateway and the routes.
    fn shown(config: &str) -> (String, Vec<ShownRoute>) {
        let route = |destination: &str, gateway: Option<&str>| wire::Route {
            destination: destination.to_owned(),
            gateway: gateway.map(str::to_owned),
        };
        let grant = Grant {
            address: "10.0.0.5/24".to_owned(),
            gateway: "10.0.0.1".to_owned(),
            routes: vec![
                route("0.0.0.0/0", Some("10.0.0.1")),
                route("10.9.0.0/16", None),
                route("10.8.0.0/16", Some("10.0.0.9")),
            ],
        };
        let result = result(grant, &serde_json::from_str(config).unwrap());
        let routes = result.routes.into_iter();
        let routes = routes.map(|route| (route.dst, route.gw, route.scope, route.priority));
        (result.ips[0].gateway.clone(), routes.collect())
    }

    #[test]
    fn routes_to_the_link_have_its_scope() {
        let (gateway, routes) = shown(r#"{"priority": 100}"#);
        let row = |dst: &str, gw: &str, scope| (dst.to_owned(), gw.to_owned(), scope, 100);
        let expected = [
            row("0.0.0.0/0", "10.0.0.1", None),
            row("10.9.0.0/16", "0.0.0.0", Some(253)),
            row("10.8.0.0/16", "10.0.0.9", None),
        ];
        assert_eq!((gateway.as_str(), routes), ("10.0.0.1", expected.to_vec()));
    }

    #[test]
    fn default_route_of_the_server_is_left_out_on_request() {
        let (gateway, routes) = shown(r#"{"skipdefault": true}"#);
        let destinations: Vec<_> = routes.into_iter().map(|(dst, ..)| dst).collect();
        assert_eq!(gateway, "");
        assert_eq!(destinations, ["10.9.0.0/16", "10.8.0.0/16"]);
    }
}
