//! bandwidth: limits what a container receives (on the host's end of its veth pair) and what it sends (on an ifb device that the
//! host's end is redirected to).

use cni::CniResult;
use cni::types::Interface;
use cni::version::Version;
use sha2::{Digest, Sha512};

use crate::attachment::{Container, delete_link, remove_link};
use crate::call::Call;
use crate::config::bandwidth::{Limit, Plan};
use crate::error::{Context, Result, bail, failure, or_undo};
use crate::kernel::link::{Link, NewLink};
use crate::kernel::qdisc::Tbf;
use crate::kernel::{Errno, Netlink};

/// The names of ifb devices begin with this.
const IFB_PREFIX: &str = "bwp";
/// The length of the longest name of a link.
const IFB_NAME_LENGTH: usize = 15;
/// How the hardware addresses of our ifb devices begin: those of others are random, and those of hardware are not local.
const OUR_MAC: [u8; 3] = *b"\x02mu";
/// How long a packet may wait, in microseconds.
const LATENCY: f64 = 25_000.0;
const MICROSECONDS: f64 = 1_000_000.0;
/// The kernel's ticks in a microsecond, where `/proc/net/psched` does not say.
const TICKS: f64 = 15.625;

impl Limit {
    /// Returns the token bucket filter. Times beyond the kernel's 32 bits wrap around, as they do in the reference, whose pods pass CHECK
    /// here and the reverse.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "the reference computes in floating point, and its result must come out"
    )]
    fn tbf(self, ticks: f64) -> Tbf {
        let wrap = |number: f64| number as u64 as u32;
        let rate = self.rate / 8;
        let burst = (self.burst / 8) as u32;
        let time = wrap(f64::from(burst) * MICROSECONDS / rate as f64);
        Tbf {
            rate,
            limit: wrap(rate as f64 * LATENCY / MICROSECONDS).wrapping_add(burst),
            buffer: wrap(f64::from(time) * ticks),
        }
    }
}

/// The ifb device of an attachment. The reference names it by network and container, so that name is the first choice; a second
/// attachment of the network in the same container has another one. The hardware address says whose the device is.
struct Ifb {
    names: [String; 2],
    mac: Vec<u8>,
}

impl Ifb {
    fn of(call: &Call) -> Self {
        let container = format!("{}{}", call.network, call.container_id);
        let attachment = format!("{container}/{}", call.ifname);
        let mut mac = Sha512::digest(&attachment)[..6].to_vec();
        mac[..OUR_MAC.len()].copy_from_slice(&OUR_MAC);
        Self {
            names: [ifb_name(&container), ifb_name(&attachment)],
            mac,
        }
    }

    /// Creates the device and returns its name.
    fn create(&self, host: &mut Netlink, mtu: u32) -> Result<&str> {
        let create = |host: &mut Netlink, name| {
            let new = NewLink {
                name,
                kind: "ifb",
                mtu: Some(mtu),
                mac: &self.mac,
                tx_queue: Some(0),
                ..NewLink::default()
            };
            host.request(new.message(|_| {})).map(|()| name)
        };
        let [first, second] = &self.names;
        let created = match create(host, first) {
            Err(Errno::EEXIST) if host.link_by_name(first).is_ok_and(|link| !self.is(&link)) => {
                create(host, second)
            }
            outcome => outcome,
        };
        created.context(|| "adding link".to_owned())
    }

    fn is(&self, link: &Link) -> bool {
        link.mac == self.mac
    }

    /// Returns the name that a result lists.
    fn listed<'a>(&self, result: &'a CniResult) -> Option<&'a str> {
        let names = result.interfaces.iter().map(|interface| &interface.name);
        let mut names = names.filter(|name| self.names.contains(name));
        names.next().map(String::as_str)
    }
}

/// Returns the name of an ifb device by its owner.
fn ifb_name(owner: &str) -> String {
    let digest = Sha512::digest(owner);
    let mut name = IFB_PREFIX.to_owned();
    name.extend(digest.iter().map(|byte| format!("{byte:02x}")));
    name.truncate(IFB_NAME_LENGTH);
    name
}

/// Returns how many of the kernel's ticks are in a microsecond, from the text of `/proc/net/psched`: how many nanoseconds each of
/// microsecond and tick has, then the clock's resolution.
fn ticks(psched: &str) -> Option<f64> {
    let mut numbers = psched
        .split_whitespace()
        .map(|number| u32::from_str_radix(number, 16).ok());
    let (microsecond, tick, resolution) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let clock = f64::from(resolution) / MICROSECONDS;
    let ratio = if resolution == 1_000_000_000 {
        1.0
    } else {
        f64::from(microsecond) / f64::from(tick)
    };
    Some(ratio * clock)
}

fn read_ticks() -> f64 {
    std::fs::read_to_string("/proc/net/psched")
        .ok()
        .and_then(|text| ticks(&text))
        .unwrap_or(TICKS)
}

/// Limits the container's traffic; without limits the previous result passes through.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let plan = Plan::load(call)?;
    let mut result = call
        .prev_result()?
        .ok_or_else(|| failure!("must be called as chained plugin"))?;
    if plan.limits_nothing() {
        return Ok(result);
    }
    let mut host = Netlink::open()?;
    let link = host_link(call, &result, &mut host)?;
    let ticks = read_ticks();
    if let Some(limit) = plan.ingress {
        host.add_tbf(link.index, limit.tbf(ticks))
            .context(|| "create qdisc".to_owned())?;
    }
    if let Some(limit) = plan.egress {
        let tbf = limit.tbf(ticks);
        let ifb = or_undo(
            || limit_egress(&mut host, &link, &Ifb::of(call), tbf),
            || {
                if plan.ingress.is_some()
                    && let Ok(mut host) = Netlink::open()
                {
                    let _ = host.delete_tbf(link.index);
                }
            },
        )?;
        result.interfaces.push(Interface {
            mac: ifb.mac_text(),
            name: ifb.name,
            ..Interface::default()
        });
    }
    Ok(result)
}

/// Creates the ifb device and redirects to it what the container sends. A failure takes back what came before it, the first error
/// is the one that is reported.
fn limit_egress(host: &mut Netlink, link: &Link, ifb: &Ifb, tbf: Tbf) -> Result<Link> {
    let name = ifb.create(host, link.mtu)?;
    let outcome = fill_ifb(host, link, name, tbf);
    if outcome.is_err() {
        let _ = delete_link(host, name);
    }
    outcome
}

fn fill_ifb(host: &mut Netlink, link: &Link, name: &str, tbf: Tbf) -> Result<Link> {
    let ifb = crate::attachment::link_by_name(host, name)?;
    host.set_up(ifb.index)
        .context(|| "adding link".to_owned())?;
    host.add_ingress(link.index)
        .context(|| "create ingress qdisc".to_owned())?;
    let outcome = redirect(host, link, &ifb, tbf);
    if outcome.is_err() {
        let _ = host.delete_ingress(link.index);
    }
    outcome.map(|()| ifb)
}

fn redirect(host: &mut Netlink, link: &Link, ifb: &Link, tbf: Tbf) -> Result<()> {
    host.redirect_ingress(link.index, ifb.index)
        .context(|| "add filter".to_owned())?;
    host.add_tbf(ifb.index, tbf)
        .context(|| "create ifb qdisc: create qdisc".to_owned())
}

/// Returns the host's end of the container's veth pair, which must be in the previous result.
fn host_link(call: &Call, result: &CniResult, host: &mut Netlink) -> Result<Link> {
    let mut container = Container::open(&call.netns)?;
    if result.interfaces.is_empty() {
        bail!("no interfaces provided");
    }
    let ifname = &call.ifname;
    let no_peer =
        |reason: String| failure!("container interface {ifname} has no veth peer: {reason}");
    let inner = container
        .link(ifname)
        .map_err(|error| no_peer(format!("could not look up {ifname:?}: {}", error.msg)))?;
    if inner.kind != "veth" {
        return Err(no_peer(format!(
            "interface {ifname:?} was not a veth interface"
        )));
    }
    let index = inner
        .parent
        .ok_or_else(|| no_peer(format!("interface {ifname:?} names no other end")))?;
    let link = host
        .link_by_index(index)
        .map_err(|_| failure!("veth peer with index {index} is not in host ns"))?;
    let is_listed = result
        .interfaces
        .iter()
        .any(|interface| interface.sandbox.is_empty() && interface.name == link.name);
    if is_listed {
        Ok(link)
    } else {
        Err(failure!(
            "no veth peer of container interface found in host ns"
        ))
    }
}

/// Deletes the ifb device. The rest is on the host's end of the pair and goes with it.
///
/// One that the reference made has a random hardware address. It is this attachment's if the previous result lists it. Where there can be
/// no result, and where the container is gone, its name is enough.
pub(crate) fn del(call: &Call) -> Result<()> {
    let ifb = Ifb::of(call);
    let result = call.prev_result().ok().flatten();
    let listed = result.as_ref().and_then(|result| ifb.listed(result));
    let is_name_enough = call.version < Version::V0_4_0
        || !matches!(Container::open_if_present(&call.netns), Ok(Some(_)));
    let is_of_this = |link: &Link| {
        let is_of_others = !link.mac.starts_with(&OUR_MAC);
        ifb.is(link) || is_of_others && (is_name_enough || listed == Some(&link.name))
    };
    let mut host = Netlink::open()?;
    for name in &ifb.names {
        match host.link_by_name(name) {
            Ok(link) if is_of_this(&link) => remove_link(&mut host, &link)?,
            Ok(_) | Err(Errno::ENODEV) => {}
            Err(error) => return Err(error).context(|| format!("failed to lookup {name:?}")),
        }
    }
    Ok(())
}

/// Fails unless the limits are in place.
pub(crate) fn check(call: &Call) -> Result<()> {
    let plan = Plan::load(call)?;
    let result = call
        .prev_result()?
        .ok_or_else(|| failure!("must be called as a chained plugin"))?;
    let mut host = Netlink::open()?;
    let link = host_link(call, &result, &mut host)?;
    let ticks = read_ticks();
    if let Some(limit) = plan.ingress {
        check_tbf(&mut host, link.index, limit.tbf(ticks))?;
    }
    if let Some(limit) = plan.egress {
        let ifb = Ifb::of(call);
        let name = ifb.listed(&result).unwrap_or(&ifb.names[0]);
        let ifb = crate::attachment::link_by_name(&mut host, name)
            .context(|| "get ifb device".to_owned())?;
        check_tbf(&mut host, ifb.index, limit.tbf(ticks))?;
    }
    Ok(())
}

fn check_tbf(host: &mut Netlink, link: u32, expected: Tbf) -> Result<()> {
    let tbf = host
        .tbf(link)
        .and_then(|tbf| tbf.ok_or(Errno::ENOENT))
        .map_err(|_| failure!("Failed to find qdisc"))?;
    match difference(tbf, expected) {
        None => Ok(()),
        Some(name) => Err(failure!("{name} doesn't match")),
    }
}

/// Returns the first field that differs.
fn difference(tbf: Tbf, expected: Tbf) -> Option<&'static str> {
    [
        ("Rate", tbf.rate == expected.rate),
        ("Limit", tbf.limit == expected.limit),
        ("Buffer", tbf.buffer == expected.buffer),
    ]
    .into_iter()
    .find_map(|(name, is_same)| (!is_same).then_some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::bandwidth::Config;

    #[test]
    fn limits_have_rate_and_burst() {
        let check = |rate, burst, expected: std::result::Result<Option<Limit>, &str>| {
            let limit = Limit::new(rate, burst).map_err(|error| error.msg);
            assert_eq!(limit, expected.map_err(str::to_owned));
        };
        check(None, None, Ok(None));
        check(Some(0), Some(0), Ok(None));
        check(Some(8), Some(9), Ok(Some(Limit { rate: 8, burst: 9 })));
        check(Some(8), None, Err("if rate is set, burst must also be set"));
        check(
            Some(0),
            Some(8),
            Err("if burst is set, rate must also be set"),
        );
        check(Some(8), Some(8 << 32), Err("burst cannot be more than 4GB"));
    }

    #[test]
    fn own_limits_come_before_the_runtimes() {
        let plan = |text: &str| {
            let config: Config = serde_json::from_str(text).unwrap();
            config.limits.is_empty()
        };
        assert!(plan(
            r#"{"runtimeconfig": {"bandwidth": {"ingressrate": 5}}}"#
        ));
        assert!(!plan(
            r#"{"egressburst": 0, "runtimeconfig": {"bandwidth": {"ingressrate": 5}}}"#
        ));
    }

    #[test]
    fn bucket_is_measured_in_time() {
        let limit = Limit {
            rate: 8_000_000,
            burst: 8_000_000,
        };
        let expected = Tbf {
            rate: 1_000_000,
            limit: 1_025_000,
            buffer: 15_625_000,
        };
        assert_eq!(limit.tbf(TICKS), expected);
        let slow = Limit {
            rate: 1_000_000,
            burst: 0x7fff_ffff,
        };
        // 33,554,431,875 ticks.
        assert_eq!(slow.tbf(TICKS).buffer, 3_489_660_803);
        let zero = Limit { rate: 1, burst: 1 };
        assert_eq!(zero.tbf(TICKS).rate, 0);
        assert_eq!(difference(expected, expected), None);
        assert_eq!(difference(expected, slow.tbf(TICKS)), Some("Rate"));
    }

    #[test]
    fn ticks_are_read_from_the_kernel() {
        assert_eq!(ticks("000003e8 00000040 000f4240 3b9aca00\n"), Some(15.625));
        assert_eq!(ticks("000003e8 00000040 3b9aca00 3b9aca00\n"), Some(1000.0));
        assert_eq!(ticks("000003e8"), None);
    }

    #[test]
    fn ifb_is_named_by_network_and_container() {
        let ifb = Ifb::of(&Call {
            container_id: "cid1".to_owned(),
            network: "n".to_owned(),
            ..Call::with_config("{}", "")
        });
        assert_eq!(ifb.names[0], "bwp1a67f85ded96");
        assert_ne!(ifb.names[0], ifb.names[1]);
        assert!(ifb.mac.starts_with(&OUR_MAC));
    }
}
