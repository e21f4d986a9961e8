//! HTTPDNS: the addresses of several hosts in one answer, signed.

use std::net::SocketAddr;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use ropeway_core::{
    session::signed_input,
    wire::list::{HostAddress, RESOLVE_CONTEXT, RESOLVE_HOSTS_MAX, SIGNATURE_HEADER},
};
use ropeway_net::unix_ms;
use serde_json::json;

use super::{
    Lists,
    answer::{refusal, with_body},
};
use crate::proxy::ProxyBody;

/// Answers for the hosts that a query names; those of no list are left out.
pub(super) fn answer(lists: &Lists, query: &str, client: SocketAddr) -> Response<ProxyBody> {
    let hosts: Vec<String> = query
        .split('&')
        .filter_map(|pair| pair.strip_prefix("host="))
        .map(|host| host.trim_end_matches('.').to_ascii_lowercase())
        .collect();
    if hosts.is_empty() || hosts.len() > RESOLVE_HOSTS_MAX {
        lists.counters.resolve_malformed.inc();
        return refusal(StatusCode::BAD_REQUEST);
    }
    let issued = lists.issued();
    let ttl_s = issued.answer_ttl().as_secs();
    let mut answers = Vec::new();
    for host in &hosts {
        let (Some(found), Some(addresses)) = (issued.list.host(host), issued.addresses(host, client)) else {
            lists.counters.resolve_refused.inc();
            continue;
        };
        lists.counters.resolve_answered.inc();
        let (v4, v6): (Vec<HostAddress>, Vec<HostAddress>) =
            addresses.into_iter().partition(|address| address.ip.is_ipv4());
        let texts = |addresses: Vec<HostAddress>| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        answers.push(json!({
            "host": host, "ttl_s": ttl_s, "v4": texts(v4), "v6": texts(v6), "h3": found.speaks_h3,
        }));
    }
    let body = json!({ "time_ms": unix_ms(), "list_epoch_ms": issued.list.epoch_ms, "answers": answers }).to_string();
    let signature = lists.signer.sign(&signed_input(RESOLVE_CONTEXT, body.as_bytes()));
    let signature = format!("{};{}", lists.signer.id(), STANDARD.encode(signature));
    let mut response = with_body(body.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        HeaderName::from_static(SIGNATURE_HEADER),
        HeaderValue::try_from(signature).expect("a name and Base64 fit a header"),
    );
    response
}
