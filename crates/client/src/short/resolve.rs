//! Where the addresses of a host come from.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::timeout;

use crate::sources::Sources;

/// Finds the addresses of a host at a port; the last says whether it is of use to know where HTTP/3 is.
pub(crate) type Resolver = Arc<dyn Fn(&str, u16, bool) -> Resolving + Send + Sync>;

/// A lookup under way.
pub(crate) type Resolving = Pin<Box<dyn Future<Output = io::Result<Resolved>> + Send>>;

/// What is known of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Its addresses, best first.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether the access list says that it speaks HTTP/3, on the ports of its addresses.
    pub(crate) h3_hint: bool,
    /// The UDP port on which it speaks HTTP/3 as its HTTPS record has it (RFC 9460).
    pub(crate) h3_port: Option<u16>,
}

/// Asks the sources of addresses, where the client has some, and else the operating system.
pub(crate) fn resolver(sources: Arc<OnceLock<Option<Sources>>>) -> Resolver {
    let system = system();
    Arc::new(move |host, port, wants_h3| {
        let Some(sources) = sources.get().cloned().flatten() else { return system(host, port, wants_h3) };
        let host = host.to_owned();
        Box::pin(async move {
            let h3_port = || wants_h3.then(|| sources.h3_port(&host, port)).flatten();
            // Asked for beside the addresses; what has come when they are there counts already.
            h3_port();
            let resolved = sources.resolve(&host, port).await.map_err(io::Error::other)?;
            let addresses = resolved.into_iter().map(|(address, _)| address).collect();
            Ok(Resolved { addresses, h3_hint: sources.speaks_h3(&host), h3_port: h3_port() })
        })
    })
}

/// Asks the operating system.
pub(super) fn system() -> Resolver {
    Arc::new(|host, port, _| {
        let host = host.to_owned();
        Box::pin(async move {
            match timeout(LOOKUP_WITHIN, tokio::net::lookup_host((host, port))).await {
                Ok(addresses) => Ok(Resolved { addresses: addresses?.collect(), ..Resolved::default() }),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        })
    })
}

/// How long the name of a host may take. 5 s; the timeout of one query of resolv.conf(5).
const LOOKUP_WITHIN: Duration = Duration::from_secs(5);
