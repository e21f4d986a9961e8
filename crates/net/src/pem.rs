//! What is wrong with a file of keys, certificates or tokens, in words that help.

use rustls::pki_types::pem::Error;

/// Says why `what` cannot be read from a file in PEM.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not ours, and its other kinds are all damage")]
pub fn reason(what: &str, error: &Error) -> String {
    match error {
        Error::Base64Decode(_) => "its PEM is damaged: what stands between BEGIN and END is no Base64".to_owned(),
        Error::IllegalSectionStart { line } => {
            let line = String::from_utf8_lossy(line);
            format!("its PEM is damaged: the line `{}` begins nothing", shown(line.trim_end()))
        }
        Error::Io(error) => format!("it cannot be read: {error}"),
        Error::MissingSectionEnd { end_marker } => {
            let label = String::from_utf8_lossy(end_marker);
            format!("its PEM is damaged: the line `-----END {}-----` is missing", shown(&label))
        }
        Error::NoItemsFound => format!("there is no {what} in PEM in it"),
        other => format!("its PEM is damaged: {other}"),
    }
}

/// Says why `what` cannot be read from this content of a file, which may be something else altogether.
#[must_use]
pub fn reason_in(what: &str, content: &[u8], error: &Error) -> String {
    let reason = reason(what, error);
    if matches!(error, Error::NoItemsFound) {
        return format!("{reason}, it looks like {}", looks_like(content));
    }
    reason
}

/// Says what the content of a file looks like, to follow "it looks like": nothing of what may be a secret is repeated.
#[must_use]
pub fn looks_like(content: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(content) else {
        // DER begins with a SEQUENCE whose length takes two bytes (X.690 sections 8.1.3.5 and 8.9).
        let is_der = matches!(content, [0x30, 0x81 | 0x82, ..]);
        return if is_der { "DER, which is binary; PEM is text" } else { "binary data" }.to_owned();
    };
    let text = text.trim();
    if let Some((label, _)) = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once("-----")) {
        return format!("PEM of the kind `{}`", shown(label));
    }
    let told = match text {
        "" => "an empty file",
        token if is_token(token) => "a ticket (JWT)",
        json if json.starts_with(['{', '[']) => "JSON",
        page if page.starts_with('<') => "a page of HTML or XML",
        _ => "other text",
    };
    told.to_owned()
}

/// Says whether a text has the form of a signed token (RFC 7515 section 3.1): three parts in the URL-safe Base64, parted by dots.
#[must_use]
pub fn is_token(text: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    text.split('.').count() == 3 && text.split('.').all(is_part)
}

/// Shortens what somebody else wrote, and leaves out what does not print.
fn shown(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char })
        .take(SHOWN_MAX)
        .collect()
}

/// How a section of PEM begins (RFC 7468 section 2).
const BEGIN: &str = "-----BEGIN ";

/// Letters that are shown of a line. 64; as many as a line of PEM has (RFC 7468 section 2).
const SHOWN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    use super::*;

    fn told(text: &[u8]) -> String {
        reason("certificate", &CertificateDer::from_pem_slice(text).expect_err("no certificate"))
    }

    #[test]
    fn each_kind_of_trouble_is_told_in_words() {
        assert_eq!(told(b""), "there is no certificate in PEM in it");
        let cut = told(b"-----BEGIN CERTIFICATE-----\nAAAA\n");
        assert_eq!(cut, "its PEM is damaged: the line `-----END CERTIFICATE-----` is missing");
        let start = told(b"-----BEGIN CERTI\x01FICATE\nAAAA\n");
        assert!(start.starts_with("its PEM is damaged: the line `-----BEGIN CERTI\u{fffd}FICATE"), "{start}");
        let letters = told(b"-----BEGIN CERTIFICATE-----\n\x80\x81!\n-----END CERTIFICATE-----\n");
        assert_eq!(letters, "its PEM is damaged: what stands between BEGIN and END is no Base64");
        let missing = CertificateDer::from_pem_file("/nowhere/at.all").expect_err("no file");
        assert!(reason("certificate", &missing).starts_with("it cannot be read: No such file"));
    }

    #[test]
    fn what_a_file_holds_instead_is_named_and_not_shown() {
        for (content, told) in [
            (&b""[..], "an empty file"),
            (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "PEM of the kind `PRIVATE KEY`"),
            (b"eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJkZXYifQ.c2ln\n", "a ticket (JWT)"),
            (b"\x30\x82\x01\x0a\xff", "DER, which is binary; PEM is text"),
            (b"\xff\xfe\x00", "binary data"),
            (b"{\"a\":1}", "JSON"),
            (b"<html>", "a page of HTML or XML"),
            (b"hunter2", "other text"),
        ] {
            assert_eq!(looks_like(content), told);
        }
    }
}
