//! Requests and answers over links, and what is left of them.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use ropeway_core::{
    CarrierKind,
    session::{Closed, Machine, MuxConfig},
    wire::message::ResetCode,
};

use crate::{
    rig::{ALL, pattern, within},
    world::World,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_and_trailers_cross_both_ways_whole() {
    for carrier in ALL {
        let world = World::new().await;
        let link = world.link(carrier).await;
        for size in [1, 16_384, 2_000_000] {
            assert!(world.echo(pattern(size, size)).await == pattern(size, size), "{carrier}: {size} bytes");
        }
        let channel = world.open("/echo", true);
        world.head(channel).await.unwrap();
        let whole = within(world.client.reader(channel).collect()).await.unwrap();
        assert_eq!(whole.trailers().unwrap()[http::header::ETAG], "whole");
        world.until_empty().await;
        assert!(!link.client.is_finished() && !link.server.is_finished());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_cut_is_never_whole() {
    for carrier in ALL {
        let world = World::new().await;
        let _link = world.link(carrier).await;
        let channel = world.open("/cut", true);
        let cut = match world.head(channel).await {
            Ok(_) => within(world.client.reader(channel).collect()).await.unwrap_err().why,
            Err(why) => why,
        };
        assert!(matches!(cut, Closed::Reset { code: ResetCode::UpstreamCut, .. }), "{carrier}: {cut:?}");
        world.until_empty().await;
    }
}

/// One exchange of each way to end, in turn.
async fn live_through(world: &World, way: usize) {
    match way % 7 {
        0 => {
            assert_eq!(world.echo(Bytes::from_static(b"whole")).await, "whole");
        }
        // Given up behind the END of the request, before it can have gone, and with its answer under way.
        1 => {
            let channel = world.open("/never", true);
            world.client.abandon(channel, ResetCode::Cancelled, "enough");
        }
        2 => {
            let channel = world.open("/much?300000", true);
            world.head(channel).await.unwrap();
            drop(world.client.reader(channel));
        }
        // The upload fails, the answer breaks off, the answer comes before the request is whole.
        3 => {
            let channel = world.open("/echo", false);
            let mut writer = world.client.writer(channel);
            writer.write(pattern(way, 3_000)).await.unwrap();
            drop(writer);
            let why = world.head(channel).await.unwrap_err();
            assert!(matches!(why, Closed::Reset { code: ResetCode::Cancelled, .. }), "{why:?}");
        }
        4 => {
            let channel = world.open("/cut", true);
            if world.head(channel).await.is_ok() {
                within(world.client.reader(channel).collect()).await.unwrap_err();
            }
        }
        5 => {
            let channel = world.open("/refuse", false);
            world.head(channel).await.unwrap();
            let reader = world.client.reader(channel);
            assert!(within(world.client.writer(channel).write(pattern(way, 1_000_000))).await.is_err());
            within(reader.collect()).await.unwrap();
        }
        // The answer is read, but not to its end, while the request is still being written.
        _ => {
            let channel = world.open("/much?300000", false);
            world.head(channel).await.unwrap();
            let mut reader = world.client.reader(channel);
            within(reader.frame()).await.unwrap().unwrap();
            let mut writer = world.client.writer(channel);
            let (blocked, ()) = tokio::join!(writer.write(pattern(way, 2_000_000)), async { drop(reader) });
            assert!(blocked.is_err(), "a writer is told that its exchange was given up");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_exchanges_end_nothing_is_left_of_them_and_no_credit_is_lost() {
    for carrier in ALL {
        let world = World::new().await;
        let link = world.link(carrier).await;
        // Ten thousand on one QUIC connection, where each has a stream.
        let exchanges = if carrier == CarrierKind::Quic { 10_000 } else { 1_000 };
        stream::iter(0..exchanges).for_each_concurrent(64, |way| live_through(&world, way)).await;
        world.until_empty().await;
        // All of the link's credit is there, and as many exchanges at once as there may be.
        let large = stream::iter(0..256).map(|at| world.echo(pattern(at, 20_000))).buffer_unordered(256);
        assert!(large.map(|body| body.len()).all(|length| async move { length == 20_000 }).await, "{carrier}");
        world.until_empty().await;
        assert!(!link.client.is_finished() && !link.server.is_finished(), "{carrier}");
        let held = world.client.peek(|client| client.mux().held_bytes());
        assert_eq!(held, 0, "{carrier}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_go_on_over_the_next_link_whatever_carries_it() {
    for (first, second) in [
        (CarrierKind::Quic, CarrierKind::Quic),
        (CarrierKind::Quic, CarrierKind::Tls),
        (CarrierKind::Tls, CarrierKind::Quic),
        (CarrierKind::Ws, CarrierKind::Ws),
    ] {
        let world = World::new().await;
        let link = world.link(first).await;
        let channel = world.open("/much?600000", true);
        world.head(channel).await.unwrap();
        let mut reader = world.client.reader(channel);
        let mut body = within(reader.frame()).await.unwrap().unwrap().into_data().unwrap().to_vec();
        // All that was granted has arrived: of what is lost on the way a gateway keeps 64 KiB alone.
        let granted = u64::from(MuxConfig::default().channel_credit) - body.len() as u64;
        world.until(|world| world.client.peek(|client| client.mux().held_bytes()) == granted).await;
        link.client.abort();
        world.until(|world| !world.server.peek(|server| server.is_attached())).await;
        world.client.begin_link();
        let _link = world.link(second).await;
        while let Some(frame) = within(reader.frame()).await {
            body.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        assert!(body == pattern(0, 600_000), "{first} then {second}: {} bytes", body.len());
        drop(reader);
        world.until_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_socket_in_the_middle_of_a_body_keeps_the_link() {
    let world = World::new().await;
    let link = world.link(CarrierKind::Quic).await;
    let channel = world.open("/much?5000000", true);
    world.head(channel).await.unwrap();
    let mut reader = world.client.reader(channel);
    let mut body = Vec::new();
    let mut rebound = 0;
    while let Some(frame) = within(reader.frame()).await {
        body.extend_from_slice(&frame.unwrap().into_data().unwrap());
        if body.len() / 1_000_000 > rebound {
            rebound += 1;
            world.rig.dialer.rebind().unwrap();
        }
    }
    assert!(body == pattern(0, 5_000_000));
    assert_eq!(rebound, 5);
    assert!(!link.client.is_finished() && !link.server.is_finished());
}
