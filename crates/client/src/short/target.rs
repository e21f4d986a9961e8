//! What a request says about where it goes, and its shape in each version of HTTP.

use http::{
    HeaderValue, Request, Uri, Version, header,
    uri::{Authority, PathAndQuery, Scheme},
};
use ropeway_core::connect::Origin;
use rustls::pki_types::ServerName;

use crate::Body;

/// Where a request goes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Whether it is encrypted.
    pub(super) encrypted: bool,
    /// Host and port of the URL.
    pub(super) origin: Origin,
    /// The name that the certificate must carry; none for plain HTTP.
    pub(super) server_name: Option<ServerName<'static>>,
    authority: Authority,
    path: PathAndQuery,
}

/// A version of HTTP as a connection speaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http {
    H1,
    H2,
    H3,
}

impl Target {
    /// Reads the URL of a request, which must be absolute.
    pub(super) fn of(uri: &Uri) -> Result<Self, String> {
        let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        let default = if encrypted { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default);
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let server_name = match encrypted {
            true => Some(ServerName::try_from(name.clone()).map_err(|_| format!("{host:?} is no server name"))?),
            false => None,
        };
        // A port that goes without saying is left out, as servers compare the authority with their names.
        let authority = if port == default { host.clone() } else { format!("{host}:{port}") };
        let authority = Authority::try_from(authority).map_err(|error| format!("{host:?}: {error}"))?;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self { encrypted, origin: Origin { host: name, port }, server_name, authority, path })
    }

    /// Gives a request the shape of a version of HTTP.
    pub(super) fn shape(&self, request: &mut Request<Body>, http: Http) {
        let headers = request.headers_mut();
        headers.remove(header::HOST);
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(self.path.clone());
        let version = match http {
            Http::H1 => {
                let host = HeaderValue::from_str(self.authority.as_str()).expect("an authority is visible ASCII");
                headers.insert(header::HOST, host);
                Version::HTTP_11
            }
            Http::H2 | Http::H3 => {
                // They concern one connection of HTTP/1 (RFC 9113 section 8.2.2, RFC 9114 section 4.2).
                for name in HOP_BY_HOP {
                    headers.remove(name);
                }
                parts.scheme = Some(if self.encrypted { Scheme::HTTPS } else { Scheme::HTTP });
                parts.authority = Some(self.authority.clone());
                if http == Http::H2 { Version::HTTP_2 } else { Version::HTTP_3 }
            }
        };
        *request.version_mut() = version;
        *request.uri_mut() = Uri::from_parts(parts).expect("all parts or the path alone");
    }
}

/// Headers of one connection of HTTP/1.
const HOP_BY_HOP: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_url_fit_the_version_whatever_was_there_before() {
        let target = Target::of(&Uri::from_static("https://API.test:443/a?b")).unwrap();
        let mut request = Request::get("/other").header("connection", "close").body(Body::empty()).unwrap();
        target.shape(&mut request, Http::H1);
        assert_eq!(
            (request.uri().to_string(), &request.headers()["host"]),
            ("/a?b".into(), &HeaderValue::from_static("api.test"))
        );
        target.shape(&mut request, Http::H3);
        assert_eq!(request.uri(), "https://api.test/a?b");
        assert!(request.headers().is_empty(), "{request:?}");
        let odd = Target::of(&Uri::from_static("http://[::1]:8080")).unwrap();
        odd.shape(&mut request, Http::H1);
        assert_eq!(
            (request.uri().to_string(), &request.headers()["host"]),
            ("/".into(), &HeaderValue::from_static("[::1]:8080"))
        );
        assert_eq!((odd.origin.host.as_str(), odd.server_name), ("::1", None));
    }
}
