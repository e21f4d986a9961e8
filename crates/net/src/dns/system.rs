//! The name servers of the system.

use std::{
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use hickory_resolver::{
    Hosts, TokioResolver,
    config::{NameServerConfig, ResolveHosts, ResolverConfig},
    net::runtime::TokioRuntimeProvider,
    proto::{
        op::Query,
        rr::{Name, RecordType},
    },
};
use ropeway_core::wire::list::HostAddress;
use tokio::{net::lookup_host, time::sleep};
use tracing::debug;

use super::{
    ADDRESSES_MAX, AddressKind, Answered, Binding, DnsError, binding_name,
    doh::{answered, binding, fqdn, record_type},
};

/// Asks the name servers that the system is configured with, each kind of address apart.
///
/// The system is asked as a whole (`getaddrinfo`) where those cannot be known, fail, or know no such name, and beside them where they are
/// silent: it knows the neighbourhood's names (mDNS), and which servers are whose. So it is at once for the names of its hosts file, and
/// those which its own rules complete.
pub struct SystemResolver {
    servers: Option<TokioResolver>,
    /// The hosts file, as it was when this was made; nothing where the name servers are not the system's.
    hosts: Option<Hosts>,
    is_outdated: AtomicBool,
}

impl SystemResolver {
    /// Reads the system's configuration. It is made anew after a change of network. Needs a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self {
            servers: known_servers(),
            hosts: Some(Hosts::from_system().unwrap_or_default()),
            is_outdated: false.into(),
        }
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
        Self { servers: builder.build().ok(), hosts: None, is_outdated: false.into() }
    }

    /// Asks for the addresses of a host.
    ///
    /// # Errors
    ///
    /// A [`DnsError`] that tells a name which does not exist from servers that cannot be asked.
    pub async fn lookup(&self, host: &str, kind: AddressKind) -> Result<Answered, DnsError> {
        let Some(servers) = self.servers.as_ref().filter(|_| !self.is_own(host)) else {
            return whole(host, kind).await;
        };
        let asked = ask(servers, fqdn(host)?, record_type(kind));
        if self.hosts.is_none() {
            return asked.await;
        }
        let (found, is_by_whole) = either(asked, || whole(host, kind)).await;
        if is_by_whole {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
        found
    }

    /// Says whether the system as a whole has answered where the name servers were silent, so that its configuration may be another by
    /// now.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
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
    /// Says whether the system's hosts file names a host, as it was when this was made.
    #[must_use]
    pub fn is_listed(&self, host: &str) -> bool {
        let (Some(hosts), Ok(name)) = (&self.hosts, fqdn(host)) else { return false };
        // An entry of one kind stands for both.
        let has = |kind| hosts.lookup_static_host(&Query::query(name.clone(), record_type(kind))).is_some();
        [AddressKind::V4, AddressKind::V6].into_iter().any(has)
    }

    /// Says whether a host is for the system itself to find: one without a dot, one of this machine or the neighbourhood (RFC 6761, RFC
    /// 6762), one of the hosts file.
    fn is_own(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        !host.contains('.') || host.ends_with(".local") || host.ends_with(".localhost") || self.is_listed(&host)
    }
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns what asks the system's name servers, where they can be known.
fn known_servers() -> Option<TokioResolver> {
    // What reads them on Android needs a context that an app does not always give, and panics without.
    if cfg!(target_os = "android") {
        return None;
    }
    let servers = TokioResolver::builder_tokio().and_then(|mut builder| {
        // Answers are kept by whoever asks, under rules of its own; names of the hosts file are not asked for.
        builder.options_mut().cache_size = 0;
        builder.options_mut().use_hosts_file = ResolveHosts::Never;
        builder.build()
    });
    servers.inspect_err(|error| debug!(%error, "name servers are not known, the system is asked")).ok()
}

async fn ask(servers: &TokioResolver, name: Name, query_type: RecordType) -> Found {
    match servers.lookup(name, query_type).await {
        Ok(found) => Ok(answered(found.answers(), query_type)),
        Err(error) if error.is_nx_domain() => Err(DnsError::NoName),
        Err(error) if error.is_no_records_found() => Ok(Answered { addresses: Vec::new(), ttl: super::doh::TTL_MAX }),
        Err(error) => Err(DnsError::System(error.to_string())),
    }
}

/// Takes what name servers say, or what the system as a whole says: after them where they fail, beside them where they are silent. The
/// flag says whether they were silent and the system was not.
async fn either<W: Future<Output = Found>>(
    servers: impl Future<Output = Found>,
    whole: impl Fn() -> W,
) -> (Found, bool) {
    let mut servers = pin!(servers);
    let mut beside = pin!(async {
        sleep(SILENT_FOR).await;
        whole().await
    });
    tokio::select! {
        biased;
        found = &mut servers => match found {
            Ok(found) => (Ok(found), false),
            // Why the servers failed says more than that the system did.
            Err(error) => (whole().await.map_err(|_| error), false),
        },
        found = &mut beside => match found {
            Ok(found) => (Ok(found), true),
            Err(_) => (servers.await, false),
        },
    }
}

type Found = Result<Answered, DnsError>;

/// Asks `getaddrinfo`, which says no time to keep the answer and asks for both kinds.
async fn whole(host: &str, kind: AddressKind) -> Result<Answered, DnsError> {
    let found = lookup_host((host, 0)).await.map_err(|error| DnsError::System(error.to_string()))?;
    let fits = |ip: &IpAddr| ip.is_ipv4() == (kind == AddressKind::V4);
    let addresses = found.map(|address: SocketAddr| address.ip()).filter(fits).take(ADDRESSES_MAX);
    Ok(Answered { addresses: addresses.map(HostAddress::from).collect(), ttl: TTL_UNKNOWN })
}

/// Silence of the name servers after which the system is asked as a whole. 2 s; our choice: longer than an answer takes on the slowest graded
/// network, and well within the 5 s that whoever asks waits.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// How long an answer without a time is kept. 60 s, a TTL that many names of moving services have.
const TTL_UNKNOWN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    fn at(last: u8) -> Found {
        let addresses = vec![HostAddress::from(IpAddr::from([192, 0, 2, last]))];
        Ok(Answered { addresses, ttl: TTL_UNKNOWN })
    }

    fn gone() -> Found {
        Err(DnsError::System("gone".into()))
    }

    /// What was found, or why nothing was, and whether the system said so in place of silent servers.
    async fn told<W: Future<Output = Found>>(
        servers: impl Future<Output = Found>,
        whole: impl Fn() -> W,
    ) -> (String, bool) {
        let (found, is_by_whole) = either(servers, whole).await;
        let text = match found {
            Ok(found) => found.addresses[0].to_string(),
            Err(error) => error.to_string(),
        };
        (text, is_by_whole)
    }

    #[test]
    fn names_of_the_hosts_file_and_of_the_neighbourhood_are_the_systems() {
        let mut hosts = Hosts::default();
        hosts.read_hosts_conf(&b"127.0.0.9 own.test # mine\n::1 six.test alias.test\n"[..]).unwrap();
        let system = SystemResolver { servers: None, hosts: Some(hosts), is_outdated: false.into() };
        for host in ["own.test", "OWN.test.", "six.test", "alias.test", "localhost", "a.localhost", "tv.local", "nas"] {
            assert!(system.is_own(host), "{host}");
        }
        assert!(system.is_listed("own.test") && !system.is_listed("tv.local"));
        for host in ["www.own.test", "test.example", "local.test"] {
            assert!(!system.is_own(host), "{host}");
        }
    }

    #[tokio::test]
    async fn where_name_servers_are_not_known_the_system_is_asked_as_a_whole() {
        let system = SystemResolver { servers: None, hosts: Some(Hosts::default()), is_outdated: false.into() };
        // Nobody outside is asked for an address.
        let found = system.lookup("127.0.0.1", AddressKind::V4).await.unwrap();
        assert_eq!(found.addresses, [HostAddress::from(IpAddr::from([127, 0, 0, 1]))]);
        assert!(system.lookup("127.0.0.1", AddressKind::V6).await.unwrap().addresses.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_system_is_asked_as_a_whole_where_servers_fail_or_are_silent() {
        let begun = tokio::time::Instant::now();
        assert_eq!(told(ready(at(1)), pending).await, ("192.0.2.1".into(), false));
        assert_eq!(told(ready(Err(DnsError::NoName)), || ready(at(2))).await, ("192.0.2.2".into(), false));
        assert_eq!(told(ready(Err(DnsError::NoName)), || ready(gone())).await, ("name does not exist".into(), false));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(told(pending(), || ready(at(2))).await, ("192.0.2.2".into(), true));
        assert_eq!(begun.elapsed(), SILENT_FOR);
        let late = async {
            sleep(SILENT_FOR * 2).await;
            at(1)
        };
        assert_eq!(told(late, || ready(gone())).await, ("192.0.2.1".into(), false));
    }
}
