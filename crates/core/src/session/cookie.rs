//! The resume cookie: which session, which generation, and a secret.

use std::fmt;

/// Number of a session at one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What WELCOME hands out and the next HELLO brings back; opaque to the client.
///
/// A new generation is made for each link. The current and the previous one are accepted, since the WELCOME that carried the current
/// one may have been lost; older and foreign ones are refused.
#[derive(Clone, PartialEq, Eq)]
pub struct Cookie {
    session: SessionId,
    generation: u32,
    secret: [u8; 16],
}

impl Cookie {
    /// Bytes of an encoded cookie.
    pub const LENGTH: usize = 28;

    /// Makes the first cookie of a session.
    #[must_use]
    pub const fn new(session: SessionId, secret: [u8; 16]) -> Self {
        Self { session, generation: 0, secret }
    }

    /// Reads what a HELLO brought; `None` if it has not the form of a cookie.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = bytes.try_into().ok()?;
        let (session, rest) = bytes.split_first_chunk::<8>()?;
        let (generation, secret) = rest.split_first_chunk::<4>()?;
        Some(Self {
            session: SessionId(u64::from_be_bytes(*session)),
            generation: u32::from_be_bytes(*generation),
            secret: *secret.first_chunk()?,
        })
    }

    /// Writes the cookie for WELCOME.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.session.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.generation.to_be_bytes());
        bytes[12..].copy_from_slice(&self.secret);
        bytes
    }

    /// Returns the session the cookie names.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Says whether `brought` is this cookie or the one just before it.
    #[must_use]
    pub fn accepts(&self, brought: &Self) -> bool {
        let age = self.generation.wrapping_sub(brought.generation);
        let differing = self.secret.iter().zip(brought.secret).fold(0, |differing, (a, b)| differing | (a ^ b));
        self.session == brought.session && age <= 1 && differing == 0
    }

    /// Moves to the next generation.
    pub const fn advance(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({}, generation {})", self.session, self.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_and_the_previous_generation_are_accepted_and_no_other() {
        let first = Cookie::new(SessionId(7), [3; 16]);
        let mut current = first.clone();
        assert!(current.accepts(&first));
        current.advance();
        assert!(current.accepts(&first), "the WELCOME with the new one may be lost");
        current.advance();
        assert!(!current.accepts(&first));
        assert!(!first.accepts(&current), "a generation that was never given out");
        assert!(!current.accepts(&Cookie { secret: [4; 16], ..current.clone() }));
    }

    #[test]
    fn a_cookie_survives_the_wire_and_anything_else_is_none() {
        let cookie = Cookie::new(SessionId(u64::MAX), [9; 16]);
        assert_eq!(Cookie::decode(&cookie.encode()), Some(cookie));
        assert_eq!(Cookie::decode(b"too short"), None);
    }
}
