//! Integers and strings of a field block (RFC 7541 sections 5.1 and 5.2).

use bytes::{BufMut, BytesMut};

use super::{FieldError, huffman};

/// A field block being read.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `block`.
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self { rest: block }
    }

    /// Takes the next byte, none at the end.
    pub(super) fn next_byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    /// Reads the integer that begins in the low `prefix_bits` of `first`, a byte already taken.
    pub(super) fn integer(&mut self, first: u8, prefix_bits: u32) -> Result<usize, FieldError> {
        let mask = (1 << prefix_bits) - 1;
        let mut value = usize::from(first & mask);
        if value < usize::from(mask) {
            return Ok(value);
        }
        for more in 0..INTEGER_BYTES_MAX {
            let byte = self.next_byte().ok_or(FieldError::Truncated)?;
            value += usize::from(byte & 0x7f) << (7 * more);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(FieldError::IntegerTooLarge)
    }

    /// Reads a string; `scratch` holds it if it was in the Huffman code.
    pub(super) fn string<'s>(&mut self, scratch: &'s mut Vec<u8>) -> Result<&'s [u8], FieldError>
    where
        'a: 's,
    {
        let first = self.next_byte().ok_or(FieldError::Truncated)?;
        let len = self.integer(first, 7)?;
        let (string, rest) = self.rest.split_at_checked(len).ok_or(FieldError::Truncated)?;
        self.rest = rest;
        if first & HUFFMAN == 0 {
            return Ok(string);
        }
        scratch.clear();
        huffman::decode(string, scratch)?;
        Ok(scratch)
    }
}

/// Writes `value`, beginning in the low `prefix_bits` of a byte whose other bits are `high`.
pub(super) fn write_integer(value: usize, prefix_bits: u32, high: u8, out: &mut BytesMut) {
    let mask = (1 << prefix_bits) - 1;
    if value < usize::from(mask) {
        out.put_u8(high | value as u8);
        return;
    }
    out.put_u8(high | mask);
    let mut rest = value - usize::from(mask);
    while rest >= 0x80 {
        out.put_u8(0x80 | rest as u8);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

/// Writes `string`, in the Huffman code if that is shorter.
pub(super) fn write_string(string: &[u8], out: &mut BytesMut) {
    let huffman_len = huffman::encoded_len(string);
    if huffman_len < string.len() {
        write_integer(huffman_len, 7, HUFFMAN, out);
        huffman::encode(string, out);
    } else {
        write_integer(string.len(), 7, 0, out);
        out.put_slice(string);
    }
}

/// The bit before a string's length that says its bytes are in the Huffman code.
const HUFFMAN: u8 = 0x80;

/// How many bytes an integer may take after its prefix. Three carry 21 bits, over twice the longest string of a block.
const INTEGER_BYTES_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_those_of_the_rfc() {
        // RFC 7541 appendices C.1.1 and C.1.2.
        for (value, prefix_bits, bytes) in [(10, 5, &[10][..]), (1337, 5, &[31, 154, 10])] {
            let mut out = BytesMut::new();
            write_integer(value, prefix_bits, 0, &mut out);
            assert_eq!(out, bytes);
            let mut reader = Reader::new(&out);
            let first = reader.next_byte().unwrap();
            assert_eq!(reader.integer(first, prefix_bits).unwrap(), value);
        }
    }

    #[test]
    fn an_endless_integer_is_refused() {
        let mut reader = Reader::new(&[0xff; 8]);
        assert!(matches!(reader.integer(0x7f, 7), Err(FieldError::IntegerTooLarge)));
        let mut reader = Reader::new(&[0x80]);
        assert!(matches!(reader.integer(0x7f, 7), Err(FieldError::Truncated)));
    }

    #[test]
    fn a_string_longer_than_the_block_is_refused() {
        let mut reader = Reader::new(&[5, b'a', b'b']);
        assert!(matches!(reader.string(&mut Vec::new()), Err(FieldError::Truncated)));
    }

    #[test]
    fn a_string_takes_the_shorter_form() {
        for (string, bytes) in [(&b"&&"[..], &[2, b'&', b'&'][..]), (b"aaaa", &[0x83, 0x18, 0xc6, 0x3f])] {
            let mut out = BytesMut::new();
            write_string(string, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(Reader::new(&out).string(&mut Vec::new()).unwrap(), string);
        }
    }
}
