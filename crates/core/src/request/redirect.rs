//! Where an answer sends a request on to.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use thiserror::Error;
use url::Url;

/// What a request becomes that is redirected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirected {
    /// The method: GET where another would be executed a second time.
    pub method: Method,
    /// The URL.
    pub uri: Uri,
    /// The body goes along.
    pub keeps_body: bool,
    /// It is another origin, which must not see what was meant for the first.
    pub is_elsewhere: bool,
}

/// Why a redirect leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the service redirects to {location:?}, which is no URL of http or https")]
pub struct BadLocation {
    /// What it said.
    pub location: String,
}

impl Redirected {
    /// Returns what becomes of a request at `from` by an answer, and `None` where it leads nowhere: it has another status, or no `location`
    /// (RFC 9110 section 15.4; the change to GET as browsers do it, Fetch standard, HTTP-redirect fetch).
    ///
    /// # Errors
    ///
    /// [`BadLocation`] if the `location` is none.
    pub fn of(
        method: &Method,
        from: &Uri,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<Option<Self>, BadLocation> {
        let becomes_get = match status {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
            StatusCode::SEE_OTHER => *method != Method::HEAD,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
            _ => return Ok(None),
        };
        let Some(location) = headers.get(header::LOCATION) else { return Ok(None) };
        let uri = resolve(from, location)
            .ok_or_else(|| BadLocation { location: String::from_utf8_lossy(location.as_bytes()).into_owned() })?;
        let is_elsewhere = origin(from) != origin(&uri);
        let method = if becomes_get { Method::GET } else { method.clone() };
        let keeps_body = !becomes_get;
        Ok(Some(Self { method, uri, keeps_body, is_elsewhere }))
    }

    /// Takes away the headers that do not go along: those of a body that stays, and for another origin those that let it act for the user.
    pub fn strip(&self, headers: &mut HeaderMap) {
        let none: &[HeaderName] = &[];
        let of_body = if self.keeps_body { none } else { &OF_A_BODY };
        let of_origin = if self.is_elsewhere { &OF_AN_ORIGIN } else { none };
        for name in of_body.iter().chain(of_origin) {
            headers.remove(name);
        }
        if self.is_elsewhere {
            headers.remove(super::KEY_HEADER);
        }
    }
}

/// Resolves what a `location` says against the URL it came from (RFC 3986 section 5).
fn resolve(from: &Uri, location: &HeaderValue) -> Option<Uri> {
    let url = Url::parse(&from.to_string()).ok()?.join(location.to_str().ok()?).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    // What follows `#` is the app's alone.
    let text = url.as_str().split('#').next()?;
    text.parse().ok().filter(|_| is_web)
}

fn origin(uri: &Uri) -> (Option<&str>, Option<String>, Option<u16>) {
    let default = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    (uri.scheme_str(), uri.host().map(str::to_ascii_lowercase), uri.port_u16().or(Some(default)))
}

/// Redirects that a request follows. 10; as reqwest's default policy has it.
pub const REDIRECTS_MAX: u32 = 10;

/// Headers that speak of a body.
const OF_A_BODY: [HeaderName; 6] = [
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_LOCATION,
    header::CONTENT_TYPE,
    header::TRANSFER_ENCODING,
];

/// Headers that are for one origin alone.
const OF_AN_ORIGIN: [HeaderName; 4] =
    [header::AUTHORIZATION, header::COOKIE, header::HOST, header::PROXY_AUTHORIZATION];

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(method: Method, status: u16, location: &str) -> Result<Option<Redirected>, BadLocation> {
        let headers = HeaderMap::from_iter([(header::LOCATION, location.parse().unwrap())]);
        let from = "https://api.test/a/b?c".parse().unwrap();
        Redirected::of(&method, &from, StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn the_method_and_the_body_stay_as_the_status_says() {
        let cases = [
            (301, Method::GET, Method::GET, true),
            (301, Method::POST, Method::GET, false),
            (302, Method::POST, Method::GET, false),
            (302, Method::PUT, Method::PUT, true),
            (303, Method::PUT, Method::GET, false),
            (303, Method::HEAD, Method::HEAD, true),
            (307, Method::POST, Method::POST, true),
            (308, Method::POST, Method::POST, true),
        ];
        for (status, method, becomes, keeps_body) in cases {
            let next = redirected(method, status, "/next").unwrap().unwrap();
            assert_eq!((next.method, next.keeps_body), (becomes, keeps_body), "{status}");
        }
        for status in [200, 300, 304, 404] {
            assert_eq!(redirected(Method::GET, status, "/next"), Ok(None), "{status}");
        }
        let from = "https://api.test/".parse().unwrap();
        assert_eq!(Redirected::of(&Method::GET, &from, StatusCode::FOUND, &HeaderMap::new()), Ok(None));
    }

    #[test]
    fn a_location_is_resolved_and_told_when_it_is_none() {
        let cases = [
            ("d", "https://api.test/a/d", false),
            ("../d#part", "https://api.test/d", false),
            ("?e", "https://api.test/a/b?e", false),
            ("//API.test:443/x", "https://api.test/x", false),
            ("https://api.test:8443/x", "https://api.test:8443/x", true),
            ("http://api.test/x", "http://api.test/x", true),
            ("https://other.test", "https://other.test/", true),
        ];
        for (location, uri, is_elsewhere) in cases {
            let next = redirected(Method::GET, 302, location).unwrap().unwrap();
            assert_eq!((next.uri.to_string().as_str(), next.is_elsewhere), (uri, is_elsewhere), "{location}");
        }
        for location in ["file:///etc/passwd", "https://user:word@api.test/", "http://", "javascript:0"] {
            assert!(redirected(Method::GET, 302, location).is_err(), "{location}");
        }
    }

    #[test]
    fn another_origin_sees_nothing_that_was_for_the_first() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "cookie", "content-type", "idempotency-key", "accept"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        let left = |status, location| {
            let mut headers = headers.clone();
            redirected(Method::POST, status, location).unwrap().unwrap().strip(&mut headers);
            let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(left(307, "https://other.test/"), "accept content-type");
        assert_eq!(left(302, "/next"), "accept authorization cookie idempotency-key");
    }
}
