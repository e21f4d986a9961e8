//! Services inside the gateway that answer without a socket.

mod demo;

use http::{HeaderValue, Request, Response, header};

use crate::proxy::ProxyBody;

/// A built-in service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Builtin {
    /// A tiny site that explains itself: `/`, `/time`, `/stream`, `/slow?ms=`, `/bytes?n=`.
    Demo,
    /// Sends the request's body back, streaming, with method and path in headers.
    Echo,
}

impl Builtin {
    /// Finds a service by the name after `builtin:`.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "demo" => Some(Self::Demo),
            "echo" => Some(Self::Echo),
            _ => None,
        }
    }

    /// Answers a request.
    pub async fn answer(self, request: Request<ProxyBody>) -> Response<ProxyBody> {
        match self {
            Self::Demo => demo::answer(&request.map(drop)).await,
            Self::Echo => echo(request),
        }
    }
}

/// Moves the body from the request to the answer: nothing is copied or buffered.
fn echo(request: Request<ProxyBody>) -> Response<ProxyBody> {
    let (mut parts, body) = request.into_parts();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::TRAILER] {
        if let Some(value) = parts.headers.remove(&name) {
            headers.insert(name, value);
        }
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    for (name, value) in [("echo-method", parts.method.as_str()), ("echo-path", path)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    response
}
