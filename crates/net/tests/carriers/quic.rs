//! What only the `quic` carrier has: a stream for each exchange, and bounds for strangers.

use futures_util::FutureExt;
use noq::VarInt;
use ropeway_core::{
    CarrierKind,
    wire::{Flags, Frame, Kind},
};
use ropeway_net::carrier::{Carrier, CarrierError, QuicCarrier};

use crate::rig::{End, Rig, frame, pattern};

async fn admitted(rig: &Rig) -> (End<QuicCarrier>, End<QuicCarrier>) {
    let address = rig.address(CarrierKind::Quic);
    let (connection, mut server) = tokio::join!(rig.dial_noq(), rig.accept_quic());
    server.admit();
    (End::new(QuicCarrier::new(connection, address, true), []), End::new(server, []))
}

/// Answers every frame that ends or resets a half, until the client's output went and `streams` are left at both ends.
async fn converse(
    client: &mut End<QuicCarrier>,
    server: &mut End<QuicCarrier>,
    answer: impl Fn(&Frame) -> Option<Frame>,
) {
    let total = client.output.len() + client.input.len();
    let serving = async {
        let mut seen = 0;
        server
            .run(|end| {
                for request in end.input.drain(..) {
                    seen += 1;
                    end.output.extend(answer(&request));
                }
                seen >= total && end.output.is_empty() && end.carrier.streams() == 1
            })
            .await;
    };
    tokio::join!(client.run(|end| end.output.is_empty() && end.carrier.streams() == 1), serving);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_exchanges_leave_no_stream_behind() {
    let rig = Rig::new().await;
    let (mut client, mut server) = admitted(&rig).await;
    for batch in 0..50_u64 {
        for at in 0..200 {
            let channel = batch * 200 + at + 1;
            client.output.push_back(frame(Kind::Request, channel, pattern(at as usize, 60), true));
        }
        converse(&mut client, &mut server, |request| {
            // One answer in five is a RESET.
            let kind = if request.channel % 5 == 0 { Kind::Reset } else { Kind::Response };
            Some(frame(kind, request.channel, Vec::new(), true))
        })
        .await;
        assert_eq!(client.input.len(), 200);
        client.input.clear();
    }
}

#[tokio::test]
async fn an_exchange_that_the_client_gives_up_frees_its_stream_at_both_ends() {
    let rig = Rig::new().await;
    let (mut client, mut server) = admitted(&rig).await;
    let reset = |channel| frame(Kind::Reset, channel, Vec::new(), true);
    // Behind an END, and in the middle of a body.
    client.output.extend([frame(Kind::Request, 1, pattern(0, 20), true), reset(1)]);
    client.output.extend([
        frame(Kind::Request, 2, pattern(0, 20), false),
        frame(Kind::Body, 2, pattern(0, 5_000), false),
        reset(2),
    ]);
    converse(&mut client, &mut server, |_| None).await;
    assert!(client.ended.is_none() && server.ended.is_none());
}

#[tokio::test]
async fn every_byte_that_was_sent_before_a_reset_arrives_so_that_credit_is_not_lost() {
    let rig = Rig::new().await;
    let (mut client, mut server) = admitted(&rig).await;
    client.output.push_back(frame(Kind::Request, 1, pattern(0, 20), true));
    tokio::join!(client.run_until(0), server.run_until(1));
    server.output.push_back(frame(Kind::Response, 1, pattern(0, 20), false));
    server.output.extend((0..30).map(|at| frame(Kind::Body, 1, pattern(at, 16_000), false)));
    client.output.push_back(frame(Kind::Reset, 1, Vec::new(), true));
    tokio::join!(
        client.run(|end| end.input.len() == 31 && end.carrier.streams() == 1),
        server.run(|end| end.output.is_empty() && end.carrier.streams() == 1),
    );
    let bytes: usize = client.input[1..].iter().map(|frame| frame.payload.len()).sum();
    assert_eq!(bytes, 30 * 16_000);
}

#[tokio::test]
async fn an_exchange_without_a_stream_travels_on_the_control_stream() {
    let rig = Rig::new().await;
    let (mut client, mut server) = admitted(&rig).await;
    let answer = [frame(Kind::Response, 7, pattern(0, 9), false), frame(Kind::Body, 7, pattern(0, 99), true)];
    let rest = [frame(Kind::Body, 7, pattern(0, 999), true)];
    client.output.extend(rest.clone());
    server.output.extend(answer.clone());
    tokio::join!(client.run_until(2), server.run_until(1));
    assert_eq!(client.input, answer);
    assert_eq!(server.input, rest);
    assert_eq!((client.carrier.streams(), server.carrier.streams()), (1, 1));
}

#[tokio::test]
async fn a_stream_that_the_client_aborts_is_a_reset_of_its_exchange_alone() {
    let rig = Rig::new().await;
    let (connection, mut server) = tokio::join!(rig.dial_noq(), rig.accept_quic());
    server.admit();
    let mut server = End::new(server, []);
    let (mut control, _answers) = connection.open_bi().await.unwrap();
    control.write_all(&encoded(&frame(Kind::Ping, 0, vec![1], false))).await.unwrap();
    let mut streams = Vec::new();
    for channel in 1..=3 {
        let (mut send, receive) = connection.open_bi().await.unwrap();
        send.write_all(&encoded(&frame(Kind::Request, channel, pattern(0, 9), false))).await.unwrap();
        streams.push((send, receive));
    }
    server.run_until(4).await;
    streams[0].0.reset(VarInt::from_u32(1)).unwrap();
    streams[1].0.finish().unwrap();
    streams[2].1.stop(VarInt::from_u32(1)).unwrap();
    // More than the client's window, so that the gateway has something to write when it learns of it.
    server.output.extend((0..100).map(|at| frame(Kind::Body, 3, pattern(at, 16_000), false)));
    server.run(|end| end.input.len() == 7).await;
    let resets = server.input[4..].iter().filter(|frame| frame.kind == Kind::Reset && frame.flags.contains(Flags::END));
    let mut channels: Vec<u64> = resets.map(|frame| frame.channel).collect();
    channels.sort_unstable();
    assert_eq!(channels, [1, 2, 3]);
    assert_eq!(server.carrier.streams(), 1);
    assert!(server.ended.is_none());
}

#[tokio::test]
async fn a_stream_that_the_gateway_aborts_ends_the_link() {
    let rig = Rig::new().await;
    let address = rig.address(CarrierKind::Quic);
    let (connection, server) = tokio::join!(rig.dial_noq(), rig.accept_quic());
    let mut client = End::new(QuicCarrier::new(connection, address, true), [frame(Kind::Request, 1, vec![1], true)]);
    let aborting = async {
        let (_control, _) = server.connection().accept_bi().await.unwrap();
        let (mut send, _receive) = server.connection().accept_bi().await.unwrap();
        send.reset(VarInt::from_u32(1)).unwrap();
        std::future::pending::<()>().await;
    };
    client.output.push_front(frame(Kind::Ping, 0, vec![1], false));
    tokio::select! {
        () = client.run(|_| false) => {}
        () = aborting => {}
    }
    assert!(matches!(client.ended, Some(Err(CarrierError::Quic { .. }))), "{:?}", client.ended);
}

#[tokio::test]
async fn requests_that_wait_for_a_stream_hold_up_nothing_else() {
    let rig = Rig::new().await;
    let address = rig.address(CarrierKind::Quic);
    let (connection, server) = tokio::join!(rig.dial_noq(), rig.accept_quic());
    // The gateway has not admitted the link: 15 requests have streams, the others wait.
    let requests = (1..=30).map(|channel| frame(Kind::Request, channel, vec![1], true));
    let mut client = End::new(QuicCarrier::new(connection, address, true), requests);
    let mut server = End::new(server, []);
    client.output.push_back(frame(Kind::Ping, 0, vec![1], false));
    tokio::select! {
        () = server.run_until(1) => {}
        () = client.run(|_| false) => {}
    }
    assert_eq!(server.input, [frame(Kind::Ping, 0, vec![1], false)]);
    server.carrier.admit();
    tokio::join!(client.run_until(0), server.run_until(31));
}

#[tokio::test]
async fn a_stranger_opens_sixteen_streams_and_has_64_kib_held_until_it_is_admitted() {
    let rig = Rig::new().await;
    let (connection, server) = tokio::join!(rig.dial_noq(), rig.accept_quic());
    let mut server = End::new(server, []);
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(connection.open_bi().await.unwrap());
    }
    assert!(connection.open_bi().now_or_never().is_none(), "the seventeenth waits");
    streams[0].0.write_all(&encoded(&frame(Kind::Ping, 0, vec![1], false))).await.unwrap();
    server.run_until(1).await;
    let mut held = 0;
    for (index, (send, _)) in streams.iter_mut().enumerate().skip(1) {
        let request = encoded(&frame(Kind::Request, index as u64, pattern(index, 60_000), false));
        let mut rest = &request[..];
        while !rest.is_empty()
            && let Some(written) = send.write(rest).now_or_never()
        {
            let written = written.unwrap();
            held += written;
            rest = &rest[written..];
        }
    }
    assert!((60_000..=64 * 1024).contains(&held), "{held} bytes");
    assert_eq!(server.input.len(), 1, "exchanges of a stranger are not read");
    server.carrier.admit();
    server.run_until(2).await;
    let opened = connection.open_bi();
    tokio::select! {
        opened = opened => drop(opened.unwrap()),
        () = server.run(|_| false) => unreachable!("{:?}", server.ended),
    }
}

#[tokio::test]
async fn a_request_on_the_control_stream_or_a_stream_that_begins_with_anything_else_ends_the_link() {
    let rig = Rig::new().await;
    for wrong in [(0, frame(Kind::Request, 1, vec![1], true)), (1, frame(Kind::Body, 1, vec![1], true))] {
        let (connection, mut server) = tokio::join!(rig.dial_noq(), rig.accept_quic());
        server.admit();
        let mut server = End::new(server, []);
        let mut streams = [connection.open_bi().await.unwrap(), connection.open_bi().await.unwrap()];
        streams[0].0.write_all(&encoded(&frame(Kind::Ping, 0, vec![1], false))).await.unwrap();
        streams[wrong.0].0.write_all(&encoded(&wrong.1)).await.unwrap();
        server.run(|_| false).await;
        let Some(Err(CarrierError::Link(error))) = &server.ended else { panic!("{:?}", server.ended) };
        assert_eq!(error.name(), "unexpected_frame");
    }
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}
