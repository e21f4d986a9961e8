//! Several requests in the body of one, and their answers in the body of its answer. The prose is in `docs/protocol/batch.md`.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Uri};
use thiserror::Error;

use super::{
    fields::{Decoder, Encoder, FieldError, Mode, RequestHead, ResponseHead},
    varint,
};

/// Path of the endpoint that takes batches.
pub const BATCH_PATH: &str = "/.ropeway/batch";

/// Media type of a batch and of its answers.
pub const BATCH_TYPE: &str = "application/vnd.ropeway.batch";

/// One request of a batch.
#[derive(Clone, Debug)]
pub struct Part {
    /// Method, URL and headers.
    pub head: RequestHead,
    /// The whole body.
    pub body: Bytes,
}

/// The answer to one request of a batch.
#[derive(Clone, Debug)]
pub struct PartAnswer {
    /// Place of the request in the batch, from 0.
    pub index: usize,
    /// Status and headers.
    pub head: ResponseHead,
    /// The body, as far as it came.
    pub body: Bytes,
    /// Nothing of the body is missing.
    pub whole: bool,
}

/// Why a batch cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// It ends within a part.
    #[error("batch ends within a part")]
    Cut,
    /// A head is malformed.
    #[error("head of a part: {0}")]
    Fields(#[from] FieldError),
    /// An answer is for a request that is not there or was answered already.
    #[error("answer to part {index} is not expected")]
    Index {
        /// The place it names.
        index: u64,
    },
    /// A byte says neither that a body is whole nor that it is not.
    #[error("body of a part ends in {byte:#04x}")]
    Mark {
        /// The byte.
        byte: u8,
    },
    /// It has more parts than it may.
    #[error("batch has more than {PARTS_MAX} parts")]
    TooMany,
    /// A head or a body is larger than it may be.
    #[error("part has {bytes} bytes in one piece")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
}

/// Writes the body of a batch.
#[derive(Debug)]
pub struct PartWriter {
    encoder: Encoder,
    count: u64,
    out: BytesMut,
}

/// Writes answers, in the order they come.
#[derive(Debug)]
pub struct AnswerWriter {
    encoder: Encoder,
    count: u64,
}

/// Reads answers, as their bytes come.
#[derive(Debug)]
pub struct AnswerReader {
    decoder: Decoder,
    buffer: BytesMut,
    awaited: Vec<bool>,
}

impl PartWriter {
    /// Begins a batch.
    #[must_use]
    pub fn new() -> Self {
        Self { encoder: Encoder::new(Mode::Ordered), count: 0, out: BytesMut::new() }
    }

    /// Adds a request.
    ///
    /// # Errors
    ///
    /// [`BatchError`] if the request has no place in a batch, which then is as it was.
    pub fn write(&mut self, method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Result<(), BatchError> {
        if self.count >= PARTS_MAX as u64 {
            return Err(BatchError::TooMany);
        }
        // Both before the dictionary takes in what would not be sent.
        let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
        fits(bytes_of(headers) + path, FIELDS_BYTES_MAX)?;
        fits(body.len(), BODY_BYTES_MAX)?;
        let mut head = BytesMut::new();
        self.encoder.encode_request(self.count, method, uri, headers, &mut head)?;
        self.count += 1;
        put(&head, &mut self.out);
        put(body, &mut self.out);
        Ok(())
    }

    /// Returns the body.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.out.freeze()
    }
}

impl Default for PartWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads the body of a batch.
///
/// # Errors
///
/// [`BatchError`] if it is malformed or has more than it may.
pub fn read_parts(batch: &Bytes) -> Result<Vec<Part>, BatchError> {
    let mut decoder = Decoder::new();
    let mut parts = Vec::new();
    let mut at = 0;
    while at < batch.len() {
        if parts.len() == PARTS_MAX {
            return Err(BatchError::TooMany);
        }
        let head = take(batch, &mut at, HEAD_BYTES_MAX)?.ok_or(BatchError::Cut)?;
        let head = decoder.decode_request(&batch[head])?;
        let body = take(batch, &mut at, BODY_BYTES_MAX)?.ok_or(BatchError::Cut)?;
        parts.push(Part { head, body: batch.slice(body) });
    }
    Ok(parts)
}

impl AnswerWriter {
    /// Begins the answers to a batch.
    #[must_use]
    pub fn new() -> Self {
        Self { encoder: Encoder::new(Mode::Ordered), count: 0 }
    }

    /// Writes an answer. What is beyond 64 KiB of its body is left out, and said to be.
    ///
    /// # Errors
    ///
    /// [`BatchError`] if its headers have no place in a batch. Nothing is written then.
    pub fn write(&mut self, answer: &PartAnswer, out: &mut BytesMut) -> Result<(), BatchError> {
        fits(bytes_of(&answer.head.headers), FIELDS_BYTES_MAX)?;
        let mut head = BytesMut::new();
        self.encoder.encode_response(self.count, answer.head.status, &answer.head.headers, &mut head)?;
        self.count += 1;
        varint::write(answer.index as u64, out);
        put(&head, out);
        let kept = answer.body.len().min(BODY_BYTES_MAX);
        put(&answer.body[..kept], out);
        let whole = answer.whole && kept == answer.body.len();
        out.extend_from_slice(&[if whole { WHOLE } else { PART }]);
        Ok(())
    }
}

impl Default for AnswerWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl AnswerReader {
    /// Awaits the answers to so many requests.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { decoder: Decoder::new(), buffer: BytesMut::new(), awaited: vec![true; count] }
    }

    /// Takes in what has come.
    pub fn handle_data(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// Returns the next answer that has come as a whole.
    ///
    /// # Errors
    ///
    /// [`BatchError`] if what has come is malformed. Nothing can be read behind it.
    pub fn poll_answer(&mut self) -> Result<Option<PartAnswer>, BatchError> {
        let Some((index, mut at)) = varint::read(&self.buffer) else { return Ok(None) };
        let Some(head) = take(&self.buffer, &mut at, HEAD_BYTES_MAX)? else { return Ok(None) };
        let Some(body) = take(&self.buffer, &mut at, BODY_BYTES_MAX)? else { return Ok(None) };
        let Some(mark) = self.buffer.get(at).copied() else { return Ok(None) };
        let whole = match mark {
            PART => false,
            WHOLE => true,
            byte => return Err(BatchError::Mark { byte }),
        };
        let awaited = usize::try_from(index).ok().and_then(|index| self.awaited.get_mut(index));
        if !awaited.is_some_and(std::mem::take) {
            return Err(BatchError::Index { index });
        }
        let answer = self.buffer.split_to(at + 1).freeze();
        let head = self.decoder.decode_response(&answer[head])?;
        // It names one of the places that are awaited.
        Ok(Some(PartAnswer { index: index as usize, head, body: answer.slice(body), whole }))
    }
}

/// Writes a length and so many bytes.
fn put(bytes: &[u8], out: &mut BytesMut) {
    varint::write(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

const fn fits(bytes: usize, bytes_max: usize) -> Result<(), BatchError> {
    if bytes <= bytes_max { Ok(()) } else { Err(BatchError::TooLarge { bytes: bytes as u64 }) }
}

fn bytes_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES).sum()
}

/// Reads a length and finds so many bytes behind it; `None` if they have not all come.
fn take(input: &[u8], at: &mut usize, bytes_max: usize) -> Result<Option<Range<usize>>, BatchError> {
    let Some((bytes, length)) = varint::read(&input[*at..]) else { return Ok(None) };
    if bytes > bytes_max as u64 {
        return Err(BatchError::TooLarge { bytes });
    }
    let from = *at + length;
    // It is at most `bytes_max`.
    let to = from + bytes as usize;
    if input.len() < to {
        return Ok(None);
    }
    *at = to;
    Ok(Some(from..to))
}

/// Requests of one batch: 64, our choice; a quarter of what may be under way on a link.
pub const PARTS_MAX: usize = 64;

/// Bytes of a batch's body: 256 KiB, our choice; what a gateway holds of it before the first request goes on.
pub const BATCH_BYTES_MAX: usize = 256 * 1024;

/// Bytes of the compressed head of one part: 16 KiB, our choice; as much as services take of a head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the fields of one part before they are compressed, which makes none longer than its name, its value and [`FIELD_BYTES`].
const FIELDS_BYTES_MAX: usize = HEAD_BYTES_MAX - 1024;

/// Bytes a field takes beside its name and value: a form and two lengths.
const FIELD_BYTES: usize = 8;

/// Bytes of the body of one part, or of the answer to it: 64 KiB, which is what a gateway keeps of an answer for a resumed link.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// The body of an answer is missing its end, or it is whole.
const PART: u8 = 0;
const WHOLE: u8 = 1;

#[cfg(test)]
mod tests {
    use http::{HeaderValue, StatusCode};
    use proptest::prelude::*;

    use super::*;

    fn headers(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static(value))])
    }

    fn batch(count: usize) -> Bytes {
        let mut writer = PartWriter::new();
        for number in 0..count {
            let uri: Uri = format!("https://api.test/events?{number}").parse().unwrap();
            writer.write(&Method::POST, &uri, &headers("application/json"), format!("{number}").as_bytes()).unwrap();
        }
        writer.finish()
    }

    fn answers() -> (Vec<u8>, Vec<PartAnswer>) {
        let answer = |index, status, body: &'static [u8], whole| PartAnswer {
            index,
            head: ResponseHead { status, headers: headers("text/plain") },
            body: Bytes::from_static(body),
            whole,
        };
        let answers = vec![
            answer(2, StatusCode::OK, b"third", true),
            answer(0, StatusCode::BAD_GATEWAY, b"", true),
            answer(1, StatusCode::OK, b"half of", false),
        ];
        let (mut writer, mut out) = (AnswerWriter::new(), BytesMut::new());
        answers.iter().for_each(|answer| writer.write(answer, &mut out).unwrap());
        (out.to_vec(), answers)
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        let parts = read_parts(&batch(3)).unwrap();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[2].head.method, Method::POST);
        assert_eq!(parts[2].head.uri, "https://api.test/events?2");
        assert_eq!(parts[2].head.headers, headers("application/json"));
        assert_eq!(parts[2].body, "2");
        assert!(read_parts(&Bytes::new()).unwrap().is_empty());
    }

    #[test]
    fn headers_that_repeat_cost_little() {
        let one = batch(1).len();
        // The path differs each time, and is what is left beside a length or two.
        assert!(batch(16).len() < one + 15 * 20, "{one} and {}", batch(16).len());
    }

    #[test]
    fn a_batch_that_is_cut_or_too_large_is_refused() {
        let whole = batch(2);
        for length in 1..whole.len() {
            let cut = whole.slice(..length);
            // Cut between two parts it is a batch of one.
            assert!(read_parts(&cut).map_or(true, |parts| parts.len() == 1), "{length}");
        }
        let mut writer = PartWriter::new();
        let uri = Uri::from_static("https://api.test/");
        let large = vec![0; BODY_BYTES_MAX + 1];
        let refused = writer.write(&Method::POST, &uri, &HeaderMap::new(), &large);
        assert_eq!(refused, Err(BatchError::TooLarge { bytes: large.len() as u64 }));
        let many = [batch(PARTS_MAX).to_vec(), batch(1).to_vec()].concat();
        assert_eq!(read_parts(&many.into()).unwrap_err(), BatchError::TooMany);
    }

    #[test]
    fn answers_are_read_however_they_come() {
        let (bytes, answers) = answers();
        for piece in [1, 3, bytes.len()] {
            let mut reader = AnswerReader::new(3);
            let mut read = Vec::new();
            for piece in bytes.chunks(piece) {
                reader.handle_data(piece);
                while let Some(answer) = reader.poll_answer().unwrap() {
                    read.push(answer);
                }
            }
            let seen = |answers: &[PartAnswer]| -> Vec<_> {
                answers.iter().map(|one| (one.index, one.head.status, one.body.clone(), one.whole)).collect()
            };
            assert_eq!(seen(&read), seen(&answers));
        }
    }

    #[test]
    fn an_answer_to_nothing_or_a_second_one_is_an_error() {
        let (bytes, _) = answers();
        let mut reader = AnswerReader::new(2);
        reader.handle_data(&bytes);
        assert_eq!(reader.poll_answer().unwrap_err(), BatchError::Index { index: 2 });
        let mut reader = AnswerReader::new(3);
        reader.handle_data(&bytes);
        while reader.poll_answer().unwrap().is_some() {}
        reader.handle_data(&bytes);
        assert_eq!(reader.poll_answer().unwrap_err(), BatchError::Index { index: 2 });
    }

    #[test]
    fn an_answer_beyond_its_bound_is_said_to_be_a_part() {
        let answer = PartAnswer {
            index: 0,
            head: ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() },
            body: vec![7; BODY_BYTES_MAX + 1].into(),
            whole: true,
        };
        let mut out = BytesMut::new();
        AnswerWriter::new().write(&answer, &mut out).unwrap();
        let mut reader = AnswerReader::new(1);
        reader.handle_data(&out);
        let read = reader.poll_answer().unwrap().unwrap();
        assert_eq!((read.body.len(), read.whole), (BODY_BYTES_MAX, false));
    }

    #[test]
    fn headers_too_large_are_refused_and_the_others_are_none_the_worse() {
        let mut headers = HeaderMap::new();
        headers.insert("x-long", HeaderValue::from_bytes(&vec![b'a'; 16_000]).unwrap());
        let answer = |index, headers| PartAnswer {
            index,
            head: ResponseHead { status: StatusCode::OK, headers },
            body: Bytes::new(),
            whole: true,
        };
        let (mut writer, mut out) = (AnswerWriter::new(), BytesMut::new());
        assert!(matches!(writer.write(&answer(0, headers), &mut out), Err(BatchError::TooLarge { .. })));
        assert!(out.is_empty());
        writer.write(&answer(1, HeaderMap::new()), &mut out).unwrap();
        let mut reader = AnswerReader::new(2);
        reader.handle_data(&out);
        assert_eq!(reader.poll_answer().unwrap().unwrap().index, 1);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_parts(&bytes.clone().into());
            let mut reader = AnswerReader::new(4);
            reader.handle_data(&bytes);
            while let Ok(Some(_)) = reader.poll_answer() {}
        }
    }
}
