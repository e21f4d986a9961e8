//! What comes over plain HTTP: sealed requests, and signed answers.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, request};
use ropeway_net::{
    pipe::{PipeConfig, PipeKey, decode_request, decode_response, encode_request, encode_response},
    signed::{Ask, Asked, SigningKey, VerifyingKey},
};

use crate::{
    corpus,
    outcome::{Notes, Outcome},
};

/// Reads what goes through a sealed pipe; the first byte says which part. Nothing opens that nobody sealed, and a message that is
/// read is written and read again the same.
pub fn pipe(input: &[u8]) -> Outcome {
    static KEY: LazyLock<PipeKey> = LazyLock::new(|| PipeKey::from_seed(5, &[7; 32]).expect("a key"));
    static SEALED: LazyLock<Vec<u8>> = LazyLock::new(|| corpus::pipe_vector()[1].clone());
    let mut outcome = Notes::default();
    let Some((first, rest)) = input.split_first() else { return outcome.finish() };
    outcome.note(first % 5);
    match first % 5 {
        0 => match KEY.open(rest) {
            Ok(opened) => {
                assert_eq!(rest, &SEALED[..], "something opened that nobody sealed");
                outcome.note(opened.request.is_ok());
            }
            Err(error) => outcome.error(&error),
        },
        part @ (1 | 2) => match if part == 1 { PipeConfig::parse(rest) } else { PipeConfig::parse_list(rest) } {
            Ok(config) => {
                assert_eq!(PipeConfig::parse(config.encoded()), Ok(config.clone()), "it does not read itself");
                outcome.note(config.encoded().len());
            }
            Err(error) => outcome.error(&error),
        },
        3 => match decode_request(rest) {
            Ok((request, date_ms)) => {
                let (head, content) = request.into_parts();
                let written = encode_request(&head, &content).expect("what was read can be written");
                let (again, _) = decode_request(&written).expect("what was written can be read");
                assert_eq!((again.headers(), again.body(), again.uri()), (&head.headers, &content, &head.uri));
                outcome.note((date_ms.is_some(), content.trailers.is_some()));
                outcome.size(head.headers.len());
            }
            Err(error) => outcome.error(&error),
        },
        _ => match decode_response(rest) {
            Ok(response) => {
                let (head, content) = response.into_parts();
                let written = encode_response(&head, &content).expect("what was read can be written");
                let again = decode_response(&written).expect("what was written can be read");
                assert_eq!((again.headers(), again.body()), (&head.headers, &content));
                outcome.note(head.status);
                outcome.size(head.headers.len());
            }
            Err(error) => outcome.error(&error),
        },
    }
    outcome.finish()
}

/// Takes the head of a request for a signed answer and, behind an empty line, that of an answer. What is asked for is signed or
/// refused, and what was signed verifies for who asked alone.
pub fn signed(input: &[u8]) -> Outcome {
    static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::from_seed(&[7; 32]));
    let text = String::from_utf8_lossy(input);
    let (asking, answered) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut outcome = Notes::default();
    let head = asked(headers(asking));
    let answer = || Response::builder().header("x-a", "1").body(()).expect("an answer").into_parts().0;
    match Asked::of(&head) {
        Err(error) => outcome.error(&error),
        Ok(asked) => {
            let mut answer = answer();
            KEY.sign(&asked, &mut answer, b"done", 1);
            outcome.size(answer.headers["signature-input"].len());
            outcome.note(asked.check(b"two pears").is_ok());
        }
    }
    let keys = [VerifyingKey::new(KEY.id(), &KEY.public()).expect("a key")];
    let mut head = asked(headers(asking));
    // Covered by nobody: the number is another than in every input.
    if let Some(ask) = Ask::new(&mut head, b"", [0xa5; 16]) {
        let mut forged = answer();
        forged.headers = headers(answered);
        match ask.verify(&keys, Response::from_parts(forged, b"done")) {
            Ok(_) => panic!("an answer that nobody signed is good"),
            Err(error) => outcome.error(&error),
        }
    }
    outcome.finish()
}

fn asked(headers: HeaderMap) -> request::Parts {
    let mut head = Request::post("http://api.test/orders?id=1").body(()).expect("a request").into_parts().0;
    head.headers = headers;
    head
}

/// Reads lines as headers, and passes over what is none.
fn headers(text: &str) -> HeaderMap {
    let lines = text.lines().take(LINES_MAX).filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_str(value).ok()?))
    });
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(name, value);
    }
    headers
}

/// Lines of an input that are read: more than a head can have.
const LINES_MAX: usize = 400;
