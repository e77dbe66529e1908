//! Kernel parameters below `/proc/sys`, of the network namespace that the thread is in.

use std::path::PathBuf;

use super::errno::Errno;

/// Returns the value without the newline that ends it. `name` has slashes (`net/ipv4/ip_forward`), or dots as `sysctl` writes them.
pub(crate) fn read(name: &str) -> Result<String, Errno> {
    let mut value = std::fs::read_to_string(path(name))?;
    if value.ends_with('\n') {
        value.pop();
    }
    Ok(value)
}

pub(crate) fn write(name: &str, value: &str) -> Result<(), Errno> {
    Ok(std::fs::write(path(name), value)?)
}

/// Writes a value unless it is set already, so that a read-only `/proc` is not an obstacle then.
pub(crate) fn ensure(name: &str, value: &str) -> Result<(), Errno> {
    if read(name).is_ok_and(|present| present.trim() == value) {
        Ok(())
    } else {
        write(name, value)
    }
}

/// Returns the file of a parameter. A name whose first separator is a dot has slashes for dots and dots for slashes, so that
/// interface names with a dot can be written: `net.ipv4.conf.eth0/100.forwarding`.
pub(crate) fn path(name: &str) -> PathBuf {
    let has_dots = name
        .find(['.', '/'])
        .is_some_and(|at| name[at..].starts_with('.'));
    let name: String = if has_dots {
        let swap = |character| match character {
            '.' => '/',
            '/' => '.',
            other => other,
        };
        name.chars().map(swap).collect()
    } else {
        name.to_owned()
    };
    PathBuf::from("/proc/sys").join(name.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_separator_decides() {
        for (name, expected) in [
            ("net/ipv4/ip_forward", "/proc/sys/net/ipv4/ip_forward"),
            ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
            (
                "net.ipv4.conf.eth0/100.forwarding",
                "/proc/sys/net/ipv4/conf/eth0.100/forwarding",
            ),
            (
                "net/ipv4/conf/eth0.100/forwarding",
                "/proc/sys/net/ipv4/conf/eth0.100/forwarding",
            ),
        ] {
            assert_eq!(path(name), PathBuf::from(expected));
        }
    }
}
