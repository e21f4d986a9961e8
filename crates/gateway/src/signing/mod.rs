//! Signs answers over plain HTTP, for clients that ask for it, so that nobody on the way can change them unnoticed.
//!
//! Only routes with `plain_http` are served over plain HTTP at all. A client that wants to know that an answer is the
//! gateway's own asks by `Accept-Signature` (RFC 9421 section 5). Its request and the answer are held whole: the request's
//! content is compared with its digest before anything runs, and the answer always has a length.

mod refusal;

use std::{path::Path, sync::Arc};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Version, header};
use ropeway_net::{
    pipe::Content,
    signed::{Asked, SigningKey},
    unix_ms,
};
use tokio::time::timeout;

use self::refusal::Refused;
use crate::{
    config::Config,
    gateway::StartError,
    held::{ANSWER_TIMEOUT, BODY_TIMEOUT, Collect, Places, collect, full, whole},
    metrics::Metrics,
    proxy::{Peer, Proxy, ProxyBody},
    secret,
};

/// A public key by which answers are verified, as clients need it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PublicKey {
    /// Its id.
    pub id: String,
    /// The 32 bytes of an Ed25519 key.
    pub public: [u8; 32],
}

/// Signs answers.
#[derive(Debug)]
pub(crate) struct Signer {
    key: SigningKey,
    places: Places,
    request_bytes_max: usize,
    answer_bytes_max: usize,
    metrics: Arc<Metrics>,
}

impl Signer {
    /// Makes a signer with the key that the configuration names, or with that of the data folder, which is made where there is
    /// none.
    pub(crate) fn open(config: &Config, metrics: &Arc<Metrics>) -> Result<Arc<Self>, StartError> {
        Ok(Arc::new(Self {
            key: open_key(config)?,
            places: Places::new(config.plain_http.in_flight_max),
            request_bytes_max: config.plain_http.request_bytes_max,
            answer_bytes_max: config.plain_http.answer_bytes_max,
            metrics: Arc::clone(metrics),
        }))
    }

    /// Returns the public key.
    pub(crate) fn public(&self) -> PublicKey {
        PublicKey { id: self.key.id().to_owned(), public: self.key.public() }
    }

    /// Answers a request for the public key: a JWK set (RFC 7517 section 5, RFC 8037 section 2).
    pub(crate) fn keys(&self, method: &Method, plain: bool) -> Response<ProxyBody> {
        let refused = match (method, plain) {
            (&Method::GET | &Method::HEAD, false) => {
                let public = URL_SAFE_NO_PAD.encode(self.key.public());
                let key = serde_json::json!({
                    "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.key.id(), "x": public,
                });
                let set = serde_json::json!({ "keys": [key] }).to_string();
                return whole("application/jwk-set+json", set.into());
            }
            (&Method::GET | &Method::HEAD, true) => Refused::KeysOverPlain,
            _ => Refused::Method,
        };
        self.count(refused.name());
        refused.into_response().map(full)
    }

    /// Answers a request that asks for a signed answer, and signs the answer.
    pub(crate) async fn answer(&self, request: Request<ProxyBody>, proxy: &Proxy, peer: Peer) -> Response<ProxyBody> {
        let is_http10 = request.version() == Version::HTTP_10;
        let is_head = request.method() == Method::HEAD;
        let (mut head, body) = request.into_parts();
        let mut response = match Asked::of(&head) {
            Err(_) => {
                self.count(Refused::Malformed.name());
                Refused::Malformed.into_response().map(full)
            }
            Ok(asked) => {
                asked.strip(&mut head.headers);
                let served = self.serve(Request::from_parts(head, body), &asked, proxy, peer).await;
                self.count(served.as_ref().err().map_or("answered", |refused| refused.name()));
                let answer = served.unwrap_or_else(|refused| refused.into_response().map(Content::from));
                self.signed(&asked, answer, is_head)
            }
        };
        if is_http10 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn serve(
        &self,
        request: Request<ProxyBody>,
        asked: &Asked,
        proxy: &Proxy,
        peer: Peer,
    ) -> Result<Response<Content>, Refused> {
        let (head, body) = request.into_parts();
        let collected = timeout(BODY_TIMEOUT, self.places.collect(body, self.request_bytes_max)).await;
        let content = collected.map_err(|_| Refused::Slow)?.map_err(|error| match error {
            Collect::Busy => Refused::Busy,
            Collect::Failed(_) => Refused::Cut,
            Collect::TooLarge => Refused::TooLarge,
        })?;
        let _place = self.places.serve().ok_or(Refused::Busy)?;
        asked.check(&content.data).map_err(|_| Refused::Digest)?;
        let serving = async {
            match proxy.forward(Request::from_parts(head, full(content.data)), peer).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let content = collect(body, self.answer_bytes_max).await?;
                    Ok(Response::from_parts(head, content))
                }
                Err(error) => Err(Collect::Failed(error)),
            }
        };
        match timeout(ANSWER_TIMEOUT, serving).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(Collect::Failed(error))) => {
                let (head, _) = error.into_response().into_parts();
                Ok(Response::from_parts(head, Bytes::from_static(error.name().as_bytes()).into()))
            }
            Ok(Err(Collect::Busy | Collect::TooLarge)) => Err(Refused::AnswerTooLarge),
            Err(_) => Err(Refused::AnswerSlow),
        }
    }

    fn signed(&self, asked: &Asked, answer: Response<Content>, is_head: bool) -> Response<ProxyBody> {
        let (mut head, content) = answer.into_parts();
        let sent: &[u8] = if is_head { b"" } else { &content.data };
        // Trailers are not covered, and a message with a length has none.
        head.headers.remove(header::TRAILER);
        self.key.sign(asked, &mut head, sent, unix_ms() / 1_000);
        Response::from_parts(head, full(content.data))
    }

    fn count(&self, outcome: &'static str) {
        self.metrics.signed_answers(outcome).inc();
    }
}

/// Reads the key that a gateway would sign with, and makes none.
pub(crate) fn check_key(config: &Config) -> Result<(), StartError> {
    match config.plain_http.key_file.is_some() || config.signing_key_path().exists() {
        true => open_key(config).map(drop),
        false => Ok(()),
    }
}

fn open_key(config: &Config) -> Result<SigningKey, StartError> {
    let path = config.signing_key_path();
    // One that gateways share is for their operator to make: a key made here would be another than that of the others.
    let key = match config.plain_http.key_file {
        Some(_) => read(&path).and_then(|key| key.ok_or_else(|| format!("there is no such file; {COPY_ONE}"))),
        None => read_or_make(&path),
    };
    key.map_err(|reason| StartError::SigningKey { path, reason })
}

/// Reads the key of a file; `None` where there is no such file.
fn read(path: &Path) -> Result<Option<SigningKey>, String> {
    let Some(text) = secret::read(path).map_err(|error| error.to_string())? else { return Ok(None) };
    let seed = STANDARD.decode(text.trim()).ok().and_then(|seed| <[u8; 32]>::try_from(seed).ok());
    let seed = seed.ok_or_else(|| format!("there are no 32 bytes in Base64 in it; {COPY_ONE}"))?;
    Ok(Some(SigningKey::from_seed(&seed)))
}

fn read_or_make(path: &Path) -> Result<SigningKey, String> {
    if let Some(key) = read(path)? {
        return Ok(key);
    }
    let seed: [u8; 32] = crate::random_bytes();
    secret::write(path, &format!("{}\n", STANDARD.encode(seed))).map_err(|error| error.to_string())?;
    Ok(SigningKey::from_seed(&seed))
}

/// What to do about a file that holds no key.
const COPY_ONE: &str = "copy that of another gateway, or make one with `openssl rand -base64 32`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_stays_and_a_damaged_one_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("signing.key");
        let first = read_or_make(&path).expect("made");
        assert_eq!(read_or_make(&path).expect("read").public(), first.public());
        std::fs::write(&path, "c2hvcnQ=").expect("written");
        let error = read_or_make(&path).expect_err("damaged");
        assert!(error.contains("32 bytes"), "{error}");
    }

    #[test]
    fn a_key_that_gateways_share_is_read_from_its_file_and_never_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.gateway.data_dir = folder.path().join("one");
        std::fs::create_dir(&config.gateway.data_dir).expect("made");
        let metrics = Arc::new(Metrics::new());
        let own = Signer::open(&config, &metrics).expect("made");
        let shared = folder.path().join("shared.key");
        config.plain_http.key_file = Some(shared.clone());
        let refused = Signer::open(&config, &metrics).expect_err("nothing there").to_string();
        assert!(refused.contains("shared.key") && refused.contains("no such file"), "{refused}");
        assert!(!shared.exists());
        std::fs::copy(config.gateway.data_dir.join("signing.key"), &shared).expect("copied");
        config.gateway.data_dir = folder.path().join("two");
        assert_eq!(Signer::open(&config, &metrics).expect("read").public(), own.public());
    }
}
