//! Leases: the texts that say which container has an address, as they are in the files.

use std::net::IpAddr;

use crate::call::Call;

/// The attachment that an address belongs to, as its file names it.
pub(super) struct Holder<'a> {
    pub(super) container_id: &'a str,
    pub(super) ifname: &'a str,
}

/// An address and the text of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) address: IpAddr,
    /// Without white space around it; absent when the file cannot be read.
    pub(super) text: Option<String>,
}

impl<'a> Holder<'a> {
    pub(super) fn from_call(call: &'a Call) -> Self {
        Self {
            container_id: &call.container_id,
            ifname: &call.ifname,
        }
    }

    /// Returns the text of the file.
    pub(super) fn text(&self) -> String {
        format!("{}\r\n{}", self.container_id, self.ifname)
    }

    /// Returns whether a lease is the attachment's. Files from before 2018 have only the container's id.
    pub(super) fn has(&self, lease: &Lease) -> bool {
        self.has_exactly(lease) || lease.text.as_deref() == Some(self.container_id)
    }

    fn has_exactly(&self, lease: &Lease) -> bool {
        let ids = lease.text.as_ref().and_then(|text| text.split_once("\r\n"));
        ids == Some((self.container_id, self.ifname))
    }

    /// Returns the leases of the attachment. Old files count only where it has no others: another interface of the container may
    /// have them.
    pub(super) fn leases<'b>(&self, leases: &'b [Lease]) -> Vec<&'b Lease> {
        let own: Vec<_> = leases
            .iter()
            .filter(|lease| self.has_exactly(lease))
            .collect();
        if own.is_empty() {
            leases.iter().filter(|lease| self.has(lease)).collect()
        } else {
            own
        }
    }
}

impl Lease {
    /// Returns whether no container has the address. All writers hold the lock from the creation of a file to its text, so that a
    /// file without text, seen under the lock, is what remains of a process that was killed.
    pub(super) fn is_abandoned(&self) -> bool {
        self.text.as_ref().is_some_and(String::is_empty)
    }
}

/// Returns the text of a file without what surrounds it. After a power cut a file may have zeros where its text was to be.
pub(super) fn text_of(bytes: &[u8]) -> String {
    let is_around = |character: char| character == '\0' || character.is_whitespace();
    String::from_utf8_lossy(bytes)
        .trim_matches(is_around)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases() -> Vec<Lease> {
        let files: [(u8, &[u8]); 6] = [
            (1, b"a\r\neth0"),
            (2, b"a\r\nnet1"),
            (3, b"a"),
            (4, b" b\n"),
            (5, b""),
            (6, b"\0\0\0\0"),
        ];
        files
            .into_iter()
            .map(|(host, text)| Lease {
                address: [10, 0, 0, host].into(),
                text: Some(text_of(text)),
            })
            .collect()
    }

    #[track_caller]
    fn check(container_id: &str, ifname: &str, expected: &[u8]) {
        let leases = leases();
        let holder = Holder {
            container_id,
            ifname,
        };
        let found: Vec<_> = holder
            .leases(&leases)
            .iter()
            .map(|lease| lease.address)
            .collect();
        let expected: Vec<IpAddr> = expected
            .iter()
            .map(|host| [10, 0, 0, *host].into())
            .collect();
        assert_eq!(found, expected, "{container_id} {ifname}");
    }

    #[test]
    fn old_files_belong_to_attachments_without_new_ones() {
        check("a", "eth0", &[1]);
        check("a", "net1", &[2]);
        check("a", "net2", &[3]);
        check("b", "eth0", &[4]);
        check("c", "eth0", &[]);
    }

    #[test]
    fn files_without_text_are_abandoned() {
        let abandoned: Vec<_> = leases().iter().map(Lease::is_abandoned).collect();
        assert_eq!(abandoned, [false, false, false, false, true, true]);
    }
}
