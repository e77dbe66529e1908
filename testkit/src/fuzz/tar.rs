//! Tar archives as inputs: a changed archive gets the checksums that a reader demands, or a fuzzer would learn nothing but them.

const BLOCK: usize = 512;
const SIZE: std::ops::Range<usize> = 124..136;
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Returns the archive with the right checksum in each header, as far as headers can be found by the sizes in them.
pub fn with_checksums(input: &[u8]) -> Vec<u8> {
    let mut tar = input.to_vec();
    let mut at = 0;
    while let Some(header) = tar.get_mut(at..at + BLOCK) {
        let is_end = header.iter().all(|byte| *byte == 0);
        if !is_end {
            header[CHECKSUM].fill(b' ');
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        let size = octal(&header[SIZE]).unwrap_or_default();
        at += BLOCK + size.next_multiple_of(BLOCK);
    }
    tar
}

/// Reads the number of a header's field; one that is too large leads to no further header.
fn octal(field: &[u8]) -> Option<usize> {
    let digits = field.iter().skip_while(|byte| **byte == b' ');
    let mut digits = digits.take_while(|byte| (b'0'..=b'7').contains(byte));
    digits.try_fold(0_usize, |number, byte| {
        number.checked_mul(8)?.checked_add(usize::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header without a checksum, for a file of this many bytes.
    fn header(size: usize) -> Vec<u8> {
        let mut header = vec![0; BLOCK];
        header[0] = b'a';
        header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        header
    }

    #[test]
    fn each_header_gets_its_checksum_and_content_stays() {
        let content = vec![b'x'; 2 * BLOCK];
        let input = [header(BLOCK + 1), content.clone(), header(0), vec![0; 7]].concat();
        let tar = with_checksums(&input);
        assert_eq!(tar.len(), input.len());
        assert_eq!(tar[BLOCK..3 * BLOCK], content);
        for at in [0, 3 * BLOCK] {
            let stated = octal(&tar[at..][CHECKSUM]).unwrap();
            let mut header = tar[at..at + BLOCK].to_vec();
            header[CHECKSUM].fill(b' ');
            let sum: usize = header.iter().map(|byte| usize::from(*byte)).sum();
            assert_eq!(stated, sum);
        }
        assert_eq!(octal(b"77777777777777777777777777"), None);
    }

    #[test]
    fn end_of_an_archive_stays_empty() {
        let end = vec![0; 2 * BLOCK];
        assert_eq!(with_checksums(&end), end);
    }
}
