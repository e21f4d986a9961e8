//! A gateway on several ports.

use ropeway::{pipe::Pipe, way::Shape};
use ropeway_core::{CarrierKind, connect::Candidate};
use ropeway_net::dial::{Dialer, Trust};

use crate::support::{World, get, head};

#[tokio::test]
async fn every_tcp_port_tells_tls_from_plain_http_and_every_udp_port_takes_links() {
    let any = || "127.0.0.1:0".parse().unwrap();
    let world = World::new(|config| {
        config.gateway.tcp_listen_more = vec![any(), any()];
        config.gateway.udp_listen_more = vec![any()];
    })
    .await;
    let addresses = world.gateway.addresses();
    assert_eq!((addresses.all_tcp().count(), addresses.all_udp().count()), (3, 2));
    for address in addresses.all_tcp() {
        let mut target = world.pipe();
        target.address = address;
        Pipe::default().send(get("https://api.test/"), &target, Shape::Http11, 0).await.unwrap();
        let probe = "GET /.ropeway/healthz HTTP/1.1\r\nhost: gw.test\r\nconnection: close\r\n\r\n";
        assert!(head(&world.say_tls_at(address, probe).await).starts_with("http/1.1 200"));
    }
    let dialer = Dialer::new(&Trust::Roots(vec![world.certificate.clone()])).unwrap();
    for address in addresses.all_udp() {
        dialer.dial(Candidate { address, carrier: CarrierKind::Quic }, "gw.test").await.unwrap();
    }
    world.gateway.drain().await;
}
