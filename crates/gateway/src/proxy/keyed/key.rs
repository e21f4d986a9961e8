//! The `Idempotency-Key` of a request: how it is written, whose it is, and what the request asks for.

use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use ring::digest::{Context, SHA256};
pub use ropeway_core::request::KEY_HEADER;
use ropeway_core::request::idempotency::{Fingerprint, Scope};

use super::super::{Peer, ProxyError};
use crate::route::{RouteSpec, split_port};

/// The names under which a keyed request is remembered, and its key as it was understood.
#[derive(Debug)]
pub(in crate::proxy) struct Key {
    pub(super) scopes: Vec<Scope>,
}

impl Key {
    /// Reads the key of a request, if it has one; `credentials` are the headers that tell one anonymous client from another.
    ///
    /// # Errors
    /// [`ProxyError::KeyInvalid`] where the header is malformed, [`ProxyError::KeyMissing`] where the route wants one.
    pub(in crate::proxy) fn of<B>(
        request: &Request<B>,
        spec: &RouteSpec,
        authority: &Authority,
        peer: &Peer,
        credentials: &[HeaderName],
    ) -> Result<Option<Self>, ProxyError> {
        if spec.upstream_honours_keys {
            return Ok(None);
        }
        let headers = request.headers();
        let mut values = headers.get_all(KEY_HEADER).iter();
        let Some(value) = values.next() else {
            let is_wanted = spec.key_required && !ropeway_core::request::is_idempotent(request.method());
            return if is_wanted { Err(ProxyError::KeyMissing) } else { Ok(None) };
        };
        let key = if values.next().is_none() { read(value) } else { None };
        let key = key.ok_or(ProxyError::KeyInvalid)?;
        let host = host(spec, authority);
        // Whoever reads the wire in the clear could name themselves so.
        let secret = if peer.plain { None } else { secret(headers) };
        let mut scopes: Vec<Scope> =
            secret.map(|secret| scope(b"secret", &[secret], &host, &key)).into_iter().collect();
        match &peer.user {
            Some(user) => scopes.push(scope(b"user", &[user.as_bytes()], &host, &key)),
            None if secret.is_some() => {}
            None => {
                let values: Vec<&[u8]> = credentials.iter().flat_map(|name| named(headers, name)).collect();
                scopes.push(scope(b"credentials", &values, &host, &key));
            }
        }
        Ok(Some(Self { scopes }))
    }
}

/// Digests what a request asks for: method and path first, then the body as it comes.
#[derive(Clone)]
pub(super) struct Asked(Context);

impl Asked {
    pub(super) fn new(method: &Method, uri: &Uri) -> Self {
        let mut context = Context::new(&SHA256);
        part(&mut context, method.as_str().as_bytes());
        part(&mut context, uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes());
        Self(context)
    }

    pub(super) fn body(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    pub(super) fn fingerprint(self) -> Fingerprint {
        Fingerprint(digest(self.0))
    }
}

/// Reads the field: an sf-string (RFC 9651 section 3.3.3), whose parameters mean nothing here, or the bare word that most clients
/// send instead. `"a"` and `a` are the same key.
fn read(value: &HeaderValue) -> Option<Vec<u8>> {
    let text = value.as_bytes().trim_ascii();
    let key = match text.strip_prefix(b"\"") {
        Some(rest) => quoted(rest)?,
        None => text.to_vec(),
    };
    let is_bare = text.first() != Some(&b'"');
    let is_word = !is_bare || key.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';'));
    (is_word && (1..=KEY_BYTES_MAX).contains(&key.len())).then_some(key)
}

fn quoted(rest: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    let mut bytes = rest.iter();
    loop {
        match bytes.next()? {
            b'"' => break,
            b'\\' => key.push(*bytes.next().filter(|byte| matches!(byte, b'"' | b'\\'))?),
            byte @ 0x20..=0x7e => key.push(*byte),
            _ => return None,
        }
    }
    let rest = bytes.as_slice();
    (rest.is_empty() || rest.starts_with(b";")).then_some(key)
}

/// Names the service that a key is for: the same on every port, unless the route is for one port.
fn host(spec: &RouteSpec, authority: &Authority) -> Vec<u8> {
    let authority = authority.as_str().to_ascii_lowercase();
    let (host, port) = split_port(&authority);
    let host = host.strip_suffix('.').unwrap_or(host);
    match port {
        Some(port) if split_port(&spec.host).1.is_some() => format!("{host}:{port}").into_bytes(),
        Some(_) | None => host.as_bytes().to_vec(),
    }
}

fn named<'a>(headers: &'a HeaderMap, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]> {
    // The name as well: the same word in another header is another credential.
    headers.get_all(name).iter().flat_map(move |value| [name.as_str().as_bytes(), value.as_bytes()])
}

fn secret(headers: &HeaderMap) -> Option<&[u8]> {
    let secret = headers.get(SCOPE_HEADER)?.as_bytes();
    (secret.len() >= SECRET_BYTES_MIN).then_some(secret)
}

fn scope(kind: &[u8], principal: &[&[u8]], host: &[u8], key: &[u8]) -> Scope {
    let mut context = Context::new(&SHA256);
    part(&mut context, kind);
    part(&mut context, host);
    part(&mut context, key);
    for value in principal {
        part(&mut context, value);
    }
    Scope(digest(context))
}

/// With its length, so that no two lists of parts digest alike.
fn part(context: &mut Context, bytes: &[u8]) {
    context.update(&(bytes.len() as u64).to_be_bytes());
    context.update(bytes);
}

fn digest(context: Context) -> [u8; 32] {
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Request header with a secret of the sender, at least 16 bytes that nobody can guess: repeats of a keyed request that bring the
/// same one are known again whichever way they come. New for every user; taken off before the request goes on, and not heeded in
/// the clear.
pub const SCOPE_HEADER: HeaderName = HeaderName::from_static("ropeway-key-scope");

/// The headers that tell anonymous clients apart by default.
pub(super) const CREDENTIALS: [HeaderName; 2] = [header::AUTHORIZATION, header::COOKIE];

/// Bytes of a key: the limit of Stripe ("Idempotent requests"). The draft sets none.
const KEY_BYTES_MAX: usize = 255;

/// Bytes of a secret: the 128 bits that RFC 6750 section 5.2 expects of what must not be guessed, if all were random.
const SECRET_BYTES_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&'static str, &'static str)]) -> Request<()> {
        let mut request = Request::post("https://a.test/pay").body(()).expect("valid request");
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        request
    }

    fn scopes(headers: &[(&'static str, &'static str)], authority: &str, peer: &Peer) -> Vec<Scope> {
        let spec = RouteSpec::new("*", "builtin:echo");
        let authority = authority.parse().expect("an authority");
        let key = Key::of(&request(headers), &spec, &authority, peer, &CREDENTIALS).expect("valid").expect("a key");
        key.scopes
    }

    fn peer(user: Option<&str>) -> Peer {
        let peer = Peer::new("192.0.2.7:1".parse().expect("an address"));
        Peer { user: user.map(str::to_owned), ..peer }
    }

    #[test]
    fn a_key_is_a_quoted_string_or_a_bare_word() {
        let read =
            |text: &'static str| read(&HeaderValue::from_static(text)).map(|key| String::from_utf8(key).expect("text"));
        for (text, key) in [
            ("\"8e03978e\"", "8e03978e"),
            ("8e03978e-40d5", "8e03978e-40d5"),
            ("  \"a b\"  ", "a b"),
            (r#""a\"\\b""#, r#"a"\b"#),
            ("\"a\"; x=1", "a"),
        ] {
            assert_eq!(read(text).as_deref(), Some(key), "{text}");
        }
        for bad in ["", "\"\"", "\"a", "\"a\" b", "a b", "a,b", "a\"b", r#""\a""#, "\"a\", \"b\""] {
            assert_eq!(read(bad), None, "{bad}");
        }
        let long = HeaderValue::try_from("k".repeat(256)).expect("a value");
        assert_eq!(super::read(&long), None);
    }

    #[test]
    fn a_key_belongs_to_its_user_or_to_who_brings_the_same_credentials() {
        let key = ("idempotency-key", "k");
        let of = |headers: &[_], user| scopes(headers, "a.test", &peer(user));
        let ann = of(&[key], Some("ann"));
        assert_eq!(ann, of(&[key, ("authorization", "other")], Some("ann")));
        assert_ne!(ann, of(&[key], Some("bob")));
        assert_ne!(ann, of(&[key], None));
        let token = of(&[key, ("authorization", "t")], None);
        assert_eq!(token, of(&[("x-other", "1"), ("authorization", "t"), key], None));
        assert_ne!(token, of(&[key, ("cookie", "t")], None));
        assert_ne!(token, of(&[key], None));
    }

    #[test]
    fn a_secret_of_the_sender_is_a_name_of_its_own_but_not_in_the_clear() {
        let headers = [("idempotency-key", "k"), ("ropeway-key-scope", "0123456789abcdef")];
        let (link, front) = (scopes(&headers, "a.test", &peer(Some("ann"))), scopes(&headers, "a.test", &peer(None)));
        assert_eq!((link.len(), &front[..]), (2, &link[..1]));
        let anonymous = scopes(&headers[..1], "a.test", &peer(None));
        let plain = scopes(&headers, "a.test", &Peer { plain: true, ..peer(None) });
        assert_eq!(plain, anonymous);
        let short = scopes(&[headers[0], ("ropeway-key-scope", "short")], "a.test", &peer(None));
        assert_eq!(short, anonymous);
    }

    #[test]
    fn the_same_host_on_another_port_is_the_same_service() {
        let of = |authority| scopes(&[("idempotency-key", "k")], authority, &peer(None));
        assert_eq!(of("a.test"), of("A.test.:8443"));
        assert_ne!(of("a.test"), of("b.test"));
    }

    #[test]
    fn a_route_may_want_a_key_for_what_is_not_idempotent() {
        let spec = RouteSpec { key_required: true, ..RouteSpec::new("*", "builtin:echo") };
        let of = |request: &Request<()>| {
            Key::of(request, &spec, &Authority::from_static("a.test"), &peer(None), &CREDENTIALS)
                .map(|key| key.is_some())
        };
        assert_eq!(of(&request(&[])), Err(ProxyError::KeyMissing));
        assert_eq!(of(&Request::get("/").body(()).expect("valid request")), Ok(false));
        assert_eq!(of(&request(&[("idempotency-key", "a"), ("idempotency-key", "a")])), Err(ProxyError::KeyInvalid));
        assert_eq!(of(&request(&[("idempotency-key", "a")])), Ok(true));
    }

    #[test]
    fn a_fingerprint_covers_method_path_and_body() {
        let asked = |method: Method, path: &'static str, body: &[u8]| {
            let mut asked = Asked::new(&method, &Uri::from_static(path));
            body.chunks(1).for_each(|chunk| asked.body(chunk));
            asked.fingerprint()
        };
        let one = asked(Method::POST, "/a?b", b"body");
        assert_eq!(one, asked(Method::POST, "https://a.test/a?b", b"body"));
        for other in [
            asked(Method::PUT, "/a?b", b"body"),
            asked(Method::POST, "/a?c", b"body"),
            asked(Method::POST, "/a?b", b"bodY"),
            asked(Method::POST, "/a?bb", b"ody"),
        ] {
            assert_ne!(one, other);
        }
    }
}
