//! The body of an answer, decoded as it is read.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_body::Frame;
use ropeway_core::Side;

use super::{DecodeConfig, coding::Coding};
use crate::{Body, Error};

/// One coding over a body.
pub(crate) struct Decoded {
    coding: Coding,
    decoder: Box<dyn Decoder>,
    body: Body,
    input: Bytes,
    trailers: Option<HeaderMap>,
    /// Everything of `body` has come.
    complete: bool,
    /// What has come may be all there is.
    ended: bool,
    /// The last chunk was full, so that there may be more without more input.
    pending: bool,
    over: bool,
    chunk: Box<[u8]>,
    meter: Meter,
}

/// Undoes a coding, step by step.
pub(super) trait Decoder: Send {
    /// Decodes as far as input and output reach. What was not read comes again with the next step.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String>;
}

/// What a step did.
pub(super) struct Step {
    pub(super) read: usize,
    pub(super) written: usize,
    /// Nothing need follow.
    pub(super) ended: bool,
}

/// Compares what a body unpacks to with what was sent.
struct Meter {
    config: DecodeConfig,
    /// Counts into it what was sent: that of the innermost coding.
    counts: bool,
    /// Shared by the codings of one body.
    packed: Arc<AtomicU64>,
    unpacked: u64,
}

/// Wraps a body in the codings that undo those which were applied to it, in that order.
pub(super) fn decoded(body: Body, applied: &[Coding], config: DecodeConfig) -> Body {
    let packed = Arc::new(AtomicU64::new(0));
    applied.iter().rev().enumerate().fold(body, |body, (place, coding)| {
        let meter = Meter { config, counts: place == 0, packed: Arc::clone(&packed), unpacked: 0 };
        let decoder = decoder(*coding).expect("a coding that was not compiled in is not recognised");
        Body::decoded(Decoded::new(*coding, decoder, body, meter))
    })
}

impl Decoded {
    fn new(coding: Coding, decoder: Box<dyn Decoder>, body: Body, meter: Meter) -> Self {
        Self {
            coding,
            decoder,
            body,
            input: Bytes::new(),
            trailers: None,
            complete: false,
            ended: false,
            pending: false,
            over: false,
            chunk: vec![0; CHUNK_BYTES].into(),
            meter,
        }
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let frame = ready!(self.poll_some(cx));
        self.over = !matches!(&frame, Some(Ok(frame)) if frame.is_data());
        Poll::Ready(frame)
    }

    fn poll_some(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            if self.pending || !self.input.is_empty() {
                match self.step() {
                    Ok(data) if data.is_empty() => {}
                    step => return Poll::Ready(Some(step.map(Frame::data))),
                }
            } else if self.complete {
                let last = if self.ended { Ok(self.trailers.take()) } else { Err(self.cut()) };
                return Poll::Ready(last.map(|trailers| trailers.map(Frame::trailers)).transpose());
            } else {
                match ready!(http_body::Body::poll_frame(Pin::new(&mut self.body), cx)) {
                    None => self.complete = true,
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    Some(Ok(frame)) => self.take(frame),
                }
            }
        }
    }

    fn take(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) => {
                self.meter.take(data.len());
                self.input = data;
            }
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                self.complete = true;
            }
        }
    }

    /// Decodes the next chunk.
    fn step(&mut self) -> Result<Bytes, Error> {
        let step = self.decoder.step(&self.input, &mut self.chunk).map_err(|reason| self.corrupt(reason))?;
        if step.read == 0 && step.written == 0 && !self.input.is_empty() {
            return Err(self.corrupt("the decoder stands still".into()));
        }
        self.input.advance(step.read);
        self.ended = step.ended;
        self.pending = step.written == self.chunk.len();
        self.meter.make(step.written)?;
        Ok(Bytes::copy_from_slice(&self.chunk[..step.written]))
    }

    fn cut(&self) -> Error {
        let reason = format!("its coding {} ends in the middle", self.coding.as_str());
        Error::BodyCut { side: Side::Service, reason }
    }

    const fn corrupt(&self, reason: String) -> Error {
        Error::BodyCorrupt { coding: self.coding.as_str(), reason }
    }
}

/// Returns the decoder of a coding, if it was compiled in.
fn decoder(coding: Coding) -> Option<Box<dyn Decoder>> {
    match coding {
        #[cfg(feature = "brotli")]
        Coding::Brotli => Some(Box::new(super::brotli::Brotli::new())),
        #[cfg(not(feature = "brotli"))]
        Coding::Brotli => None,
        #[cfg(feature = "gzip")]
        Coding::Deflate => Some(Box::new(super::inflate::Deflate::new())),
        #[cfg(feature = "gzip")]
        Coding::Gzip => Some(Box::new(super::inflate::Gzip::new())),
        #[cfg(not(feature = "gzip"))]
        Coding::Deflate | Coding::Gzip => None,
        #[cfg(feature = "zstd")]
        Coding::Zstd => Some(Box::new(super::zstd::Zstd::new())),
        #[cfg(not(feature = "zstd"))]
        Coding::Zstd => None,
    }
}

impl Meter {
    fn take(&self, packed: usize) {
        if self.counts {
            self.packed.fetch_add(packed as u64, Ordering::Relaxed);
        }
    }

    fn make(&mut self, unpacked: usize) -> Result<(), Error> {
        self.unpacked += unpacked as u64;
        let packed_bytes = self.packed.load(Ordering::Relaxed);
        let ratio_bytes = packed_bytes.saturating_mul(u64::from(self.config.ratio_max));
        if self.unpacked > self.config.bytes_max || (self.unpacked > RATIO_FROM_BYTES && self.unpacked > ratio_bytes) {
            return Err(Error::BodyInflated { packed_bytes, unpacked_bytes: self.unpacked });
        }
        Ok(())
    }
}

/// Bytes decoded at a time: 16 KiB, our choice; a TLS record's worth, and little to keep beside the window.
const CHUNK_BYTES: usize = 16 * 1024;

/// Unpacked bytes up to which no ratio is too high: 1 MiB, our choice; what does no harm whatever it was made of.
const RATIO_FROM_BYTES: u64 = 1024 * 1024;
