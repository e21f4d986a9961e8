//! A network between client and gateway that can swallow what is said on its connections.

use std::net::SocketAddr;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};

/// Passes TCP connections on. Dropping it ends it.
pub(crate) struct Relay {
    address: SocketAddr,
    /// Counts the times at which the connections of then fell silent.
    frozen: watch::Sender<u32>,
    task: AbortHandle,
}

impl Relay {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let frozen = watch::Sender::new(0);
        let events = frozen.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, to, events.subscribe()));
            }
        });
        Self { address, frozen, task: task.abort_handle() }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets nothing pass any more on the connections there are, and closes none. New ones pass.
    pub(crate) fn freeze(&self) {
        self.frozen.send_modify(|times| *times += 1);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut client: TcpStream, to: SocketAddr, mut frozen: watch::Receiver<u32>) {
    let Ok(mut server) = TcpStream::connect(to).await else { return };
    tokio::select! {
        _ended = copy_bidirectional(&mut client, &mut server) => {}
        _frozen = frozen.changed() => std::future::pending().await,
    }
}
