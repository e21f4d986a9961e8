//! The Huffman code of RFC 7541 appendix B, generated from its code lengths.

use bytes::{BufMut, BytesMut};

use super::FieldError;

/// Returns how many bytes [`encode`] writes for `plain`.
pub(super) fn encoded_len(plain: &[u8]) -> usize {
    plain.iter().map(|&byte| usize::from(CODE_BITS[usize::from(byte)])).sum::<usize>().div_ceil(8)
}

/// Writes `plain` in the code, filled up to a whole byte with ones.
pub(super) fn encode(plain: &[u8], out: &mut BytesMut) {
    let mut bits = 0_u64;
    let mut bits_count = 0_u32;
    for &byte in plain {
        let (code, code_bits) = CODES[usize::from(byte)];
        bits = bits << code_bits | u64::from(code);
        bits_count += u32::from(code_bits);
        if bits_count >= 32 {
            bits_count -= 32;
            out.put_u32((bits >> bits_count) as u32);
        }
    }
    while bits_count >= 8 {
        bits_count -= 8;
        out.put_u8((bits >> bits_count) as u8);
    }
    if bits_count > 0 {
        out.put_u8((bits << (8 - bits_count)) as u8 | 0xff >> bits_count);
    }
}

/// Appends what `coded` stands for to `plain`.
///
/// # Errors
///
/// Returns [`FieldError::BadHuffman`] for the end-of-string symbol, a cut code, and padding that is not one to seven
/// ones (RFC 7541 section 5.2).
pub(super) fn decode(coded: &[u8], plain: &mut Vec<u8>) -> Result<(), FieldError> {
    plain.reserve(coded.len() * 8 / CODE_BITS_MIN);
    let mut rest = coded;
    // The next bits, the first one highest; zeros below them.
    let mut bits = 0_u64;
    let mut bits_count = 0_u32;
    loop {
        while bits_count <= 56 {
            let Some((&byte, after)) = rest.split_first() else { break };
            bits |= u64::from(byte) << (56 - bits_count);
            bits_count += 8;
            rest = after;
        }
        // A refill lasts for several short codes.
        loop {
            let short = SHORT_CODES[(bits >> (64 - SHORT_BITS)) as usize];
            let (symbol, code_bits) = if short == 0 { decode_long(bits) } else { (short & 0xff, short >> 8) };
            let code_bits = u32::from(code_bits);
            if code_bits > bits_count {
                break;
            }
            let Ok(byte) = u8::try_from(symbol) else { return Err(FieldError::BadHuffman) };
            plain.push(byte);
            bits <<= code_bits;
            bits_count -= code_bits;
        }
        if rest.is_empty() {
            break;
        }
    }
    // What is left is shorter than the code it begins: only padding may.
    let padding = u64::MAX.checked_shl(64 - bits_count).unwrap_or(0);
    if bits_count < 8 && bits == padding { Ok(()) } else { Err(FieldError::BadHuffman) }
}

/// Decodes a code longer than [`SHORT_BITS`]: its symbol and its length.
fn decode_long(bits: u64) -> (u16, u16) {
    let first_bits = (bits >> (64 - CODE_BITS_MAX)) as u32;
    let mut code_bits = SHORT_BITS + 1;
    // The code is complete: the last limit is above every value of 30 bits.
    while first_bits >= LENGTHS[code_bits].limit {
        code_bits += 1;
    }
    let length = LENGTHS[code_bits];
    let nth = (first_bits >> (CODE_BITS_MAX - code_bits)) - length.first_code;
    (SYMBOLS[usize::from(length.first_symbol) + nth as usize], code_bits as u16)
}

/// The codes of one length in a canonical code.
#[derive(Clone, Copy)]
struct Length {
    /// The lowest code of this length.
    first_code: u32,
    /// Where its symbol stands in [`SYMBOLS`].
    first_symbol: u16,
    /// The first 30-bit string above all codes of this length.
    limit: u32,
}

const fn lengths() -> [Length; CODE_BITS_MAX + 1] {
    let mut lengths = [Length { first_code: 0, first_symbol: 0, limit: 0 }; CODE_BITS_MAX + 1];
    let mut code = 0;
    let mut symbols = 0;
    let mut bits = 1;
    while bits <= CODE_BITS_MAX {
        code <<= 1;
        lengths[bits].first_code = code;
        lengths[bits].first_symbol = symbols;
        let mut symbol = 0;
        while symbol < CODE_BITS.len() {
            if CODE_BITS[symbol] as usize == bits {
                code += 1;
                symbols += 1;
            }
            symbol += 1;
        }
        lengths[bits].limit = code << (CODE_BITS_MAX - bits);
        bits += 1;
    }
    lengths
}

const fn symbols() -> [u16; CODE_BITS.len()] {
    let mut symbols = [0; CODE_BITS.len()];
    let mut next = [0; CODE_BITS_MAX + 1];
    let mut symbol = 0;
    while symbol < CODE_BITS.len() {
        let bits = CODE_BITS[symbol] as usize;
        symbols[LENGTHS[bits].first_symbol as usize + next[bits]] = symbol as u16;
        next[bits] += 1;
        symbol += 1;
    }
    symbols
}

const fn codes() -> [(u32, u8); CODE_BITS.len()] {
    let mut codes = [(0, 0); CODE_BITS.len()];
    let mut next = [0; CODE_BITS_MAX + 1];
    let mut symbol = 0;
    while symbol < CODE_BITS.len() {
        let bits = CODE_BITS[symbol];
        codes[symbol] = (LENGTHS[bits as usize].first_code + next[bits as usize], bits);
        next[bits as usize] += 1;
        symbol += 1;
    }
    codes
}

/// Fills, for every string of [`SHORT_BITS`] bits, the length (high byte) and symbol (low byte) of the code it begins
/// with; zero where that code is longer.
const fn short_codes() -> [u16; 1 << SHORT_BITS] {
    let mut table = [0; 1 << SHORT_BITS];
    let mut symbol = 0;
    while symbol < CODE_BITS.len() {
        let (code, bits) = CODES[symbol];
        let bits = bits as usize;
        if bits <= SHORT_BITS {
            let mut at = (code as usize) << (SHORT_BITS - bits);
            let end = (code as usize + 1) << (SHORT_BITS - bits);
            while at < end {
                table[at] = (bits << 8 | symbol) as u16;
                at += 1;
            }
        }
        symbol += 1;
    }
    table
}

/// The longest code, in bits; RFC 7541 appendix B.
const CODE_BITS_MAX: usize = 30;

/// The shortest code, in bits; RFC 7541 appendix B.
const CODE_BITS_MIN: usize = 5;

/// How many bits one table look-up decodes at most: all of ASCII but `# $ ' + < > @ [ \ ] ^ | { } ~` and backtick.
const SHORT_BITS: usize = 10;

static LENGTHS: [Length; CODE_BITS_MAX + 1] = lengths();
static SYMBOLS: [u16; CODE_BITS.len()] = symbols();
static CODES: [(u32, u8); CODE_BITS.len()] = codes();
static SHORT_CODES: [u16; 1 << SHORT_BITS] = short_codes();

/// The length of each symbol's code in bits, end of string last; RFC 7541 appendix B. The code is canonical: codes of
/// one length follow each other in the order of the symbols.
#[rustfmt::skip]
const CODE_BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(plain: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        encode(plain, &mut out);
        assert_eq!(out.len(), encoded_len(plain));
        out.to_vec()
    }

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, FieldError> {
        let mut plain = Vec::new();
        decode(coded, &mut plain).map(|()| plain)
    }

    #[test]
    fn codes_are_those_of_the_rfc() {
        // RFC 7541 appendix C.4.1 and C.6.1.
        assert_eq!(
            encoded(b"www.example.com"),
            [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]
        );
        assert_eq!(encoded(b"no-cache"), [0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]);
        assert_eq!(encoded(b"private"), [0xae, 0xc3, 0x77, 0x1a, 0x4b]);
        // RFC 7541 appendix B: the last symbol of the longest codes.
        assert_eq!(CODES[22], (0x3fff_fffe, 30));
        assert_eq!(CODES[256], (0x3fff_ffff, 30));
    }

    #[test]
    fn every_byte_survives() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encoded(&all)).unwrap(), all);
    }

    #[test]
    fn another_implementation_reads_the_same() {
        let all: Vec<u8> = (0..=255).rev().collect();
        assert_eq!(fluke_hpack::huffman::HuffmanDecoder::new().decode(&encoded(&all)).unwrap(), all);
    }

    #[test]
    fn bad_endings_are_refused() {
        // A whole byte of padding, zeros as padding, a code cut short, the end-of-string symbol.
        for bad in [&[0xff][..], &[0x1f, 0xff], &[0x18], &[0xff, 0xff], &[0xff, 0xff, 0xff, 0xff], &[0x00, 0x00]] {
            assert!(matches!(decoded(bad), Err(FieldError::BadHuffman)), "{bad:x?}");
        }
        assert_eq!(decoded(&[]).unwrap(), b"");
        assert_eq!(decoded(&[0x07]).unwrap(), b"0");
    }

    proptest! {
        #[test]
        fn any_bytes_survive(plain: Vec<u8>) {
            prop_assert_eq!(decoded(&encoded(&plain)).unwrap(), plain);
        }

        #[test]
        fn any_code_is_read_or_refused(coded: Vec<u8>) {
            if let Ok(plain) = decoded(&coded) {
                prop_assert_eq!(encoded(&plain), coded);
            }
        }
    }
}
