//! Splits a watch into its lines.

use crate::access::ApiError;

/// More than any object: etcd stores no object beyond a few MiB.
const MAX_LINE: usize = 16 << 20;

/// A line, as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct LineSplitter(Vec<u8>);

impl LineSplitter {
    /// Processes the next chunk and passes each line that ends in it to `handle`.
    pub(super) fn push(
        &mut self,
        chunk: &[u8],
        mut handle: impl FnMut(&[u8]) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = &after[1..];
            if self.0.is_empty() {
                handle(line)?;
            } else {
                self.0.extend_from_slice(line);
                let line = std::mem::take(&mut self.0);
                handle(&line)?;
            }
        }
        if self.0.len() + rest.len() > MAX_LINE {
            return Err(ApiError::invalid("an object of the watch is too long"));
        }
        self.0.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_lines_are_refused() {
        let mut lines = LineSplitter::default();
        lines.push(b"{", |_| Ok(())).unwrap();
        let chunk = vec![b'x'; MAX_LINE];
        lines.push(&chunk, |_| Ok(())).unwrap_err();
    }

    #[test]
    fn lines_are_split_wherever_chunks_end() {
        for size in 1..9 {
            let mut lines = LineSplitter::default();
            let mut found = Vec::new();
            for chunk in b"one\ntwo\n\nthree\nfo".chunks(size) {
                lines
                    .push(chunk, |line| {
                        found.push(String::from_utf8(line.to_vec()).unwrap());
                        Ok(())
                    })
                    .unwrap();
            }
            assert_eq!(found, ["one", "two", "", "three"]);
        }
    }
}
