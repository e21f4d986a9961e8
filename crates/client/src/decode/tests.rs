use std::io::Write as _;

use bytes::Bytes;
use flate2::{
    Compression, GzBuilder,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use http::{HeaderMap, HeaderValue, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use zstd_safe::zstd_sys::ZSTD_EndDirective;

use super::*;
use crate::{BoxError, Error};

const CODINGS: [&str; 5] = ["br", "deflate", "gzip", "raw", "zstd"];

fn text(length: usize) -> Vec<u8> {
    (0..)
        .flat_map(|line: u32| format!("{line}: {}\n", line.wrapping_mul(2_654_435_761)).into_bytes())
        .take(length)
        .collect()
}

/// Packs in a coding; `raw` is `deflate` without the frame it should have.
fn pack(coding: &str, data: &[u8]) -> Vec<u8> {
    match coding {
        "br" => {
            let mut packed = Vec::new();
            let params = ::brotli::enc::BrotliEncoderParams { quality: 5, ..Default::default() };
            ::brotli::BrotliCompress(&mut &data[..], &mut packed, &params).unwrap();
            packed
        }
        "deflate" => finish(ZlibEncoder::new(Vec::new(), Compression::default()), data, ZlibEncoder::finish),
        "gzip" => finish(GzEncoder::new(Vec::new(), Compression::default()), data, GzEncoder::finish),
        "raw" => finish(DeflateEncoder::new(Vec::new(), Compression::default()), data, DeflateEncoder::finish),
        "zstd" => zstd(data, 20),
        other => panic!("{other}"),
    }
}

fn finish<W: std::io::Write>(mut encoder: W, data: &[u8], end: impl FnOnce(W) -> std::io::Result<Vec<u8>>) -> Vec<u8> {
    encoder.write_all(data).unwrap();
    end(encoder).unwrap()
}

/// One frame with a check sum and a window of so many bits.
fn zstd(data: &[u8], window_log: u32) -> Vec<u8> {
    zstd_until(data, window_log, ZSTD_EndDirective::ZSTD_e_end)
}

/// As much of a frame as there is when all of the data was written, in two pieces so that their length is not known in advance.
fn zstd_until(data: &[u8], window_log: u32, last: ZSTD_EndDirective) -> Vec<u8> {
    let mut context = zstd_safe::CCtx::create();
    context.set_parameter(zstd_safe::CParameter::ChecksumFlag(true)).unwrap();
    context.set_parameter(zstd_safe::CParameter::WindowLog(window_log)).unwrap();
    let mut packed = vec![0; zstd_safe::compress_bound(data.len()) + 100];
    let mut to = zstd_safe::OutBuffer::around(&mut packed[..]);
    let (first, second) = data.split_at(data.len() / 2);
    for (piece, directive) in [(first, ZSTD_EndDirective::ZSTD_e_continue), (second, last)] {
        let mut from = zstd_safe::InBuffer::around(piece);
        context.compress_stream2(&mut to, &mut from, directive).unwrap();
        assert_eq!(from.pos(), piece.len());
    }
    let length = to.pos();
    packed.truncate(length);
    packed
}

fn name(coding: &str) -> &str {
    if coding == "raw" { "deflate" } else { coding }
}

fn response(coding: &str, pieces: Vec<Bytes>, trailers: Option<HeaderMap>) -> Response<Body> {
    let frames = pieces.into_iter().map(Frame::data).chain(trailers.map(Frame::trailers)).map(Ok::<_, BoxError>);
    let body = Body::wrap(StreamBody::new(futures_util::stream::iter(frames)));
    Response::builder()
        .header(header::CONTENT_ENCODING, name(coding))
        .header(header::CONTENT_LENGTH, 7)
        .body(body)
        .unwrap()
}

fn unpacked(coding: &str, packed: &[u8], piece: usize) -> Response<Body> {
    let pieces = packed.chunks(piece.max(1)).map(Bytes::copy_from_slice).collect();
    answer(&Method::GET, response(coding, pieces, None), DecodeConfig::default())
}

/// Reads to the end or to the error, and returns both.
async fn read(mut response: Response<Body>) -> (Vec<u8>, Option<Error>) {
    let mut whole = Vec::new();
    while let Some(frame) = response.body_mut().frame().await {
        match frame {
            Ok(frame) => whole.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(error) => {
                assert!(response.body_mut().frame().await.is_none(), "an error is the end");
                return (whole, Some(error));
            }
        }
    }
    (whole, None)
}

#[tokio::test]
async fn every_coding_is_unpacked_however_it_is_cut_into_pieces() {
    for coding in CODINGS {
        for length in [0, 1, 100, 16 * 1024, 200_000] {
            let plain = text(length);
            let packed = pack(coding, &plain);
            for piece in [1, 7, 4096, usize::MAX] {
                let response = unpacked(coding, &packed, piece.min(packed.len()));
                assert!(response.headers().is_empty(), "{:?}", response.headers());
                let (read, error) = read(response).await;
                assert!(error.is_none() && read == plain, "{coding}, {length} bytes in {piece}: {error:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_there_is_handed_on_before_the_rest_has_come() {
    let plain = text(50_000);
    for coding in ["gzip", "zstd"] {
        let packed = match coding {
            "gzip" => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(&plain).unwrap();
                encoder.flush().unwrap();
                encoder.get_ref().clone()
            }
            _ => zstd_until(&plain, 20, ZSTD_EndDirective::ZSTD_e_flush),
        };
        let stalled = futures_util::stream::once(async { Ok::<_, BoxError>(Bytes::from(packed)) });
        let body = Body::stream(futures_util::StreamExt::chain(stalled, futures_util::stream::pending()));
        let response = Response::builder().header(header::CONTENT_ENCODING, coding).body(body).unwrap();
        let mut response = answer(&Method::GET, response, DecodeConfig::default());
        let first = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(!first.is_empty() && plain.starts_with(&first), "{coding}");
    }
}

#[tokio::test]
async fn a_body_cut_at_any_place_ends_in_an_error() {
    let plain = text(2_000);
    for coding in CODINGS {
        let packed = pack(coding, &plain);
        for length in 0..packed.len() {
            let (read, error) = read(unpacked(coding, &packed[..length], 1 + length / 3)).await;
            assert!(matches!(error, Some(Error::BodyCut { .. })), "{coding} cut at {length}: {error:?}");
            assert!(plain.starts_with(&read));
        }
    }
}

#[tokio::test]
async fn a_byte_behind_the_end_is_an_error() {
    for coding in CODINGS {
        let mut packed = pack(coding, &text(2_000));
        packed.push(b'x');
        for piece in [1, packed.len()] {
            let (_, error) = read(unpacked(coding, &packed, piece)).await;
            assert!(matches!(error, Some(Error::BodyCorrupt { .. } | Error::BodyCut { .. })), "{coding}: {error:?}");
        }
    }
}

#[tokio::test]
async fn what_is_no_such_coding_or_fails_its_check_sum_is_an_error() {
    for coding in ["br", "gzip", "zstd"] {
        let (_, error) = read(unpacked(coding, b"<html>not packed at all</html>", 100)).await;
        assert!(matches!(error, Some(Error::BodyCorrupt { .. })), "{coding}: {error:?}");
    }
    for (coding, from_end) in [("gzip", 8), ("gzip", 1), ("deflate", 1), ("zstd", 1)] {
        let mut packed = pack(coding, &text(500));
        let place = packed.len() - from_end;
        packed[place] ^= 1;
        let (_, error) = read(unpacked(coding, &packed, 100)).await;
        assert!(matches!(error, Some(Error::BodyCorrupt { .. })), "{coding}: {error:?}");
    }
}

#[tokio::test]
async fn members_and_frames_one_after_the_other_are_one_body() {
    for coding in ["gzip", "zstd"] {
        let packed = [pack(coding, b"one, "), pack(coding, b""), pack(coding, b"two")].concat();
        for piece in [1, packed.len()] {
            assert_eq!(read(unpacked(coding, &packed, piece)).await.0, b"one, two", "{coding}");
        }
    }
    let skippable = [0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let packed = [&skippable[..], &pack("zstd", b"behind it")].concat();
    assert_eq!(read(unpacked("zstd", &packed, 4)).await.0, b"behind it");
}

#[tokio::test]
async fn every_field_of_a_gzip_head_is_read_over() {
    let builder = GzBuilder::new().extra(vec![7; 300]).filename("a name").comment("a comment").mtime(1);
    let mut encoder = builder.write(Vec::new(), Compression::default());
    encoder.write_all(b"data").unwrap();
    let mut packed = encoder.finish().unwrap();
    for piece in [1, 50, 1_000] {
        assert_eq!(read(unpacked("gzip", &packed, piece)).await.0, b"data");
    }
    // The same with a check sum of the head, right and wrong.
    packed[3] |= 2;
    let end = packed.len() - 8 - 6;
    let mut crc = flate2::Crc::new();
    crc.update(&packed[..end]);
    let sum = (crc.sum() as u16).to_le_bytes();
    packed.splice(end..end, sum);
    assert_eq!(read(unpacked("gzip", &packed, 9)).await.0, b"data");
    packed[end] ^= 1;
    assert!(matches!(read(unpacked("gzip", &packed, 9)).await.1, Some(Error::BodyCorrupt { .. })));
    let endless = [&[0x1F, 0x8B, 8, 8, 0, 0, 0, 0, 0, 0][..], &[b'a'; 200_000]].concat();
    assert!(matches!(read(unpacked("gzip", &endless, 1_000)).await.1, Some(Error::BodyCorrupt { .. })));
}

#[tokio::test]
async fn a_bomb_is_stopped_after_a_hundred_times_what_was_sent() {
    for coding in ["br", "gzip", "zstd"] {
        let packed = bomb(coding, 1 << 30);
        let (read, error) = read(unpacked(coding, &packed, 1_000)).await;
        let Some(Error::BodyInflated { packed_bytes, unpacked_bytes }) = error else { panic!("{coding}: {error:?}") };
        assert!(packed_bytes <= packed.len() as u64);
        assert!(
            read.len() as u64 <= unpacked_bytes && unpacked_bytes <= 1_100_000 + packed_bytes * 100,
            "{coding}: {unpacked_bytes}"
        );
    }
}

/// So many zeros, made without holding them.
fn bomb(coding: &str, zeros: usize) -> Vec<u8> {
    struct Zeros(usize);
    impl std::io::Read for Zeros {
        fn read(&mut self, target: &mut [u8]) -> std::io::Result<usize> {
            let length = target.len().min(self.0);
            target[..length].fill(0);
            self.0 -= length;
            Ok(length)
        }
    }
    let mut packed = Vec::new();
    match coding {
        "br" => {
            let params = ::brotli::enc::BrotliEncoderParams { quality: 1, ..Default::default() };
            ::brotli::BrotliCompress(&mut Zeros(zeros), &mut packed, &params).unwrap();
        }
        "gzip" => {
            let mut encoder = GzEncoder::new(&mut packed, Compression::fast());
            std::io::copy(&mut Zeros(zeros), &mut encoder).unwrap();
            encoder.finish().unwrap();
        }
        _ => {
            // Blocks of one byte repeated 128 KiB times (RFC 8878 section 3.1.1.2).
            packed.extend([0x28, 0xB5, 0x2F, 0xFD, 0, 13 << 3]);
            for block in (0..zeros / (128 * 1024)).rev() {
                let header = (128 * 1024_u32) << 3 | 1 << 1 | u32::from(block == 0);
                packed.extend(&header.to_le_bytes()[..3]);
                packed.push(0);
            }
        }
    }
    packed
}

#[tokio::test]
async fn bombs_within_bombs_are_measured_by_what_was_sent() {
    let packed = pack("gzip", &bomb("gzip", 64 << 20));
    let response = response("gzip, gzip", vec![packed.into()], None);
    let (read, error) = read(answer(&Method::GET, response, DecodeConfig::default())).await;
    assert!(matches!(error, Some(Error::BodyInflated { .. })), "{error:?}");
    assert!(read.len() < 2 << 20);
}

#[tokio::test]
async fn the_bounds_are_the_apps() {
    let plain = vec![b'a'; 3 << 20];
    for (config, stopped) in [
        (DecodeConfig::default(), true),
        (DecodeConfig { ratio_max: u32::MAX, ..DecodeConfig::default() }, false),
        (DecodeConfig { ratio_max: u32::MAX, bytes_max: 2 << 20 }, true),
    ] {
        let response = response("zstd", vec![pack("zstd", &plain).into()], None);
        let (read, error) = read(answer(&Method::GET, response, config)).await;
        assert_eq!((error.is_some(), read.len() == plain.len()), (stopped, !stopped), "{error:?}");
    }
}

#[tokio::test]
async fn a_window_beyond_8_mib_is_refused() {
    let plain = text(1_000);
    assert_eq!(read(unpacked("zstd", &zstd(&plain, 23), 1_000)).await.0, plain);
    let (_, error) = read(unpacked("zstd", &zstd(&plain, 24), 1_000)).await;
    assert!(matches!(error, Some(Error::BodyCorrupt { .. })), "{error:?}");
}

#[tokio::test]
async fn codings_on_top_of_each_other_are_undone_in_turn() {
    let plain = text(100_000);
    let packed = pack("br", &pack("gzip", &plain));
    let response = response("gzip, br", vec![packed.into()], None);
    assert_eq!(read(answer(&Method::GET, response, DecodeConfig::default())).await.0, plain);
}

#[tokio::test]
async fn trailers_come_behind_the_whole_body_and_not_behind_a_part() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("42"));
    let packed = pack("gzip", &text(100_000));
    let whole = response("gzip", vec![packed.clone().into()], Some(trailers.clone()));
    let collected = answer(&Method::GET, whole, DecodeConfig::default()).into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-checksum"], "42");
    assert_eq!(collected.to_bytes().len(), 100_000);
    let part = response("gzip", vec![Bytes::copy_from_slice(&packed[..100])], Some(trailers));
    let error = answer(&Method::GET, part, DecodeConfig::default()).into_body().collect().await.unwrap_err();
    assert!(matches!(error, Error::BodyCut { .. }), "{error:?}");
}

#[tokio::test]
async fn answers_without_a_body_of_their_own_keep_their_headers() {
    let config = DecodeConfig::default();
    for (method, status) in [(Method::HEAD, 200), (Method::GET, 204), (Method::GET, 206), (Method::GET, 304)] {
        let mut bodiless = response("gzip", Vec::new(), None);
        *bodiless.status_mut() = StatusCode::from_u16(status).unwrap();
        let kept = answer(&method, bodiless, config);
        assert_eq!(kept.headers().len(), 2);
        assert!(kept.into_body().collect().await.is_ok());
    }
    let nothing = Response::builder().header(header::CONTENT_ENCODING, "gzip").body(Body::empty()).unwrap();
    assert!(answer(&Method::POST, nothing, config).into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[test]
fn codings_are_asked_for_unless_the_app_speaks_of_them_or_wants_a_part() {
    let mut headers = HeaderMap::new();
    assert!(ask(&mut headers));
    assert!(headers.contains_key(header::ACCEPT_ENCODING));
    for (name, value) in [(header::ACCEPT_ENCODING, "identity"), (header::RANGE, "bytes=0-1")] {
        let mut headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        assert!(!ask(&mut headers));
        assert_eq!(headers.len(), 1);
    }
}
