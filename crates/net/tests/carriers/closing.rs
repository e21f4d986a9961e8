//! How a connection ends, and what still arrives.

use ropeway_core::{
    CarrierKind,
    session::LinkError,
    wire::{FrameError, Kind},
};
use ropeway_net::carrier::CarrierError;

use crate::rig::{ALL, End, Rig, frame, pattern};

#[tokio::test]
async fn a_goodbye_from_either_end_is_a_clean_end() {
    let rig = Rig::new().await;
    for carrier in ALL {
        for client_closes in [true, false] {
            let (client, server) = rig.connect(carrier).await;
            let (mut client, mut server) = (End::new(client, [ping()]), End::new(server, [ping()]));
            tokio::join!(client.run_until(1), server.run_until(1));
            let (mut leaving, mut staying) = if client_closes { (client, server) } else { (server, client) };
            let closing = tokio::spawn(async move { leaving.close().await });
            staying.run(|_| false).await;
            assert!(matches!(staying.ended, Some(Ok(()))), "{carrier}: {:?}", staying.ended);
            staying.close().await;
            closing.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_handshake_under_way_shows_that_something_came_back_once() {
    let rig = Rig::new().await;
    for carrier in ALL {
        let (answers, _server) = tokio::join!(rig.dial_watched(carrier), rig.accept(carrier));
        assert_eq!(answers, 1, "{carrier}");
    }
}

#[tokio::test]
async fn what_was_queued_before_a_goodbye_arrives_before_it() {
    let rig = Rig::new().await;
    for carrier in ALL {
        let (client, mut server) = rig.connect(carrier).await;
        server.admit();
        let mut client = End::new(client, [frame(Kind::Request, 1, pattern(0, 9), true)]);
        let mut server = End::new(server, []);
        let leaving = tokio::spawn(async move {
            server.run_until(1).await;
            server.output.push_back(frame(Kind::Response, 1, pattern(1, 10), false));
            for at in 0..40 {
                server.output.push_back(frame(Kind::Body, 1, pattern(at, 16_000), at == 39));
            }
            server.output.push_back(frame(Kind::Refuse, 0, pattern(2, 50), false));
            server.run(|end| end.output.is_empty()).await;
            server.close().await;
        });
        client.run(|_| false).await;
        assert!(matches!(client.ended, Some(Ok(()))), "{carrier}: {:?}", client.ended);
        assert_eq!(client.input.len(), 42, "{carrier}");
        client.close().await;
        leaving.await.unwrap();
    }
}

#[tokio::test]
async fn a_goodbye_in_the_middle_of_a_frame_is_truncation() {
    let rig = Rig::new().await;
    let mut bytes = Vec::new();
    frame(Kind::Ping, 0, pattern(0, 100), false).encode(&mut bytes);
    for carrier in ALL {
        for cut in [1, 3, 50] {
            let (mut raw, server) = rig.connect_raw(carrier).await;
            let mut server = End::new(server, []);
            let closing = tokio::spawn({
                let bytes = bytes[..cut].to_vec();
                async move {
                    raw.write(&bytes).await;
                    raw.close().await;
                    raw
                }
            });
            server.run(|_| false).await;
            let Some(Err(CarrierError::Link(error))) = &server.ended else { panic!("{carrier}: {:?}", server.ended) };
            assert_eq!(*error, LinkError::Frame(FrameError::Truncated), "{carrier}");
            assert!(server.input.is_empty());
            drop(server);
            drop(closing.await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_without_a_goodbye_is_an_error_on_tcp() {
    let rig = Rig::new().await;
    for carrier in [CarrierKind::Tls, CarrierKind::Ws] {
        let (client, server) = rig.connect(carrier).await;
        drop(client);
        let mut server = End::new(server, []);
        server.run(|_| false).await;
        assert!(matches!(server.ended, Some(Err(_))), "{carrier}: {:?}", server.ended);
    }
}

fn ping() -> ropeway_core::wire::Frame {
    frame(Kind::Ping, 0, vec![1], false)
}
