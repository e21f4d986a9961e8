//! The services that a route can lead to, and where a key can be found.

use std::fmt;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{alphabet, engine::DecodePaddingMode};
use http::Uri;
use http::uri::Authority;
use ropeway_core::request::{PortError, port_of};

use super::read::{Node, Reader, printable};
use super::section::Setting;
use super::value::quoted;

/// Where the requests of a route go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Upstream {
    /// A service of this process.
    Builtin(Builtin),
    /// An HTTP service.
    Http {
        /// How to speak with it.
        scheme: UpstreamScheme,
        /// Its host, and its port where that is not the scheme's own.
        authority: Authority,
    },
}

/// A service that the gateway itself contains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Builtin {
    /// A small page and a few paths to try requests with.
    Demo,
    /// Answers with the body of the request.
    Echo,
}

/// How to speak with an upstream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UpstreamScheme {
    /// HTTP/2 without TLS, by prior knowledge (RFC 9113 section 3.3).
    H2c,
    /// HTTP/1.1 without TLS.
    Http,
    /// HTTP over TLS, the version by ALPN.
    Https,
}

/// Where a public key is found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum KeySource {
    /// A PEM file.
    File(PathBuf),
    /// The 32 bytes of an Ed25519 key.
    Raw([u8; 32]),
}

impl Upstream {
    /// Gives the port to connect to, where it is a service outside.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Builtin(_) => None,
            Self::Http { scheme: UpstreamScheme::Https, authority } => Some(authority.port_u16().unwrap_or(443)),
            Self::Http { scheme: UpstreamScheme::H2c | UpstreamScheme::Http, authority } => {
                Some(authority.port_u16().unwrap_or(80))
            }
        }
    }
}

impl std::str::FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = text.strip_prefix("builtin:") {
            return match name {
                "demo" => Ok(Self::Builtin(Builtin::Demo)),
                "echo" => Ok(Self::Builtin(Builtin::Echo)),
                _ => Err(UpstreamError::UnknownBuiltin(printable(name))),
            };
        }
        let Some((scheme, _)) = text.split_once("://") else { return Err(UpstreamError::NoScheme) };
        let scheme_known = match scheme {
            "h2c" => UpstreamScheme::H2c,
            "http" => UpstreamScheme::Http,
            "https" => UpstreamScheme::Https,
            _ => return Err(UpstreamError::UnknownScheme(printable(scheme))),
        };
        let parts = text.parse::<Uri>().map_err(|_| UpstreamError::NotUrl)?.into_parts();
        let authority = parts.authority.ok_or(UpstreamError::NotUrl)?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(UpstreamError::NotUrl);
        }
        port_of(authority.as_str())?;
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return Err(UpstreamError::HasPath);
        }
        Ok(Self::Http { scheme: scheme_known, authority })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(Builtin::Demo) => f.write_str("builtin:demo"),
            Self::Builtin(Builtin::Echo) => f.write_str("builtin:echo"),
            Self::Http { scheme, authority } => write!(f, "{scheme}://{authority}"),
        }
    }
}

impl fmt::Display for UpstreamScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::H2c => "h2c",
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

/// Why a text is not an upstream.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// It has a path or a query, which would never be used.
    #[error("an upstream has no path or query")]
    HasPath,
    /// It does not say how to speak with the service.
    #[error("an upstream needs a scheme")]
    NoScheme,
    /// The rest is not a host with a port.
    #[error("this is not the address of a service")]
    NotUrl,
    /// There is nothing to connect to.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no such service in the gateway.
    #[error("unknown built-in service `{0}`")]
    UnknownBuiltin(String),
    /// The scheme is none that the gateway speaks.
    #[error("unknown scheme `{0}`")]
    UnknownScheme(String),
}

impl UpstreamError {
    /// Says what to write instead.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::HasPath => "choose paths with `path_prefix` and `strip_prefix`",
            Self::NoScheme | Self::UnknownScheme(_) => "start it with http://, https://, h2c:// or builtin:",
            Self::NotUrl | Self::Port(_) => "write SCHEME://HOST or SCHEME://HOST:PORT",
            Self::UnknownBuiltin(_) => "there are builtin:demo and builtin:echo",
        }
    }
}

impl Setting for Upstream {
    const EXPECTED: &'static str = "the URL of a service in quotes";

    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let Some(text) = node.get_ref().as_str() else { return reader.refuse::<Self>(node) };
        text.parse()
            .map_err(|reason: UpstreamError| reader.refuse_because(node, &reason.to_string(), reason.hint()))
            .ok()
    }

    fn write(&self) -> String {
        quoted(&self.to_string())
    }
}

impl Setting for KeySource {
    const EXPECTED: &'static str = "a PEM file or 32 bytes in Base64, in quotes";

    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let text = node.get_ref().as_str().filter(|text| !text.is_empty());
        let Some(text) = text else { return reader.refuse::<Self>(node) };
        Some(raw_key(text).map_or_else(|| Self::File(PathBuf::from(text)), Self::Raw))
    }

    fn write(&self) -> String {
        match self {
            Self::File(path) => path.write(),
            Self::Raw(key) => quoted(&base64::engine::general_purpose::STANDARD.encode(key)),
        }
    }
}

/// Takes 32 bytes in Base64 of either alphabet; no name of a file that someone chose looks like that.
fn raw_key(text: &str) -> Option<[u8; 32]> {
    let either = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    [alphabet::STANDARD, alphabet::URL_SAFE]
        .iter()
        .find_map(|letters| GeneralPurpose::new(letters, either).decode(text).ok()?.try_into().ok())
}
