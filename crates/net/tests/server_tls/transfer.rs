//! Application data through the record path.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use proptest::prelude::*;
use ropeway_net::scratch::{CIPHER_BYTES, Scratch, with_scratch};
use ropeway_net::tls::{Alpn, Received, TlsError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use crate::rig::{Chopped, Rig, attentive_runtime, close, name, pattern, receive, receive_exact, send};

#[tokio::test]
async fn bytes_of_any_count_come_back_as_they_were_sent() {
    let rig = Rig::new();
    for count in [1, 100, 16_384, 16_385, 65_536, 65_537, 5_000_000] {
        let (client, mut server) = rig.connect(Alpn::Link).await;
        let (mut reader, mut writer) = tokio::io::split(client);
        let sent = pattern(count);

        let client = async {
            let mut back = vec![0; count];
            let write = async {
                writer.write_all(&sent).await.unwrap();
                writer.flush().await.unwrap();
            };
            tokio::join!(write, async { reader.read_exact(&mut back).await.unwrap() });
            back
        };
        let echo = async {
            let mut echoed = 0;
            while echoed < count {
                let mut bytes = Vec::new();
                assert_eq!(receive(&mut server, &mut bytes).await.unwrap(), Received::Data);
                send(&mut server, &bytes).await.unwrap();
                echoed += bytes.len();
            }
        };

        assert!(tokio::join!(client, echo).0 == sent, "{count} bytes differ");
        assert_eq!(server.buffered_bytes(), 0);
    }
}

#[test]
fn a_client_that_sends_one_byte_at_a_time_is_understood() {
    attentive_runtime().block_on(async {
        let rig = Rig::new();

        let server = chopped_exchange(&rig, vec![1], 16_384, &pattern(3000)).await;

        assert_eq!(server, 3000);
    });
}

#[test]
fn handshake_messages_split_over_many_records_are_understood() {
    attentive_runtime().block_on(async {
        let rig = Rig::new();

        let server = chopped_exchange(&rig, vec![7], 32, &pattern(3000)).await;

        assert_eq!(server, 3000);
    });
}

/// Sends `bytes` from a client that chops its stream into `sizes` and its records into `record_bytes_max`; the server
/// echoes. Returns how many bytes came back right.
async fn chopped_exchange(rig: &Rig, sizes: Vec<usize>, record_bytes_max: usize, bytes: &[u8]) -> usize {
    let (tcp, mut server) = rig.accept().await;
    let mut config = rig.client(&[b"ropeway/1"]);
    config.max_fragment_size = Some(record_bytes_max);
    let connector = TlsConnector::from(Arc::new(config));

    let client = async {
        let stream = connector.connect(name(), Chopped::new(tcp, sizes)).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut back = vec![0; bytes.len()];
        let write = async {
            writer.write_all(bytes).await.unwrap();
            writer.flush().await.unwrap();
        };
        tokio::join!(write, async { reader.read_exact(&mut back).await.unwrap() });
        writer.shutdown().await.unwrap();
        back
    };
    let echo = async {
        server.handshake().await.unwrap();
        loop {
            let mut received = Vec::new();
            let end = receive(&mut server, &mut received).await.unwrap();
            send(&mut server, &received).await.unwrap();
            if end == Received::CloseNotify {
                break;
            }
        }
    };
    let (back, ()) = tokio::join!(client, echo);
    assert_eq!(server.buffered_bytes(), 0);
    back.iter().zip(bytes).filter(|(back, sent)| back == sent).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_chopping_of_the_stream_gives_the_same_bytes(
        sizes in prop::collection::vec(prop_oneof![1_usize..10, 1_usize..2000, 1_usize..40_000], 1..20),
        record_bytes_max in prop_oneof![32_usize..100, 32_usize..16_384],
        count in 1_usize..60_000,
    ) {
        let back = attentive_runtime().block_on(async {
            chopped_exchange(&Rig::new(), sizes, record_bytes_max, &pattern(count)).await
        });
        prop_assert_eq!(back, count);
    }
}

#[tokio::test]
async fn an_idle_connection_holds_no_buffer() {
    let rig = Rig::new();
    let (mut client, mut server) = rig.connect(Alpn::Link).await;

    for count in [1, 64, 50_000] {
        client.write_all(&pattern(count)).await.unwrap();
        let bytes = receive_exact(&mut server, count).await;
        send(&mut server, &bytes).await.unwrap();
        client.read_exact(&mut vec![0; count]).await.unwrap();
        assert_eq!(server.buffered_bytes(), 0);
    }

    let waiting = poll_fn(|cx| {
        let polled = with_scratch(|scratch| server.poll_recv(cx, scratch, &mut |_| panic!("nothing was sent")));
        Poll::Ready(polled.is_pending())
    });
    assert!(waiting.await);
    assert_eq!(server.buffered_bytes(), 0);
}

#[tokio::test]
async fn new_keys_of_the_client_are_followed() {
    let rig = Rig::new();
    let (mut client, mut server) = rig.connect(Alpn::Link).await;

    for round in 0..5_u8 {
        client.get_mut().1.refresh_traffic_keys().unwrap();
        client.write_all(&[round; 100]).await.unwrap();
        let bytes = receive_exact(&mut server, 100).await;
        send(&mut server, &bytes).await.unwrap();
        let mut back = [0; 100];
        client.read_exact(&mut back).await.unwrap();
        assert_eq!(back, [round; 100]);
    }
}

#[tokio::test]
async fn new_keys_without_end_and_without_data_are_refused() {
    let rig = Rig::new();
    let (mut client, mut server) = rig.connect(Alpn::Link).await;

    for _ in 0..40 {
        client.get_mut().1.refresh_traffic_keys().unwrap();
    }
    client.write_all(b"too late").await.unwrap();

    let error = receive(&mut server, &mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, TlsError::Record(_)), "{error:?}");
}

#[tokio::test]
async fn a_scratch_without_room_for_records_grows() {
    let rig = Rig::new();
    let (mut client, mut server) = rig.connect(Alpn::Link).await;
    let mut scratch = Scratch { cipher: Vec::new(), ..Scratch::new() };

    let sent = poll_fn(|cx| server.poll_send(cx, &mut scratch, &pattern(65_536))).await.unwrap();
    let (read, flushed) = tokio::join!(
        async {
            let mut back = vec![0; sent];
            client.read_exact(&mut back).await.unwrap();
            back
        },
        poll_fn(|cx| server.poll_flush(cx)),
    );

    flushed.unwrap();
    assert!(read == pattern(65_536), "bytes differ");
}

#[tokio::test]
async fn a_peer_that_does_not_read_stops_the_sender_and_its_memory() {
    let rig = Rig::new();
    let (mut client, mut server) = rig.connect(Alpn::Link).await;
    let chunk = pattern(251 * 400);

    let mut taken = 0;
    loop {
        let polled = poll_fn(|cx| {
            Poll::Ready(with_scratch(|scratch| server.poll_send(cx, scratch, &chunk[taken % chunk.len()..])))
        });
        match polled.await {
            Poll::Ready(sent) => taken += sent.unwrap(),
            Poll::Pending => break,
        }
        assert!(server.buffered_bytes() <= CIPHER_BYTES);
        assert!(taken < 100_000_000, "nothing ever stopped the sender");
    }
    assert!(server.buffered_bytes() > 0);

    let mut back = vec![0; taken];
    let flush = poll_fn(|cx| server.poll_flush(cx));
    let (read, flushed) = tokio::join!(client.read_exact(&mut back), flush);
    read.unwrap();
    flushed.unwrap();
    assert!(back == pattern(taken), "bytes differ");
    assert_eq!(server.buffered_bytes(), 0);
}

#[tokio::test]
async fn what_the_socket_did_not_take_goes_out_while_receiving() {
    let rig = Rig::new();
    let (client, mut server) = rig.connect(Alpn::Link).await;
    let (mut reader, mut writer) = tokio::io::split(client);
    let chunk = pattern(65_536);
    let mut taken = 0;
    while server.buffered_bytes() == 0 {
        let polled = poll_fn(|cx| Poll::Ready(with_scratch(|scratch| server.poll_send(cx, scratch, &chunk))));
        let Poll::Ready(sent) = polled.await else { panic!("nothing is kept yet") };
        taken += sent.unwrap();
    }

    let mut all = vec![0; taken];
    let client = async {
        reader.read_exact(&mut all).await.unwrap();
        writer.write_all(b"thanks").await.unwrap();
        writer.flush().await.unwrap();
    };
    let (thanks, ()) = tokio::join!(receive_exact(&mut server, 6), client);

    assert_eq!(thanks, b"thanks");
    assert_eq!(server.buffered_bytes(), 0);
}

#[tokio::test]
async fn a_farewell_is_told_from_a_cut() {
    let rig = Rig::new();
    let (mut polite, mut server) = rig.connect(Alpn::Link).await;
    polite.write_all(b"bye").await.unwrap();
    polite.shutdown().await.unwrap();
    let mut bytes = Vec::new();
    while receive(&mut server, &mut bytes).await.unwrap() != Received::CloseNotify {}
    assert_eq!(bytes, b"bye");
    assert_eq!(receive(&mut server, &mut bytes).await.unwrap(), Received::CloseNotify);
    send(&mut server, b"and to you").await.unwrap();
    close(&mut server).await.unwrap();
    let mut back = Vec::new();
    polite.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, b"and to you");

    let (mut rude, mut server) = rig.connect(Alpn::Link).await;
    rude.write_all(b"by").await.unwrap();
    let mut tcp = rude.into_inner().0;
    tcp.shutdown().await.unwrap();
    let mut bytes = Vec::new();
    assert_eq!(receive(&mut server, &mut bytes).await.unwrap(), Received::Data);
    assert_eq!(bytes, b"by");
    let end = receive(&mut server, &mut bytes).await;
    assert!(matches!(end, Err(TlsError::Truncated)), "{end:?}");
    assert!(matches!(send(&mut server, b"x").await, Err(TlsError::Closed)));
}

#[tokio::test]
async fn a_cut_inside_a_record_is_truncated_and_frees_its_front() {
    let rig = Rig::new();
    let (client, mut server) = rig.connect(Alpn::Link).await;
    let mut tcp = client.into_inner().0;
    tcp.write_all(&[0x17, 3, 3, 0x40, 0, 1, 2, 3]).await.unwrap();
    tcp.shutdown().await.unwrap();

    let end = receive(&mut server, &mut Vec::new()).await;

    assert!(matches!(end, Err(TlsError::Truncated)), "{end:?}");
    assert_eq!(server.buffered_bytes(), 0);
}

#[tokio::test]
async fn closing_twice_or_sending_afterwards_is_harmless() {
    let rig = Rig::new();
    let (mut client, mut server) = rig.connect(Alpn::Link).await;

    close(&mut server).await.unwrap();
    close(&mut server).await.unwrap();

    assert!(matches!(send(&mut server, b"x").await, Err(TlsError::Closed)));
    assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
    client.write_all(b"still").await.unwrap();
    assert_eq!(receive_exact(&mut server, 5).await, b"still");
}
