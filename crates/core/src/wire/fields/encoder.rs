//! From messages to field blocks.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, Method, StatusCode, Uri, header};

use super::{
    FIELDS_BYTES_MAX, FIELDS_COUNT_MAX, FieldError, Mode,
    dictionary::{BlockUse, Dictionary, Key, Lookup},
    entry::is_forbidden,
    entry_size,
    literal::{write_integer, write_string},
    table::{self, Insert, NAMES_COUNT, NameId},
};

/// Encodes the field blocks of one direction of a link.
///
/// It holds nothing until the first block, then at most 32 KiB of fields.
#[derive(Debug)]
pub struct Encoder {
    mode: Mode,
    dictionary: Option<Box<Dictionary>>,
}

impl Encoder {
    /// Makes an encoder whose dictionary is empty.
    #[must_use]
    pub const fn new(mode: Mode) -> Self {
        Self { mode, dictionary: None }
    }

    /// Appends the block of a REQUEST on channel `block` to `out`.
    ///
    /// The authority is that of `uri`, else the `host` header; a missing scheme is `https`. Headers that speak about
    /// one connection are left out.
    ///
    /// # Errors
    ///
    /// [`FieldError::ConnectUnsupported`], [`FieldError::InvalidValue`] or [`FieldError::MissingPseudo`] if `uri` or
    /// `host` makes no authority or path, [`FieldError::TooLarge`], [`FieldError::TooManyFields`]. Nothing is written
    /// then and the encoder stays as it was.
    pub fn encode_request(
        &mut self,
        block: u64,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        out: &mut BytesMut,
    ) -> Result<(), FieldError> {
        if *method == Method::CONNECT {
            return Err(FieldError::ConnectUnsupported);
        }
        let scheme = uri.scheme_str().unwrap_or("https");
        if !matches!(scheme, "http" | "https") {
            return Err(FieldError::InvalidValue { name: ":scheme" });
        }
        let authority = authority(uri, headers)?;
        let path = path(uri);
        if path == "*" && *method != Method::OPTIONS {
            return Err(FieldError::InvalidValue { name: ":path" });
        }
        let pseudo = [(":method", method.as_str()), (":scheme", scheme), (":authority", authority), (":path", &path)];
        self.encode(block, true, &pseudo, headers, out)
    }

    /// Appends the block of a RESPONSE on channel `block` to `out`.
    ///
    /// # Errors
    ///
    /// [`FieldError::TooLarge`] or [`FieldError::TooManyFields`]. Nothing is written then and the encoder stays as it
    /// was.
    pub fn encode_response(
        &mut self,
        block: u64,
        status: StatusCode,
        headers: &HeaderMap,
        out: &mut BytesMut,
    ) -> Result<(), FieldError> {
        self.encode(block, true, &[(":status", status.as_str())], headers, out)
    }

    /// Appends the block of a TRAILERS on channel `block` to `out`.
    ///
    /// # Errors
    ///
    /// As [`encode_response`](Self::encode_response).
    pub fn encode_trailers(&mut self, block: u64, headers: &HeaderMap, out: &mut BytesMut) -> Result<(), FieldError> {
        // On unordered carriers the channel's number stands for its first block alone: nobody acknowledges trailers.
        let use_dictionary = match self.mode {
            Mode::Ordered => true,
            Mode::Unordered => false,
        };
        self.encode(block, use_dictionary, &[], headers, out)
    }

    /// Notes that the peer has decoded the block of this channel.
    ///
    /// Unknown and repeated numbers are ignored; so is everything on ordered carriers.
    pub fn acknowledge(&mut self, block: u64) {
        if let Some(dictionary) = &mut self.dictionary {
            dictionary.acknowledge(block);
        }
    }

    /// Gives up waiting for the acknowledgement of this channel's block, as when the channel was reset.
    ///
    /// The peer may still decode the block at any later time, so the slots it names keep their content for the life of
    /// the link.
    pub fn forget(&mut self, block: u64) {
        if let Some(dictionary) = &mut self.dictionary {
            dictionary.forget(block);
        }
    }

    fn encode(
        &mut self,
        block: u64,
        use_dictionary: bool,
        pseudo: &[(&str, &str)],
        headers: &HeaderMap,
        out: &mut BytesMut,
    ) -> Result<(), FieldError> {
        check_limits(pseudo, headers)?;
        let mode = self.mode;
        let dictionary = self.dictionary.get_or_insert_with(|| Box::new(Dictionary::new(mode)));
        let usage = if use_dictionary { dictionary.begin(block) } else { None };
        let mut writer = Writer { dictionary, usage, out };
        let start = writer.out.len();
        writer.out.put_u8(0);
        for (name, value) in pseudo {
            writer.field(name.as_bytes(), value.as_bytes(), false);
        }
        for (name, value) in headers {
            if !is_forbidden(name, value) {
                writer.field(name.as_str().as_bytes(), value.as_bytes(), value.is_sensitive());
            }
        }
        if let Some(usage) = writer.usage {
            dictionary.end(usage);
            if let Some(first) = usage.first() {
                out[start] = first as u8;
            }
        }
        Ok(())
    }
}

/// One block being written.
struct Writer<'a> {
    dictionary: &'a mut Dictionary,
    /// What the block does with the dictionary, none if it does without.
    usage: Option<BlockUse>,
    out: &'a mut BytesMut,
}

impl Writer<'_> {
    fn field(&mut self, name: &[u8], value: &[u8], sensitive: bool) {
        let key = Key { name, name_hash: table::hash(name), value };
        let id = NameId::find(name, key.name_hash);
        if sensitive {
            return self.literal(SENSITIVE, key, id);
        }
        if let Some(index) = id.and_then(|id| id.entry(value)) {
            return write_integer(index, 7, STATIC, self.out);
        }
        let insert = id.map_or(Insert::Always, NameId::insert);
        let (Some(usage), Insert::Always | Insert::Repeated) = (&mut self.usage, insert) else {
            return self.literal(LITERAL, key, id);
        };
        let hash = key.field_hash();
        match self.dictionary.find(key, hash, usage) {
            Lookup::Absent => {}
            Lookup::Pending => return self.literal(LITERAL, key, id),
            Lookup::Ready(slot) => return self.out.put_u8(SLOT | slot as u8),
        }
        // The name is looked up first: on an ordered carrier the new entry may replace the very slot that names it.
        let reference = self.reference(key, id);
        let Some(usage) = &mut self.usage else { return };
        let worthwhile = insert == Insert::Always || self.dictionary.was_seen(hash);
        let inserted = worthwhile && self.dictionary.insert(key, hash, usage);
        self.literal_as(if inserted { INSERTED } else { LITERAL }, key, reference);
    }

    fn literal(&mut self, form: (u8, u32), key: Key<'_>, id: Option<NameId>) {
        let reference = self.reference(key, id);
        self.literal_as(form, key, reference);
    }

    fn literal_as(&mut self, (high, prefix_bits): (u8, u32), key: Key<'_>, reference: usize) {
        write_integer(reference, prefix_bits, high, self.out);
        if reference == 0 {
            write_string(key.name, self.out);
        }
        write_string(key.value, self.out);
    }

    /// Returns the number a literal names its name by, zero if the name has to follow.
    fn reference(&mut self, key: Key<'_>, id: Option<NameId>) -> usize {
        if let Some(id) = id {
            return id.number();
        }
        let Some(usage) = &mut self.usage else { return 0 };
        self.dictionary.find_name(key, usage).map_or(0, |slot| NAMES_COUNT + 1 + slot)
    }
}

fn authority<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, FieldError> {
    let authority = match (uri.authority(), headers.get(header::HOST)) {
        (Some(authority), _) => authority.as_str(),
        (None, Some(host)) => host
            .to_str()
            .ok()
            .filter(|host| http::uri::Authority::try_from(*host).is_ok())
            .ok_or(FieldError::InvalidValue { name: ":authority" })?,
        (None, None) => return Err(FieldError::MissingPseudo { name: ":authority" }),
    };
    // User information has no place in a request (RFC 9113 section 8.3.1).
    match authority.rsplit_once('@').map_or(authority, |(_, host)| host) {
        "" => Err(FieldError::InvalidValue { name: ":authority" }),
        host => Ok(host),
    }
}

fn path(uri: &Uri) -> Cow<'_, str> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    if path.starts_with('/') || path == "*" { Cow::Borrowed(path) } else { Cow::Owned(format!("/{path}")) }
}

fn check_limits(pseudo: &[(&str, &str)], headers: &HeaderMap) -> Result<(), FieldError> {
    let mut bytes: usize = pseudo.iter().map(|(name, value)| entry_size(name.len(), value.len())).sum();
    let mut count = pseudo.len();
    for (name, value) in headers {
        if !is_forbidden(name, value) {
            bytes += entry_size(name.as_str().len(), value.len());
            count += 1;
        }
    }
    if bytes > FIELDS_BYTES_MAX {
        return Err(FieldError::TooLarge);
    }
    if count > FIELDS_COUNT_MAX {
        return Err(FieldError::TooManyFields);
    }
    Ok(())
}

/// The high bits of the five forms; of the literals also how many bits their name reference begins with.
const STATIC: u8 = 0x80;
const SLOT: u8 = 0x40;
const INSERTED: (u8, u32) = (0x20, 5);
const LITERAL: (u8, u32) = (0x10, 4);
const SENSITIVE: (u8, u32) = (0x00, 4);
