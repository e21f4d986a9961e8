//! What is wrong with a file in PEM, in words that help.

use rustls::pki_types::pem::Error;

/// Says why `what` cannot be read from a file in PEM.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not ours, and its other kinds are all damage")]
pub(crate) fn reason(what: &str, error: &Error) -> String {
    match error {
        Error::Io(error) => format!("it cannot be read: {error}"),
        Error::NoItemsFound => format!("there is no {what} in PEM in it"),
        other => format!("its PEM is damaged: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    use super::*;

    #[test]
    fn each_kind_of_trouble_is_told_in_words() {
        let told = |text: &str| {
            let error = CertificateDer::from_pem_slice(text.as_bytes()).expect_err("no certificate");
            reason("certificate", &error)
        };
        assert_eq!(told(""), "there is no certificate in PEM in it");
        let cut = told("-----BEGIN CERTIFICATE-----\nAAAA\n");
        assert!(cut.starts_with("its PEM is damaged: "), "{cut}");
        let missing = CertificateDer::from_pem_file("/nowhere/at.all").expect_err("no file");
        assert!(reason("certificate", &missing).starts_with("it cannot be read: No such file"));
    }
}
