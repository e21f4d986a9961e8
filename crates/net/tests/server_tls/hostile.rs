//! Peers that break the protocol.

use std::sync::Arc;

use proptest::prelude::*;
use ropeway_net::scratch::RECORD_WIRE_BYTES_MAX;
use ropeway_net::tls::{Alpn, Received, ServerTls, TlsError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::rig::{Flipped, Rig, close, name, receive, send};

/// Sends `bytes` instead of a handshake, then closes.
async fn greet_with(rig: &Rig, bytes: &[u8]) -> (TcpStream, ServerTls, TlsError) {
    let (mut tcp, mut server) = rig.accept().await;
    tcp.write_all(bytes).await.unwrap();
    tcp.shutdown().await.unwrap();
    let error = server.handshake().await.unwrap_err();
    (tcp, server, error)
}

#[tokio::test]
async fn each_broken_greeting_has_its_own_name() {
    let rig = Rig::new();
    let oversized = [&[0x16, 3, 1, 0xff, 0xff][..], &[1; 100]].concat();
    let greetings: [(&[u8], &str); 6] = [
        (b"", "abandoned"),
        (b"GET / HTTP/1.1\r\n\r\n", "not_tls"),
        (&[0x16, 3, 1, 0, 5, 1, 2, 3], "abandoned"),
        (&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0], "handshake"),
        (&[0x16, 9, 9, 0, 5, 1, 2, 3, 4, 5], "handshake"),
        (&oversized, "record_too_large"),
    ];
    for (bytes, cause) in greetings {
        let (_tcp, mut server, error) = greet_with(&rig, bytes).await;

        assert_eq!(error.cause(), cause, "{bytes:?}: {error}");
        assert_eq!(server.buffered_bytes(), 0);
        assert!(receive(&mut server, &mut Vec::new()).await.is_err());
        assert!(send(&mut server, b"x").await.is_err());
        close(&mut server).await.unwrap();
    }
}

#[tokio::test]
async fn an_endless_client_hello_is_cut_off() {
    let rig = Rig::new();
    let (mut tcp, mut server) = rig.accept().await;
    // A client hello that claims 65,535 bytes, in records of 16 KiB.
    let mut hello = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    hello.resize(5 + 16_384, 0);
    for _ in 0..4 {
        tcp.write_all(&hello).await.unwrap();
        hello[5..9].fill(0);
    }

    let error = server.handshake().await.unwrap_err();

    assert!(matches!(error, TlsError::RecordTooLarge), "{error:?}");
    assert!(server.buffered_bytes() <= RECORD_WIRE_BYTES_MAX);
}

#[tokio::test]
async fn a_forged_record_ends_the_connection_with_an_alert() {
    let rig = Rig::new();
    let (client, mut server) = rig.connect(Alpn::Link).await;
    let mut tcp = client.into_inner().0;
    let forged = [&[0x17, 3, 3, 0, 40][..], &[0x55; 40]].concat();
    tcp.write_all(&forged).await.unwrap();

    let error = receive(&mut server, &mut Vec::new()).await.unwrap_err();

    assert!(matches!(error, TlsError::Record(_)), "{error:?}");
    drop(server);
    // Two sessions came first; the alert is the last record, whose type is hidden as application data.
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer[answer.len() - 24..][..5], [0x17, 3, 3, 0, 19]);
}

#[tokio::test]
async fn an_oversized_record_is_named() {
    let rig = Rig::new();
    let (client, mut server) = rig.connect(Alpn::Link).await;
    let mut tcp = client.into_inner().0;
    tcp.write_all(&[0x17, 3, 3, 0xff, 0xff, 0]).await.unwrap();

    let error = receive(&mut server, &mut Vec::new()).await.unwrap_err();

    assert!(matches!(error, TlsError::RecordTooLarge), "{error:?}");
}

#[tokio::test]
async fn a_reset_is_an_error_of_the_socket() {
    let rig = Rig::new();
    let (client, mut server) = rig.connect(Alpn::Link).await;
    let tcp = client.into_inner().0;
    socket2::SockRef::from(&tcp).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(tcp);

    let error = receive(&mut server, &mut Vec::new()).await.unwrap_err();

    assert!(matches!(error, TlsError::Io(_)), "{error:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_never_panics(
        header in prop_oneof![Just(vec![]), Just(vec![0x16, 3, 1]), Just(vec![0x16, 3, 1, 0, 60, 1, 0, 0, 56, 3, 3])],
        garbage in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bytes = [header, garbage].concat();
            let (_tcp, server, _error) = greet_with(&Rig::new(), &bytes).await;
            assert_eq!(server.buffered_bytes(), 0);
        });
    }

    #[test]
    fn a_flipped_byte_anywhere_in_a_session_never_panics(at in 0_usize..1200, flip in 1_u8..=255) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(session_with_flipped_byte(at, flip));
    }
}

/// Runs handshake and echo over a client stream with one byte changed; ends in an error or in an echo.
async fn session_with_flipped_byte(at: usize, flip: u8) {
    let rig = Rig::new();
    let (tcp, mut server) = rig.accept().await;
    let connector = TlsConnector::from(Arc::new(rig.client(&[b"ropeway/1"])));
    let client = async {
        let flipping = Flipped { tcp, at, flip, written: 0 };
        let mut client = connector.connect(name(), flipping).await?;
        client.write_all(&[7; 500]).await?;
        client.read_exact(&mut [0; 500]).await?;
        client.shutdown().await
    };
    let serve = async move {
        server.handshake().await?;
        loop {
            let mut bytes = Vec::new();
            let received = receive(&mut server, &mut bytes).await?;
            send(&mut server, &bytes).await?;
            if received == Received::CloseNotify {
                return Ok::<_, TlsError>(());
            }
        }
    };
    let _ended = tokio::join!(client, serve);
}
