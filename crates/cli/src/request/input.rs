//! The body of a request, from the command line, a file or standard input.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use ropeway::Body;
use tokio::fs::File;
use tokio::io::{AsyncRead, ReadBuf};

use crate::error::CommandError;

/// Opens what `--data` names.
pub(super) async fn open(data: &str) -> Result<Body, CommandError> {
    let Some(path) = data.strip_prefix('@') else { return Ok(Body::from(data.to_owned())) };
    if path == "-" {
        return Ok(Body::wrap(Input { reader: tokio::io::stdin(), left: None }));
    }
    let unreadable = |source| CommandError::File { path: PathBuf::from(path), source, hint: BODY_FILE };
    let file = File::open(path).await.map_err(unreadable)?;
    let metadata = file.metadata().await.map_err(unreadable)?;
    if metadata.is_file() && metadata.len() <= HELD_BYTES_MAX {
        // A body in memory can be sent again after a break.
        return tokio::fs::read(path).await.map(Body::from).map_err(unreadable);
    }
    let left = metadata.is_file().then_some(metadata.len());
    Ok(Body::wrap(Input { reader: file, left }))
}

/// A body that is read as it is sent.
struct Input<R> {
    reader: R,
    /// Bytes still to come, where that is known.
    left: Option<u64>,
}

impl<R: AsyncRead + Unpin> http_body::Body for Input<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let input = self.get_mut();
        let most = input.left.map_or(CHUNK_BYTES, |left| CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES)));
        if most == 0 {
            return Poll::Ready(None);
        }
        let mut chunk = BytesMut::zeroed(most);
        let mut buffer = ReadBuf::new(&mut chunk);
        if let Err(error) = ready!(Pin::new(&mut input.reader).poll_read(cx, &mut buffer)) {
            return Poll::Ready(Some(Err(error)));
        }
        let length = buffer.filled().len();
        if length == 0 {
            let shrunk = || io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was sent");
            return Poll::Ready(input.left.map(|_| Err(shrunk())));
        }
        chunk.truncate(length);
        input.left = input.left.map(|left| left - length as u64);
        Poll::Ready(Some(Ok(Frame::data(chunk.freeze()))))
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Bytes of a file that are held in memory; longer ones are read as they are sent.
const HELD_BYTES_MAX: u64 = 1 << 20;

/// Bytes read at once: a frame of the link.
const CHUNK_BYTES: usize = 64 << 10;

/// What to do about a body whose file cannot be read.
const BODY_FILE: &str = "--data takes a body as it is, @FILE, or @- for standard input";

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_file_of_known_length_is_sent_with_it_and_no_further() {
        let input = Input { reader: &[7_u8; 200_000][..], left: Some(150_000) };
        assert_eq!(http_body::Body::size_hint(&input).exact(), Some(150_000));
        assert_eq!(input.collect().await.expect("read").to_bytes().len(), 150_000);
    }

    #[tokio::test]
    async fn a_stream_is_sent_to_its_end() {
        let input = Input { reader: &[7_u8; 200_000][..], left: None };
        assert_eq!(input.collect().await.expect("read").to_bytes().len(), 200_000);
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_no_whole_body() {
        let input = Input { reader: &[7_u8; 100][..], left: Some(101) };
        assert_eq!(input.collect().await.expect_err("too short").kind(), io::ErrorKind::UnexpectedEof);
    }
}
