//! Admits a link: HELLO names and signs, PROOF binds both to this very connection.

use std::time::Duration;

use ed25519_dalek::{Signature, VerifyingKey};
use prost::Message;

use crate::wire::{
    Frame, FrameRef, Kind,
    message::{Hello, Proof, Refuse, RefuseCode, SignedHello},
};

/// The gateway's end of the handshake of one link, before there is a session.
///
/// The edge calls [`handle_hello`](Self::handle_hello), checks the ticket it returns, answers with the device key the ticket names
/// through [`handle_device_key`](Self::handle_device_key), and passes PROOF to [`handle_proof`](Self::handle_proof).
#[derive(Debug)]
pub struct Accept {
    gateway: String,
    skew: Duration,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    AwaitHello,
    AwaitKey(Box<(Hello, SignedHello)>),
    AwaitProof(Box<(Hello, VerifyingKey)>),
    Done,
}

/// A link that may have a session.
#[derive(Debug)]
pub struct Admitted {
    /// What the client said.
    pub hello: Hello,
    /// The key that signed it.
    pub device_key: [u8; 32],
}

/// Why a link is refused; becomes a REFUSE frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("link refused: {detail}")]
pub struct Refusal {
    /// The reason, for the client's machine.
    pub code: RefuseCode,
    /// The reason, for people.
    pub detail: String,
    /// When the client may try again; zero leaves it to the client.
    pub retry_after: Duration,
}

impl Refusal {
    /// Makes a refusal without a time to come back.
    #[must_use]
    pub fn new(code: RefuseCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), retry_after: Duration::ZERO }
    }

    /// Returns the frame that tells the client.
    #[must_use]
    pub fn frame(&self) -> Frame {
        let retry_after_ms = u32::try_from(self.retry_after.as_millis()).unwrap_or(u32::MAX);
        let refuse = Refuse { code: self.code.into(), retry_after_ms, detail: self.detail.clone() };
        Frame::control(Kind::Refuse, &refuse)
    }

    /// Returns the stable name of the reason, for metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.code {
            RefuseCode::BadSignature => "bad_signature",
            RefuseCode::ClockSkew => "clock_skew",
            RefuseCode::Draining => "draining",
            RefuseCode::HelloTimeout => "hello_timeout",
            RefuseCode::Internal => "internal",
            RefuseCode::Overloaded => "overloaded",
            RefuseCode::Protocol => "protocol",
            RefuseCode::Replayed => "replayed_hello",
            RefuseCode::ResumeRefused => "resume_refused",
            RefuseCode::TicketExpired => "ticket_expired",
            RefuseCode::TicketForeignApp => "ticket_foreign_app",
            RefuseCode::TicketInvalid => "ticket_invalid",
            RefuseCode::TicketUnbound => "ticket_unbound",
            RefuseCode::WrongGateway => "wrong_gateway",
        }
    }
}

impl Accept {
    /// Makes the handshake of a gateway of this name, which takes HELLOs whose clock differs by at most `skew`.
    #[must_use]
    pub const fn new(gateway: String, skew: Duration) -> Self {
        Self { gateway, skew, phase: Phase::AwaitHello }
    }

    /// Takes HELLO and checks all that needs no key.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] for a second HELLO, another kind, a malformed payload, another gateway's name, a clock too far off, or a nonce
    /// that is not 16 bytes.
    pub fn handle_hello(&mut self, frame: FrameRef<'_>, unix_ms: u64) -> Result<&Hello, Refusal> {
        if !matches!(self.phase, Phase::AwaitHello) || frame.kind != Kind::Hello {
            return Err(Refusal::new(RefuseCode::Protocol, format!("{:?} came where HELLO was expected", frame.kind)));
        }
        let malformed = |_| Refusal::new(RefuseCode::Protocol, "HELLO is malformed");
        let signed: SignedHello =
            frame.message().map_err(|_| Refusal::new(RefuseCode::Protocol, "HELLO is malformed"))?;
        let hello = Hello::decode(signed.hello.as_ref()).map_err(malformed)?;
        if hello.gateway != self.gateway {
            let detail = format!("HELLO is for gateway {:?}, this is {:?}", clip(&hello.gateway), self.gateway);
            return Err(Refusal::new(RefuseCode::WrongGateway, detail));
        }
        let skew = Duration::from_millis(hello.time_ms.abs_diff(unix_ms));
        if skew > self.skew {
            let detail = format!(
                "clock of the device is {} s off, at most {} s are allowed",
                skew.as_secs(),
                self.skew.as_secs()
            );
            return Err(Refusal::new(RefuseCode::ClockSkew, detail));
        }
        if hello.nonce.len() != 16 || hello.unanswered.len() > UNANSWERED_MAX || hello.topics.len() > TOPICS_MAX {
            return Err(Refusal::new(RefuseCode::Protocol, "HELLO is out of bounds"));
        }
        self.phase = Phase::AwaitKey(Box::new((hello, signed)));
        match &self.phase {
            Phase::AwaitKey(known) => Ok(&known.0),
            Phase::AwaitHello | Phase::AwaitProof(_) | Phase::Done => unreachable!("the phase was set just above"),
        }
    }

    /// Takes the device key that the ticket names and checks HELLO's signature.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] if the key did not sign HELLO.
    pub fn handle_device_key(&mut self, key: &[u8; 32]) -> Result<(), Refusal> {
        let Phase::AwaitKey(known) = std::mem::replace(&mut self.phase, Phase::Done) else {
            return Err(Refusal::new(RefuseCode::Internal, "a device key came before HELLO"));
        };
        let (hello, signed) = *known;
        let key = VerifyingKey::from_bytes(key)
            .map_err(|_| Refusal::new(RefuseCode::TicketUnbound, "the ticket's device key is no Ed25519 key"))?;
        verify(&key, HELLO_CONTEXT, &signed.hello, &signed.signature)
            .ok_or_else(|| Refusal::new(RefuseCode::BadSignature, "HELLO is not signed by the ticket's device key"))?;
        self.phase = Phase::AwaitProof(Box::new((hello, key)));
        Ok(())
    }

    /// Takes PROOF and checks it against `binding`: the TLS exporter of the connection, or the challenge that was sent.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] if it is none or was signed for another connection.
    pub fn handle_proof(&mut self, frame: FrameRef<'_>, binding: &[u8; 32]) -> Result<Admitted, Refusal> {
        let Phase::AwaitProof(known) = std::mem::replace(&mut self.phase, Phase::Done) else {
            return Err(Refusal::new(RefuseCode::Protocol, "PROOF came before HELLO"));
        };
        if frame.kind != Kind::Proof {
            return Err(Refusal::new(RefuseCode::Protocol, format!("{:?} came where PROOF was expected", frame.kind)));
        }
        let (hello, key) = *known;
        let proof: Proof = frame.message().map_err(|_| Refusal::new(RefuseCode::Protocol, "PROOF is malformed"))?;
        verify(&key, PROOF_CONTEXT, binding, &proof.signature)
            .ok_or_else(|| Refusal::new(RefuseCode::BadSignature, "PROOF does not belong to this connection"))?;
        Ok(Admitted { hello, device_key: key.to_bytes() })
    }

    /// Says whether HELLO is still awaited.
    #[must_use]
    pub const fn awaits_hello(&self) -> bool {
        matches!(self.phase, Phase::AwaitHello)
    }
}

/// Returns the bytes that are signed: the context, a zero byte, the message.
#[must_use]
pub fn signed_input(context: &str, message: &[u8]) -> Vec<u8> {
    [context.as_bytes(), &[0], message].concat()
}

/// Returns the name of the device with this Ed25519 key, where its ticket gives it no other: the first half of the key, in
/// hexadecimal. No other key with that half can be found.
#[must_use]
pub fn device_id(key: &[u8; 32]) -> String {
    key.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn verify(key: &VerifyingKey, context: &str, message: &[u8], signature: &[u8]) -> Option<()> {
    let signature = Signature::from_slice(signature).ok()?;
    key.verify_strict(&signed_input(context, message), &signature).ok()
}

fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Context of HELLO's signature.
pub const HELLO_CONTEXT: &str = "ropeway hello v1";

/// Context of PROOF's signature.
pub const PROOF_CONTEXT: &str = "ropeway proof v1";

/// Unanswered requests a HELLO may ask about: as many channels as may be open.
const UNANSWERED_MAX: usize = 256;

/// Topics a HELLO may subscribe to.
const TOPICS_MAX: usize = 100;

#[cfg(test)]
mod tests;
