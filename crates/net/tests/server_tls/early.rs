//! Early data and half-RTT answers.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use ropeway_net::scratch::with_scratch;
use ropeway_net::tls::{Alpn, Greeting, Received, ServerTls, TlsError};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::rig::{Chopped, Rig, attentive_runtime, name, receive, receive_exact, send};

/// Makes settings whose session store holds sessions of this rig.
async fn warmed_up(rig: &Rig) -> Arc<ClientConfig> {
    let config = rig.client(&[Alpn::Link.as_bytes()]);
    let (mut client, mut server) = rig.connect_as(config.clone()).await;
    send(&mut server, b"x").await.unwrap();
    client.read_u8().await.unwrap();
    Arc::new(config)
}

/// Starts a client that sends `early` as early data, without waiting for any answer.
async fn start_early<IO>(config: &Arc<ClientConfig>, io: IO, early: &[u8]) -> TlsStream<IO>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let connector = TlsConnector::from(config.clone()).early_data(true);
    let mut client = connector.connect(name(), io).await.unwrap();
    client.write_all(early).await.unwrap();
    // Flushing sends the first flight and then waits for the server, so one poll is enough.
    let flushing = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut client).poll_flush(cx).is_pending()));
    assert!(flushing.await);
    client
}

/// Receives once and tells early data from other data.
async fn receive_flagged(server: &mut ServerTls, early: &mut Vec<u8>, late: &mut Vec<u8>) -> Received {
    std::future::poll_fn(|cx| {
        with_scratch(|scratch| {
            server.poll_recv(cx, scratch, &mut |plaintext| {
                let bytes = if plaintext.early { &mut *early } else { &mut *late };
                bytes.extend_from_slice(plaintext.bytes);
            })
        })
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn early_data_is_flagged_answered_at_once_and_then_confirmed() {
    let rig = Rig::new();
    let config = warmed_up(&rig).await;
    let (tcp, mut server) = rig.accept().await;
    let mut client = start_early(&config, tcp, b"early hello").await;

    let greeting = server.handshake().await.unwrap();
    let expected = Greeting { alpn: Some(Alpn::Link), server_name: Some("gateway.test".into()), early: true };
    assert_eq!(greeting, expected);
    let (mut early, mut late) = (Vec::new(), Vec::new());
    assert_eq!(receive_flagged(&mut server, &mut early, &mut late).await, Received::Data);
    assert_eq!(early, b"early hello");

    // The client has not read anything yet, so its Finished cannot be here: this is half-RTT data.
    assert!(server.is_handshaking());
    send(&mut server, b"half-rtt answer").await.unwrap();
    assert!(server.is_handshaking());
    client.flush().await.unwrap();
    let mut answer = [0; 15];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"half-rtt answer");
    assert!(client.get_ref().1.is_early_data_accepted());

    client.write_all(b"late").await.unwrap();
    client.flush().await.unwrap();
    while late.len() < 4 {
        receive_flagged(&mut server, &mut early, &mut late).await;
    }
    assert!(!server.is_handshaking());
    assert_eq!((&early[..], &late[..]), (&b"early hello"[..], &b"late"[..]));
    assert_eq!(server.buffered_bytes(), 0);
    let mut ours = [0; 32];
    server.export_keying_material(&mut ours, b"label", None).unwrap();
    assert_eq!(ours, client.get_ref().1.export_keying_material([0; 32], b"label", None).unwrap());
}

#[tokio::test]
async fn the_end_of_the_handshake_alone_is_reported() {
    let rig = Rig::new();
    let config = warmed_up(&rig).await;
    let (tcp, mut server) = rig.accept().await;
    let mut client = start_early(&config, tcp, b"early hello").await;
    server.handshake().await.unwrap();
    assert_eq!(receive(&mut server, &mut Vec::new()).await.unwrap(), Received::Data);

    let (flushed, received) = tokio::join!(client.flush(), async {
        let mut late = Vec::new();
        let received = receive(&mut server, &mut late).await.unwrap();
        assert!(late.is_empty());
        received
    });

    flushed.unwrap();
    assert_eq!(received, Received::Confirmed);
}

#[tokio::test]
async fn confirming_first_keeps_early_data_until_it_cannot_be_a_replay() {
    let rig = Rig::new();
    let config = warmed_up(&rig).await;
    let (tcp, mut server) = rig.accept().await;
    let mut client = start_early(&config, tcp, b"early hello").await;
    assert!(server.handshake().await.unwrap().early);

    let (flushed, confirmed) = tokio::join!(client.flush(), server.confirm());
    flushed.unwrap();
    confirmed.unwrap();

    assert!(!server.is_handshaking());
    let (mut early, mut late) = (Vec::new(), Vec::new());
    assert_eq!(receive_flagged(&mut server, &mut early, &mut late).await, Received::Data);
    assert_eq!(early, b"early hello");
    assert_eq!(server.buffered_bytes(), 0);
}

#[tokio::test]
async fn a_replayed_first_flight_is_not_accepted_again() {
    let rig = Rig::new();
    let config = warmed_up(&rig).await;
    let (tcp, mut server) = rig.accept().await;
    let tap = Tap { tcp, written: Arc::default() };
    let written = tap.written.clone();
    let _client = start_early(&config, tap, b"pay 5 coins").await;
    assert!(server.handshake().await.unwrap().early);

    let flight = written.lock().unwrap().clone();
    let (mut replayer, mut victim) = rig.accept().await;
    replayer.write_all(&flight).await.unwrap();
    replayer.shutdown().await.unwrap();

    let greeting = victim.handshake().await;
    assert!(matches!(greeting, Err(TlsError::Abandoned)), "{greeting:?}");
    assert!(receive(&mut victim, &mut Vec::new()).await.is_err());
    assert!(rig.sessions.counts().missed >= 1);
}

#[tokio::test]
async fn early_data_that_a_restarted_server_cannot_accept_is_skipped() {
    let rig = Rig::new();
    let config = warmed_up(&rig).await;
    let restarted = rig.restarted();
    let (tcp, mut server) = restarted.accept().await;
    let mut client = start_early(&config, tcp, b"early hello").await;

    let client = async {
        client.flush().await.unwrap();
        client
    };
    let (greeting, client) = tokio::join!(server.handshake(), client);

    assert!(!greeting.unwrap().early);
    assert!(!client.get_ref().1.is_early_data_accepted());
    // tokio-rustls sends refused early data again by itself.
    assert_eq!(receive_exact(&mut server, 11).await, b"early hello");
}

#[tokio::test]
async fn early_data_ends_at_the_limit_and_the_rest_follows_after_the_handshake() {
    let rig = Rig::new();
    let config = warmed_up(&rig).await;
    let (tcp, mut server) = rig.accept().await;
    let connector = TlsConnector::from(config).early_data(true);
    let mut client = connector.connect(name(), tcp).await.unwrap();
    // rustls's client itself stops at the limit the server gave; the rest follows after the handshake.
    let sent = vec![7; 40_000];
    let write = async {
        client.write_all(&sent).await.unwrap();
        client.flush().await.unwrap();
    };
    let receive = async {
        assert!(server.handshake().await.unwrap().early);
        let (mut early, mut late) = (Vec::new(), Vec::new());
        while early.len() + late.len() < sent.len() {
            receive_flagged(&mut server, &mut early, &mut late).await;
        }
        (early, late)
    };

    let ((), (early, late)) = tokio::join!(write, receive);

    assert_eq!(early.len(), 16_384);
    assert_eq!(late.len(), 40_000 - 16_384);
}

#[test]
fn half_rtt_answers_pass_while_the_finished_trickles_in() {
    attentive_runtime().block_on(async {
        let rig = Rig::new();
        let mut config = ClientConfig::clone(&*warmed_up(&rig).await);
        // The client's Finished does not fit one record of 27 bytes, so its first half has to be kept.
        config.max_fragment_size = Some(32);
        let config = Arc::new(config);
        for size in 1..40 {
            let (tcp, mut server) = rig.accept().await;
            let client = async {
                let mut client = start_early(&config, Chopped::new(tcp, vec![size]), b"early hello").await;
                client.flush().await.unwrap();
                let mut answers = [0; 200];
                client.read_exact(&mut answers).await.unwrap();
                client.write_all(b"done").await.unwrap();
                client.flush().await.unwrap();
                // Sessions for the next round have come by now.
                (client, answers)
            };
            let serve = async {
                server.handshake().await.unwrap();
                let mut received = Vec::new();
                let mut answered = 0;
                while !received.ends_with(b"done") {
                    if answered < 200 {
                        send(&mut server, &[b'a'; 10]).await.unwrap();
                        answered += 10;
                    } else {
                        receive(&mut server, &mut received).await.unwrap();
                    }
                    step_receive(&mut server, &mut received).await;
                }
                received
            };
            let ((_client, answers), received) = tokio::join!(client, serve);
            assert_eq!(answers, [b'a'; 200]);
            assert_eq!(received, b"early hellodone");
        }
    });
}

/// Receives what is there, if anything is, after giving the client a turn.
async fn step_receive(server: &mut ServerTls, received: &mut Vec<u8>) {
    tokio::task::yield_now().await;
    std::future::poll_fn(|cx| {
        let polled = with_scratch(|scratch| {
            server.poll_recv(cx, scratch, &mut |plaintext| received.extend_from_slice(plaintext.bytes))
        });
        if let Poll::Ready(result) = polled {
            result.unwrap();
        }
        Poll::Ready(())
    })
    .await;
}

/// A socket that remembers what was written to it.
struct Tap {
    tcp: TcpStream,
    written: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Tap {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tap {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.tcp).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = polled {
            self.written.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
