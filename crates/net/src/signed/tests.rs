use http::{HeaderName, HeaderValue, Request, Response, StatusCode, request, response};

use super::*;

const CREATED: u64 = 1_790_000_000;
const NONCE: [u8; 16] = [3; 16];

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

fn keys() -> Vec<VerifyingKey> {
    vec![VerifyingKey::new(key().id(), &key().public()).expect("a key")]
}

fn request() -> request::Parts {
    let request = Request::post("http://API.test/orders?id=1").header("content-type", "text/plain").header("x-a", "1");
    request.header("x-a", " 2 ").header("accept-encoding", "br").body(()).expect("a request").into_parts().0
}

const CONTENT: &[u8] = b"two pears";

/// A request ready to be sent, and what its sender keeps.
fn asked() -> (request::Parts, Ask) {
    let mut head = request();
    let ask = Ask::new(&mut head, CONTENT, NONCE).expect("it can be covered");
    (head, ask)
}

fn answer() -> (response::Parts, Vec<u8>) {
    let answer = Response::builder().status(201).header("content-type", "text/plain").header("location", "/orders/1");
    let (head, ()) = answer.header("vary", "a").header("vary", "b").body(()).expect("an answer").into_parts();
    (head, b"done".to_vec())
}

fn signed(head: &request::Parts) -> Response<Vec<u8>> {
    let asked = Asked::of(head).expect("it asks well");
    asked.check(CONTENT).expect("the content is the same");
    let (mut head, content) = answer();
    key().sign(&asked, &mut head, &content, CREATED);
    Response::from_parts(head, content)
}

fn exchanged(
    change: impl FnOnce(&mut request::Parts),
    spoil: impl FnOnce(&mut Response<Vec<u8>>),
) -> Result<Response<Vec<u8>>, VerifyError> {
    let (mut head, ask) = asked();
    change(&mut head);
    let mut answer = signed(&head);
    spoil(&mut answer);
    ask.verify(&keys(), answer)
}

#[test]
fn an_answer_comes_out_as_it_was_signed() {
    let taken = exchanged(|_| (), |_| ()).expect("it is the gateway's");
    assert_eq!((taken.status(), &taken.body()[..]), (StatusCode::CREATED, &b"done"[..]));
    let names: Vec<_> = taken.headers().keys().map(HeaderName::as_str).collect();
    assert_eq!(names, ["content-type", "location", "vary", "content-digest"]);
}

#[test]
fn what_proxies_may_change_they_may_change() {
    let taken = exchanged(
        |head| {
            // As a gateway sees it: the target has a path only.
            head.uri = "/orders?id=1".parse().expect("a path");
            head.headers.insert("host", HeaderValue::from_static("api.TEST:80"));
            head.headers.insert("via", HeaderValue::from_static("1.0 box"));
            head.headers.remove("accept-encoding");
        },
        |answer| {
            answer.headers_mut().insert("via", HeaderValue::from_static("1.0 box"));
            answer.headers_mut().insert("age", HeaderValue::from_static("0"));
        },
    );
    assert!(!taken.expect("it is the gateway's").headers().contains_key("via"));
}

#[test]
fn what_was_put_in_does_not_reach_the_app() {
    let taken = exchanged(
        |_| (),
        |answer| {
            answer.headers_mut().insert("set-cookie", HeaderValue::from_static("a=b"));
            answer.headers_mut().insert("refresh", HeaderValue::from_static("0; url=http://ads.test/"));
        },
    );
    let taken = taken.expect("the rest is the gateway's");
    assert!(!taken.headers().contains_key("set-cookie") && !taken.headers().contains_key("refresh"));

    let (mut head, _) = asked();
    head.headers.insert("cookie", HeaderValue::from_static("a=b"));
    let asked = Asked::of(&head).expect("it asks well");
    asked.strip(&mut head.headers);
    assert!(!head.headers.contains_key("cookie") && head.headers.contains_key("x-a"));
    assert!(head.headers.contains_key("accept-encoding"), "which is not the app's alone");
}

#[test]
fn an_answer_that_was_changed_anywhere_is_refused() {
    let (head, _) = asked();
    let whole = signed(&head);
    let refused = |spoil: &dyn Fn(&mut Response<Vec<u8>>), what: &str| {
        exchanged(|_| (), spoil).map(|_| ()).expect_err(what);
    };
    refused(&|answer| *answer.status_mut() = StatusCode::OK, "status");
    refused(&|answer| answer.body_mut().push(b'!'), "content added");
    for place in 0..whole.body().len() {
        refused(&|answer| answer.body_mut()[place] ^= 1, "content");
    }
    for name in whole.headers().keys() {
        refused(&|answer| drop(answer.headers_mut().remove(name)), name.as_str());
        refused(
            &|answer| assert!(answer.headers_mut().append(name.clone(), HeaderValue::from_static("b"))),
            name.as_str(),
        );
        let value = whole.headers()[name].as_bytes();
        for place in 0..value.len() {
            let mut changed = value.to_vec();
            changed[place] ^= 1;
            let Ok(changed) = HeaderValue::from_bytes(&changed) else { continue };
            let is_same = |answer: &Response<Vec<u8>>| name == "signature-input" && answer.headers()[name] == changed;
            exchanged(
                |_| (),
                |answer| {
                    assert!(!is_same(answer));
                    answer.headers_mut().insert(name.clone(), changed.clone());
                },
            )
            .map(|_| ())
            .expect_err(&format!("{name} at {place}: {changed:?}"));
        }
    }
}

#[test]
fn an_answer_to_another_request_is_refused() {
    let refused = |change: &dyn Fn(&mut request::Parts)| exchanged(change, |_| ()).map(|_| ()).expect_err("another");
    assert_eq!(refused(&|head| head.method = http::Method::PUT), VerifyError::Signature);
    assert_eq!(
        refused(&|head| head.uri = "http://api.test/orders?id=2".parse().expect("a url")),
        VerifyError::Signature
    );
    assert_eq!(
        refused(&|head| head.uri = "http://api.test/other?id=1".parse().expect("a url")),
        VerifyError::Signature
    );
    assert_eq!(refused(&|head| head.uri = "http://b.test/orders?id=1".parse().expect("a url")), VerifyError::Signature);
    let changed = HeaderValue::from_static("3");
    assert_eq!(refused(&|head| drop(head.headers.insert("x-a", changed.clone()))), VerifyError::Signature);
    let ask = |nonce| {
        let mut head = request();
        (Ask::new(&mut head, CONTENT, nonce).expect("it can be covered"), head)
    };
    let (_, earlier) = ask([9; 16]);
    let (ask, _) = ask([8; 16]);
    assert_eq!(ask.verify(&keys(), signed(&earlier)).map(|_| ()).expect_err("an old answer"), VerifyError::Request);
}

#[test]
fn a_signature_that_covers_less_than_was_asked_is_refused() {
    let less = |head: &mut request::Parts| {
        let text = head.headers["accept-signature"].to_str().expect("text").replace(" \"x-a\";req", "");
        head.headers.insert("accept-signature", HeaderValue::try_from(text).expect("text"));
    };
    assert_eq!(exchanged(less, |_| ()).map(|_| ()).expect_err("less"), VerifyError::Request);
}

#[test]
fn what_nobody_or_somebody_else_signed_is_refused() {
    let unsigned = |answer: &mut Response<Vec<u8>>| drop(answer.headers_mut().remove("signature"));
    assert_eq!(exchanged(|_| (), unsigned).map(|_| ()).expect_err("unsigned"), VerifyError::Unsigned);
    let (head, ask) = asked();
    assert_eq!(ask.verify(&[], signed(&head)).map(|_| ()).expect_err("unknown"), VerifyError::UnknownKey);
    let other = SigningKey::from_seed(&[8; 32]);
    let posing = VerifyingKey::new(key().id(), &other.public()).expect("a key");
    let (head, ask) = asked();
    assert_eq!(ask.verify(&[posing], signed(&head)).map(|_| ()).expect_err("another's"), VerifyError::Signature);
    assert!(VerifyingKey::new("k", &[0; 32]).is_none(), "a weak key verifies anything");
}

#[test]
fn a_request_whose_content_was_changed_is_not_executed() {
    let (mut head, _) = asked();
    let asked = |head: &request::Parts| Asked::of(head).expect("it asks well");
    assert_eq!(asked(&head).check(b"two Pears"), Err(AskError::Digest));
    assert_eq!(asked(&head).check(b""), Err(AskError::Digest));
    head.headers.append("content-digest", HeaderValue::from_static("sha-256=:AA==:"));
    assert_eq!(asked(&head).check(CONTENT), Err(AskError::Digest));
    let mut head = request();
    Ask::new(&mut head, b"", NONCE).expect("it can be covered");
    assert_eq!((asked(&head).check(b""), asked(&head).check(b"x")), (Ok(()), Err(AskError::Digest)));
}

#[test]
fn what_cannot_be_met_is_malformed_and_what_is_not_ours_is_left_alone() {
    let of = |value: &'static str| {
        let mut head = request();
        head.headers.insert("accept-signature", HeaderValue::from_static(value));
        (is_asked(&head.headers), Asked::of(&head).map(drop))
    };
    assert_eq!(of("sig1=(\"@status\");tag=\"other\""), (false, Err(AskError::Malformed)));
    for value in [
        "ropeway=(\"absent\";req);nonce=\"AA==\";tag=\"ropeway-answer\"",
        "ropeway=(\"x-a\";req \"x-a\";req);nonce=\"AA==\";tag=\"ropeway-answer\"",
        "ropeway=(\"@target-uri\";req);nonce=\"AA==\";tag=\"ropeway-answer\"",
        "ropeway=();tag=\"ropeway-answer\"",
        "ropeway=();nonce=\"AA==\";alg=\"hmac-sha256\";tag=\"ropeway-answer\"",
        "ropeway=(;nonce=\"AA==\";tag=\"ropeway-answer\"",
    ] {
        assert_eq!(of(value), (true, Err(AskError::Malformed)), "{value}");
    }
    assert_eq!(of("ropeway=(\"@method\";req);nonce=\"AA==\";tag=\"ropeway-answer\""), (true, Ok(())));
    assert!(!is_asked(&request().headers));
}

#[test]
fn the_documented_vector_is_what_is_sent() {
    let document = include_str!("../../../../docs/protocol/plain-http.md");
    let (head, _) = asked();
    let answer = signed(&head);
    let headers = [
        (&head.headers, "accept-signature"),
        (&head.headers, "content-digest"),
        (answer.headers(), "content-digest"),
        (answer.headers(), "signature-input"),
        (answer.headers(), "signature"),
    ];
    let line = |(headers, name): (&http::HeaderMap, &str)| format!("{name}: {}", headers[name].to_str().expect("text"));
    let mut lines: Vec<String> = headers.into_iter().map(line).collect();
    lines.push(format!("`{}`, its public key in Base64 `{}`", key().id(), fields::base64(&key().public())));
    let missing: Vec<_> = lines.iter().filter(|line| !document.contains(*line)).collect();
    assert!(missing.is_empty(), "docs/protocol/plain-http.md has not {missing:#?}");
}
