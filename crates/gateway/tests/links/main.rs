//! Links against a real gateway, over real sockets on loopback.

mod admin;
mod drain;
mod frames;
mod h3;
mod handshake;
mod keyed;
mod lists;
mod odd;
mod push;
mod requests;
mod resume;
mod slow;
mod stranger;
mod support;
mod upstream;

use http::{Method, StatusCode};
use ropeway_core::CarrierKind;
use support::World;

#[tokio::test]
async fn a_request_crosses_over_every_carrier() {
    for carrier in CarrierKind::ALL {
        let world = World::new(|_| ()).await;
        let device = world.device(1);
        let link = device.connect(world.dial(carrier).await);
        let (resumed, hosts) = device.welcome().await;
        assert_eq!((resumed, hosts), (false, vec!["api.test".to_owned()]));
        for length in [0, 1, 64, 20_000, 3_000_000] {
            let body = vec![7; length];
            let (status, _, echoed) = device.send(Method::POST, "https://api.test/echo", &body).await;
            assert_eq!(status, StatusCode::OK);
            assert!(echoed == body, "{length} bytes over {carrier}");
        }
        assert!(device.is_open());
        device.hang_up(link).await;
        world.empty().await;
    }
}
