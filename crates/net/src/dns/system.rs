//! The name servers of the system.

use std::net::{IpAddr, SocketAddr};

use hickory_resolver::{
    TokioResolver,
    config::{NameServerConfig, ResolverConfig},
    net::runtime::TokioRuntimeProvider,
    proto::rr::RecordType,
};
use ropeway_core::wire::list::HostAddress;
use tokio::net::lookup_host;
use tracing::debug;

use super::{
    ADDRESSES_MAX, AddressKind, Answered, Binding, DnsError, binding_name,
    doh::{answered, binding, fqdn, record_type},
};

/// Asks the name servers that the system is configured with, each kind of address apart. Where those cannot be known, and for names
/// without a dot, which the system's own rules complete, the system is asked as a whole (`getaddrinfo`).
pub struct SystemResolver {
    servers: Option<TokioResolver>,
}

impl SystemResolver {
    /// Reads the system's configuration. It is made anew after a change of network. Needs a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        let servers = TokioResolver::builder_tokio().and_then(|mut builder| {
            // Answers are kept by whoever asks, under rules of its own.
            builder.options_mut().cache_size = 0;
            builder.build()
        });
        let servers =
            servers.inspect_err(|error| debug!(%error, "name servers are not known, the system is asked")).ok();
        Self { servers }
    }

    /// Asks these name servers instead of the system's, over UDP, and over TCP where an answer does not fit. Needs a tokio runtime.
    #[must_use]
    pub fn with_servers(servers: &[SocketAddr]) -> Self {
        let config = servers.iter().map(|server| {
            let mut config = NameServerConfig::udp_and_tcp(server.ip());
            config.connections.iter_mut().for_each(|connection| connection.port = server.port());
            config
        });
        let config = ResolverConfig::from_name_servers(config.collect());
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().cache_size = 0;
        Self { servers: builder.build().ok() }
    }

    /// Asks for the addresses of a host.
    ///
    /// # Errors
    ///
    /// A [`DnsError`] that tells a name which does not exist from servers that cannot be asked.
    pub async fn lookup(&self, host: &str, kind: AddressKind) -> Result<Answered, DnsError> {
        let Some(servers) = self.servers.as_ref().filter(|_| host.contains('.')) else {
            return whole(host, kind).await;
        };
        let query_type = record_type(kind);
        match servers.lookup(fqdn(host)?, query_type).await {
            Ok(found) => Ok(answered(found.answers(), query_type)),
            Err(error) if error.is_nx_domain() => Err(DnsError::NoName),
            Err(error) if error.is_no_records_found() => {
                Ok(Answered { addresses: Vec::new(), ttl: super::doh::TTL_MAX })
            }
            Err(error) => Err(DnsError::System(error.to_string())),
        }
    }

    /// Asks for the HTTPS record of a host, for URLs with this port; `None` as for [`Doh`](super::Doh::binding).
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup), and where the name servers are not known.
    pub async fn binding(&self, host: &str, port: u16) -> Result<Option<Binding>, DnsError> {
        let unknown = || DnsError::System("they are not known".into());
        let servers = self.servers.as_ref().ok_or_else(unknown)?;
        match servers.lookup(fqdn(&binding_name(host, port))?, RecordType::HTTPS).await {
            Ok(found) => Ok(binding(found.answers())),
            Err(error) if error.is_nx_domain() => Err(DnsError::NoName),
            Err(error) if error.is_no_records_found() => Ok(None),
            Err(error) => Err(DnsError::System(error.to_string())),
        }
    }
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self::new()
    }
}

/// Asks `getaddrinfo`, which says no time to keep the answer and asks for both kinds.
async fn whole(host: &str, kind: AddressKind) -> Result<Answered, DnsError> {
    let found = lookup_host((host, 0)).await.map_err(|error| DnsError::System(error.to_string()))?;
    let fits = |ip: &IpAddr| ip.is_ipv4() == (kind == AddressKind::V4);
    let addresses = found.map(|address: SocketAddr| address.ip()).filter(fits).take(ADDRESSES_MAX);
    Ok(Answered { addresses: addresses.map(HostAddress::from).collect(), ttl: TTL_UNKNOWN })
}

/// How long an answer without a time is kept. 60 s, a TTL that many names of moving services have.
const TTL_UNKNOWN: std::time::Duration = std::time::Duration::from_secs(60);
