//! What a gateway reads that is no frame: its configuration, and tickets.

use std::{path::Path, sync::LazyLock};

use ropeway_gateway::{
    config::{Config, ConfigError, KeySource, TicketKey, TicketsConfig},
    tickets::TicketVerifier,
};

use crate::{
    corpus::{DEVICE, ISSUER, TICKETS},
    outcome::{Notes, Outcome},
};

/// Reads a configuration; a mistake has a place in the text and something to do about it.
pub fn config(input: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(input);
    let mut outcome = Notes::default();
    match Config::parse(&text, Path::new("ropeway.toml")) {
        Ok(config) => outcome.note(config.gateway.name.is_empty()),
        Err(ConfigError::Invalid { line, column, message, hint, .. }) => {
            assert!(line >= 1 && line <= text.lines().count() + 1, "line {line} is none of the text's");
            assert!(column >= 1 && !message.is_empty() && !hint.is_empty());
            outcome.error(&message);
            outcome.error(&hint);
        }
        Err(error) => panic!("a text cannot fail like this: {error}"),
    }
    outcome.finish()
}

/// Verifies a ticket: none is good that the issuer did not sign.
pub fn ticket(input: &[u8]) -> Outcome {
    static VERIFIER: LazyLock<TicketVerifier> = LazyLock::new(|| {
        let public_key = KeySource::Raw(ISSUER.verifying_key().to_bytes());
        let keys = vec![TicketKey { kid: "test".into(), public_key }];
        let config = TicketsConfig { apps: vec!["shop".into()], keys, ..TicketsConfig::default() };
        TicketVerifier::new(&config).expect("the key is one")
    });
    let text = String::from_utf8_lossy(input);
    let mut outcome = Notes::default();
    match VERIFIER.verify(&text, "shop", NOW_UNIX) {
        Ok(ticket) => {
            let signed = |text: &str| text.rsplit_once('.').map(|(signed, _)| signed.to_owned());
            assert!(TICKETS.iter().any(|ours| signed(ours) == signed(&text)), "a ticket that nobody signed is good");
            assert_eq!(ticket.device_key, DEVICE.verifying_key().to_bytes());
            outcome.note("good");
        }
        Err(error) => outcome.note(error.name()),
    }
    outcome.size(text.len());
    outcome.finish()
}

/// The second at which the tickets of the vectors are good.
const NOW_UNIX: u64 = 1_800_000_000;
