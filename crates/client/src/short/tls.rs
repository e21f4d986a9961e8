//! TLS as foreign hosts need it.

use std::sync::Arc;

use rustls::{
    ClientConfig, SupportedProtocolVersion,
    pki_types::CertificateDer,
    version::{TLS12, TLS13},
};

/// Makes the settings for TCP, TLS 1.2 and 1.3, and those for QUIC, with the platform's authorities and `trust`.
pub(super) fn settings(trust: &[CertificateDer<'static>]) -> Result<(ClientConfig, ClientConfig), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls_platform_verifier::Verifier::new_with_extra_roots(trust.iter().cloned(), Arc::clone(&provider))?;
    let verifier = Arc::new(verifier);
    let settings = |versions: &[&'static SupportedProtocolVersion], alpn: &[&[u8]]| {
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::<rustls_platform_verifier::Verifier>::clone(&verifier))
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Ok::<_, rustls::Error>(config)
    };
    Ok((settings(&[&TLS12, &TLS13], &[b"h2", b"http/1.1"])?, settings(&[&TLS13], &[b"h3"])?))
}
