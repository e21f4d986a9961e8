//! From field blocks to messages.

use http::{HeaderMap, Method, StatusCode, Uri, uri};

use super::{
    DICTIONARY_BYTES_MAX, ENTRY_BYTES_MAX, FIELDS_BYTES_MAX, FIELDS_COUNT_MAX, FieldError, RequestHead, ResponseHead,
    SLOTS_COUNT,
    entry::{Entry, Name},
    literal::Reader,
    table::{self, NAMES_COUNT, NameId},
};

/// Decodes the field blocks of one direction of a link.
///
/// On ordered carriers the blocks are to be decoded in the order in which they arrive; on unordered carriers in any
/// order. It holds nothing until a block fills a slot, then at most 32 KiB of fields.
#[derive(Debug, Default)]
pub struct Decoder {
    slots: Vec<Option<Entry>>,
    /// The size of all entries in the slots.
    bytes: usize,
}

impl Decoder {
    /// Makes a decoder whose dictionary is empty.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: Vec::new(), bytes: 0 }
    }

    /// Decodes the block of a REQUEST.
    ///
    /// # Errors
    ///
    /// Every error means that the peer broke the protocol and that the two dictionaries may differ from now on: the
    /// link has to be closed.
    pub fn decode_request(&mut self, block: &[u8]) -> Result<RequestHead, FieldError> {
        let mut message = self.decode(block)?;
        refuse(message.status.is_some(), ":status")?;
        let mut parts = uri::Parts::default();
        let method = message.method.take().ok_or(FieldError::MissingPseudo { name: ":method" })?;
        parts.scheme = Some(message.scheme.take().ok_or(FieldError::MissingPseudo { name: ":scheme" })?);
        parts.authority = Some(message.authority.take().ok_or(FieldError::MissingPseudo { name: ":authority" })?);
        let path = message.path.take().ok_or(FieldError::MissingPseudo { name: ":path" })?;
        if path == "*" && method != Method::OPTIONS {
            return Err(FieldError::InvalidValue { name: ":path" });
        }
        parts.path_and_query = Some(path);
        let uri = Uri::from_parts(parts).expect("a URI of scheme, authority and path is complete");
        Ok(RequestHead { method, uri, headers: message.headers })
    }

    /// Decodes the block of a RESPONSE.
    ///
    /// # Errors
    ///
    /// As [`decode_request`](Self::decode_request).
    pub fn decode_response(&mut self, block: &[u8]) -> Result<ResponseHead, FieldError> {
        let message = self.decode(block)?;
        message.refuse_request()?;
        let status = message.status.ok_or(FieldError::MissingPseudo { name: ":status" })?;
        Ok(ResponseHead { status, headers: message.headers })
    }

    /// Decodes the block of a TRAILERS.
    ///
    /// # Errors
    ///
    /// As [`decode_request`](Self::decode_request).
    pub fn decode_trailers(&mut self, block: &[u8]) -> Result<HeaderMap, FieldError> {
        let message = self.decode(block)?;
        message.refuse_request()?;
        refuse(message.status.is_some(), ":status")?;
        Ok(message.headers)
    }

    fn decode(&mut self, block: &[u8]) -> Result<Message, FieldError> {
        let mut reader = Reader::new(block);
        let mut next_slot = usize::from(reader.next_byte().ok_or(FieldError::Truncated)?);
        if next_slot >= SLOTS_COUNT {
            return Err(FieldError::UnknownSlot { slot: next_slot });
        }
        let mut message = Message::default();
        let mut scratch = Vec::new();
        while let Some(first) = reader.next_byte() {
            let entry = match Form::of(first) {
                Form::Static => {
                    let index = reader.integer(first, 7)?;
                    let (name, value) = table::entry(index).ok_or(FieldError::UnknownStatic { index })?;
                    Entry::of(name, value)?
                }
                Form::Slot => self.slot(usize::from(first & 0x3f))?.clone(),
                Form::Inserted => {
                    let entry = self.literal(&mut reader, first, 5, &mut scratch)?;
                    self.insert(next_slot, entry.clone())?;
                    next_slot = (next_slot + 1) % SLOTS_COUNT;
                    entry
                }
                Form::Literal => self.literal(&mut reader, first, 4, &mut scratch)?,
                Form::Sensitive => match self.literal(&mut reader, first, 4, &mut scratch)? {
                    Entry::Header(name, mut value) => {
                        value.set_sensitive(true);
                        Entry::Header(name, value)
                    }
                    entry @ (Entry::Authority(_)
                    | Entry::Method(_)
                    | Entry::Path(_)
                    | Entry::Scheme(_)
                    | Entry::Status(_)) => entry,
                },
            };
            message.add(entry)?;
        }
        Ok(message)
    }

    fn literal(
        &self,
        reader: &mut Reader<'_>,
        first: u8,
        prefix_bits: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<Entry, FieldError> {
        let reference = reader.integer(first, prefix_bits)?;
        let name = if reference == 0 {
            Name::new(reader.string(scratch)?)?
        } else if let Some(id) = NameId::new(reference) {
            Name::of(id)
        } else {
            self.slot(reference - NAMES_COUNT - 1)?.name()
        };
        Entry::new(name, reader.string(scratch)?)
    }

    fn slot(&self, slot: usize) -> Result<&Entry, FieldError> {
        self.slots.get(slot).and_then(Option::as_ref).ok_or(FieldError::UnknownSlot { slot })
    }

    fn insert(&mut self, slot: usize, entry: Entry) -> Result<(), FieldError> {
        let size = entry.size();
        let old = self.slot(slot).map_or(0, Entry::size);
        if size > ENTRY_BYTES_MAX || self.bytes - old + size > DICTIONARY_BYTES_MAX {
            return Err(FieldError::DictionaryFull { slot });
        }
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        self.slots[slot] = Some(entry);
        self.bytes = self.bytes - old + size;
        Ok(())
    }
}

/// The five forms of a field, told apart by the first bits of its first byte.
#[derive(Clone, Copy)]
enum Form {
    Inserted,
    Literal,
    Sensitive,
    Slot,
    Static,
}

impl Form {
    fn of(first: u8) -> Self {
        match first.leading_zeros() {
            0 => Self::Static,
            1 => Self::Slot,
            2 => Self::Inserted,
            3 => Self::Literal,
            _ => Self::Sensitive,
        }
    }
}

/// A message being put together.
#[derive(Default)]
struct Message {
    authority: Option<uri::Authority>,
    method: Option<Method>,
    path: Option<uri::PathAndQuery>,
    scheme: Option<uri::Scheme>,
    status: Option<StatusCode>,
    headers: HeaderMap,
    bytes: usize,
    count: usize,
}

impl Message {
    fn add(&mut self, entry: Entry) -> Result<(), FieldError> {
        self.bytes += entry.size();
        self.count += 1;
        if self.bytes > FIELDS_BYTES_MAX {
            return Err(FieldError::TooLarge);
        }
        if self.count > FIELDS_COUNT_MAX {
            return Err(FieldError::TooManyFields);
        }
        let late = !self.headers.is_empty();
        match entry {
            Entry::Authority(authority) => set(&mut self.authority, authority, late, ":authority"),
            Entry::Header(name, value) => {
                if !late {
                    self.headers.reserve(HEADERS_USUAL_COUNT);
                }
                self.headers.append(name, value);
                Ok(())
            }
            Entry::Method(method) => set(&mut self.method, method, late, ":method"),
            Entry::Path(path) => set(&mut self.path, path, late, ":path"),
            Entry::Scheme(scheme) => set(&mut self.scheme, scheme, late, ":scheme"),
            Entry::Status(status) => set(&mut self.status, status, late, ":status"),
        }
    }

    fn refuse_request(&self) -> Result<(), FieldError> {
        refuse(self.authority.is_some(), ":authority")?;
        refuse(self.method.is_some(), ":method")?;
        refuse(self.path.is_some(), ":path")?;
        refuse(self.scheme.is_some(), ":scheme")
    }
}

fn refuse(present: bool, name: &'static str) -> Result<(), FieldError> {
    if present { Err(FieldError::MisplacedPseudo { name }) } else { Ok(()) }
}

fn set<T>(field: &mut Option<T>, value: T, late: bool, name: &'static str) -> Result<(), FieldError> {
    if late {
        return Err(FieldError::MisplacedPseudo { name });
    }
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(FieldError::RepeatedPseudo { name }),
    }
}

/// Room for this many headers is made at the first one: an API's request or response grows its map once.
const HEADERS_USUAL_COUNT: usize = 12;
