//! Which requests are the same.

use http::{HeaderMap, HeaderName, Method, Uri, header};

/// A request that may be shared, with everything that makes it another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedKey {
    /// In lower case.
    authority: String,
    url: String,
    headers: Vec<(String, Vec<u8>)>,
    options: String,
}

impl SharedKey {
    /// Returns the key of a request without a body; `None` if it cannot be shared, or must not be.
    ///
    /// Requests whose keys are equal have the same URL, the same headers, [`UNCOMPARED_HEADERS`] ones aside, and the same `options`, which are
    /// what the caller says about it beyond the request. A request that asks for a fresh answer (`cache-control` or `pragma` with
    /// `no-cache` or `no-store`) is shared only where the app `wants` it.
    #[must_use]
    pub fn new(method: &Method, uri: &Uri, headers: &HeaderMap, options: &str, wants: bool) -> Option<Self> {
        let never = NEVER.iter().any(|name| headers.contains_key(name));
        let streams = contains(headers, header::ACCEPT, &["text/event-stream"]);
        if method != Method::GET || never || streams || (!wants && is_fresh(headers)) {
            return None;
        }
        let authority = uri.authority()?.as_str().to_ascii_lowercase();
        let mut kept: Vec<(String, Vec<u8>)> = headers
            .iter()
            .filter(|(name, _)| !UNCOMPARED_HEADERS.contains(&name.as_str()))
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect();
        // Those of one name stay in their order.
        kept.sort_by(|one, other| one.0.cmp(&other.0));
        let url = uri.to_string();
        let bytes: usize = url.len() + kept.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        (bytes <= KEY_BYTES_MAX).then(|| Self { authority, url, headers: kept, options: options.to_owned() })
    }

    pub(super) fn is_for(&self, authority: &str) -> bool {
        self.authority.eq_ignore_ascii_case(authority)
    }
}

fn is_fresh(headers: &HeaderMap) -> bool {
    contains(headers, header::CACHE_CONTROL, &["no-cache", "no-store"])
        || contains(headers, header::PRAGMA, &["no-cache"])
}

/// Says whether a header names one of these among its elements, with or without parameters.
fn contains(headers: &HeaderMap, name: HeaderName, wanted: &[&str]) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(|element| element.split([';', '=']).next().unwrap_or_default().trim())
        .any(|element| wanted.iter().any(|wanted| element.eq_ignore_ascii_case(wanted)))
}

/// Headers that do not make a request another one: they name it or follow it on its way (W3C Trace Context and Baggage, RFC 9218).
pub const UNCOMPARED_HEADERS: &[&str] =
    &["baggage", "priority", "traceparent", "tracestate", "x-correlation-id", "x-request-id"];

/// Headers of requests that are not shared: parts of a resource, and what is not a plain GET.
const NEVER: &[HeaderName] =
    &[header::CONTENT_LENGTH, header::EXPECT, header::IF_RANGE, header::RANGE, header::UPGRADE];

/// Bytes of URL and headers that are compared: 16 KiB, our choice; as many as services take of a head.
const KEY_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        list.iter().map(pair).collect()
    }

    fn key(url: &'static str, list: &[(&'static str, &'static str)]) -> Option<SharedKey> {
        SharedKey::new(&Method::GET, &Uri::from_static(url), &headers(list), "", false)
    }

    #[test]
    fn the_same_url_and_headers_are_the_same_request_whatever_their_order_and_trace() {
        let one = key("https://api.test/a?b", &[("accept", "a"), ("x-b", "1"), ("x-b", "2"), ("traceparent", "1")]);
        let other = key("https://api.test/a?b", &[("x-b", "1"), ("x-b", "2"), ("accept", "a"), ("x-request-id", "9")]);
        assert!(one.is_some() && one == other);
    }

    #[test]
    fn what_differs_is_another_request() {
        let base = key("https://api.test/a", &[("authorization", "Bearer one")]);
        for (url, list) in [
            ("https://api.test/b", &[("authorization", "Bearer one")][..]),
            ("https://other.test/a", &[("authorization", "Bearer one")]),
            ("http://api.test/a", &[("authorization", "Bearer one")]),
            ("https://api.test/a", &[("authorization", "Bearer two")]),
            ("https://api.test/a", &[]),
            ("https://api.test/a", &[("authorization", "Bearer one"), ("cookie", "a=b")]),
            ("https://api.test/a", &[("authorization", "Bearer one"), ("accept-language", "de")]),
        ] {
            assert_ne!(key(url, list), base, "{url} {list:?}");
        }
        let uri = Uri::from_static("https://api.test/a");
        let with = |options| SharedKey::new(&Method::GET, &uri, &HeaderMap::new(), options, false);
        assert_ne!(with("link"), with("direct"));
    }

    #[test]
    fn what_must_not_be_shared_has_no_key() {
        for list in [
            &[("range", "bytes=0-")][..],
            &[("content-length", "3")],
            &[("accept", "text/html, Text/Event-Stream;q=1")],
            &[("cache-control", "max-age=0, no-store")],
            &[("cache-control", "No-Cache=\"x\"")],
            &[("pragma", "no-cache")],
        ] {
            assert_eq!(key("https://api.test/a", list), None, "{list:?}");
        }
        for method in [Method::POST, Method::HEAD, Method::PUT] {
            assert_eq!(
                SharedKey::new(&method, &Uri::from_static("https://a.test/"), &HeaderMap::new(), "", true),
                None
            );
        }
        assert!(key("https://api.test/a", &[("cache-control", "max-age=0")]).is_some());
        let fresh = headers(&[("cache-control", "no-cache")]);
        assert!(SharedKey::new(&Method::GET, &Uri::from_static("https://a.test/"), &fresh, "", true).is_some());
    }
}
