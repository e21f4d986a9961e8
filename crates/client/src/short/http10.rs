//! An exchange in the shape of HTTP/1.0, which the oldest middleboxes understand: a length, no chunks, one request a connection.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::Full;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Cause, Executed, Failed, HEAD_BYTES_MAX, HEADERS_MAX, Trace, exchange::innermost};

/// Sends a request over a byte stream, which it uses up, and waits for the head of its answer.
///
/// On the wire are the path, `Host`, `Content-Length`, `Connection: close` and the version 1.0. An answer without a length is refused:
/// its end could not be told from a cut. The URL must be absolute.
///
/// # Errors
///
/// [`Failed`], which says whether the request may have been executed.
pub(crate) async fn exchange<I>(io: I, request: Request<Bytes>, trace: &Trace) -> Result<Response<Incoming>, Failed>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |executed, cause| Failed { executed, cause, peer: trace.peer(), is_reused: false };
    let request = shape(request).map_err(|reason| failed(Executed::NotSent, Cause::Request(reason)))?;
    let is_head = request.method() == Method::HEAD;
    let mut builder = http1::Builder::new();
    builder.max_headers(HEADERS_MAX).max_buf_size(usize::try_from(HEAD_BYTES_MAX).expect("it fits any memory"));
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(io))
        .await
        .map_err(|error| failed(Executed::NotSent, Cause::Exchange(innermost(&error))))?;
    tokio::spawn(connection);
    trace.set_handed_off(true);
    let answer = sender.try_send_request(request).await.map_err(|mut error| {
        let executed = if error.take_message().is_some() { Executed::NotSent } else { Executed::Maybe };
        if executed == Executed::NotSent {
            trace.set_handed_off(false);
        }
        let error = error.into_error();
        let cause = if error.is_parse_too_large() { Cause::Head } else { Cause::Exchange };
        failed(executed, cause(innermost(&error)))
    })?;
    let headers = answer.headers();
    let has_body = !is_head && !matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(failed(Executed::Maybe, Cause::Head("an answer to HTTP/1.0 comes in chunks".into())));
    }
    if has_body && !headers.contains_key(header::CONTENT_LENGTH) {
        return Err(failed(Executed::Maybe, Cause::Head("an answer to HTTP/1.0 has no length".into())));
    }
    Ok(answer)
}

fn shape(request: Request<Bytes>) -> Result<Request<Full<Bytes>>, String> {
    let (mut parts, body) = request.into_parts();
    let authority = parts.uri.authority().ok_or_else(|| format!("{} names no host", parts.uri))?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(|error| error.to_string())?;
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().map_err(|error| format!("{path}: {error}"))?;
    parts.version = Version::HTTP_10;
    for name in [header::TRANSFER_ENCODING, header::TE, header::TRAILER, header::UPGRADE, header::EXPECT] {
        parts.headers.remove(name);
    }
    parts.headers.insert(header::HOST, host);
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if !body.is_empty() || parts.method == Method::POST || parts.method == Method::PUT {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    Ok(Request::from_parts(parts, Full::new(body)))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    async fn ask(answer: &'static str) -> (String, Result<Response<Incoming>, Failed>) {
        let (near, mut far) = duplex(64 << 10);
        let request =
            Request::post("http://192.0.2.1:8080/gate?x=1").header("te", "trailers").body("sealed".into()).unwrap();
        let serving = tokio::spawn(async move {
            let mut seen = String::new();
            while !seen.ends_with("sealed") {
                seen.push(char::from(far.read_u8().await.unwrap()));
            }
            // Whoever has read enough of it leaves.
            let _ = far.write_all(answer.as_bytes()).await;
            seen
        });
        let trace = Trace::default();
        let result = exchange(near, request, &trace).await;
        assert!(trace.is_handed_off());
        (serving.await.unwrap(), result)
    }

    #[tokio::test]
    async fn the_request_has_a_length_and_closes_and_nothing_newer_than_http10() {
        let (seen, answer) = ask("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        let (head, _) = seen.split_once("\r\n\r\n").unwrap();
        let mut lines: Vec<_> = head.lines().map(str::to_ascii_lowercase).collect();
        lines[1..].sort();
        assert_eq!(
            lines,
            ["post /gate?x=1 http/1.0", "connection: close", "content-length: 6", "host: 192.0.2.1:8080"]
        );
        assert_eq!(answer.unwrap().into_body().collect().await.unwrap().to_bytes(), "ok");
    }

    #[tokio::test]
    async fn an_answer_whose_end_could_be_a_cut_is_refused() {
        for answer in [
            "HTTP/1.0 200 OK\r\n\r\nall of it?",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ] {
            let failed = ask(answer).await.1.unwrap_err();
            assert!(matches!(failed.cause, Cause::Head(_)), "{failed}");
            assert_eq!(failed.executed, Executed::Maybe);
        }
        let (_, short) = ask("HTTP/1.0 200 OK\r\nContent-Length: 20\r\n\r\nall of it?").await;
        short.unwrap().into_body().collect().await.unwrap_err();
    }

    #[tokio::test]
    async fn endless_headers_are_bounded() {
        let line = "x-filler: 0123456789abcdef0123456789abcdef\r\n";
        let endless: &'static str = format!("HTTP/1.0 200 OK\r\n{}", line.repeat(10_000)).leak();
        let failed = ask(endless).await.1.unwrap_err();
        assert!(matches!(failed.cause, Cause::Head(_)), "{failed}");
    }
}
