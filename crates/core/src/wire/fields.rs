//! Field blocks: the compressed headers of REQUEST, RESPONSE and TRAILERS.
//!
//! A block is an ordered list of fields, the pseudo-fields of HTTP/2 first. Both ends know a static table; each
//! direction of a link has a dictionary of 64 slots that the blocks themselves fill. `docs/protocol/fields.md` has the
//! bit layouts.
//!
//! ```
//! use bytes::BytesMut;
//! use http::{HeaderMap, Method, Uri};
//! use ropeway_core::wire::fields::{Decoder, Encoder, Mode};
//!
//! let (mut encoder, mut decoder) = (Encoder::new(Mode::Ordered), Decoder::new());
//! let uri = Uri::from_static("https://api.test/v1/orders");
//! let mut block = BytesMut::new();
//! encoder.encode_request(0, &Method::GET, &uri, &HeaderMap::new(), &mut block)?;
//! assert_eq!(decoder.decode_request(&block)?.uri, uri);
//! # Ok::<(), ropeway_core::wire::fields::FieldError>(())
//! ```

use http::{HeaderMap, HeaderName, Method, StatusCode, Uri};

mod decoder;
mod dictionary;
mod encoder;
mod entry;
mod huffman;
mod literal;
mod table;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use entry::is_forbidden;

/// In which order the peer decodes the blocks of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the order they were encoded: all frames share one stream (tls, ws).
    Ordered,
    /// In any order: every block travels on its own stream (quic).
    Unordered,
}

/// The decoded head of a request.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The method; never CONNECT.
    pub method: Method,
    /// Scheme (`http` or `https`), authority, and path with query.
    pub uri: Uri,
    /// The headers, none that speaks about one connection.
    pub headers: HeaderMap,
}

/// The decoded head of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The headers, none that speaks about one connection.
    pub headers: HeaderMap,
}

/// Why a message could not be encoded or a block not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// A string in the Huffman code has bad padding, a cut code or the end-of-string symbol.
    #[error("huffman code ends badly")]
    BadHuffman,
    /// CONNECT has no meaning on a link of protocol 1.
    #[error("method CONNECT is not part of link protocol 1")]
    ConnectUnsupported,
    /// An entry is too large for its slot, or for the dictionary.
    #[error("entry for dictionary slot {slot} is too large")]
    DictionaryFull {
        /// The slot.
        slot: usize,
    },
    /// A header speaks about one connection.
    #[error("header {name} has no place on a link")]
    Forbidden {
        /// The header.
        name: HeaderName,
    },
    /// An integer takes too many bytes.
    #[error("integer is too large")]
    IntegerTooLarge,
    /// The value of a header holds a byte that no header value may hold.
    #[error("header value holds a forbidden byte")]
    InvalidHeader,
    /// A name is empty, in upper case, or holds a byte that no name may hold.
    #[error("header name is not valid")]
    InvalidName,
    /// The value of a pseudo-field does not parse.
    #[error("value of {name} is not valid")]
    InvalidValue {
        /// The pseudo-field.
        name: &'static str,
    },
    /// A pseudo-field comes after a header or in a kind of message that does not have it.
    #[error("pseudo-field {name} is out of place")]
    MisplacedPseudo {
        /// The pseudo-field.
        name: &'static str,
    },
    /// A message lacks a pseudo-field.
    #[error("pseudo-field {name} is missing")]
    MissingPseudo {
        /// The pseudo-field.
        name: &'static str,
    },
    /// A pseudo-field comes twice.
    #[error("pseudo-field {name} comes twice")]
    RepeatedPseudo {
        /// The pseudo-field.
        name: &'static str,
    },
    /// The fields are larger than [`FIELDS_BYTES_MAX`].
    #[error("fields are larger than {FIELDS_BYTES_MAX} bytes")]
    TooLarge,
    /// There are more fields than [`FIELDS_COUNT_MAX`].
    #[error("there are more than {FIELDS_COUNT_MAX} fields")]
    TooManyFields,
    /// The block ends inside a field.
    #[error("block ends inside a field")]
    Truncated,
    /// A name begins with a colon and is not one of the five pseudo-fields.
    #[error("pseudo-field is not known")]
    UnknownPseudo,
    /// A block names a slot that holds nothing or does not exist.
    #[error("dictionary slot {slot} holds nothing")]
    UnknownSlot {
        /// The slot.
        slot: usize,
    },
    /// A block names an entry that the static table does not have.
    #[error("static table has no entry {index}")]
    UnknownStatic {
        /// The index.
        index: usize,
    },
}

/// What a field counts against every limit: its bytes and 32 for what holding it costs (RFC 7541 section 4.1).
const fn entry_size(name_len: usize, value_len: usize) -> usize {
    name_len + value_len + ENTRY_OVERHEAD_BYTES
}

/// Returns what a field with a name and a value of these lengths counts against [`FIELDS_BYTES_MAX`], in bytes.
pub(crate) const fn field_bytes(name_len: usize, value_len: usize) -> usize {
    entry_size(name_len, value_len)
}

/// The size of a block's fields when decoded, 32 bytes a field included: 64 KiB, as the largest frame by default.
pub const FIELDS_BYTES_MAX: usize = 64 * 1024;

/// How many fields a block may hold: 256; browsers and gateways send fewer than 50.
pub const FIELDS_COUNT_MAX: usize = 256;

/// How many blocks may wait for their acknowledgement and still use the dictionary: 128 messages in a round trip.
/// Beyond it blocks are written without the dictionary. Only on unordered carriers.
pub const UNACKNOWLEDGED_BLOCKS_MAX: usize = 128;

/// How many slots a dictionary has: what one byte can name beside the two bits that say so.
const SLOTS_COUNT: usize = 64;

/// The size of all entries of a dictionary: 512 bytes a slot on average.
const DICTIONARY_BYTES_MAX: usize = SLOTS_COUNT * 512;

/// The size of one entry: 4 KiB, the whole table of HTTP/2 by default (RFC 9113 section 6.5.2), so that whatever HTTP/2
/// can keep, such as a long token or cookie, can be kept here.
const ENTRY_BYTES_MAX: usize = 4096;

/// What an entry costs beside its bytes; RFC 7541 section 4.1.
const ENTRY_OVERHEAD_BYTES: usize = 32;

#[cfg(test)]
mod tests;
