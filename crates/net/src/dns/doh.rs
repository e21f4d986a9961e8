//! DNS over HTTPS (RFC 8484), at given addresses.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use hickory_proto::{
    op::{Message, Query, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::svcb::{SVCB, SvcParamKey, SvcParamValue},
    },
};
use http::{Request, StatusCode, header};
use http_body_util::Full;
use ropeway_core::wire::list::{DNS_PATH, HostAddress};
use rustls::ClientConfig;

use super::{ADDRESSES_MAX, AddressKind, Answered, Binding, DnsError, binding_name, https::Https};

/// Asks servers of DNS over HTTPS.
#[derive(Clone)]
pub struct Doh {
    https: Https,
}

impl Doh {
    /// Makes a client that believes what this configuration does; it should offer HTTP/2 and HTTP/1.1.
    #[must_use]
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self { https: Https::new(config) }
    }

    /// Asks a server, whose certificate must carry `name`, for the addresses of a host.
    ///
    /// # Errors
    ///
    /// A [`DnsError`] that tells a name which does not exist from a server that cannot be asked.
    pub async fn lookup(
        &self,
        server: SocketAddr,
        name: &str,
        host: &str,
        kind: AddressKind,
    ) -> Result<Answered, DnsError> {
        let query_type = record_type(kind);
        let message = self.ask(server, name, host, query_type).await?;
        Ok(answered(&message.answers, query_type))
    }

    /// Asks a server for the HTTPS record of a host, for URLs with this port; the one with the smallest priority counts. `None` where there
    /// is none for the host itself: others name an alias or another host, or cannot be followed.
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup).
    pub async fn binding(
        &self,
        server: SocketAddr,
        name: &str,
        host: &str,
        port: u16,
    ) -> Result<Option<Binding>, DnsError> {
        let message = self.ask(server, name, &binding_name(host, port), RecordType::HTTPS).await?;
        Ok(binding(&message.answers))
    }

    async fn ask(
        &self,
        server: SocketAddr,
        name: &str,
        host: &str,
        query_type: RecordType,
    ) -> Result<Message, DnsError> {
        let malformed = |reason: String| DnsError::Malformed { server, reason };
        let mut asked = Message::query();
        // RFC 8484 section 4.1: the same question has the same bytes.
        asked.metadata.id = 0;
        asked.metadata.recursion_desired = true;
        asked.add_query(Query::query(fqdn(host)?, query_type));
        let body = asked.to_vec().map_err(|error| malformed(error.to_string()))?;
        let request = Request::post(format!("https://{}{DNS_PATH}", authority(name)))
            .header(header::HOST, authority(name))
            .header(header::CONTENT_TYPE, MEDIA_TYPE)
            .header(header::ACCEPT, MEDIA_TYPE)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| malformed(error.to_string()))?;
        let response = self.https.exchange(server, name, request, MESSAGE_BYTES_MAX).await?;
        if response.status() != StatusCode::OK {
            return Err(DnsError::Status { server, status: response.status() });
        }
        let message = Message::from_vec(response.body()).map_err(|error| malformed(error.to_string()))?;
        let code = message.metadata.response_code;
        if code == ResponseCode::NoError {
            Ok(message)
        } else if [ResponseCode::NXDomain, ResponseCode::Refused].contains(&code) {
            Err(DnsError::NoName)
        } else {
            Err(malformed(format!("response code {code}")))
        }
    }
}

pub(super) const fn record_type(kind: AddressKind) -> RecordType {
    match kind {
        AddressKind::V4 => RecordType::A,
        AddressKind::V6 => RecordType::AAAA,
    }
}

/// Reads a host name as one that has its whole path.
pub(super) fn fqdn(host: &str) -> Result<Name, DnsError> {
    let mut name = Name::from_ascii(host).map_err(|_| DnsError::Name(host.into()))?;
    name.set_fqdn(true);
    Ok(name)
}

/// Takes the addresses of one kind out of an answer, whatever aliases stand before them.
pub(super) fn answered(records: &[Record], query_type: RecordType) -> Answered {
    let mut ttl = TTL_MAX;
    let mut addresses = Vec::new();
    for record in records.iter().filter(|record| record.record_type() == query_type) {
        if let Some(ip) = record.data.ip_addr().filter(|_| addresses.len() < ADDRESSES_MAX) {
            addresses.push(HostAddress::from(ip));
            ttl = ttl.min(Duration::from_secs(record.ttl.into()));
        }
    }
    Answered { addresses, ttl }
}

/// Takes the service binding out of an answer.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enums are not ours, and other records and keys are passed over"
)]
pub(super) fn binding(records: &[Record]) -> Option<Binding> {
    let services: Vec<(&Record, &SVCB)> = records
        .iter()
        .filter_map(|record| match &record.data {
            RData::HTTPS(service) => Some((record, &service.0)),
            _ => None,
        })
        .collect();
    // Priority 0 is an alias, beside which nothing counts (RFC 9460 sections 2.4.1 and 2.4.2).
    if services.iter().any(|(_, service)| service.svc_priority == 0) {
        return None;
    }
    let of_host = services.into_iter().filter(|(record, service)| is_of_owner(record, service) && is_known(service));
    let (record, service) = of_host.min_by_key(|(_, service)| service.svc_priority)?;
    let mut found = Binding { ttl: Duration::from_secs(record.ttl.into()), ..Binding::default() };
    for (_, value) in &service.svc_params {
        match value {
            SvcParamValue::Alpn(protocols) => found.protocols.clone_from(&protocols.0),
            SvcParamValue::Ipv4Hint(hints) => found.hints.extend(hints.0.iter().map(|ip| hint(ip.0.into()))),
            SvcParamValue::Ipv6Hint(hints) => found.hints.extend(hints.0.iter().map(|ip| hint(ip.0.into()))),
            SvcParamValue::Port(number) => found.port = Some(*number),
            _ => {}
        }
    }
    found.hints.truncate(ADDRESSES_MAX);
    let port = found.port;
    found.hints.iter_mut().for_each(|address| address.port = port);
    Some(found)
}

/// Says whether a record speaks of the host that has it, whose addresses are asked for (RFC 9460 section 2.5.2).
fn is_of_owner(record: &Record, service: &SVCB) -> bool {
    service.target_name.is_root() || service.target_name == record.name
}

/// Says whether everything is understood that a record must not be followed without (RFC 9460 section 8).
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not ours")]
fn is_known(service: &SVCB) -> bool {
    const KNOWN: [SvcParamKey; 5] = [
        SvcParamKey::Alpn,
        SvcParamKey::NoDefaultAlpn,
        SvcParamKey::Port,
        SvcParamKey::Ipv4Hint,
        SvcParamKey::Ipv6Hint,
    ];
    service.svc_params.iter().all(|(_, value)| match value {
        SvcParamValue::Mandatory(keys) => keys.0.iter().all(|key| KNOWN.contains(key)),
        _ => true,
    })
}

fn hint(ip: std::net::IpAddr) -> HostAddress {
    HostAddress::from(ip)
}

/// Writes a name as it stands in a URL.
pub(super) fn authority(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_owned() }
}

/// Media type of a DNS message (RFC 8484 section 6).
const MEDIA_TYPE: &str = "application/dns-message";

/// Bytes of a DNS message (RFC 8484 section 6).
const MESSAGE_BYTES_MAX: usize = 65_535;

/// Longest time an answer may be kept, and that of an answer without records. A day; whoever keeps it has bounds of its own.
pub(super) const TTL_MAX: Duration = Duration::from_secs(86_400);
