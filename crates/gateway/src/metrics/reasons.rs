//! Why the gateway refused something or lost a link: every `reason` of `ropeway_refusals_total`.

/// Every reason, in alphabetical order, and what it means. `docs/metrics.md` shows this table.
pub const REFUSAL_REASONS: &[(&str, &str)] = &[
    ("abandoned", "The peer left before its TLS handshake was complete."),
    ("alert_received", "The peer sent a fatal TLS alert, for instance because it does not trust the certificate."),
    ("backlog", "The peer makes the gateway answer and takes none of the answers."),
    ("bad_fields", "A field block could not be decoded."),
    ("bad_payload", "A frame's payload was not the message its kind promises."),
    ("bad_signature", "HELLO was not signed by the ticket's device key, or PROOF not for this connection."),
    ("bad_topic", "A session asked for a topic that no message can be sent to."),
    ("channel_credit_exceeded", "A client sent a body beyond its channel's credit; the exchange was reset."),
    ("clock_skew", "HELLO's time was more than 60 s off."),
    ("closed", "A connection was used after it had failed."),
    ("closed_early", "A TCP connection was closed before its first byte; health probes do that."),
    ("connection_lost", "The socket of a link failed."),
    ("draining", "A device wanted a link while the gateway was draining."),
    ("duplicate_channel", "A request number was used twice."),
    ("first_byte_timeout", "A TCP connection sent nothing for `hello_timeout`."),
    ("handshake", "A TLS handshake was refused."),
    ("hello_timeout", "HELLO and PROOF did not come within `hello_timeout` of the connection."),
    ("http_head_timeout", "An HTTP client did not send a whole request head in time."),
    ("http_idle", "An HTTP/2 or HTTP/3 connection without requests was closed."),
    ("http_malformed", "What came was no HTTP."),
    ("http_stalled", "An HTTP client took nothing of its answer for too long."),
    ("interests_full", "A session got no messages of a topic because the bus takes no more targets."),
    ("internal", "The gateway could not admit a link by its own fault."),
    ("io", "The socket of a TLS connection failed."),
    ("link_credit_exceeded", "A client sent bodies beyond the credit of its link."),
    ("no_common_protocol", "A TLS client offered application protocols and none that is served."),
    ("not_tls", "Something else than TLS came where TLS was expected."),
    ("other", "A reason without a name of its own."),
    ("overloaded", "The gateway held as many sessions as it may, or too many devices connected at once."),
    ("oversized_frame", "A frame was longer than agreed."),
    ("protocol", "HELLO or PROOF was malformed or came out of turn, or a frame right behind them was bad."),
    ("quic_broken", "A QUIC connection failed, for instance because its network went away."),
    ("quic_handshake", "A QUIC handshake failed."),
    ("quic_handshake_timeout", "A QUIC handshake did not end within `hello_timeout`."),
    ("record", "A TLS record was refused."),
    ("record_too_large", "A TLS record or handshake message was too large."),
    ("replayed_hello", "HELLO's nonce was seen before."),
    (
        "request_refused",
        "A request was refused unexecuted: too many were open on its link, or the gateway had stopped.",
    ),
    ("resume_refused", "The resume cookie was too old, or another user's or device's."),
    ("silent", "Nothing came over a link for `silence_timeout`."),
    ("ticket_expired", "The ticket's time was over."),
    ("ticket_foreign_app", "The ticket was for another app, or for one that is not served."),
    ("ticket_invalid", "The ticket was malformed, not yet valid, or not signed by a known key."),
    ("ticket_unbound", "The ticket named no device key."),
    ("tls_handshake_timeout", "A TLS handshake did not end within `hello_timeout` of the connection."),
    ("tls_settings", "TLS could not begin for want of usable settings."),
    ("too_early", "Something was sent before TLS allowed it."),
    ("truncated", "A TLS connection ended without goodbye: devices lose their networks like that."),
    ("truncated_frame", "A connection ended inside a frame."),
    ("unexpected_frame", "A frame came where the protocol does not allow it."),
    ("unknown_channel", "A frame named a channel that was never opened."),
    ("unknown_kind", "A frame's kind was unknown and not marked as ignorable."),
    ("websocket_broken", "The WebSocket of a link failed."),
    ("websocket_handshake", "A WebSocket handshake for a link was malformed."),
    ("wrong_gateway", "HELLO was for a gateway of another name."),
];

#[cfg(test)]
mod tests {
    use std::io;

    use ropeway_core::{
        session::{LinkError, Refusal},
        wire::{FrameError, Kind, fields::FieldError, message::RefuseCode},
    };
    use ropeway_net::{carrier::CarrierError, tls::TlsError};

    use super::*;
    use crate::{metrics::Metrics, proxy::ProxyError};

    fn assert_listed(reason: &str) {
        assert!(REFUSAL_REASONS.iter().any(|(known, _)| *known == reason), "{reason} is not listed");
    }

    #[test]
    fn reasons_are_listed_once_in_order() {
        assert!(REFUSAL_REASONS.is_sorted_by(|one, next| one.0 < next.0));
    }

    #[test]
    fn every_refusal_and_link_error_is_listed() {
        let codes = (0..).map_while(|code| RefuseCode::try_from(code).ok());
        codes.for_each(|code| assert_listed(Refusal::new(code, "").name()));
        for error in [
            LinkError::Backlog,
            LinkError::DuplicateChannel(1),
            LinkError::Fields(FieldError::Truncated),
            LinkError::Frame(FrameError::BadPayload { kind: Kind::Ack }),
            LinkError::Frame(FrameError::Oversized { length: 2, max: 1 }),
            LinkError::Frame(FrameError::Truncated),
            LinkError::Frame(FrameError::UnknownKind(0x7f)),
            LinkError::LinkCreditExceeded { excess: 1 },
            LinkError::Silent,
            LinkError::Unexpected { kind: Kind::Ack },
            LinkError::UnknownChannel(1),
        ] {
            assert_listed(error.name());
        }
    }

    #[test]
    fn every_carrier_error_is_listed() {
        let peer = "192.0.2.1:1".parse().expect("an address");
        let io = || io::Error::other("lost");
        for error in [
            CarrierError::Io { peer, source: io() },
            CarrierError::Quic { peer, reason: String::new() },
            CarrierError::WebSocket { peer, reason: String::new() },
        ] {
            assert_listed(error.name());
        }
        for cause in [
            TlsError::Abandoned,
            TlsError::AlertReceived(rustls::AlertDescription::InternalError),
            TlsError::Closed,
            TlsError::Handshake(rustls::Error::DecryptError),
            TlsError::Io(io()),
            TlsError::NoCommonProtocol,
            TlsError::NotTls { first_byte: 0 },
            TlsError::Record(rustls::Error::DecryptError),
            TlsError::RecordTooLarge,
            TlsError::TooEarly,
            TlsError::Truncated,
        ] {
            assert_listed(cause.cause());
        }
    }

    #[test]
    fn every_reason_named_in_the_code_is_listed() {
        let sources = [
            include_str!("../front/mod.rs"),
            include_str!("../link/exchange.rs"),
            include_str!("../link/mod.rs"),
            include_str!("../listen.rs"),
            include_str!("../push.rs"),
        ];
        let mut named = 0;
        for call in ["refusal(\"", "refused(\""] {
            for found in sources.iter().flat_map(|source| source.split(call).skip(1)) {
                assert_listed(found.split('"').next().expect("a literal ends"));
                named += 1;
            }
        }
        assert!(named >= 10, "the calls are found by their names");
    }

    #[test]
    fn a_reason_that_is_not_listed_counts_as_other() {
        let metrics = Metrics::new();
        metrics.refusal("no such reason").inc();
        assert_eq!(metrics.refusal("other").value(), 1);
    }

    #[test]
    fn the_documentation_shows_every_family_and_reason() {
        let mut tables = "| family | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
        for family in Metrics::new().families() {
            let (name, kind, labels, help) = family.describe();
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            tables += &format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", "));
        }
        tables += "\n## Reasons of `ropeway_refusals_total`\n\n| reason | meaning |\n|---|---|\n";
        for (reason, meaning) in REFUSAL_REASONS {
            tables += &format!("| `{reason}` | {meaning} |\n");
        }
        tables += "\n## Errors of `ropeway_request_errors_total`\n\nThe header `ropeway-error` of the answer has the same names.\n\
            Only where a head is no HTTP or too large (400, 414, 431) the HTTP library answers by itself, without it.\n\n";
        tables += "| error | status | may have run | meaning |\n|---|---|---|---|\n";
        for error in ProxyError::ALL {
            let (status, runs) = (error.status().as_u16(), if error.executed() { "yes" } else { "no" });
            tables += &format!("| `{}` | {status} | {runs} | {error} |\n", error.name());
        }
        let documentation = include_str!("../../../../docs/metrics.md");
        assert!(documentation.ends_with(&tables), "docs/metrics.md must end with:\n\n{tables}");
    }
}
