//! Lets `jsonwebtoken` sign and verify Ed25519, and nothing else, with `ring`.
//!
//! Its features `rust_crypto` and `aws_lc_rs` stay off: the first is 30 times slower in builds without optimisation, the
//! second would be a second cryptographic library beside the one of TLS. Without its feature `use_pem` it reads no keys
//! from PEM; `rustls` does.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result, new_error};
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey};
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};

/// Makes it the provider of this process, if there is none.
pub(super) fn install() {
    // Only the first call of a process can succeed; later ones find this provider in its place.
    let _ = PROVIDER.install_default();
}

struct RingSigner(Ed25519KeyPair);

impl Signer<Vec<u8>> for RingSigner {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, signature::Error> {
        Ok(self.0.sign(message).as_ref().to_vec())
    }
}

impl JwtSigner for RingSigner {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

struct RingVerifier(UnparsedPublicKey<Vec<u8>>);

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), signature::Error> {
        self.0.verify(message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    if *algorithm != Algorithm::EdDSA || key.family() != AlgorithmFamily::Ed {
        return Err(new_error(ErrorKind::InvalidAlgorithm));
    }
    let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.as_bytes());
    Ok(Box::new(RingSigner(pair.map_err(|_| new_error(ErrorKind::InvalidEddsaKey))?)))
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if *algorithm != Algorithm::EdDSA || key.family() != AlgorithmFamily::Ed {
        return Err(new_error(ErrorKind::InvalidAlgorithm));
    }
    Ok(Box::new(RingVerifier(UnparsedPublicKey::new(&ED25519, key.try_get_as_bytes()?.to_vec()))))
}

static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };
