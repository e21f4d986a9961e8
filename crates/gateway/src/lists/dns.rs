//! DNS over HTTPS (RFC 8484) for the hosts of the list.

use std::{collections::BTreeMap, net::SocketAddr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hickory_proto::{
    op::{Message, MessageType, OpCode, Query, ResponseCode},
    rr::{
        DNSClass, Name, RData, Record, RecordType,
        rdata::{
            A, AAAA, HTTPS, SVCB,
            svcb::{Alpn, IpHint, SvcParamKey, SvcParamValue},
        },
    },
};
use http::{HeaderValue, Response, StatusCode, header};
use ropeway_core::wire::list::{Host, HostAddress};

use super::{
    Lists,
    answer::{refusal, with_body},
};
use crate::proxy::ProxyBody;

/// Answers a query that stands in the URL (RFC 8484 section 4.1).
pub(super) fn answer_get(lists: &Lists, query: &str, client: SocketAddr) -> Response<ProxyBody> {
    let encoded = query.split('&').find_map(|pair| pair.strip_prefix("dns="));
    let message = encoded
        .filter(|encoded| encoded.len() <= MESSAGE_BYTES_MAX * 4 / 3)
        .and_then(|encoded| URL_SAFE_NO_PAD.decode(encoded.trim_end_matches('=')).ok());
    match message {
        Some(message) => answer(lists, &message, client),
        None => {
            lists.counters.dns_malformed.inc();
            refusal(StatusCode::BAD_REQUEST)
        }
    }
}

/// Answers a query: addresses and service bindings for the hosts of the list, REFUSED for all others.
pub(super) fn answer(lists: &Lists, message: &[u8], client: SocketAddr) -> Response<ProxyBody> {
    let asked = Message::from_vec(message).ok();
    let asked = asked.filter(|asked| asked.metadata.message_type == MessageType::Query && asked.queries.len() == 1);
    let Some(asked) = asked else {
        lists.counters.dns_malformed.inc();
        return refusal(StatusCode::BAD_REQUEST);
    };
    let mut reply = Message::response(asked.metadata.id, asked.metadata.op_code);
    reply.metadata.recursion_desired = asked.metadata.recursion_desired;
    let query = &asked.queries[0];
    reply.add_query(query.clone());
    let found = (asked.metadata.op_code == OpCode::Query && query.query_class == DNSClass::IN)
        .then(|| records(lists, query, client))
        .flatten();
    let ttl_s = match found {
        Some((ttl_s, records)) => {
            lists.counters.dns_answered.inc();
            reply.metadata.authoritative = true;
            reply.add_answers(records);
            Some(ttl_s)
        }
        None => {
            lists.counters.dns_refused.inc();
            reply.metadata.response_code = ResponseCode::Refused;
            None
        }
    };
    let Ok(encoded) = reply.to_vec() else { return refusal(StatusCode::INTERNAL_SERVER_ERROR) };
    let mut response = with_body(encoded.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    // RFC 8484 section 5.1: no fresher than the smallest TTL.
    let fresh = ttl_s.map_or_else(|| "no-store".to_owned(), |ttl_s| format!("max-age={ttl_s}"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::try_from(fresh).expect("letters and digits"));
    response
}

/// Returns the records of a query and their TTL in seconds; `None` if the list has no such host.
fn records(lists: &Lists, query: &Query, client: SocketAddr) -> Option<(u32, Vec<Record>)> {
    let issued = lists.issued();
    let name = query.name.to_ascii();
    let host = issued.list.host(&name)?;
    let addresses = issued.addresses(&name, client)?;
    let ttl_s = u32::try_from(issued.answer_ttl().as_secs()).unwrap_or(u32::MAX);
    let record = |data: RData| Record::from_rdata(query.name.clone(), ttl_s, data);
    // An address record has no port to say: it stands for that of the URL.
    let plain = || addresses.iter().filter(|address| address.port.is_none_or(|port| port == HTTPS_PORT));
    let data: Vec<RData> = if query.query_type == RecordType::A {
        plain().filter_map(|address| v4(*address)).map(RData::A).collect()
    } else if query.query_type == RecordType::AAAA {
        plain().filter_map(|address| v6(*address)).map(RData::AAAA).collect()
    } else if query.query_type == RecordType::HTTPS {
        bindings(host, &addresses)
    } else {
        Vec::new()
    };
    Some((ttl_s, data.into_iter().map(record).collect()))
}

/// One service binding (RFC 9460) for each port, in the order in which the ports first appear.
fn bindings(host: &Host, addresses: &[HostAddress]) -> Vec<RData> {
    let mut order: BTreeMap<u16, (usize, Vec<HostAddress>)> = BTreeMap::new();
    for (place, address) in addresses.iter().enumerate() {
        order.entry(address.port.unwrap_or(HTTPS_PORT)).or_insert((place, Vec::new())).1.push(*address);
    }
    let mut ports: Vec<_> = order.into_iter().collect();
    ports.sort_by_key(|(_, (place, _))| *place);
    let binding = |(number, (port, (_, addresses))): (usize, (u16, (usize, Vec<HostAddress>)))| {
        let protocols: &[&str] = if host.speaks_h3 { &["h3", "h2", "http/1.1"] } else { &["h2", "http/1.1"] };
        let protocols = protocols.iter().map(ToString::to_string).collect();
        let mut parameters = vec![(SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(protocols)))];
        if port != HTTPS_PORT {
            parameters.push((SvcParamKey::Port, SvcParamValue::Port(port)));
        }
        let v4: Vec<A> = addresses.iter().filter_map(|address| v4(*address)).collect();
        let v6: Vec<AAAA> = addresses.iter().filter_map(|address| v6(*address)).collect();
        if !v4.is_empty() {
            parameters.push((SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(v4))));
        }
        if !v6.is_empty() {
            parameters.push((SvcParamKey::Ipv6Hint, SvcParamValue::Ipv6Hint(IpHint(v6))));
        }
        let priority = u16::try_from(number + 1).unwrap_or(u16::MAX);
        RData::HTTPS(HTTPS(SVCB::new(priority, Name::root(), parameters)))
    };
    ports.into_iter().enumerate().map(binding).collect()
}

fn v4(address: HostAddress) -> Option<A> {
    match address.ip {
        std::net::IpAddr::V4(ip) => Some(A(ip)),
        std::net::IpAddr::V6(_) => None,
    }
}

fn v6(address: HostAddress) -> Option<AAAA> {
    match address.ip {
        std::net::IpAddr::V4(_) => None,
        std::net::IpAddr::V6(ip) => Some(AAAA(ip)),
    }
}

/// Media type of a DNS message (RFC 8484 section 6).
pub(super) const MEDIA_TYPE: &str = "application/dns-message";

/// Bytes of a query that are read. 4 KiB; one question with EDNS padding (RFC 8467 pads to 128) has a few hundred.
pub(super) const MESSAGE_BYTES_MAX: usize = 4_096;

/// The port that a URL with `https` has without saying so.
const HTTPS_PORT: u16 = 443;
