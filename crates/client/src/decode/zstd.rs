//! The `zstd` coding (RFC 8878).

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use super::body::{Decoder, Step};

/// Decodes frames, one after the other.
pub(super) struct Zstd {
    context: DCtx<'static>,
    ended: bool,
}

impl Zstd {
    pub(super) fn new() -> Self {
        let mut context = DCtx::create();
        let bounded = context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX));
        bounded.expect("the bound is within what the library allows");
        Self { context, ended: false }
    }
}

impl Decoder for Zstd {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        // Without input the library would begin another frame.
        if input.is_empty() && self.ended {
            return Ok(Step { read: 0, written: 0, ended: true });
        }
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(output);
        let left = self.context.decompress_stream(&mut to, &mut from);
        let left = left.map_err(|code| get_error_name(code).to_ascii_lowercase())?;
        self.ended = left == 0;
        Ok(Step { read: from.pos(), written: to.pos(), ended: self.ended })
    }
}

/// Largest window as a power of two: 23, which is 8 MiB; RFC 9659 section 3, and recommended by RFC 8878 section 3.1.1.1.2.
const WINDOW_LOG_MAX: u32 = 23;
