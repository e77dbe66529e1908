//! Netlink messages: a header, a fixed part that depends on the kind, and attributes (RFC 3549; `linux/netlink.h`).
//!
//! Numbers are in the machine's byte order, unless an attribute says otherwise. Everything is padded to four bytes.

use std::net::IpAddr;

/// The flag of every request.
const NLM_F_REQUEST: u16 = 0x1;
/// The kind bit of attributes that hold attributes.
pub const NLA_F_NESTED: u16 = 0x8000;
/// The kind bits that are flags.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// The length of a message header: length, kind, flags, sequence, port.
pub const HEADER: usize = 16;
/// What messages and attributes are padded to: `NLMSG_ALIGNTO` and `NLA_ALIGNTO`.
pub(crate) const ALIGNTO: usize = 4;

/// A request under construction.
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Begins a request with the fixed part of its kind.
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        let mut message = Self { bytes };
        message.pad();
        message
    }

    /// Appends an attribute.
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(4 + value.len()).expect("attributes are short");
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
        self
    }

    pub fn put_u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.put(kind, &[value])
    }

    pub fn put_u16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    pub fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Appends an attribute of four bytes in network order, as netfilter has its numbers.
    pub fn put_be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Appends a text with the zero byte that ends it.
    pub fn put_text(&mut self, kind: u16, text: &str) -> &mut Self {
        let mut value = text.as_bytes().to_vec();
        value.push(0);
        self.put(kind, &value)
    }

    /// Appends an attribute that holds the attributes that `fill` appends.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest_after(kind, &[], fill)
    }

    /// The same, but appends nothing when `fill` appends nothing.
    pub fn nest_unless_empty(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.nest(kind, fill);
        if self.bytes.len() == start + 4 {
            self.bytes.truncate(start);
        }
    }

    /// Appends an attribute that begins with a fixed part, as `VETH_INFO_PEER` does, before its attributes.
    pub fn nest_after(
        &mut self,
        kind: u16,
        fixed: &[u8],
        fill: impl FnOnce(&mut Self),
    ) -> &mut Self {
        let start = self.bytes.len();
        self.put(kind | NLA_F_NESTED, fixed);
        fill(self);
        let length = u16::try_from(self.bytes.len() - start).expect("attributes are short");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Returns what follows the header.
    pub fn body(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }

    /// Returns the bytes with their length, further flags and the sequence number that the reply will repeat.
    pub fn finish(mut self, flags: u16, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("messages are short");
        let flags = flags | u16::from_ne_bytes([self.bytes[6], self.bytes[7]]);
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }

    fn pad(&mut self) {
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGNTO), 0);
    }
}

/// Reads attributes, pairs of kind and value, up to the first one that is cut short.
#[derive(Clone)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// Returns the value of the first attribute of this kind.
    pub fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.clone()
            .find(|(candidate, _)| *candidate == kind)
            .map(|(_, value)| value)
    }

    /// Returns an attribute that holds attributes.
    pub fn nested(&self, kind: u16) -> Option<Self> {
        self.get(kind).map(Attributes)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & NLA_TYPE_MASK;
        let value = self.0.get(4..length)?;
        self.0 = self
            .0
            .get(length.next_multiple_of(ALIGNTO)..)
            .unwrap_or_default();
        Some((kind, value))
    }
}

pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let bytes = bytes.get(offset..offset + 2)?;
    Some(u16::from_ne_bytes([bytes[0], bytes[1]]))
}

pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Returns the bytes in network order.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns the address of four or sixteen bytes in network order.
pub fn from_octets(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        Some(IpAddr::from(bytes))
    } else {
        <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
    }
}

/// Returns a text without the zero byte that ends it.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        let mut message = Message::new(16, 0x600, &[0xaa; 3]);
        message.put_text(3, "eth0").nest(18, |info| {
            info.put(1, b"veth");
        });
        let bytes = message.finish(4, 7);
        assert_eq!(u32_at(&bytes, 0), u32::try_from(bytes.len()).ok());
        assert_eq!(u16_at(&bytes, 4), Some(16));
        assert_eq!(u16_at(&bytes, 6), Some(0x605));
        assert_eq!(u32_at(&bytes, 8), Some(7));
        assert_eq!(&bytes[HEADER..HEADER + 4], [0xaa, 0xaa, 0xaa, 0]);
        let attributes = Attributes(&bytes[HEADER + 4..]);
        assert_eq!(attributes.get(3).map(text).as_deref(), Some("eth0"));
        assert_eq!(
            attributes.nested(18).and_then(|info| info.get(1)),
            Some(&b"veth"[..])
        );
        assert_eq!(attributes.get(4), None);
    }

    #[test]
    fn attributes_end_at_one_that_is_cut_short() {
        for bytes in [
            &[][..],
            &[1],
            &[4, 0, 1],
            &[3, 0, 1, 0],
            &[9, 0, 1, 0, 1, 2, 3, 4],
        ] {
            assert_eq!(Attributes(bytes).count(), 0, "{bytes:?}");
        }
        assert_eq!(Attributes(&[5, 0, 1, 0, 7]).next(), Some((1, &[7][..])));
    }
}
