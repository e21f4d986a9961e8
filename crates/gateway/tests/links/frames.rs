//! Peers that were let in and break the protocol.

use bytes::Bytes;
use ropeway_core::wire::{
    Flags, Frame, Kind,
    message::{Ack, Credit, Reset, ResetCode, Topics},
};
use tokio::io::AsyncWriteExt;

use crate::{
    stranger::{Stranger, hello, signed},
    support::{World, key},
    upstream::{Gated, read_head, upstream},
};

const PING: Frame = Frame { kind: Kind::Ping, flags: Flags::NONE, channel: 0, payload: Bytes::new() };

fn body(channel: u64, length: usize) -> Frame {
    Frame { kind: Kind::Body, flags: Flags::NONE, channel, payload: vec![7; length].into() }
}

/// An admitted peer sends these bytes and is told that it broke the protocol.
async fn breaks(world: &World, reason: &'static str, bytes: &[u8]) {
    let attack = async {
        let mut stranger = Stranger::admitted(world, 1).await;
        stranger.send_bytes(bytes).await;
        stranger.broke(reason).await;
    };
    world.attack(reason, attack).await;
}

fn encoded(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    bytes
}

#[tokio::test]
async fn garbage_in_place_of_hello_is_named_and_ends_the_connection() {
    let world = World::new(|_| ()).await;
    for (garbage, reason) in [(&[0xec; 64][..], "unknown_kind"), (b"GET / HTTP/1.1\r\n\r\n", "unknown_kind")] {
        let attack = async {
            let mut stranger = Stranger::connect(&world).await;
            stranger.send_bytes(garbage).await;
            stranger.broke(reason).await;
        };
        world.attack(reason, attack).await;
    }
}

#[tokio::test]
async fn garbage_on_an_open_link_is_named_and_ends_the_connection() {
    let world = World::new(|_| ()).await;
    breaks(&world, "unknown_kind", &[0xec; 64]).await;
    breaks(&world, "bad_payload", &encoded(&[Frame { payload: vec![0xff; 9].into(), ..ack() }])).await;
    breaks(&world, "bad_fields", &encoded(&[Frame { payload: vec![0xff; 9].into(), ..request_head() }])).await;
}

fn ack() -> Frame {
    Frame::control(Kind::Ack, &Ack { push_sequence: 0, fields: Vec::new() })
}

fn request_head() -> Frame {
    Frame { kind: Kind::Request, flags: Flags::END, channel: 1, payload: Bytes::new() }
}

#[tokio::test]
async fn a_frame_that_is_cut_by_the_end_of_the_connection_is_counted_as_truncated() {
    let world = World::new(|_| ()).await;
    for admitted in [false, true] {
        let attack = async {
            let mut stranger =
                if admitted { Stranger::admitted(&world, 1).await } else { Stranger::connect(&world).await };
            let bytes = encoded(&[body(1, 100)]);
            stranger.send_bytes(&bytes[..50]).await;
            stranger.stream.shutdown().await.unwrap();
            stranger.broke("truncated_frame").await;
        };
        world.attack("truncated_frame", attack).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_without_goodbye_is_counted_and_leaves_nothing() {
    let world = World::new(|_| ()).await;
    world.attack("truncated", async { drop(Stranger::admitted(&world, 1).await.stream.into_inner().0) }).await;
}

#[tokio::test]
async fn a_frame_longer_than_agreed_is_refused_as_soon_as_its_length_is_there() {
    let world = World::new(|_| ()).await;
    let head = [Kind::Body as u8, 0, 1, 0x80, 0x01, 0x00, 0x01];
    breaks(&world, "oversized_frame", &head).await;
    let attack = async {
        let mut stranger = Stranger::connect(&world).await;
        stranger.send_bytes(&head).await;
        stranger.broke("oversized_frame").await;
    };
    world.attack("oversized_frame", attack).await;
}

#[tokio::test]
async fn an_unknown_kind_is_skipped_only_where_it_says_that_it_may_be() {
    let world = World::new(|_| ()).await;
    let mut stranger = Stranger::admitted(&world, 1).await;
    stranger.send_bytes(&[0x7f, Flags::IGNORABLE.0, 0, 3, 1, 2, 3]).await;
    stranger.send(&PING).await;
    stranger.frame_of(Kind::Pong).await;
    drop(stranger);
    world.empty().await;
    breaks(&world, "unknown_kind", &[0x7f, 0, 0, 3, 1, 2, 3]).await;
}

#[tokio::test]
async fn frames_out_of_phase_end_the_link() {
    let world = World::new(|_| ()).await;
    let again = signed(&hello(&world, 1), &key(1));
    breaks(&world, "unexpected_frame", &encoded(&[again])).await;
    for kind in [Kind::Proof, Kind::Welcome, Kind::Response, Kind::Push, Kind::Drain, Kind::Stream] {
        let frame = Frame { kind, flags: Flags::NONE, channel: 0, payload: Bytes::new() };
        breaks(&world, "unexpected_frame", &encoded(&[frame])).await;
    }
    breaks(&world, "unknown_channel", &encoded(&[body(7, 1)])).await;
    let grant = Frame { channel: 9, ..Frame::control(Kind::Credit, &Credit { bytes: 1 }) };
    breaks(&world, "unknown_channel", &encoded(&[grant])).await;
}

#[tokio::test]
async fn a_stream_is_turned_down_and_the_link_goes_on() {
    let world = World::new(|_| ()).await;
    let mut stranger = Stranger::admitted(&world, 1).await;
    let stream = Frame { kind: Kind::Stream, flags: Flags::NONE, channel: 1, payload: Bytes::from_static(b"tcp") };
    stranger.send_bytes(&encoded(&[stream.clone(), stream])).await;
    let reset: Reset = stranger.frame_of(Kind::Reset).await.as_ref().message().unwrap();
    assert_eq!(reset.code(), ResetCode::Unsupported);
    stranger.send(&PING).await;
    assert_eq!(stranger.frame().await.map(|frame| frame.kind), Some(Kind::Pong), "one answer for one channel");
}

#[tokio::test]
async fn a_bad_frame_right_behind_proof_leaves_no_session() {
    let world = World::new(|_| ()).await;
    let attack = async {
        let mut stranger = Stranger::connect(&world).await;
        let proof = crate::stranger::proof(&stranger.binding, &key(1));
        let hello = signed(&hello(&world, 1), &key(1));
        stranger.send_bytes(&encoded(&[hello, proof, body(7, 1)])).await;
        stranger.broke("unknown_channel").await;
    };
    world.attack("protocol", attack).await;
}

#[tokio::test]
async fn a_request_number_that_was_used_before_ends_the_link() {
    let world = World::new(|_| ()).await;
    let attack = async {
        let mut stranger = Stranger::admitted(&world, 1).await;
        for _ in 0..2 {
            stranger.request(1, "https://api.test/", Flags::NONE).await;
        }
        stranger.broke("duplicate_channel").await;
    };
    world.attack("duplicate_channel", attack).await;
}

#[tokio::test]
async fn a_body_beyond_the_credit_of_its_channel_ends_the_exchange_alone() {
    let stuck = upstream(|mut stream| async move {
        read_head(&mut stream).await;
        std::future::pending::<()>().await;
    });
    let world = World::before(stuck.await).await;
    let mut stranger = Stranger::admitted(&world, 1).await;
    stranger.request(1, "https://up.test/", Flags::NONE).await;
    // The service reads nothing: its connection and the gateway together hold less for it than this.
    let reset = async {
        for _ in 0..2_000 {
            stranger.send(&body(1, 16_000)).await;
            if let Some(Some(frame)) = futures_util::FutureExt::now_or_never(stranger.frame())
                && frame.kind == Kind::Reset
            {
                return frame;
            }
        }
        stranger.frame_of(Kind::Reset).await
    };
    let reset: Reset = reset.await.as_ref().message().unwrap();
    assert_eq!(reset.code(), ResetCode::CreditExceeded);
    assert_eq!(world.refused("channel_credit_exceeded"), 1);
    stranger.send(&PING).await;
    stranger.frame_of(Kind::Pong).await;
    stranger.request(2, "https://api.test/", Flags::END).await;
    stranger.frame_of(Kind::Response).await;
    drop(stranger);
    world.empty().await;
}

#[tokio::test]
async fn bodies_beyond_the_credit_of_the_link_end_the_link() {
    let gated = Gated::new().await;
    let world = World::before(gated.address).await;
    let attack = async {
        let mut stranger = Stranger::admitted(&world, 1).await;
        let mut bytes = Vec::new();
        for channel in 1..=30 {
            stranger.request_frame(channel, "https://up.test/", Flags::NONE).encode(&mut bytes);
            for _ in 0..4 {
                body(channel, 60_000).encode(&mut bytes);
            }
        }
        stranger.send_bytes(&bytes).await;
        stranger.broke("link_credit_exceeded").await;
    };
    world.attack("link_credit_exceeded", attack).await;
}

#[tokio::test]
async fn a_topic_that_no_message_can_be_sent_to_is_counted() {
    let world = World::new(|_| ()).await;
    let attack = async {
        let mut stranger = Stranger::admitted(&world, 1).await;
        let topics = Topics { topics: vec!["with a space".into()] };
        stranger.send(&Frame::control(Kind::Subscribe, &topics)).await;
        stranger.send(&PING).await;
        stranger.frame_of(Kind::Pong).await;
        stranger.stream.shutdown().await.unwrap();
    };
    world.attack("bad_topic", attack).await;
}
