//! Validates addresses as Go's parsers do, because the annotations of existing Multus pods were written against those.
//! Nothing is rewritten: plugins get the text that the pod's author wrote.

use std::net::IpAddr;

/// Accepts `10.0.0.1`, `10.0.0.1/24` and the same for IPv6.
pub(super) fn is_ip_or_cidr(text: &str) -> bool {
    match text.split_once('/') {
        None => text.parse::<IpAddr>().is_ok(),
        Some((ip, length)) => {
            let max = match ip.parse::<IpAddr>() {
                Ok(IpAddr::V4(_)) => 32,
                Ok(IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            length.bytes().all(|b| b.is_ascii_digit())
                && length.parse::<u16>().is_ok_and(|length| length <= max)
        }
    }
}

/// Accepts a hardware address of 6, 8 or 20 bytes with `:`, `-` or dots.
pub(super) fn is_mac(text: &str) -> bool {
    matches!(hardware_bytes(text), Some(6 | 8 | 20))
}

/// Accepts an InfiniBand GUID: 8 bytes in the notation of hardware addresses.
pub(super) fn is_guid(text: &str) -> bool {
    hardware_bytes(text) == Some(8)
}

/// Accepts a hardware address of Ethernet, which has 6 bytes.
pub(super) fn is_ethernet(text: &str) -> bool {
    hardware_bytes(text) == Some(6)
}

/// Returns the number of bytes of a hardware address, or `None` for any other text.
fn hardware_bytes(text: &str) -> Option<usize> {
    let (separator, digits) = [(':', 2), ('-', 2), ('.', 4)]
        .into_iter()
        .find(|(separator, _)| text.contains(*separator))?;
    let mut groups = 0;
    for group in text.split(separator) {
        let hex = group.bytes().all(|b| b.is_ascii_hexdigit());
        if group.len() != digits || !hex {
            return None;
        }
        groups += 1;
    }
    Some(groups * digits / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_addresses_may_have_a_prefix_length() {
        for good in [
            "10.9.0.7",
            "10.9.0.7/24",
            "fd00::1",
            "fd00::1/64",
            "0.0.0.0/0",
        ] {
            assert!(is_ip_or_cidr(good), "{good}");
        }
        for bad in [
            "",
            "/",
            "10.9.0.7/",
            "10.9.0.7/33",
            "10.9.0.7/+8",
            "fd00::1/129",
            "10.9.0",
            "x/24",
            "fe80::1%eth0",
        ] {
            assert!(!is_ip_or_cidr(bad), "{bad}");
        }
    }

    #[test]
    fn hardware_addresses_have_6_8_or_20_bytes() {
        let infiniband = ["02"; 20].join(":");
        for good in [
            "02:00:00:00:00:07",
            "02-00-00-00-00-07",
            "0200.0000.0007",
            "02:00:00:00:00:00:00:07",
            &infiniband,
        ] {
            assert!(is_mac(good), "{good}");
        }
        for bad in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:0g",
            "2:0:0:0:0:7",
            "02:00-00:00:00:07",
            "020000000007",
            "é2:00:00:00:00:07",
        ] {
            assert!(!is_mac(bad), "{bad}");
        }
    }

    #[test]
    fn guids_have_8_bytes() {
        assert!(is_guid("c2:11:22:33:44:55:66:77"));
        assert!(!is_guid("c2:11:22:33:44:55"));
    }
}
