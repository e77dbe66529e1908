//! The labels of a Node that say which definitions it can serve. Schedulers find the node by them, or by extended resources with the same
//! names.

use crate::network_report::Verdict;

/// The prefix of the labels' keys; the daemon of a node owns all of them.
pub const PREFIX: &str = "networks.multus-rs.cni.cncf.io/";
/// The longest name in a label's key, behind the prefix (Kubernetes, "Labels and Selectors").
const MAX_NAME: usize = 63;

/// Returns the key for a definition `namespace/name`, or `None` if its name `namespace.name` is too long for a label. No two
/// definitions share a key, since a namespace has no dot.
pub fn key(network: &str) -> Option<String> {
    let name = network.replacen('/', ".", 1);
    (name.len() <= MAX_NAME).then(|| format!("{PREFIX}{name}"))
}

/// Returns why a definition `namespace/name` has no key; `None` for one that has one.
pub fn fault(network: &str) -> Option<String> {
    key(network).is_none().then(|| {
        format!(
            "no node has a label or resource for this network: namespace and name have {} characters together, and its name has at most {}",
            network.chars().filter(|one| *one != '/').count(),
            MAX_NAME - 1
        )
    })
}

/// Returns the value for a verdict; a node that cannot serve a definition has no label.
pub fn value(verdict: &Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Serves | Verdict::Unknown(_) => Some(verdict.word()),
        Verdict::Cannot(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_namespace_and_name() {
        let expected = "networks.multus-rs.cni.cncf.io/shop.lan.fast";
        assert_eq!(key("shop/lan.fast").as_deref(), Some(expected));
        let longest = |name: usize| key(&format!("shop/{}", "a".repeat(name))).is_some();
        assert_eq!((longest(58), longest(59)), (true, false));
        let fault = |name: usize| fault(&format!("shop/{}", "a".repeat(name)));
        assert_eq!(fault(58), None);
        assert!(fault(59).unwrap().contains("have 63 characters together"));
    }
}
