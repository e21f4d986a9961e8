//! Decoders of the wire: varints, frames, field blocks, cookies.

use bytes::BytesMut;
use http::HeaderMap;
use ropeway_core::{
    session::Cookie,
    wire::{
        Decoder, Frame, FrameError, Kind,
        fields::{self, Encoder, FieldError, Mode},
        frame, varint as wire,
    },
};

use crate::outcome::{Notes, Outcome};

/// Reads a varint and writes it again.
pub fn varint(input: &[u8]) -> Outcome {
    let Some((value, length)) = wire::read(input) else { return Outcome::from([0]) };
    let mut written = Vec::new();
    wire::write(value, &mut written);
    assert!(written.len() <= length, "the shortest form is not the shortest");
    assert_eq!(wire::read(&written), Some((value, written.len())));
    Outcome::from([(length * 8 + written.len()) as u64])
}

/// Cuts a stream into frames, whole and in pieces: the same frames come out, and the same error.
pub fn frames(input: &[u8]) -> Outcome {
    let whole = decode(input, input.len().max(1));
    let pieces = decode(input, 1 + usize::from(input.first().copied().unwrap_or(0)) % 7);
    assert_eq!(whole, pieces, "how the stream is cut makes a difference");
    let (frames, error) = whole;
    let mut outcome = Notes::default();
    for frame in &frames {
        let mut written = Vec::new();
        frame.encode(&mut written);
        assert_eq!(frame::decode(&written, BYTES_MAX), Ok(Some((Some(frame.as_ref()), written.len()))));
        outcome.note((frame.kind, frame.flags.0 & 3));
    }
    if let Some(error) = error {
        outcome.error(&error);
    }
    outcome.finish()
}

fn decode(input: &[u8], piece_bytes: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut frames = Vec::new();
    let mut decoder = Decoder::new(BYTES_MAX);
    for piece in input.chunks(piece_bytes) {
        let fed = decoder.feed(piece, &mut |frame| {
            frames.push(frame.to_owned());
            Ok::<_, FrameError>(())
        });
        if let Err(error) = fed {
            return (frames, Some(error));
        }
        assert!(decoder.kept_bytes() <= BYTES_MAX + HEAD_BYTES_MAX, "more is kept than a frame has");
    }
    (frames, decoder.finish().err())
}

/// Decodes the field blocks of frames, one after the other. What is decoded can be written, and reads back the same.
pub fn fields(input: &[u8]) -> Outcome {
    let mut outcome = Notes::default();
    let mut decoder = fields::Decoder::new();
    let (mut encoder, mut again) = (Encoder::new(Mode::Ordered), fields::Decoder::new());
    for frame in decode(input, input.len().max(1)).0 {
        let mut block = BytesMut::new();
        let decoded = if frame.kind == Kind::Request {
            decoder.decode_request(&frame.payload).map(|head| {
                if encoder.encode_request(0, &head.method, &head.uri, &head.headers, &mut block).is_ok() {
                    let read = again.decode_request(&block).expect("what was written can be read");
                    assert_eq!((read.method, read.uri), (head.method, head.uri));
                    assert_same(&read.headers, &head.headers);
                }
                outcome.size(head.headers.len());
            })
        } else if frame.kind == Kind::Response {
            decoder.decode_response(&frame.payload).map(|head| {
                if encoder.encode_response(0, head.status, &head.headers, &mut block).is_ok() {
                    let read = again.decode_response(&block).expect("what was written can be read");
                    assert_eq!(read.status, head.status);
                    assert_same(&read.headers, &head.headers);
                }
                outcome.size(head.headers.len());
            })
        } else {
            decoder.decode_trailers(&frame.payload).map(|trailers| {
                if encoder.encode_trailers(0, &trailers, &mut block).is_ok() {
                    assert_same(&again.decode_trailers(&block).expect("what was written can be read"), &trailers);
                }
                outcome.size(trailers.len());
            })
        };
        outcome.note(frame.kind);
        if let Err(error) = decoded {
            note(&mut outcome, &error);
            break;
        }
    }
    outcome.finish()
}

fn note(outcome: &mut Notes, error: &FieldError) {
    outcome.note(std::mem::discriminant(error));
}

/// Names may have another order, the values of one name may not.
fn assert_same(left: &HeaderMap, right: &HeaderMap) {
    assert_eq!(left.len(), right.len());
    for name in right.keys() {
        assert!(left.get_all(name).iter().eq(right.get_all(name)), "{name} differs");
    }
}

/// Reads a cookie and writes it again.
pub fn cookie(input: &[u8]) -> Outcome {
    let Some(mut cookie) = Cookie::decode(input) else { return Outcome::from([0]) };
    assert_eq!(cookie.encode(), input);
    let before = cookie.clone();
    assert!(cookie.accepts(&before));
    cookie.advance();
    assert!(cookie.accepts(&before) && !before.accepts(&cookie));
    cookie.advance();
    assert!(!cookie.accepts(&before));
    Outcome::from([1])
}

/// Largest payload here; small, so that it is met.
const BYTES_MAX: usize = 2_048;

/// Bytes of the head of a frame, at most.
const HEAD_BYTES_MAX: usize = 18;
