//! The few packets of `OpenPGP` (RFC 4880, version 4) that Helm and `gpg` need to verify a signed text, made of the same key as every other
//! signature.
//!
//! It writes and reads what it writes, and nothing else. The kept libraries bring fifteen algorithms that no release uses, one of them with
//! an open advisory (`rsa`), or are under the LGPL.

use std::fmt::Write as _;

use archive::digest::sha256;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use p256::ecdsa;
use sha1::{Digest as _, Sha1};

use crate::{PublicKey, SecretKey, SignatureError, key::Point};

/// The time of every key (2020-01-01), so that the fingerprint follows from the key alone.
const KEY_TIME: u32 = 1_577_836_800;
/// SHA-256 in the tables of the specification.
const HASH: u8 = 8;
/// Kinds of signatures: over a text, and over a key with a name.
const TEXT_SIGNATURE: u8 = 0x01;
const NAME_SIGNATURE: u8 = 0x13;
/// Kinds of packets.
const SIGNATURE: u8 = 2;
const KEY: u8 = 6;
const NAME: u8 = 13;

const TEXT_HEAD: &str = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n";
const SIGNATURE_HEAD: &str = "-----BEGIN PGP SIGNATURE-----\n\n";
const SIGNATURE_END: &str = "-----END PGP SIGNATURE-----\n";

/// Returns the public key as a keyring in binary form, which Helm's `--keyring` and `gpg --import` read, under a name.
pub fn keyring(key: &SecretKey, name: &str) -> Vec<u8> {
    let public = key.public();
    let times = Times {
        signature: KEY_TIME,
        usage: Some(CERTIFIES_AND_SIGNS),
    };
    let signed = signed_name(&public, name);
    let signature = signature(key, NAME_SIGNATURE, &times, &signed);
    [named_key(&public, name), packet(SIGNATURE, &signature)].concat()
}

/// Checks that a keyring is this key under this name, and signed by the key itself.
pub fn verify_keyring(ring: &[u8], key: &PublicKey, name: &str) -> Result<(), SignatureError> {
    let rest = ring.strip_prefix(named_key(key, name).as_slice());
    let packet = rest.ok_or(SignatureError::Mismatch)?;
    verify(packet, key, NAME_SIGNATURE, &signed_name(key, name))
}

/// Signs a text, which stays readable. The time is that of the signature, in seconds since 1970.
pub fn sign_text(text: &str, key: &SecretKey, time: u64) -> String {
    let times = Times {
        // A signature is not older than its key.
        signature: u32::try_from(time).unwrap_or(u32::MAX).max(KEY_TIME),
        usage: None,
    };
    let signature = signature(key, TEXT_SIGNATURE, &times, canonical(text).as_bytes());
    let armor = armor(&packet(SIGNATURE, &signature));
    format!(
        "{TEXT_HEAD}{}\n{SIGNATURE_HEAD}{armor}{SIGNATURE_END}",
        escaped(text)
    )
}

/// Checks that a file is this text with a signature by this key.
pub fn verify_text(file: &str, text: &str, key: &PublicKey) -> Result<(), SignatureError> {
    let head = format!("{TEXT_HEAD}{}\n{SIGNATURE_HEAD}", escaped(text));
    let armor = file
        .strip_prefix(&head)
        .and_then(|rest| rest.strip_suffix(SIGNATURE_END));
    let packet = unarmor(armor.ok_or(SignatureError::Mismatch)?).ok_or(SignatureError::Form)?;
    verify(&packet, key, TEXT_SIGNATURE, canonical(text).as_bytes())
}

/// Returns the fingerprint of the key, in upper case as `gpg` prints it.
pub fn fingerprint(key: &PublicKey) -> String {
    let bytes = fingerprint_bytes(key);
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// The key's right to sign names and texts (RFC 4880, 5.2.3.21).
const CERTIFIES_AND_SIGNS: u8 = 0x03;

/// The subpackets of a signature that differ.
struct Times {
    signature: u32,
    usage: Option<u8>,
}

fn fingerprint_bytes(key: &PublicKey) -> [u8; 20] {
    Sha1::digest(hashed_key(key)).into()
}

/// Returns the body of the packet of a public key.
fn key_body(key: &PublicKey) -> Vec<u8> {
    let mut body = vec![4];
    body.extend(KEY_TIME.to_be_bytes());
    let (algorithm, curve, point): (_, &[u8], _) = match key.point() {
        Point::P256(point) => (19, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07], point),
        Point::Ed25519(point) => (
            22,
            &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01],
            [&[0x40], &point[..]].concat(),
        ),
    };
    body.push(algorithm);
    body.extend(u8::try_from(curve.len()));
    body.extend(curve);
    body.extend(number(&point));
    body
}

/// Returns the form in which a key is hashed.
fn hashed_key(key: &PublicKey) -> Vec<u8> {
    let body = key_body(key);
    let mut hashed = vec![0x99];
    hashed.extend(length_16(&body));
    hashed.extend(body);
    hashed
}

fn named_key(key: &PublicKey, name: &str) -> Vec<u8> {
    [packet(KEY, &key_body(key)), packet(NAME, name.as_bytes())].concat()
}

fn signed_name(key: &PublicKey, name: &str) -> Vec<u8> {
    let mut signed = hashed_key(key);
    signed.push(0xb4);
    signed.extend(length_32(name.as_bytes()));
    signed.extend(name.as_bytes());
    signed
}

/// Returns the body of a signature's packet.
fn signature(key: &SecretKey, kind: u8, times: &Times, signed: &[u8]) -> Vec<u8> {
    let public = key.public();
    let fingerprint = fingerprint_bytes(&public);
    let mut hashed = subpacket(2, &times.signature.to_be_bytes());
    hashed.extend(subpacket(33, &[&[4], &fingerprint[..]].concat()));
    if let Some(usage) = times.usage {
        hashed.extend(subpacket(27, &[usage]));
    }
    let algorithm = match public.point() {
        Point::P256(_) => 19,
        Point::Ed25519(_) => 22,
    };
    let mut body = vec![4, kind, algorithm, HASH];
    body.extend(length_16(&hashed));
    body.extend(hashed);
    let covered = covered(signed, &body);
    let unhashed = subpacket(16, &fingerprint[12..]);
    body.extend(length_16(&unhashed));
    body.extend(unhashed);
    body.extend(&sha256(&covered).bytes()[..2]);
    let parts = match public.point() {
        Point::P256(_) => {
            let signature = ecdsa::Signature::from_der(&key.sign(&covered));
            signature
                .expect("a key of P-256 signs in DER")
                .to_bytes()
                .to_vec()
        }
        // The hash is the message here.
        Point::Ed25519(_) => key.sign(sha256(&covered).bytes()),
    };
    let (first, second) = parts.split_at(parts.len() / 2);
    body.extend(number(first));
    body.extend(number(second));
    body
}

/// Returns what a signature is over: the signed bytes, then the first fields of the signature itself.
fn covered(signed: &[u8], fields: &[u8]) -> Vec<u8> {
    let mut covered = [signed, fields].concat();
    covered.extend([4, 0xff]);
    covered.extend(length_32(fields));
    covered
}

fn verify(packet: &[u8], key: &PublicKey, kind: u8, signed: &[u8]) -> Result<(), SignatureError> {
    let parts = parse(packet).ok_or(SignatureError::Form)?;
    if parts.fields[..2] != [4, kind] || parts.fields[3] != HASH {
        return Err(SignatureError::Mismatch);
    }
    let covered = covered(signed, parts.fields);
    let both = [padded(parts.first)?, padded(parts.second)?].concat();
    match key.point() {
        Point::P256(_) => {
            let signature = ecdsa::Signature::from_slice(&both);
            let signature = signature.map_err(|_| SignatureError::Mismatch)?;
            key.verify(&covered, signature.to_der().as_bytes())
        }
        Point::Ed25519(_) => key.verify(sha256(&covered).bytes(), &both),
    }
}

/// A signature's packet, taken apart.
struct Parts<'a> {
    /// The part of the signature that it covers itself.
    fields: &'a [u8],
    first: &'a [u8],
    second: &'a [u8],
}

fn parse(packet: &[u8]) -> Option<Parts<'_>> {
    let body = packet.strip_prefix(&[0xc0 | SIGNATURE])?;
    let (&length, body) = body.split_first()?;
    if usize::from(length) != body.len() || length >= 192 {
        return None;
    }
    let hashed = usize::from(u16::from_be_bytes(body.get(4..6)?.try_into().ok()?));
    let (fields, rest) = body.split_at_checked(6 + hashed)?;
    let (unhashed, rest) = rest.split_at_checked(2)?;
    let unhashed = usize::from(u16::from_be_bytes(unhashed.try_into().ok()?));
    // Two bytes of the hash, which readers may compare before they verify.
    let (first, rest) = take_number(rest.get(unhashed + 2..)?)?;
    let (second, rest) = take_number(rest)?;
    rest.is_empty().then_some(Parts {
        fields,
        first,
        second,
    })
}

/// Returns the bytes of a number that stands at the start, and the rest.
fn take_number(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (bits, rest) = bytes.split_at_checked(2)?;
    let bits = u16::from_be_bytes(bits.try_into().ok()?);
    let (found, rest) = rest.split_at_checked(usize::from(bits).div_ceil(8))?;
    bytes.starts_with(&number(found)).then_some((found, rest))
}

/// Returns a half of a signature in its full length.
fn padded(number: &[u8]) -> Result<[u8; 32], SignatureError> {
    let mut full = [0; 32];
    let start = 32_usize.checked_sub(number.len());
    full[start.ok_or(SignatureError::Form)?..].copy_from_slice(number);
    Ok(full)
}

/// Returns a number as it stands in packets: its length in bits, then its bytes without leading zeros.
fn number(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = &bytes[zeros..];
    let unused = bytes.first().map_or(0, |byte| byte.leading_zeros());
    let bits = u32::try_from(bytes.len()).unwrap_or(0) * 8 - unused;
    let bits = u16::try_from(bits).expect("keys and signatures have less than 8 kB");
    [&bits.to_be_bytes(), bytes].concat()
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len()).ok().filter(|length| *length < 192);
    let length = length.expect("no packet here is as long as 192 bytes");
    [&[0xc0 | kind, length], body].concat()
}

fn subpacket(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len() + 1).expect("subpackets are short");
    [&[length, kind], body].concat()
}

fn length_16(bytes: &[u8]) -> [u8; 2] {
    let length = u16::try_from(bytes.len());
    length.expect("keys and subpackets are short").to_be_bytes()
}

fn length_32(bytes: &[u8]) -> [u8; 4] {
    let length = u32::try_from(bytes.len());
    length.expect("names and fields are short").to_be_bytes()
}

/// Returns the lines as they are signed: without spaces at their ends, and with the line ends of the network.
fn canonical(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(str::trim_end).collect();
    lines.join("\r\n")
}

/// Returns the lines as they are written: a dash at the start is marked, so that no line passes for a head.
fn escaped(text: &str) -> String {
    let lines: Vec<_> = text
        .split('\n')
        .map(|line| {
            let mark = if line.starts_with('-') { "- " } else { "" };
            format!("{mark}{line}")
        })
        .collect();
    lines.join("\n")
}

fn armor(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let mut lines = String::new();
    for line in text.as_bytes().chunks(64) {
        lines.push_str(&String::from_utf8_lossy(line));
        lines.push('\n');
    }
    let check = STANDARD.encode(&crc24(bytes).to_be_bytes()[1..]);
    format!("{lines}={check}\n")
}

fn unarmor(armor: &str) -> Option<Vec<u8>> {
    let (lines, check) = armor.strip_suffix('\n')?.rsplit_once("\n=")?;
    let bytes = STANDARD.decode(lines.replace('\n', "")).ok()?;
    let expected = STANDARD.encode(&crc24(&bytes).to_be_bytes()[1..]);
    (check == expected).then_some(bytes)
}

/// The checksum of armor (RFC 4880, 6.1).
fn crc24(bytes: &[u8]) -> u32 {
    let mut crc = 0x00b7_04ce_u32;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= 0x0186_4cfb;
            }
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::tests::{ED25519, P256};

    const TEXT: &str = "name: a \n- b\n\n...\nfiles:\n  a-1.tgz: sha256:00";
    const SIGNER: &str = "releases";

    fn keys() -> [SecretKey; 2] {
        [P256, ED25519].map(|text| SecretKey::from_pem(text).unwrap())
    }

    #[test]
    fn texts_and_keyrings_are_verified_by_their_key_alone() {
        let keys = keys();
        for (key, other) in [(&keys[0], &keys[1]), (&keys[1], &keys[0])] {
            let file = sign_text(TEXT, key, 0);
            assert_eq!(file, sign_text(TEXT, key, 0));
            assert!(file.contains("\n- - b\n"), "{file}");
            verify_text(&file, TEXT, &key.public()).unwrap();
            let mismatch = Err(SignatureError::Mismatch);
            assert_eq!(verify_text(&file, TEXT, &other.public()), mismatch);
            assert_eq!(verify_text(&file, "other", &key.public()), mismatch);
            let later = sign_text(TEXT, key, u64::from(KEY_TIME) + 1);
            assert_ne!(file, later);
            verify_text(&later, TEXT, &key.public()).unwrap();
            let ring = keyring(key, SIGNER);
            verify_keyring(&ring, &key.public(), SIGNER).unwrap();
            assert_eq!(verify_keyring(&ring, &other.public(), SIGNER), mismatch);
            assert_eq!(verify_keyring(&ring, &key.public(), "other"), mismatch);
        }
    }

    #[test]
    fn every_changed_byte_of_a_signature_is_found() {
        for key in keys() {
            let ring = keyring(&key, SIGNER);
            let start = named_key(&key.public(), SIGNER).len();
            // Not covered: the key's number and two bytes of the hash, which only help readers to find and to refuse early.
            let free = 2 + 6 + 32 + 2..2 + 6 + 32 + 2 + 10 + 2;
            for at in start..ring.len() {
                let mut changed = ring.clone();
                changed[at] ^= 1;
                let is_refused = verify_keyring(&changed, &key.public(), SIGNER).is_err();
                assert!(is_refused || free.contains(&(at - start)), "{at}");
            }
            for length in 0..ring.len() {
                verify_keyring(&ring[..length], &key.public(), SIGNER).unwrap_err();
            }
        }
    }

    #[test]
    fn damaged_armor_is_refused() {
        let key = &keys()[0];
        let file = sign_text(TEXT, key, 0);
        let at = file.rfind('=').unwrap();
        let crc = file.replace(&file[at..at + 5], "=AAAA");
        let form = Err(SignatureError::Form);
        assert_eq!(verify_text(&crc, TEXT, &key.public()), form);
        for length in 0..file.len() {
            verify_text(&file[..length], TEXT, &key.public()).unwrap_err();
        }
    }

    #[test]
    fn checksum_and_numbers_are_those_of_the_specification() {
        assert_eq!(crc24(b""), 0x00b7_04ce);
        assert_eq!(crc24(b"123456789"), 0x0021_cf02);
        assert_eq!(number(&[0, 1]), [0, 1, 1]);
        assert_eq!(number(&[0, 1, 0xff]), [0, 9, 1, 0xff]);
    }
}
