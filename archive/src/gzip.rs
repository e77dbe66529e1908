//! Deterministic gzip: the header names no time, no file and no operating system.
//!
//! The deflate stream depends on the encoder, its version, its level and on how the input was cut into writes.
//! So there is one level, the complete buffer is written at once, and a test compares the hash of a fixed corpus.

use std::io::{self, Read as _, Write as _};

use flate2::{Compression, GzBuilder, bufread::GzDecoder};

/// The reasons why bytes cannot be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream is damaged or cut off.
    #[error("damaged gzip stream")]
    Damaged(#[source] io::Error),
    /// The stream holds more bytes than the caller accepts.
    #[error("gzip stream holds more than {0} bytes")]
    TooLarge(u64),
    /// This many bytes follow the stream.
    #[error("{0} byte{plural} after the end of the gzip stream", plural = if *.0 == 1 { "" } else { "s" })]
    Trailing(usize),
}

/// Compresses `bytes` to one member (RFC 1952) of level 9, without time and name, for an unknown operating system (255).
pub fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzBuilder::new()
        .mtime(0)
        .operating_system(255)
        .write(Vec::new(), Compression::best());
    encoder
        .write_all(bytes)
        .expect("a Vec takes every write, so the encoder does");
    encoder
        .finish()
        .expect("a Vec takes every write, so the encoder does")
}

/// Decompresses one member that holds at most `max` bytes; bytes after it are an error.
pub fn decompress(bytes: &[u8], max: u64) -> Result<Vec<u8>, Error> {
    let mut decoder = GzDecoder::new(bytes);
    let mut out = Vec::new();
    let limit = max.saturating_add(1);
    let len = (&mut decoder)
        .take(limit)
        .read_to_end(&mut out)
        .map_err(Error::Damaged)?;
    if len as u64 > max {
        return Err(Error::TooLarge(max));
    }
    match decoder.into_inner().len() {
        0 => Ok(out),
        rest => Err(Error::Trailing(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha256;

    /// Text with repetition and noise from a small generator (xorshift), so that no sample has to be stored.
    fn corpus() -> Vec<u8> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut bytes = Vec::new();
        while bytes.len() < 300_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let word = state.to_le_bytes();
            let line = format!("network-{} attached to pod-{}\n", word[0] % 7, state % 97);
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(&word[..(word[1] % 8) as usize]);
        }
        bytes
    }

    #[test]
    fn header_names_no_time_file_or_system() {
        let packed = compress(b"x");
        assert_eq!(packed[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255]);
    }

    #[test]
    fn bytes_of_the_fixed_corpus_do_not_change() {
        let packed = compress(&corpus());
        assert_eq!(sha256(&packed).hex(), GOLDEN);
        assert_eq!(decompress(&packed, 1 << 20).unwrap(), corpus());
    }

    const GOLDEN: &str = "adce1ba7c81ecb9201fef616274c0ce94d130197a396b1bb2e0dc57e0c5bb7e2";

    #[test]
    fn limit_is_exact() {
        let packed = compress(&[0; 1000]);
        assert_eq!(decompress(&packed, 1000).unwrap().len(), 1000);
        assert!(matches!(
            decompress(&packed, 999),
            Err(Error::TooLarge(999))
        ));
    }

    #[test]
    fn second_member_is_refused() {
        let two = [compress(b"ab"), compress(b"c")].concat();
        assert!(matches!(decompress(&two, 3), Err(Error::Trailing(_))));
    }

    #[test]
    fn damaged_streams_are_refused() {
        let packed = compress(&corpus());
        for cut in [0, 5, packed.len() / 2, packed.len() - 1] {
            assert!(
                matches!(decompress(&packed[..cut], 1 << 20), Err(Error::Damaged(_))),
                "{cut}"
            );
        }
        let mut flipped = packed.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        assert!(decompress(&flipped, 1 << 20).is_err());
        for (tail, expected) in [(&b"tail"[..], "4 bytes after"), (b"x", "1 byte after")] {
            let longer = [&packed[..], tail].concat();
            let error = decompress(&longer, 1 << 20).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
