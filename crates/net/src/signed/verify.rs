//! The client's end: asks for a signature, and takes nothing of an answer that it does not cover.

use std::fmt;

use ed25519_dalek::Signature;
use http::{HeaderMap, HeaderName, HeaderValue, Response, request};
use thiserror::Error;

use super::{
    ALGORITHM, COMPONENTS_MAX, FIELD_BYTES_MAX, LABEL, NONCE_BYTES, TAG,
    base::{self, Facts, signature_base},
    content_digest,
    fields::{self, Component, Input},
    sign::{ACCEPT_SIGNATURE, CONTENT_DIGEST, SIGNATURE, SIGNATURE_INPUT},
};

/// A public key by which answers are verified. It must come from the gateway itself, over TLS or in a signed list.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    /// Its id.
    pub id: String,
    key: ed25519_dalek::VerifyingKey,
}

/// What a client asked for, kept until the answer is there.
#[derive(Debug)]
pub struct Ask {
    facts: Facts,
    components: Vec<Component>,
    nonce: String,
}

/// Why an answer is not the gateway's, or not as the gateway sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The content is not what the digest says.
    #[error("content is not what was signed")]
    Content,
    /// The signature is for another request: one sent before, or this one changed on the way.
    #[error("signature is for another request")]
    Request,
    /// The signature does not fit the answer.
    #[error("signature does not fit the answer")]
    Signature,
    /// It was signed with a key that is not known.
    #[error("signed with an unknown key")]
    UnknownKey,
    /// There is no signature.
    #[error("answer is not signed")]
    Unsigned,
}

impl VerifyingKey {
    /// Takes the 32 bytes of a public key; `None` if they are none.
    #[must_use]
    pub fn new(id: &str, public: &[u8; 32]) -> Option<Self> {
        let key = ed25519_dalek::VerifyingKey::from_bytes(public).ok()?;
        (!key.is_weak()).then(|| Self { id: id.to_owned(), key })
    }

    /// Returns the 32 bytes.
    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        self.key.to_bytes()
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyingKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Ask {
    /// Asks for a signed answer: puts `accept-signature`, and `content-digest` where there is content, into a request that
    /// is ready to be sent otherwise. `nonce` must be random, and new for each request.
    ///
    /// `None` if the request has no authority, or headers that cannot be covered because they are no ASCII.
    pub fn new(head: &mut request::Parts, content: &[u8], nonce: [u8; NONCE_BYTES]) -> Option<Self> {
        head.headers.remove(CONTENT_DIGEST);
        head.headers.remove(ACCEPT_SIGNATURE);
        if !content.is_empty() {
            head.headers.insert(CONTENT_DIGEST, HeaderValue::try_from(content_digest(content)).ok()?);
        }
        let facts = Facts::of(&head.method, &head.uri, &head.headers)?;
        let own = ["@method", "@authority", "@path", "@query"].map(Component::of_request);
        let covered = head.headers.keys().filter(|name| base::is_end_to_end(name));
        let components: Vec<_> =
            own.into_iter().chain(covered.map(|name| Component::of_request(name.as_str()))).collect();
        let nonce = fields::base64(&nonce);
        let input = Input {
            components: components.clone(),
            alg: Some(ALGORITHM.to_owned()),
            nonce: Some(nonce.clone()),
            tag: Some(TAG.to_owned()),
            ..Input::default()
        };
        head.headers.insert(ACCEPT_SIGNATURE, HeaderValue::try_from(format!("{LABEL}={}", input.write())).ok()?);
        Some(Self { facts, components, nonce })
    }

    /// Takes an answer that one of the keys signed for this request, with nothing but what the signature covers.
    ///
    /// # Errors
    ///
    /// A [`VerifyError`]; nothing of the answer may be used then.
    pub fn verify<B: AsRef<[u8]>>(
        self,
        keys: &[VerifyingKey],
        answer: Response<B>,
    ) -> Result<Response<B>, VerifyError> {
        let (mut head, content) = answer.into_parts();
        let text = only(&head.headers, &SIGNATURE_INPUT).ok_or(VerifyError::Unsigned)?.to_owned();
        let signature = only(&head.headers, &SIGNATURE).and_then(|text| fields::bytes(text, LABEL));
        let signature = signature.ok_or(VerifyError::Unsigned)?;
        let input = Input::find(&text, LABEL, COMPONENTS_MAX).ok_or(VerifyError::Unsigned)?;
        let is_ours = input.tag.as_deref() == Some(TAG) && input.alg.as_deref() == Some(ALGORITHM);
        if !is_ours {
            return Err(VerifyError::Unsigned);
        }
        let key = keys.iter().find(|key| Some(&key.id) == input.keyid.as_ref()).ok_or(VerifyError::UnknownKey)?;
        if input.nonce.as_ref() != Some(&self.nonce) {
            return Err(VerifyError::Request);
        }
        let is_covered = |component: &Component| input.components.contains(component);
        let base = signature_base(&input.components, &input.write(), &self.facts, head.status, &head.headers)
            .ok_or(VerifyError::Signature)?;
        let signature = Signature::from_slice(&signature).map_err(|_| VerifyError::Signature)?;
        key.key.verify_strict(base.as_bytes(), &signature).map_err(|_| VerifyError::Signature)?;
        if !self.components.iter().all(is_covered) {
            return Err(VerifyError::Request);
        }
        if ![Component::of_answer("@status"), Component::of_answer("content-digest")].iter().all(is_covered) {
            return Err(VerifyError::Signature);
        }
        let digest = content_digest(content.as_ref());
        if head.headers.get(CONTENT_DIGEST).is_none_or(|told| told.as_bytes() != digest.as_bytes()) {
            return Err(VerifyError::Content);
        }
        let foreign: Vec<HeaderName> =
            head.headers.keys().filter(|name| !is_covered(&Component::of_answer(name.as_str()))).cloned().collect();
        foreign.into_iter().for_each(|name| drop(head.headers.remove(name)));
        Ok(Response::from_parts(head, content))
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    value.to_str().ok().filter(|text| text.len() <= FIELD_BYTES_MAX)
}
