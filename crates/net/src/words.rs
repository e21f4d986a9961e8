//! What other libraries say of a failure, as it may be shown.

use std::error::Error;
#[cfg(feature = "dns")]
use std::io;

/// Returns the innermost words of an error, which say most, without the page of a library's manual that some end with.
#[must_use]
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let words = innermost.to_string();
    words.split_once(MANUAL).map_or(words.as_str(), |(before, _)| before).to_owned()
}

/// Says how an exchange over HTTP/1.1 or HTTP/2 ended: the words of the libraries are about their own insides.
#[cfg(feature = "dns")]
#[must_use]
pub fn of_hyper(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return ENDED.to_owned();
    }
    if error.is_parse() {
        return format!("what came back is no answer of HTTP: {}", innermost(error));
    }
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(h2) = cause.downcast_ref::<h2::Error>() {
            return of_h2(h2);
        }
        if cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
            return ENDED.to_owned();
        }
        source = cause.source();
    }
    innermost(error)
}

#[cfg(feature = "dns")]
fn of_h2(error: &h2::Error) -> String {
    match error.reason() {
        Some(reason) if error.is_remote() && error.is_reset() => format!("the other end gave it up ({reason:?})"),
        Some(reason) if error.is_remote() && error.is_go_away() => {
            format!("the other end closed the connection ({reason:?})")
        }
        // An end of the connection comes as an error of the socket.
        Some(_) | None => match error.get_io() {
            Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => ENDED.to_owned(),
            Some(_) | None => innermost(error),
        },
    }
}

/// What is said of an answer in the middle of which its connection ends.
#[cfg(feature = "dns")]
const ENDED: &str = "the connection ended before the answer was complete";

/// Where a reference to a manual begins.
const MANUAL: &str = ": https://docs.rs/";

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[cfg(feature = "dns")]
    #[tokio::test]
    async fn an_answer_that_is_cut_or_none_at_all_is_told_in_words_of_ours() {
        use bytes::Bytes;
        use http_body_util::{BodyExt as _, Empty};
        use tokio::io::AsyncWriteExt as _;

        for (answer, told) in [
            ("", "the connection ended before the answer was complete"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort",
                "the connection ended before the answer was complete",
            ),
            ("SSH-2.0-x\r\n", "what came back is no answer of HTTP: "),
        ] {
            let (here, mut there) = tokio::io::duplex(1_024);
            let io = hyper_util::rt::TokioIo::new(here);
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.expect("begun");
            tokio::spawn(connection);
            let request = http::Request::get("/").body(Empty::<Bytes>::new()).expect("a request");
            let sent = tokio::spawn(async move { sender.send_request(request).await?.into_body().collect().await });
            tokio::io::AsyncReadExt::read_u8(&mut there).await.expect("the request comes");
            there.write_all(answer.as_bytes()).await.expect("written");
            there.shutdown().await.expect("shut");
            let mut rest = Vec::new();
            let reading = tokio::io::AsyncReadExt::read_to_end(&mut there, &mut rest);
            let (sent, _) = tokio::join!(sent, reading);
            let error = sent.expect("it ends").expect_err("it is cut");
            assert!(of_hyper(&error).starts_with(told), "{answer:?}: {}", of_hyper(&error));
        }
    }

    #[test]
    fn the_innermost_words_are_told_without_the_page_of_a_manual() {
        let told =
            "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/rustls/manual";
        let error = io::Error::other(io::Error::new(io::ErrorKind::UnexpectedEof, told));
        assert_eq!(innermost(&error), "peer closed connection without sending TLS close_notify");
        assert_eq!(innermost(&io::Error::other("gone: https://example.org/")), "gone: https://example.org/");
    }
}
