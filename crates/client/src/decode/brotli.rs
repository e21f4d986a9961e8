//! The `br` coding (RFC 7932).

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::body::{Decoder, Step};

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// Decodes one stream. Its window is at most 16 MiB (RFC 7932 section 9.1), for the decoder is told to take no larger ones.
pub(super) struct Brotli {
    state: Box<State>,
    ended: bool,
}

impl Brotli {
    pub(super) fn new() -> Self {
        let (bytes, words, codes) = <(StandardAlloc, StandardAlloc, StandardAlloc)>::default();
        Self { state: Box::new(State::new_strict(bytes, words, codes)), ended: false }
    }
}

impl Decoder for Brotli {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        if self.ended {
            let rest = if input.is_empty() { Ok(()) } else { Err("bytes follow the end of the stream".to_owned()) };
            return rest.map(|()| Step { read: 0, written: 0, ended: true });
        }
        let (mut read, mut written, mut total) = (0, 0, 0);
        let result = BrotliDecompressStream(
            &mut input.len(),
            &mut read,
            input,
            &mut output.len(),
            &mut written,
            output,
            &mut total,
            &mut self.state,
        );
        match result {
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
            BrotliResult::ResultFailure => return Err(format!("malformed stream ({:?})", self.state.error_code)),
            BrotliResult::ResultSuccess => self.ended = true,
        }
        Ok(Step { read, written, ended: self.ended })
    }
}
