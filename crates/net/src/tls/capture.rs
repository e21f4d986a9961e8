//! Two facts of a handshake that rustls's unbuffered connection does not give out, caught where rustls hands them to
//! its configuration: the exporter secret (its key log) and the server name (its certificate resolver).
//!
//! Both callbacks run on the stack of `process_tls_records`, so a slot of the thread tells whose handshake it is. Outside
//! of [`during`] the slot is empty and nothing is caught. The secret never leaves memory and is wiped when dropped.

use std::cell::RefCell;

use rustls::KeyLog;
use rustls::crypto::tls13::{HkdfExpander, OkmBlock};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};

/// What was caught of one handshake.
#[derive(Default)]
pub(super) struct Caught {
    /// The exporter secret (RFC 8446 section 7.1, `exporter_master_secret`), known from the server's Finished on.
    pub(super) exporter: Option<Box<OkmBlock>>,
    /// The name in the client's SNI.
    pub(super) server_name: Option<Box<str>>,
}

/// Runs one step of a handshake and adds what it gave away to `caught`.
pub(super) fn during<R>(caught: &mut Caught, step: impl FnOnce() -> R) -> R {
    let outer = SLOT.with(|slot| slot.replace(Some(std::mem::take(caught))));
    let result = step();
    let filled = SLOT.with(|slot| slot.replace(outer));
    *caught = filled.unwrap_or_default();
    result
}

/// Notes the server name of the handshake that runs on this thread.
pub(super) fn note_server_name(name: Option<&str>) {
    SLOT.with(|slot| {
        if let (Some(caught), Some(name)) = (slot.borrow_mut().as_mut(), name) {
            caught.server_name = Some(name.into());
        }
    });
}

/// A key log that keeps the exporter secret of the handshake on this thread and writes nothing anywhere.
#[derive(Debug)]
pub(super) struct ExporterCapture;

impl KeyLog for ExporterCapture {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label != EXPORTER_LABEL || secret.len() > OkmBlock::MAX_LEN {
            return;
        }
        SLOT.with(|slot| {
            if let Some(caught) = slot.borrow_mut().as_mut() {
                caught.exporter = Some(Box::new(OkmBlock::new(secret)));
            }
        });
    }

    fn will_log(&self, label: &str) -> bool {
        label == EXPORTER_LABEL
    }
}

/// Derives keying material (RFC 8446 section 7.5):
/// `HKDF-Expand-Label(Derive-Secret(exporter secret, label, ""), "exporter", Hash(context), 32)`.
///
/// Returns false when the suite is not one of TLS 1.3 or `label` is longer than 249 bytes.
pub(super) fn export(
    suite: SupportedCipherSuite,
    secret: &OkmBlock,
    label: &[u8],
    context: Option<&[u8]>,
    out: &mut [u8; 32],
) -> bool {
    let Some(suite): Option<&Tls13CipherSuite> = suite.tls13() else { return false };
    let hash = suite.common.hash_provider;
    let hkdf = suite.hkdf_provider;

    let mut derived = [0; OkmBlock::MAX_LEN];
    let derived = &mut derived[..hash.output_len()];
    if !expand_label(hkdf.expander_for_okm(secret).as_ref(), label, hash.hash(&[]).as_ref(), derived) {
        return false;
    }
    let derived = OkmBlock::new(derived);
    let context = hash.hash(context.unwrap_or_default());
    expand_label(hkdf.expander_for_okm(&derived).as_ref(), b"exporter", context.as_ref(), out)
}

/// `HKDF-Expand-Label` (RFC 8446 section 7.1).
fn expand_label(expander: &dyn HkdfExpander, label: &[u8], context: &[u8], out: &mut [u8]) -> bool {
    const PREFIX: &[u8] = b"tls13 ";
    let (Ok(out_len), Ok(label_len), Ok(context_len)) =
        (u16::try_from(out.len()), u8::try_from(PREFIX.len() + label.len()), u8::try_from(context.len()))
    else {
        return false;
    };
    let info: [&[u8]; 6] = [&out_len.to_be_bytes(), &[label_len], PREFIX, label, &[context_len], context];
    expander.expand_slice(&info, out).is_ok()
}

/// Name of the exporter secret in the NSS key log format.
const EXPORTER_LABEL: &str = "EXPORTER_SECRET";

thread_local! {
    static SLOT: RefCell<Option<Caught>> = const { RefCell::new(None) };
}
