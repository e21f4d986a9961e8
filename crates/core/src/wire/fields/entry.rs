//! One decoded field, checked against the rules of RFC 9113 section 8.

use http::{
    HeaderName, HeaderValue, Method, StatusCode, header,
    uri::{Authority, PathAndQuery, Scheme},
};

use super::{FieldError, entry_size, table::NameId};

/// A field in the form in which a message holds it.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Authority(Authority),
    Header(HeaderName, HeaderValue),
    Method(Method),
    Path(PathAndQuery),
    Scheme(Scheme),
    Status(StatusCode),
}

/// The name of a field whose value is still to come.
#[derive(Clone, Debug)]
pub(super) enum Name {
    Authority,
    Header(HeaderName),
    Method,
    Path,
    Scheme,
    Status,
}

impl Name {
    /// Reads a name that travelled as bytes.
    pub(super) fn new(name: &[u8]) -> Result<Self, FieldError> {
        if name.first() != Some(&b':') {
            return HeaderName::from_lowercase(name).map(Self::Header).map_err(|_| FieldError::InvalidName);
        }
        Self::pseudo(name).ok_or(FieldError::UnknownPseudo)
    }

    /// Returns the name with this number in the name table.
    pub(super) fn of(id: NameId) -> Self {
        match id.header() {
            Some(name) => Self::Header(name.clone()),
            None => Self::pseudo(id.text().as_bytes()).expect("the name table holds the five pseudo-fields alone"),
        }
    }

    fn pseudo(name: &[u8]) -> Option<Self> {
        match name {
            b":authority" => Some(Self::Authority),
            b":method" => Some(Self::Method),
            b":path" => Some(Self::Path),
            b":scheme" => Some(Self::Scheme),
            b":status" => Some(Self::Status),
            _ => None,
        }
    }
}

impl Entry {
    /// Joins a name and a value.
    pub(super) fn new(name: Name, value: &[u8]) -> Result<Self, FieldError> {
        let invalid = |name| FieldError::InvalidValue { name };
        match name {
            Name::Authority => authority(value).map(Self::Authority).ok_or(invalid(":authority")),
            Name::Header(name) => {
                let value = HeaderValue::from_bytes(value).map_err(|_| FieldError::InvalidHeader)?;
                Self::header(name, value)
            }
            Name::Method => match Method::from_bytes(value) {
                Ok(Method::CONNECT) => Err(FieldError::ConnectUnsupported),
                Ok(method) => Ok(Self::Method(method)),
                Err(_) => Err(invalid(":method")),
            },
            Name::Path => path(value).map(Self::Path).ok_or(invalid(":path")),
            Name::Scheme => match value {
                b"http" => Ok(Self::Scheme(Scheme::HTTP)),
                b"https" => Ok(Self::Scheme(Scheme::HTTPS)),
                _ => Err(invalid(":scheme")),
            },
            Name::Status => StatusCode::from_bytes(value).map(Self::Status).map_err(|_| invalid(":status")),
        }
    }

    /// Joins a name and a value of the static table.
    pub(super) fn of(id: NameId, value: &'static HeaderValue) -> Result<Self, FieldError> {
        match id.header() {
            Some(name) => Self::header(name.clone(), value.clone()),
            None => Self::new(Name::of(id), value.as_bytes()),
        }
    }

    /// Returns the name alone.
    pub(super) fn name(&self) -> Name {
        match self {
            Self::Authority(_) => Name::Authority,
            Self::Header(name, _) => Name::Header(name.clone()),
            Self::Method(_) => Name::Method,
            Self::Path(_) => Name::Path,
            Self::Scheme(_) => Name::Scheme,
            Self::Status(_) => Name::Status,
        }
    }

    /// Returns what the field counts against the limits.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Authority(authority) => entry_size(":authority".len(), authority.as_str().len()),
            Self::Header(name, value) => entry_size(name.as_str().len(), value.len()),
            Self::Method(method) => entry_size(":method".len(), method.as_str().len()),
            Self::Path(path) => entry_size(":path".len(), path.as_str().len()),
            Self::Scheme(scheme) => entry_size(":scheme".len(), scheme.as_str().len()),
            Self::Status(status) => entry_size(":status".len(), status.as_str().len()),
        }
    }

    fn header(name: HeaderName, value: HeaderValue) -> Result<Self, FieldError> {
        if is_forbidden(&name, &value) {
            return Err(FieldError::Forbidden { name });
        }
        Ok(Self::Header(name, value))
    }
}

/// Says whether a header speaks about one connection and so has no place in a message on a link (RFC 9113 sections
/// 8.2.2 and 8.3.1). `host` is among them: `:authority` takes its place.
#[must_use]
pub fn is_forbidden(name: &HeaderName, value: &HeaderValue) -> bool {
    match *name {
        header::CONNECTION | header::HOST | header::TRANSFER_ENCODING | header::UPGRADE => true,
        header::TE => value != "trailers",
        _ => matches!(name.as_str(), "keep-alive" | "proxy-connection"),
    }
}

fn authority(value: &[u8]) -> Option<Authority> {
    // RFC 9113 section 8.3.1 forbids user information, which is all that may stand before an @.
    if value.contains(&b'@') {
        return None;
    }
    Authority::try_from(value).ok()
}

fn path(value: &[u8]) -> Option<PathAndQuery> {
    if value.first() != Some(&b'/') && value != b"*" {
        return None;
    }
    // A fragment would be cut off without a word.
    PathAndQuery::try_from(value).ok().filter(|path| path.as_str().len() == value.len())
}
