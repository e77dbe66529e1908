//! zstd with the parameters of a release, and a parser of frame headers that proves them.
//!
//! The number of workers affects the bytes only as zero or not zero; the pledged size, the level, the window and the jobs affect them too.
//! K3s and RKE2 decode with at most 32 MiB, so no window here is larger than [`MAX_WINDOW`].

use std::io::{self, Read as _, Write as _};

use ::zstd::zstd_safe::CParameter;

/// The largest window that importers on a node decode.
pub const MAX_WINDOW: u64 = 32 << 20;
/// Any number above zero has the same result.
pub const WORKERS: u32 = 2;

/// How to compress.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// zstd's level.
    pub level: i32,
    /// The largest window, as a power of two.
    pub window_log: u32,
    /// Bytes per job of a worker; 0 leaves that to zstd.
    pub job: u32,
}

impl Settings {
    /// Returns a name for all that the compressed bytes follow from besides the content, the compressor's version included.
    pub fn fingerprint(&self) -> String {
        let Self {
            level,
            window_log,
            job,
        } = self;
        let version = ::zstd::zstd_safe::version_string();
        format!("zstd{version}-level{level}-window{window_log}-job{job}-workers{WORKERS}")
    }
}

/// For layers, which are compressed once and stored, so that size matters more than time.
pub const LAYER: Settings = Settings {
    level: 19,
    window_log: 23,
    job: 0,
};
/// For archives of layers that are compressed already. Jobs of a window stay in a CPU's caches, and all workers end together.
pub const ARCHIVE: Settings = Settings {
    level: 3,
    window_log: 21,
    job: 2 << 20,
};

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of history that a decoder needs.
    pub window: u64,
    /// The content's length.
    pub content_size: Option<u64>,
    /// The frame ends with a checksum.
    pub checksum: bool,
}

/// Why bytes could not be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no zstd frame")]
    NoFrame,
    #[error("zstd window of {0} bytes is larger than {MAX_WINDOW}")]
    Window(u64),
    #[error("damaged zstd stream")]
    Damaged(#[source] io::Error),
    #[error("zstd stream holds more than {0} bytes")]
    TooLarge(u64),
}

/// Compresses to one frame with the size in its header and a checksum at its end.
pub fn compress(bytes: &[u8], settings: Settings) -> io::Result<Vec<u8>> {
    let mut encoder = encoder(Vec::new(), bytes.len() as u64, settings)?;
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Returns an encoder that compresses exactly `size` bytes to the same frame as [`compress`].
pub fn encoder<W: io::Write>(
    out: W,
    size: u64,
    settings: Settings,
) -> io::Result<::zstd::Encoder<'static, W>> {
    encoder_of(WORKERS, out, size, settings)
}

fn encoder_of<W: io::Write>(
    workers: u32,
    out: W,
    size: u64,
    settings: Settings,
) -> io::Result<::zstd::Encoder<'static, W>> {
    let mut encoder = ::zstd::Encoder::new(out, settings.level)?;
    encoder.multithread(workers)?;
    encoder.set_parameter(CParameter::JobSize(settings.job))?;
    encoder.window_log(settings.window_log)?;
    encoder.include_checksum(true)?;
    encoder.include_contentsize(true)?;
    encoder.set_pledged_src_size(Some(size))?;
    Ok(encoder)
}

/// Decompresses at most `max` bytes; refuses a window above [`MAX_WINDOW`], which a node could not decode.
pub fn decompress(bytes: &[u8], max: u64) -> Result<Vec<u8>, Error> {
    let frame = frame(bytes).ok_or(Error::NoFrame)?;
    if frame.window > MAX_WINDOW {
        return Err(Error::Window(frame.window));
    }
    let mut decoder = ::zstd::Decoder::with_buffer(bytes).map_err(Error::Damaged)?;
    decoder
        .window_log_max(MAX_WINDOW.ilog2())
        .map_err(Error::Damaged)?;
    read(decoder, max)
}

fn read(decoder: impl io::Read, max: u64) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    decoder
        .take(max.saturating_add(1))
        .read_to_end(&mut out)
        .map_err(Error::Damaged)?;
    if out.len() as u64 > max {
        return Err(Error::TooLarge(max));
    }
    Ok(out)
}

/// Parses the header of the first frame (RFC 8878, 3.1.1.1).
pub fn frame(bytes: &[u8]) -> Option<Frame> {
    let rest = bytes.strip_prefix(&[0x28, 0xb5, 0x2f, 0xfd])?;
    let (&descriptor, mut rest) = rest.split_first()?;
    let single_segment = descriptor & 0x20 != 0;
    let mut window = None;
    if !single_segment {
        let (&byte, after) = rest.split_first()?;
        let base = 1_u64 << (10 + (byte >> 3));
        window = Some(base + base / 8 * u64::from(byte & 7));
        rest = after;
    }
    rest = rest.get([0, 1, 2, 4][usize::from(descriptor & 3)]..)?;
    let size_length = match descriptor >> 6 {
        0 => usize::from(single_segment),
        flag => 1 << flag,
    };
    let mut size = [0; 8];
    size[..size_length].copy_from_slice(rest.get(..size_length)?);
    let size = u64::from_le_bytes(size) + if size_length == 2 { 256 } else { 0 };
    let content_size = (size_length > 0).then_some(size);
    Some(Frame {
        window: window.or(content_size)?,
        content_size,
        checksum: descriptor & 4 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 88_172_645_463_325_252_u64;
        std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3] & 0x3f
        })
        .take(len)
        .collect()
    }

    #[test]
    fn frame_has_window_size_and_checksum() {
        for (len, settings, window) in [
            (0, LAYER, 0),
            (100, LAYER, 100),
            (300, ARCHIVE, 300),
            (70_000, ARCHIVE, 70_000),
            (9 << 20, ARCHIVE, 2 << 20),
            (9 << 20, LAYER, 8 << 20),
        ] {
            let bytes = if len < 1 << 20 {
                noise(len)
            } else {
                vec![7; len]
            };
            let packed = compress(&bytes, settings).unwrap();
            let expected = Frame {
                window,
                content_size: Some(len as u64),
                checksum: true,
            };
            assert_eq!(frame(&packed), Some(expected), "{len}");
            assert_eq!(decompress(&packed, 10 << 20).unwrap(), bytes);
        }
    }

    #[test]
    fn number_of_workers_does_not_change_the_bytes() {
        let bytes = noise(9 << 20);
        let pack = |workers, piece: usize| {
            let mut encoder = encoder_of(workers, Vec::new(), bytes.len() as u64, ARCHIVE).unwrap();
            for piece in bytes.chunks(piece) {
                encoder.write_all(piece).unwrap();
            }
            encoder.finish().unwrap()
        };
        let one = pack(1, bytes.len());
        for (workers, piece) in [(1, 4093), (2, 131_072), (3, 512), (7, bytes.len())] {
            assert!(pack(workers, piece) == one, "{workers} workers, {piece}");
        }
        assert_eq!(decompress(&one, 9 << 20).unwrap(), bytes);
    }

    #[test]
    fn window_that_nodes_cannot_decode_is_refused() {
        let mut encoder = ::zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(26).unwrap();
        encoder.write_all(&noise(1000)).unwrap();
        let packed = encoder.finish().unwrap();
        assert!(matches!(
            decompress(&packed, 1 << 20),
            Err(Error::Window(67_108_864))
        ));
    }

    #[test]
    fn damaged_stream_is_refused() {
        let packed = compress(&noise(5000), ARCHIVE).unwrap();
        assert!(matches!(
            decompress(&packed, 4999),
            Err(Error::TooLarge(4999))
        ));
        assert!(matches!(
            decompress(&packed[..packed.len() - 1], 5000),
            Err(Error::Damaged(_))
        ));
        let mut flipped = packed.clone();
        let last = flipped.len() - 1;
        flipped[last] ^= 1;
        assert!(matches!(decompress(&flipped, 5000), Err(Error::Damaged(_))));
        assert!(matches!(decompress(b"\x1f\x8b", 1), Err(Error::NoFrame)));
    }
}
