//! Services behind the gateway, as well or badly behaved as a test wants them.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
};

/// Accepts connections and gives each to `serve`.
pub(crate) async fn upstream<F, Fut>(serve: F) -> SocketAddr
where
    F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("loopback accepts");
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Answers the first request of each connection with these bytes, then closes.
pub(crate) async fn answering(bytes: &'static [u8]) -> SocketAddr {
    upstream(move |mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
    })
    .await
}

/// A service that says when a request arrived, and answers 200 with `done` once it is released.
pub(crate) struct Gated {
    pub(crate) address: SocketAddr,
    /// One path for each request that arrived.
    pub(crate) arrived: mpsc::UnboundedReceiver<String>,
    /// One permit for each answer.
    pub(crate) release: Arc<Semaphore>,
    /// One path for each request whose connection the gateway closed before the answer.
    pub(crate) cancelled: mpsc::UnboundedReceiver<String>,
}

impl Gated {
    pub(crate) async fn new() -> Self {
        let (arriving, arrived) = mpsc::unbounded_channel();
        let (cancelling, cancelled) = mpsc::unbounded_channel();
        let release = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&release);
        let address = upstream(move |mut stream| {
            let (arriving, cancelling, gate) = (arriving.clone(), cancelling.clone(), Arc::clone(&gate));
            async move {
                while let Some(head) = read_head(&mut stream).await {
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    let _ = arriving.send(path.clone());
                    tokio::select! {
                        permit = gate.acquire() => permit.expect("never closed").forget(),
                        _ = stream.read_u8() => {
                            let _ = cancelling.send(path);
                            return;
                        }
                    }
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone";
                    let _ = stream.write_all(answer).await;
                }
            }
        })
        .await;
        Self { address, arrived, release, cancelled }
    }
}

/// Reads a request's head, and skips the body if it has a length; `None` at the end of the connection.
pub(crate) async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("text");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    stream.read_exact(&mut body).await.ok()?;
    Some(head)
}
