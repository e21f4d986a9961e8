//! A slow reader: what its body may hold, and what it may not hold up.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::BodyExt;
use ropeway_core::session::{Machine, MuxConfig};

use crate::{
    rig::{ALL, pattern, within},
    world::{MUCH_PIECE, World},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_of_50_mb_makes_no_end_hold_more_than_the_credit_and_holds_up_no_small_request() {
    let MuxConfig { channel_credit, link_credit, kept_bytes_max, .. } = MuxConfig::default();
    let (channel_credit, bound) = (u64::from(channel_credit), u64::from(link_credit) + kept_bytes_max);
    for carrier in ALL {
        let world = World::new().await;
        let link = world.link(carrier).await;
        let channel = world.open(&format!("/much?{BYTES}"), true);
        world.head(channel).await.unwrap();
        let mut reader = world.client.reader(channel);
        // Nobody reads: the body comes to a stop, and small requests do not.
        world.until(|world| world.taken.load(Ordering::Relaxed) + MUCH_PIECE as u64 > channel_credit).await;
        for at in 0..50 {
            assert_eq!(world.echo(Bytes::from_static(b"small")).await, "small", "{carrier}: request {at}");
        }
        let mut read = 0;
        let mut most = 0;
        while let Some(frame) = within(reader.frame()).await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data == pattern(read % 251, data.len()), "{carrier}: the body changed at {read}");
            read += data.len();
            // Whatever is anywhere between the service and the reader, the buffers of carriers and sockets included.
            let between = world.taken.load(Ordering::Relaxed) - (read as u64).min(world.taken.load(Ordering::Relaxed));
            let held = [
                world.server.peek(|server| server.mux().held_bytes()),
                world.client.peek(|client| client.mux().held_bytes()),
                between,
            ];
            most = held.into_iter().fold(most, u64::max);
            if read % 1_000_003 < data.len() {
                assert_eq!(world.echo(Bytes::from_static(b"small")).await, "small", "{carrier}: at {read}");
            }
        }
        assert_eq!(read, BYTES, "{carrier}");
        assert!(most <= bound, "{carrier}: {most} bytes were held");
        drop(reader);
        world.until_empty().await;
        assert!(!link.client.is_finished() && !link.server.is_finished(), "{carrier}");
    }
}

const BYTES: usize = 50_000_000;
