//! Variable-length integers of QUIC, RFC 9000 section 16.

use bytes::BufMut;

/// Largest value a varint can hold, 2^62 - 1.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Reads a varint from the front of `input`.
///
/// Returns the value and how many bytes it took, or `None` if `input` ends before it does.
#[must_use]
pub fn read(input: &[u8]) -> Option<(u64, usize)> {
    let first = *input.first()?;
    let length = 1usize << (first >> 6);
    let rest = input.get(1..length)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

/// Writes `value` in the fewest bytes.
///
/// # Panics
///
/// If `value` is above [`VARINT_MAX`]: a peer cannot cause it, since what [`read`] returns never is.
pub fn write(value: u64, out: &mut impl BufMut) {
    match length(value) {
        1 => out.put_u8(value as u8),
        2 => out.put_u16(0x4000 | value as u16),
        4 => out.put_u32(0x8000_0000 | value as u32),
        _ => {
            assert!(value <= VARINT_MAX, "a varint holds 62 bits");
            out.put_u64(0xc000_0000_0000_0000 | value);
        }
    }
}

/// Returns how many bytes [`write()`] takes for `value`: 1, 2, 4 or 8.
#[must_use]
pub const fn length(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_rfc_9000_appendix_a1_decode() {
        let examples: [(&[u8], u64); 4] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ];
        for (bytes, value) in examples {
            assert_eq!(read(bytes), Some((value, bytes.len())));
        }
    }

    proptest! {
        #[test]
        fn a_written_varint_reads_back(value in 0..=VARINT_MAX) {
            let mut out = Vec::new();
            write(value, &mut out);
            prop_assert_eq!(out.len(), length(value));
            prop_assert_eq!(read(&out), Some((value, out.len())));
            prop_assert_eq!(read(&out[..out.len() - 1]), None);
        }
    }
}
