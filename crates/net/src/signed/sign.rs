//! The gateway's end: what was asked, and the signature of the answer.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ed25519_dalek::Signer;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, request, response};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{
    ALGORITHM, COMPONENTS_MAX, FIELD_BYTES_MAX, LABEL, TAG,
    base::{self, Facts, signature_base},
    content_digest,
    fields::{self, Component, Input},
};

/// A private key that signs answers.
pub struct SigningKey {
    id: String,
    key: ed25519_dalek::SigningKey,
}

/// A request for a signed answer, kept until the answer is there.
#[derive(Clone, Debug)]
pub struct Asked {
    facts: Facts,
    components: Vec<Component>,
    nonce: String,
}

/// Why a request for a signed answer cannot be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AskError {
    /// The content of the request is not what its digest says.
    #[error("content of the request is not what its digest says")]
    Digest,
    /// What is asked for is malformed, or something that is to be covered is not there.
    #[error("request for a signature is malformed")]
    Malformed,
}

impl SigningKey {
    /// Makes the key that follows from a seed (RFC 8032 section 5.1.5). Its id follows from the public key.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = ed25519_dalek::SigningKey::from_bytes(seed);
        let mut id = URL_SAFE_NO_PAD.encode(Sha256::digest(key.verifying_key().as_bytes()));
        id.truncate(ID_CHARS);
        Self { id, key }
    }

    /// Returns the key's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    /// Signs an answer: puts `content-digest`, `signature-input` and `signature` into its head.
    ///
    /// `content` is what will be sent, nothing for an answer to HEAD. `created` is Unix time in s.
    pub fn sign(&self, asked: &Asked, head: &mut response::Parts, content: &[u8], created: u64) {
        let headers = &mut head.headers;
        [SIGNATURE, SIGNATURE_INPUT].iter().for_each(|name| drop(headers.remove(name)));
        insert(headers, CONTENT_DIGEST, &content_digest(content));
        let mut components = asked.components.clone();
        components.push(Component::of_answer("@status"));
        components.extend(covered(headers).map(|name| Component::of_answer(name.as_str())));
        let input = Input {
            components,
            created: Some(created),
            keyid: Some(self.id.clone()),
            alg: Some(ALGORITHM.to_owned()),
            nonce: Some(asked.nonce.clone()),
            tag: Some(TAG.to_owned()),
        };
        let text = input.write();
        let base = signature_base(&input.components, &text, &asked.facts, head.status, &head.headers)
            .expect("what is covered was found there");
        let signature = self.key.sign(base.as_bytes());
        insert(&mut head.headers, SIGNATURE_INPUT, &format!("{LABEL}={text}"));
        insert(&mut head.headers, SIGNATURE, &format!("{LABEL}=:{}:", fields::base64(&signature.to_bytes())));
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Asked {
    /// Takes what a request asks for.
    ///
    /// # Errors
    ///
    /// [`AskError::Malformed`] if it asks for no signature of ours, or for one that cannot be made.
    pub fn of(head: &request::Parts) -> Result<Self, AskError> {
        let texts: Vec<&str> =
            head.headers.get_all(ACCEPT_SIGNATURE).iter().filter_map(|value| value.to_str().ok()).collect();
        Self::parse(head, &texts.join(", ")).ok_or(AskError::Malformed)
    }

    fn parse(head: &request::Parts, text: &str) -> Option<Self> {
        if text.len() > FIELD_BYTES_MAX {
            return None;
        }
        let input = Input::find(text, LABEL, COMPONENTS_MAX)?;
        if input.tag.as_deref() != Some(TAG) || input.alg.is_some_and(|alg| alg != ALGORITHM) {
            return None;
        }
        let nonce = input.nonce.filter(|nonce| (1..=NONCE_CHARS_MAX).contains(&nonce.len()))?;
        // Every answer's own parts are covered anyway.
        let components: Vec<_> = input.components.into_iter().filter(|component| component.of_request).collect();
        let facts = Facts::of(&head.method, &head.uri, &head.headers)?;
        signature_base(&components, "", &facts, StatusCode::OK, &HeaderMap::new())?;
        Some(Self { facts, components, nonce })
    }

    /// Takes from a request what is not covered, so that nobody on the way can have added it.
    pub fn strip(&self, headers: &mut HeaderMap) {
        let is_covered = |name: &HeaderName| self.components.contains(&Component::of_request(name.as_str()));
        let foreign: Vec<HeaderName> =
            headers.keys().filter(|name| base::is_end_to_end(name) && !is_covered(name)).cloned().collect();
        foreign.into_iter().for_each(|name| drop(headers.remove(name)));
    }

    /// Compares the content of the request with its digest, where it has one.
    ///
    /// # Errors
    ///
    /// [`AskError::Digest`] if it is another: the request was changed on the way, and must not be executed.
    pub fn check(&self, content: &[u8]) -> Result<(), AskError> {
        let mut told = self.facts.headers.get_all(CONTENT_DIGEST).iter();
        let is_right = match (told.next(), told.next()) {
            (Some(told), None) => told.as_bytes() == content_digest(content).as_bytes(),
            (None, _) => content.is_empty(),
            (Some(_), Some(_)) => false,
        };
        if is_right { Ok(()) } else { Err(AskError::Digest) }
    }
}

/// Says whether a request asks for a signature of ours. Others are left to the service.
#[must_use]
pub fn is_asked(headers: &HeaderMap) -> bool {
    let is_ours = |text: &str| text.contains(TAG);
    headers.get_all(ACCEPT_SIGNATURE).iter().any(|value| value.to_str().is_ok_and(is_ours))
}

/// Names the headers of an answer that are covered, each once, in their order. What is no ASCII is not, and does not count.
fn covered(headers: &HeaderMap) -> impl Iterator<Item = &HeaderName> {
    headers
        .keys()
        .filter(|name| base::is_end_to_end(name) && headers.get_all(*name).iter().all(|value| value.to_str().is_ok()))
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    let value = HeaderValue::try_from(value).expect("names, digits, Base64 and marks");
    headers.insert(name, value);
}

pub(super) const ACCEPT_SIGNATURE: HeaderName = HeaderName::from_static("accept-signature");
pub(super) const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("signature");
pub(super) const SIGNATURE_INPUT: HeaderName = HeaderName::from_static("signature-input");

/// Characters of a nonce that is taken over. 128; five times what ours has.
const NONCE_CHARS_MAX: usize = 128;

/// Characters of a key's id: 72 bits tell the keys of all gateways apart.
const ID_CHARS: usize = 12;
