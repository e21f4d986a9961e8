//! What a handshake agrees on, and what it refuses.

use std::sync::Arc;

use ropeway_net::tls::{Alpn, FirstByte, Greeting, TlsError, sniff};
use rustls::{AlertDescription, ClientConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use crate::rig::{Rig, certificate, client_trusting, name, provider, receive_exact, send, sockets};

/// Runs a handshake that both ends may refuse.
async fn shake(rig: &Rig, config: ClientConfig) -> (std::io::Result<()>, Result<Greeting, TlsError>) {
    let (tcp, mut server) = rig.accept().await;
    let connector = TlsConnector::from(Arc::new(config));
    let (client, greeting) = tokio::join!(connector.connect(name(), tcp), server.handshake());
    (client.map(drop), greeting)
}

/// Digs the alert out of a client's error.
fn alert(error: &std::io::Error) -> AlertDescription {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => *alert,
        other => panic!("no alert in {other:?}"),
    }
}

#[tokio::test]
async fn each_protocol_is_agreed_on_and_so_is_none() {
    let rig = Rig::new();
    let offers: [(&[&[u8]], Option<Alpn>); 5] = [
        (&[b"ropeway/1"], Some(Alpn::Link)),
        (&[b"h2"], Some(Alpn::H2)),
        (&[b"http/1.1"], Some(Alpn::Http11)),
        (&[b"http/1.1", b"h2"], Some(Alpn::H2)),
        (&[], None),
    ];
    for (offered, agreed) in offers {
        let (client, greeting) = shake(&rig, rig.client(offered)).await;

        client.unwrap();
        let expected = Greeting { alpn: agreed, server_name: Some("gateway.test".into()), early: false };
        assert_eq!(greeting.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_client_without_server_name_is_greeted_without() {
    let rig = Rig::new();
    let mut config = rig.client(&[b"h2"]);
    config.enable_sni = false;

    let (_, greeting) = shake(&rig, config).await;

    assert_eq!(greeting.unwrap().server_name, None);
}

#[tokio::test]
async fn a_client_with_foreign_protocols_only_gets_the_alert() {
    let rig = Rig::new();

    let (client, greeting) = shake(&rig, rig.client(&[b"spdy/3", b"ropeway/9"])).await;

    assert!(matches!(greeting, Err(TlsError::NoCommonProtocol)), "{greeting:?}");
    assert_eq!(alert(&client.unwrap_err()), AlertDescription::NoApplicationProtocol);
}

#[tokio::test]
async fn a_client_of_tls_1_2_gets_the_alert() {
    let rig = Rig::new();
    let (client, greeting) = shake(&rig, rig.client_of_tls_1_2()).await;

    assert!(matches!(greeting, Err(TlsError::Handshake(_))), "{greeting:?}");
    assert_eq!(alert(&client.unwrap_err()), AlertDescription::ProtocolVersion);
}

#[tokio::test]
async fn a_client_that_distrusts_the_certificate_is_named_by_its_alert() {
    let rig = Rig::new();

    let (client, greeting) = shake(&rig, Rig::new().client(&[b"h2"])).await;

    assert!(client.is_err());
    assert!(matches!(greeting, Err(TlsError::AlertReceived(_))), "{greeting:?}");
}

#[tokio::test]
async fn a_second_connection_resumes_the_session() {
    let rig = Rig::new();
    let config = rig.client(&[b"ropeway/1"]);
    let (mut client, mut first) = rig.connect_as(config.clone()).await;
    send(&mut first, b"x").await.unwrap();
    client.read_u8().await.unwrap();

    let (_client, second) = rig.connect_as(config).await;

    assert!(!first.is_resumed());
    assert!(second.is_resumed());
    assert_eq!(rig.sessions.counts().stored, 4);
    assert_eq!(rig.sessions.counts().taken, 1);
}

#[tokio::test]
async fn a_replaced_certificate_serves_the_next_handshake() {
    let rig = Rig::new();
    let (chain, key) = certificate();
    let replacement = chain[0].clone();
    let (mut old_client, mut old_server) = rig.connect(Alpn::H2).await;

    rig.certificates.replace(chain, key).unwrap();

    let (client, greeting) = shake(&rig, client_trusting(replacement)).await;
    client.unwrap();
    greeting.unwrap();
    old_client.write_all(b"still here").await.unwrap();
    assert_eq!(receive_exact(&mut old_server, 10).await, b"still here");
}

#[tokio::test]
async fn a_key_that_does_not_fit_is_refused_and_the_old_one_stays() {
    let rig = Rig::new();
    let ((chain, _), (_, other_key)) = (certificate(), certificate());

    assert!(rig.certificates.replace(chain, other_key).is_err());
    assert!(rig.certificates.replace(Vec::new(), certificate().1).is_err());

    rig.connect(Alpn::H2).await;
}

#[tokio::test]
async fn both_ends_export_the_same_keying_material() {
    let rig = Rig::new();
    let suites = provider().cipher_suites.into_iter().filter(|suite| suite.tls13().is_some());
    for suite in suites {
        let (client, mut server) = rig.connect_as(rig.client_with_suite(suite)).await;
        for context in [None, Some(&b""[..]), Some(&b"nonce"[..])] {
            let mut ours = [0; 32];
            server.export_keying_material(&mut ours, b"EXPORTER-ropeway-proof", context).unwrap();
            let theirs =
                client.get_ref().1.export_keying_material([0; 32], b"EXPORTER-ropeway-proof", context).unwrap();
            assert_eq!(ours, theirs, "{suite:?} {context:?}");
        }
        server.forget_exporter();
        assert!(server.export_keying_material(&mut [0; 32], b"label", None).is_err());
    }
}

#[tokio::test]
async fn nothing_is_exported_or_sent_before_the_handshake() {
    let rig = Rig::new();
    let (_client, mut server) = rig.accept().await;

    assert!(matches!(server.export_keying_material(&mut [0; 32], b"label", None), Err(TlsError::TooEarly)));
    assert!(matches!(send(&mut server, b"hello").await, Err(TlsError::TooEarly)));
}

#[tokio::test]
async fn the_first_byte_tells_tls_from_http_and_stays_unread() {
    for (sent, expected) in [
        (&b"\x16\x03\x01"[..], FirstByte::Tls),
        (&b"GET / HTTP/1.1\r\n"[..], FirstByte::Other(b'G')),
        (&b""[..], FirstByte::Closed),
    ] {
        let (mut client, mut server) = sockets().await;
        client.write_all(sent).await.unwrap();
        client.shutdown().await.unwrap();

        assert_eq!(sniff(&server).await.unwrap(), expected);

        let mut unread = Vec::new();
        server.read_to_end(&mut unread).await.unwrap();
        assert_eq!(unread, sent);
    }
}
