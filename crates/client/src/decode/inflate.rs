//! The `gzip` and `deflate` codings (RFC 1952, and RFC 1950 around RFC 1951).

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::body::{Decoder, Step};

/// Decodes the members of a gzip file, one after the other.
pub(super) struct Gzip {
    inflate: Decompress,
    crc: Crc,
    part: Part,
}

/// What comes next of a member.
enum Part {
    Head(Head),
    Data,
    /// The check sum and the length, as far as they have come.
    Tail(Vec<u8>),
    /// Nothing need come: the member before was whole.
    End,
}

/// Decodes a zlib stream, or a bare one, which some servers call `deflate` as well.
pub(super) struct Deflate {
    /// Made with the first byte, which tells the two apart.
    inflate: Option<Decompress>,
    ended: bool,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self { inflate: Decompress::new(false), crc: Crc::new(), part: Part::Head(Head::new()) }
    }

    fn begin(&mut self) {
        self.inflate.reset(false);
        self.crc.reset();
        self.part = Part::Head(Head::new());
    }
}

impl Decoder for Gzip {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        let (mut read, mut written) = (0, 0);
        loop {
            let rest = &input[read..];
            match &mut self.part {
                Part::End if rest.is_empty() => return Ok(Step { read, written, ended: true }),
                Part::End => self.begin(),
                Part::Head(_) | Part::Tail(_) if rest.is_empty() => return Ok(Step { read, written, ended: false }),
                Part::Head(head) => {
                    read += 1;
                    if head.take(rest[0])? {
                        self.part = Part::Data;
                    }
                }
                Part::Data => {
                    let (took, made, ended) = inflate(&mut self.inflate, rest, &mut output[written..])?;
                    self.crc.update(&output[written..written + made]);
                    read += took;
                    written += made;
                    if ended {
                        self.part = Part::Tail(Vec::with_capacity(TAIL_BYTES));
                    } else if read == input.len() || written == output.len() {
                        return Ok(Step { read, written, ended: false });
                    } else if took == 0 && made == 0 {
                        return Err("malformed stream".into());
                    }
                }
                Part::Tail(tail) => {
                    let more = rest.len().min(TAIL_BYTES - tail.len());
                    tail.extend_from_slice(&rest[..more]);
                    read += more;
                    if tail.len() == TAIL_BYTES {
                        check(tail, &self.crc)?;
                        self.part = Part::End;
                    }
                }
            }
        }
    }
}

impl Deflate {
    pub(super) const fn new() -> Self {
        Self { inflate: None, ended: false }
    }
}

impl Decoder for Deflate {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        let Some(first) = input.first() else {
            return match &mut self.inflate {
                Some(stream) if !self.ended => {
                    let (read, written, ended) = inflate(stream, input, output)?;
                    self.ended = ended;
                    Ok(Step { read, written, ended })
                }
                Some(_) | None => Ok(Step { read: 0, written: 0, ended: self.ended }),
            };
        };
        if self.ended {
            return Err("bytes follow the end of the stream".into());
        }
        // A zlib stream begins with its method, 8, in the low bits. No encoder begins a bare stream so: it would be a stored block
        // whose padding is not zero.
        let stream = self.inflate.get_or_insert_with(|| Decompress::new(first & 0x0F == 8));
        let (read, written, ended) = inflate(stream, input, output)?;
        self.ended = ended;
        Ok(Step { read, written, ended })
    }
}

/// Inflates as far as input and output reach: bytes read, bytes written, and whether the stream has ended.
fn inflate(stream: &mut Decompress, input: &[u8], output: &mut [u8]) -> Result<(usize, usize, bool), String> {
    let before = (stream.total_in(), stream.total_out());
    let status = stream.decompress(input, output, FlushDecompress::None).map_err(|_| "malformed stream")?;
    let ended = match status {
        Status::StreamEnd => true,
        Status::BufError | Status::Ok => false,
    };
    // Neither is more than the length of a slice.
    Ok(((stream.total_in() - before.0) as usize, (stream.total_out() - before.1) as usize, ended))
}

/// Checks the end of a member against its data.
fn check(tail: &[u8], crc: &Crc) -> Result<(), String> {
    let (sum, length) = tail.split_at(TAIL_BYTES / 2);
    if sum != crc.sum().to_le_bytes() {
        return Err("check sum is wrong".into());
    }
    if length != crc.amount().to_le_bytes() {
        return Err("length is wrong".into());
    }
    Ok(())
}

/// Reads the head of a member, of which nothing is used (RFC 1952 section 2.3).
struct Head {
    crc: Crc,
    field: Field,
    flags: u8,
    bytes: usize,
    /// Bytes of the field that are to come, or the number they make.
    left: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Fixed(usize),
    ExtraLength(bool),
    Extra,
    Name,
    Comment,
    Checksum(bool),
    Done,
}

impl Head {
    fn new() -> Self {
        Self { crc: Crc::new(), field: Field::Fixed(0), flags: 0, bytes: 0, left: 0 }
    }

    /// Takes the next byte, and says whether it is the last.
    fn take(&mut self, byte: u8) -> Result<bool, String> {
        self.bytes += 1;
        if self.bytes > HEAD_BYTES_MAX {
            return Err("head is too long".into());
        }
        let sum = self.crc.sum();
        self.crc.update(&[byte]);
        self.field = match self.field {
            Field::Fixed(at) => {
                if MAGIC.get(at).is_some_and(|magic| *magic != byte) {
                    return Err("not a gzip stream".into());
                }
                if at == FLAGS_AT {
                    self.flags = byte;
                }
                if at + 1 < FIXED_BYTES { Field::Fixed(at + 1) } else { self.field_from(Field::ExtraLength(false)) }
            }
            Field::ExtraLength(false) => {
                self.left = u16::from(byte);
                Field::ExtraLength(true)
            }
            Field::ExtraLength(true) => {
                self.left |= u16::from(byte) << 8;
                if self.left > 0 { Field::Extra } else { self.field_from(Field::Name) }
            }
            Field::Extra => {
                self.left -= 1;
                if self.left > 0 { Field::Extra } else { self.field_from(Field::Name) }
            }
            Field::Name if byte == 0 => self.field_from(Field::Comment),
            Field::Comment if byte == 0 => self.field_from(Field::Checksum(false)),
            Field::Name | Field::Comment => self.field,
            Field::Checksum(false) => {
                self.left = (sum & 0xFFFF) as u16;
                self.checked(byte, 0)?;
                Field::Checksum(true)
            }
            Field::Checksum(true) => {
                self.checked(byte, 1)?;
                Field::Done
            }
            Field::Done => Field::Done,
        };
        Ok(self.field == Field::Done)
    }

    fn checked(&self, byte: u8, at: usize) -> Result<(), String> {
        if self.left.to_le_bytes()[at] == byte { Ok(()) } else { Err("check sum of the head is wrong".into()) }
    }

    /// Returns the first field, from one on, that the flags say is there.
    const fn field_from(&self, field: Field) -> Field {
        match field {
            Field::ExtraLength(_) if self.flags & FEXTRA != 0 => Field::ExtraLength(false),
            Field::ExtraLength(_) | Field::Extra => self.field_from(Field::Name),
            Field::Name if self.flags & FNAME != 0 => Field::Name,
            Field::Name => self.field_from(Field::Comment),
            Field::Comment if self.flags & FCOMMENT != 0 => Field::Comment,
            Field::Comment => self.field_from(Field::Checksum(false)),
            Field::Checksum(_) if self.flags & FHCRC != 0 => Field::Checksum(false),
            Field::Checksum(_) | Field::Done | Field::Fixed(_) => Field::Done,
        }
    }
}

/// Identification and the one method there is (RFC 1952 section 2.3.1), and where the flags stand behind them.
const MAGIC: [u8; 3] = [0x1F, 0x8B, 8];
const FLAGS_AT: usize = 3;
const FIXED_BYTES: usize = 10;
const FHCRC: u8 = 1 << 1;
const FEXTRA: u8 = 1 << 2;
const FNAME: u8 = 1 << 3;
const FCOMMENT: u8 = 1 << 4;

/// Check sum and length, four bytes each.
const TAIL_BYTES: usize = 8;

/// Bytes of a member's head: 128 KiB, our choice; the extra field alone may have 64 KiB, and servers send none.
const HEAD_BYTES_MAX: usize = 128 * 1024;
