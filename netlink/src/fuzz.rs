//! Fuzz target of the kernel's messages, whose bodies are read as routes, too. `docs/contributing/testing.md` says how it runs; the other kinds of
//! objects have theirs in `plugins` and `vpn`.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use crate::codec::{Attributes, HEADER, Message, text, u16_at, u32_at};
use crate::route;
use crate::socket::{error_in, split};

/// A datagram of messages, whose bodies have attributes with attributes in them.
pub fn datagrams(input: &[u8]) -> bool {
    let (mut rest, mut count) = (input, 0);
    while let Some((_, body, next)) = split(rest) {
        assert!(next.len() + HEADER + body.len() <= rest.len());
        rest = next;
        count += 1;
        let _ = (error_in(body), route::fuzz(body));
        attributes(body, 3);
    }
    count > 0
}

fn attributes(bytes: &[u8], depth: usize) {
    let found: Vec<_> = Attributes(bytes).collect();
    let mut message = Message::new(0, 0, &[]);
    for (kind, value) in &found {
        let _ = (text(value), u16_at(value, 0), u32_at(value, 0));
        message.put(*kind, value);
        if depth > 0 {
            attributes(value, depth - 1);
        }
    }
    let written = message.finish(0, 1);
    let again: Vec<_> = Attributes(&written[HEADER..]).collect();
    assert_eq!(again, found);
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    #[test]
    fn datagrams() {
        run("netlink_datagrams", super::datagrams);
    }
}
