//! HTTP messages as Binary HTTP of known length (RFC 9292), and back.

use std::{
    io::Cursor,
    time::{Duration, SystemTime},
};

use bhttp::{ControlData, FieldSection, Message, Mode};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header, uri::PathAndQuery};
use thiserror::Error;

/// A body that is held whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Its bytes.
    pub data: Bytes,
    /// What followed them, where something did.
    pub trailers: Option<HeaderMap>,
}

impl From<Bytes> for Content {
    fn from(data: Bytes) -> Self {
        Self { data, trailers: None }
    }
}

/// Why what was sealed is no HTTP message, or why a message cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Its encoding is broken.
    #[error("binary http is malformed")]
    Encoding,
    /// A header or trailer is malformed.
    #[error("a field of the message is malformed")]
    Field,
    /// It is an answer where a request belongs, or the other way round.
    #[error("message is not of the kind that belongs here")]
    Kind,
    /// Method, scheme, authority or path are missing or malformed, or the method is CONNECT.
    #[error("target of the request is malformed")]
    Target,
    /// It has too many headers or trailers.
    #[error("message has more than {FIELDS_MAX} fields")]
    TooManyFields,
}

/// Writes a time as HTTP does (RFC 9110 section 5.6.7), from Unix time in ms.
#[must_use]
pub fn http_date(unix_ms: u64) -> HeaderValue {
    // The format ends with the year 9999.
    let seconds = (unix_ms / 1_000).min(DATE_SECONDS_MAX);
    let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    HeaderValue::try_from(text).expect("a date is letters, digits and blanks")
}

/// Reads a time as HTTP writes it, as Unix time in ms.
#[must_use]
pub fn parse_http_date(value: &HeaderValue) -> Option<u64> {
    let time = httpdate::parse_http_date(value.to_str().ok()?).ok()?;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Writes a request, whose target must be absolute; what concerns one connection only stays behind.
///
/// # Errors
///
/// A [`MessageError`] if it cannot be written.
pub fn encode_request(head: &http::request::Parts, content: &Content) -> Result<Vec<u8>, MessageError> {
    let uri = &head.uri;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(MessageError::Target) };
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    if head.method == Method::CONNECT {
        return Err(MessageError::Target);
    }
    let mut message =
        Message::request(head.method.as_str().into(), scheme.into(), authority.as_str().into(), path.into());
    put_fields(&mut message, &head.headers, content)?;
    written(&message)
}

/// Reads a request; its target is absolute, and its `date` is taken out and given beside it, in ms of Unix time.
///
/// # Errors
///
/// A [`MessageError`] if the bytes are none.
pub fn decode_request(bytes: &[u8]) -> Result<(Request<Content>, Option<u64>), MessageError> {
    let message = read(bytes)?;
    let ControlData::Request { method, scheme, authority, path } = message.control() else {
        return Err(MessageError::Kind);
    };
    let method = Method::from_bytes(method).map_err(|_| MessageError::Target)?;
    if method == Method::CONNECT || !matches!(&scheme[..], b"http" | b"https") || authority.is_empty() {
        return Err(MessageError::Target);
    }
    let uri = Uri::builder().scheme(&scheme[..]).authority(&authority[..]).path_and_query(&path[..]);
    let uri = uri.build().map_err(|_| MessageError::Target)?;
    let mut headers = fields(message.header())?;
    let date_ms = headers.remove(header::DATE).as_ref().and_then(parse_http_date);
    let mut request = Request::new(content(&message)?);
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
    Ok((request, date_ms))
}

/// Writes an answer; what concerns one connection only stays behind.
///
/// # Errors
///
/// A [`MessageError`] if it cannot be written.
pub fn encode_response(head: &http::response::Parts, content: &Content) -> Result<Vec<u8>, MessageError> {
    let status = bhttp::StatusCode::try_from(head.status.as_u16()).map_err(|_| MessageError::Target)?;
    if head.status.is_informational() {
        return Err(MessageError::Kind);
    }
    let mut message = Message::response(status);
    put_fields(&mut message, &head.headers, content)?;
    written(&message)
}

/// Reads an answer; informational ones before it are passed over.
///
/// # Errors
///
/// A [`MessageError`] if the bytes are none.
pub fn decode_response(bytes: &[u8]) -> Result<Response<Content>, MessageError> {
    let message = read(bytes)?;
    let status = message.control().status().ok_or(MessageError::Kind)?;
    let mut response = Response::new(content(&message)?);
    *response.status_mut() = StatusCode::from_u16(status.code()).map_err(|_| MessageError::Kind)?;
    *response.headers_mut() = fields(message.header())?;
    Ok(response)
}

fn put_fields(message: &mut Message, headers: &HeaderMap, content: &Content) -> Result<(), MessageError> {
    let trailers = content.trailers.iter().flatten();
    if headers.len() > FIELDS_MAX || trailers.count() > FIELDS_MAX {
        return Err(MessageError::TooManyFields);
    }
    for (name, value) in headers.iter().filter(|(name, _)| !CONNECTION_FIELDS.contains(*name)) {
        message.put_header(name.as_str(), value.as_bytes());
    }
    message.write_content(&content.data);
    for (name, value) in content.trailers.iter().flat_map(HeaderMap::iter) {
        message.put_trailer(name.as_str(), value.as_bytes());
    }
    Ok(())
}

fn written(message: &Message) -> Result<Vec<u8>, MessageError> {
    let mut bytes = Vec::new();
    message.write_bhttp(Mode::KnownLength, &mut bytes).map_err(|_| MessageError::Encoding)?;
    Ok(bytes)
}

fn read(bytes: &[u8]) -> Result<Message, MessageError> {
    Message::read_bhttp(&mut Cursor::new(bytes)).map_err(|_| MessageError::Encoding)
}

fn content(message: &Message) -> Result<Content, MessageError> {
    let trailers = if message.trailer().is_empty() { None } else { Some(fields(message.trailer())?) };
    Ok(Content { data: Bytes::copy_from_slice(message.content()), trailers })
}

fn fields(section: &FieldSection) -> Result<HeaderMap, MessageError> {
    if section.len() > FIELDS_MAX {
        return Err(MessageError::TooManyFields);
    }
    let mut headers = HeaderMap::with_capacity(section.len());
    for field in section.iter() {
        // Binary HTTP has names in lower case only (RFC 9292 section 3.6); pseudo-fields are no names here at all.
        if field.name().iter().any(u8::is_ascii_uppercase) {
            return Err(MessageError::Field);
        }
        let name = HeaderName::from_bytes(field.name()).map_err(|_| MessageError::Field)?;
        let value = HeaderValue::from_bytes(field.value()).map_err(|_| MessageError::Field)?;
        if !CONNECTION_FIELDS.contains(&name) {
            headers.try_append(name, value).map_err(|_| MessageError::TooManyFields)?;
        }
    }
    Ok(headers)
}

/// Headers, or trailers, of one message. 128; hyper takes 100 by default, and a gateway adds a few.
pub const FIELDS_MAX: usize = 128;

/// Fields that concern one connection only and have no place in a sealed message (RFC 9292 section 3.6, RFC 9110
/// section 7.6.1).
const CONNECTION_FIELDS: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The last second that HTTP can write: 9999-12-31T23:59:59Z.
const DATE_SECONDS_MAX: u64 = 253_402_300_799;
