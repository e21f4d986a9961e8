//! What is signed: the signature base of RFC 9421 section 2.5.

use http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};

use super::fields::Component;

/// What a signature can cover of a request.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) method: Method,
    pub(super) authority: String,
    pub(super) path: String,
    /// With its question mark, which is there also where nothing follows (RFC 9421 section 2.2.7).
    pub(super) query: String,
    pub(super) headers: HeaderMap,
}

impl Facts {
    /// Takes them from a request, whose authority is that of its target or else of its `host`.
    pub(super) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Self> {
        let authority = match uri.authority() {
            Some(authority) => authority.as_str(),
            None => headers.get(header::HOST)?.to_str().ok()?,
        };
        let authority = authority.to_ascii_lowercase();
        Some(Self {
            method: method.clone(),
            // Plain HTTP's own port is left out (RFC 9421 section 2.2.3).
            authority: authority.strip_suffix(":80").unwrap_or(&authority).to_owned(),
            path: uri.path().to_owned(),
            query: format!("?{}", uri.query().unwrap_or_default()),
            headers: headers.clone(),
        })
    }
}

/// Writes the signature base; `None` where something to be covered is not there.
pub(super) fn signature_base(
    components: &[Component],
    input: &str,
    request: &Facts,
    status: StatusCode,
    headers: &HeaderMap,
) -> Option<String> {
    let mut base = String::new();
    for (place, component) in components.iter().enumerate() {
        // Covered twice, something would hide what is not covered at all (RFC 9421 section 2).
        if components[..place].contains(component) {
            return None;
        }
        let value = match (component.name.as_str(), component.of_request) {
            ("@method", true) => request.method.as_str().to_owned(),
            ("@authority", true) => request.authority.clone(),
            ("@path", true) => request.path.clone(),
            ("@query", true) => request.query.clone(),
            ("@status", false) => status.as_u16().to_string(),
            (name, true) => field(&request.headers, name)?,
            (name, false) => field(headers, name)?,
        };
        base.push_str(&component.write());
        base.push_str(": ");
        base.push_str(&value);
        base.push('\n');
    }
    base.push_str("\"@signature-params\": ");
    base.push_str(input);
    Some(base)
}

/// Writes the values of a header as RFC 9421 section 2.1 does. One with bytes that are no ASCII cannot be covered.
fn field(headers: &HeaderMap, name: &str) -> Option<String> {
    let name: HeaderName = name.parse().ok()?;
    let values: Option<Vec<&str>> = headers
        .get_all(name)
        .iter()
        .map(|value| value.to_str().ok().map(|text| text.trim_matches([' ', '\t'])))
        .collect();
    let values = values?;
    (!values.is_empty()).then(|| values.join(", "))
}

/// Says whether a header goes from one end to the other as it is: whether it is covered, and reaches the app.
#[must_use]
pub fn is_end_to_end(name: &HeaderName) -> bool {
    !NOT_COVERED.contains(name)
}

/// Headers that proxies may change, or that concern one connection or the signature itself.
const NOT_COVERED: [HeaderName; 20] = [
    header::ACCEPT_ENCODING,
    HeaderName::from_static("accept-signature"),
    header::AGE,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    HeaderName::from_static("keep-alive"),
    header::MAX_FORWARDS,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("signature"),
    HeaderName::from_static("signature-input"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::VIA,
    header::WARNING,
];
