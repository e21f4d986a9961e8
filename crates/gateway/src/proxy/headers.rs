//! Turns a client's request head into an upstream's, and an upstream's answer head back.

use std::fmt::Write as _;

use http::header::Entry;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version, header};

use super::{Peer, ProxyError};
use crate::route::{Route, has_dot_segment};
use crate::upstream::HttpTarget;

/// Returns the authority a request is for: the target's if it has one, else `Host`
/// (RFC 9112 section 3.2.2, RFC 9113 section 8.3.1).
pub(super) fn authority<B>(request: &Request<B>) -> Result<Authority, ProxyError> {
    let authority = match request.uri().authority() {
        Some(authority) => authority.clone(),
        None => {
            let mut hosts = request.headers().get_all(header::HOST).iter();
            let (Some(host), None) = (hosts.next(), hosts.next()) else {
                return Err(ProxyError::RequestMalformed);
            };
            Authority::from_maybe_shared(bytes::Bytes::copy_from_slice(host.as_bytes()))
                .map_err(|_| ProxyError::RequestMalformed)?
        }
    };
    // User information in an authority is deprecated and misleads (RFC 9110 section 4.2.4).
    if authority.as_str().contains('@') {
        return Err(ProxyError::RequestMalformed);
    }
    Ok(authority)
}

/// Refuses a path no route may match and lengths that contradict the body
/// (RFC 9112 section 6.3).
pub(super) fn check<B: http_body::Body>(request: &Request<B>) -> Result<(), ProxyError> {
    if has_dot_segment(request.uri().path()) {
        return Err(ProxyError::RequestMalformed);
    }
    let mut declared = None;
    for value in request.headers().get_all(header::CONTENT_LENGTH) {
        let text = value.to_str().map_err(|_| ProxyError::RequestMalformed)?;
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let length: u64 = match text.parse() {
            Ok(length) if digits => length,
            _ => return Err(ProxyError::RequestMalformed),
        };
        if declared.is_some_and(|other| other != length) {
            return Err(ProxyError::RequestMalformed);
        }
        declared = Some(length);
    }
    let carried = request.body().size_hint();
    if declared.is_some_and(|length| carried.exact().is_some_and(|exact| exact != length)) {
        return Err(ProxyError::RequestMalformed);
    }
    Ok(())
}

/// Rewrites a request head for its upstream.
pub(super) fn to_upstream<B>(
    request: &mut Request<B>,
    route: &Route,
    target: &HttpTarget,
    authority: &Authority,
    peer: &Peer,
) -> Result<(), ProxyError> {
    let path = upstream_path(request.uri(), route, target)?;
    let preserve = route.spec().preserve_host;
    // HTTP/2 names the host in the URI alone. HTTP/1.1 has it in a header too, which spares the pool
    // one set of connections for each authority that clients think of.
    let may_be_h2 = target.is_h2() || target.is_tls();
    let named = if preserve && may_be_h2 { authority } else { target.authority() };
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(target.scheme());
    parts.authority = Some(named.clone());
    parts.path_and_query = Some(path);
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| ProxyError::RequestMalformed)?;
    *request.version_mut() = if target.is_h2() { Version::HTTP_2 } else { Version::HTTP_11 };

    let headers = request.headers_mut();
    let wants_trailers = te_trailers(headers);
    strip_hop_by_hop(headers);
    headers.remove(header::PROXY_AUTHORIZATION);
    // The gateway has answered 100-continue itself (RFC 9110 section 10.1.1).
    headers.remove(header::EXPECT);
    headers.remove(super::SCOPE_HEADER);
    strip_claims(headers);
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        if !may_be_h2 {
            headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
        }
    }
    let original = HeaderValue::from_str(authority.as_str()).map_err(|_| ProxyError::RequestMalformed)?;
    if preserve && !may_be_h2 {
        headers.insert(header::HOST, original.clone());
    } else {
        headers.remove(header::HOST);
    }
    headers.insert(FORWARDED_HOST, original);
    headers.insert(FORWARDED_FOR, address_value(peer)?);
    let scheme = if peer.plain { "http" } else { "https" };
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme));
    if let Some(user) = &peer.user {
        let user = HeaderValue::from_str(user).map_err(|_| ProxyError::RequestMalformed)?;
        headers.insert(USER_HEADER, user);
    }
    if peer.early {
        headers.insert(EARLY_DATA, HeaderValue::from_static("1"));
    }
    continue_trace(headers);
    Ok(())
}

/// Rewrites an upstream's answer head for the client.
pub(super) fn from_upstream<B>(response: &mut Response<B>) {
    // An HTTP/1.0 answer may end with its connection. Told as such, it would look complete where it was cut.
    *response.version_mut() = Version::HTTP_11;
    let status = response.status();
    let headers = response.headers_mut();
    // RFC 9112 section 6.3: the length that counts is that of the chunks, and RFC 9110 section 8.6: 1xx and 204 have none.
    if headers.contains_key(header::TRANSFER_ENCODING) || status.is_informational() || status == StatusCode::NO_CONTENT
    {
        headers.remove(header::CONTENT_LENGTH);
    }
    strip_hop_by_hop(headers);
    headers.remove(header::PROXY_AUTHENTICATE);
    remove_where(headers, |name| name.starts_with("ropeway-"));
}

/// Removes what concerns one connection only (RFC 9110 section 7.6.1).
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if let Entry::Occupied(connection) = headers.entry(header::CONNECTION) {
        let (_, values) = connection.remove_entry_mult();
        let named: Vec<HeaderName> = values
            .filter_map(|value| {
                let text = value.to_str().ok()?;
                let names = text.split(',').filter_map(|name| name.trim().parse().ok());
                Some(names.collect::<Vec<HeaderName>>())
            })
            .flatten()
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, header::TE, header::TRANSFER_ENCODING, header::UPGRADE] {
        headers.remove(name);
    }
}

/// Removes what only the gateway may claim about a client. Underscores count as hyphens: CGI
/// and WSGI services cannot tell them apart (RFC 3875 section 4.1.18).
fn strip_claims(headers: &mut HeaderMap) {
    remove_where(headers, |name| {
        if !name.starts_with(['x', 'f']) {
            return false;
        }
        let name = name.replace('_', "-");
        name.starts_with("x-forwarded-") || name.starts_with("x-ropeway-") || name == "x-real-ip" || name == "forwarded"
    });
}

fn remove_where(headers: &mut HeaderMap, is_removed: impl Fn(&str) -> bool) {
    let removed: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name.as_str())).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
}

fn te_trailers(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

fn address_value(peer: &Peer) -> Result<HeaderValue, ProxyError> {
    HeaderValue::from_str(&peer.address.ip().to_canonical().to_string()).map_err(|_| ProxyError::RequestMalformed)
}

fn upstream_path(uri: &Uri, route: &Route, target: &HttpTarget) -> Result<PathAndQuery, ProxyError> {
    let client = uri.path_and_query().ok_or(ProxyError::RequestMalformed)?;
    let prefix = match route.spec().path_prefix.as_str() {
        "/" => "",
        prefix if route.spec().strip_prefix => prefix,
        _ => "",
    };
    if prefix.is_empty() && target.base_path().is_empty() {
        return Ok(client.clone());
    }
    let rest = client.as_str().strip_prefix(prefix).unwrap_or(client.as_str());
    let slash = if rest.starts_with('/') { "" } else { "/" };
    format!("{}{slash}{rest}", target.base_path()).parse().map_err(|_| ProxyError::RequestMalformed)
}

/// Passes a valid W3C `traceparent` on, or starts a trace (Trace Context section 4.2).
fn continue_trace(headers: &mut HeaderMap) {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let only = (values.next(), values.next());
    if let (Some(value), None) = only
        && traceparent_is_valid(value.as_bytes())
    {
        return;
    }
    headers.remove(TRACESTATE);
    headers.insert(TRACEPARENT, new_traceparent());
}

/// Checks version, lengths, lower-case hexadecimal digits and non-zero ids
/// (Trace Context section 3.2.2); later versions may be longer.
fn traceparent_is_valid(value: &[u8]) -> bool {
    let lower_hex = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let nonzero = |bytes: &[u8]| bytes.iter().any(|byte| *byte != b'0');
    let Some((head, rest)) = value.split_at_checked(TRACEPARENT_LEN) else {
        return false;
    };
    let (version, trace, parent, flags) = (&head[..2], &head[3..35], &head[36..52], &head[53..55]);
    let dashes = [head[2], head[35], head[52]] == [b'-'; 3];
    let length = rest.is_empty() || (version != b"00" && rest[0] == b'-');
    dashes
        && length
        && version != b"ff"
        && [version, trace, parent, flags].into_iter().all(lower_hex)
        && nonzero(trace)
        && nonzero(parent)
}

/// Starts a trace with random ids, not sampled: sampling is the caller's choice.
fn new_traceparent() -> HeaderValue {
    let mut ids = [0_u8; 24];
    if getrandom::fill(&mut ids).is_err() || ids.iter().all(|byte| *byte == 0) {
        ids = [1; 24];
    }
    let mut text = String::with_capacity(TRACEPARENT_LEN);
    text.push_str("00-");
    for (index, byte) in ids.into_iter().enumerate() {
        if index == 16 {
            text.push('-');
        }
        write!(text, "{byte:02x}").expect("a String takes any text");
    }
    text.push_str("-00");
    HeaderValue::try_from(text).expect("hexadecimal digits and hyphens")
}

/// Names the authenticated user to upstreams; stripped from every client's request.
pub const USER_HEADER: HeaderName = HeaderName::from_static("x-ropeway-user");

const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of a version 00 `traceparent`, bytes.
const TRACEPARENT_LEN: usize = 55;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{RouteSpec, Router};

    fn rewritten(spec: RouteSpec, request: http::request::Builder, peer: Peer) -> Result<Request<String>, ProxyError> {
        let router = Router::new(vec![spec]).expect("valid route");
        let mut request = request.body(String::new()).expect("valid request");
        let authority = authority(&request)?;
        check(&request)?;
        let route = router.route(authority.as_str(), request.uri().path()).ok_or(ProxyError::NoRoute)?;
        let crate::upstream::Target::Http(target) = route.target() else {
            panic!("the test's upstream is a URL");
        };
        to_upstream(&mut request, &route, target, &authority, &peer)?;
        Ok(request)
    }

    fn peer() -> Peer {
        Peer::new("192.0.2.7:1234".parse().expect("an address"))
    }

    #[test]
    fn claims_about_the_client_are_replaced_by_the_gateways_own() {
        let request = Request::get("https://a.test/x")
            .header("x-forwarded-for", "1.2.3.4")
            .header("X_Forwarded_Proto", "https")
            .header("x-forwarded-prefix", "/evil")
            .header("x_ropeway_user", "root")
            .header("x-ropeway-user", "root")
            .header("x-real-ip", "1.2.3.4")
            .header("forwarded", "for=1.2.3.4");
        let peer = Peer { user: Some("ann".to_owned()), ..peer() };
        let out = rewritten(RouteSpec::new("a.test", "http://up:1"), request, peer).expect("passes");
        assert_eq!(out.headers()[USER_HEADER], "ann");
        assert_eq!(out.headers()["x-forwarded-for"], "192.0.2.7");
        assert_eq!(out.headers()["x-forwarded-proto"], "https");
        assert_eq!(out.headers()["x-forwarded-host"], "a.test");
        for gone in ["x_forwarded_proto", "x-forwarded-prefix", "x_ropeway_user", "x-real-ip", "forwarded"] {
            assert!(!out.headers().contains_key(gone), "{gone}");
        }
    }

    #[test]
    fn connection_headers_and_what_they_name_are_removed() {
        let request = Request::get("https://a.test/x")
            .header("connection", "close, X-Own")
            .header("connection", "x-second")
            .header("x-own", "1")
            .header("x-second", "1")
            .header("keep-alive", "timeout=5")
            .header("proxy-connection", "keep-alive")
            .header("proxy-authorization", "Basic eA==")
            .header("transfer-encoding", "chunked")
            .header("upgrade", "h2c")
            .header("te", "gzip, Trailers")
            .header("expect", "100-continue")
            .header("x-kept", "1");
        let out = rewritten(RouteSpec::new("a.test", "http://up:1"), request, peer()).expect("passes");
        let mut names: Vec<&str> = out.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let forwarded = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-kept"];
        assert_eq!(names[..4], ["connection", "host", "te", "traceparent"]);
        assert_eq!(names[4..], forwarded);
        assert_eq!(out.headers()["connection"], "te");
        assert_eq!(out.headers()["te"], "trailers");
    }

    #[test]
    fn host_and_path_follow_the_route() {
        let request = || Request::get("https://a.test:8443/api/v1?q=1");
        let kept = rewritten(RouteSpec::new("a.test", "http://up:1"), request(), peer()).expect("passes");
        assert_eq!(kept.uri(), "http://up:1/api/v1?q=1");
        assert_eq!(kept.headers()["host"], "a.test:8443");

        let spec = RouteSpec {
            path_prefix: "/api".to_owned(),
            preserve_host: false,
            strip_prefix: true,
            ..RouteSpec::new("a.test", "http://up:1/base")
        };
        let cut = rewritten(spec.clone(), request(), peer()).expect("passes");
        assert_eq!(cut.uri(), "http://up:1/base/v1?q=1");
        assert!(!cut.headers().contains_key("host"));
        let bare = rewritten(spec, Request::get("https://a.test/api?q"), peer()).expect("passes");
        assert_eq!(bare.uri(), "http://up:1/base/?q");

        let h2 = RouteSpec::new("a.test", "h2c://up:1");
        let h2 = rewritten(h2, request(), peer()).expect("passes");
        assert_eq!(h2.uri(), "http://a.test:8443/api/v1?q=1");
    }

    #[test]
    fn contradicting_requests_are_refused() {
        let spec = || RouteSpec::new("a.test", "http://up:1");
        let malformed = |request| {
            let outcome = rewritten(spec(), request, peer());
            assert_eq!(outcome.expect_err("must be refused"), ProxyError::RequestMalformed);
        };
        malformed(Request::get("/x"));
        malformed(Request::get("/x").header("host", "a.test").header("host", "b.test"));
        malformed(Request::get("/x").header("host", "user@a.test"));
        malformed(Request::get("/x").header("host", "a b"));
        malformed(Request::get("https://a.test/a/../b"));
        malformed(Request::get("https://a.test/").header("content-length", "+1"));
        malformed(Request::get("https://a.test/").header("content-length", "5"));
        let two = Request::get("https://a.test/").header("content-length", "0").header("content-length", "1");
        malformed(two);
        let line_break = Peer { user: Some("a\nb".to_owned()), ..peer() };
        let outcome = rewritten(spec(), Request::get("https://a.test/"), line_break);
        assert_eq!(outcome.expect_err("must be refused"), ProxyError::RequestMalformed);
    }

    #[test]
    fn a_valid_trace_goes_on_and_an_invalid_one_starts_anew() {
        let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = |value: &str| {
            let request = Request::get("https://a.test/").header("traceparent", value).header("tracestate", "k=v");
            let out = rewritten(RouteSpec::new("a.test", "http://up:1"), request, peer()).expect("passes");
            let parent = out.headers()["traceparent"].to_str().expect("text").to_owned();
            assert!(traceparent_is_valid(parent.as_bytes()), "{parent}");
            (parent, out.headers().contains_key("tracestate"))
        };
        assert_eq!(trace(valid), (valid.to_owned(), true));
        let later = format!("01{}-more", &valid[2..]);
        assert_eq!(trace(&later), (later, true));
        for bad in [
            "",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        ] {
            let (started, state) = trace(bad);
            assert_ne!(started, bad);
            assert!(!state);
        }
    }

    #[test]
    fn early_requests_say_so() {
        let early = Peer { early: true, ..peer() };
        let spec = RouteSpec::new("a.test", "http://up:1");
        let out = rewritten(spec, Request::get("https://a.test/"), early).expect("passes");
        assert_eq!(out.headers()["early-data"], "1");
    }

    #[test]
    fn an_answer_cannot_speak_for_the_gateway() {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        for name in ["ropeway-error", "ropeway-not-executed", "connection", "keep-alive"] {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        headers.insert("trailer", HeaderValue::from_static("grpc-status"));
        from_upstream(&mut response);
        assert_eq!(response.headers().len(), 1);
    }
}
