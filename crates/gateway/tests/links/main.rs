//! Links against a real gateway, over real sockets on loopback.

mod support;

use http::{Method, StatusCode};
use ropeway_core::{CarrierKind, session::ClientEvent};
use support::World;

#[tokio::test]
async fn a_request_crosses_over_tls_and_quic() {
    for carrier in [CarrierKind::Tls, CarrierKind::Quic] {
        let world = World::new(|_| ()).await;
        let device = world.device(1);
        let _link = device.connect(world.dial(carrier).await);
        let ClientEvent::Welcome { hosts, .. } = device.event().await else { panic!("no welcome over {carrier}") };
        assert_eq!(hosts, ["api.test"]);
        for length in [0, 1, 64, 20_000, 3_000_000] {
            let body = vec![7; length];
            let (status, _, echoed) = device.send(Method::POST, "https://api.test/echo", &body).await;
            assert_eq!(status, StatusCode::OK);
            assert!(echoed == body, "{length} bytes over {carrier}");
        }
        assert!(device.is_open());
    }
}
