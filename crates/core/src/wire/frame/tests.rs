use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn frames() -> impl Strategy<Value = Frame> {
    (select(Kind::ALL.as_slice()), 0u8..4, 0u64..1 << 20, vec(any::<u8>(), 0..300)).prop_map(
        |(kind, flags, channel, payload)| Frame { kind, flags: Flags(flags), channel, payload: payload.into() },
    )
}

fn feed(decoder: &mut Decoder, bytes: &[u8], into: &mut Vec<Frame>) -> Result<(), FrameError> {
    decoder.feed(bytes, &mut |frame| {
        into.push(frame.to_owned());
        Ok::<_, FrameError>(())
    })
}

#[test]
fn every_kind_has_one_number() {
    for number in 0..=u8::MAX {
        let kind = Kind::from_wire(number);
        assert_eq!(kind.is_some(), Kind::ALL.iter().any(|kind| *kind as u8 == number));
        assert!(kind.is_none_or(|kind| kind as u8 == number));
    }
}

#[test]
fn an_unknown_kind_closes_the_link_unless_it_is_ignorable() {
    let mut frames = Vec::new();
    let mut decoder = Decoder::new(PAYLOAD_BYTES_MAX);
    feed(&mut decoder, &[0x7f, 0x02, 0, 3, 1, 2, 3, 0x05, 0, 0, 0], &mut frames).unwrap();
    assert_eq!(frames.len(), 1, "the ignorable frame is skipped, the PING behind it arrives");
    assert_eq!(feed(&mut decoder, &[0x7f, 0x00], &mut frames), Err(FrameError::UnknownKind(0x7f)));
}

#[test]
fn an_oversized_frame_is_refused_before_its_payload_is_kept() {
    let mut decoder = Decoder::new(10);
    let mut frames = Vec::new();
    let error = feed(&mut decoder, &[0x12, 0, 1, 11], &mut frames);
    assert_eq!(error, Err(FrameError::Oversized { length: 11, max: 10 }));
    let mut decoder = Decoder::new(10);
    for byte in [0x12, 0, 1] {
        feed(&mut decoder, &[byte], &mut frames).unwrap();
    }
    assert_eq!(feed(&mut decoder, &[11], &mut frames), Err(FrameError::Oversized { length: 11, max: 10 }));
}

#[test]
fn a_stream_that_ends_inside_a_frame_is_truncated() {
    let mut decoder = Decoder::new(10);
    let mut frames = Vec::new();
    feed(&mut decoder, &[0x12, 0, 1, 3, 9], &mut frames).unwrap();
    assert_eq!(decoder.finish(), Err(FrameError::Truncated));
    feed(&mut decoder, &[9, 9], &mut frames).unwrap();
    assert_eq!(decoder.finish(), Ok(()));
    assert_eq!(decoder.kept_bytes(), 0);
}

proptest! {
    #[test]
    fn frames_survive_any_cut_of_the_stream(sent in vec(frames(), 0..8), cuts in vec(1usize..40, 1..200)) {
        let mut bytes = Vec::new();
        for frame in &sent {
            frame.encode(&mut bytes);
        }
        let mut decoder = Decoder::new(PAYLOAD_BYTES_MAX);
        let mut received = Vec::new();
        let mut cuts = cuts.iter().cycle();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            feed(&mut decoder, now, &mut received).unwrap();
            rest = later;
        }
        prop_assert_eq!(received, sent);
        prop_assert_eq!(decoder.kept_bytes(), 0);
    }

    #[test]
    fn any_bytes_are_frames_or_an_error_and_never_a_panic(bytes in vec(any::<u8>(), 0..400)) {
        let mut received = Vec::new();
        let mut decoder = Decoder::new(100);
        let _ = feed(&mut decoder, &bytes, &mut received);
        prop_assert!(decoder.kept_bytes() <= 100 + 18);
    }
}
