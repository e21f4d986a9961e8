//! What goes out behind HELLO, before WELCOME.

use super::*;

/// Sends all that the client has to say, and returns the kinds of the frames.
fn said(pair: &mut Pair) -> Vec<Kind> {
    let mut kinds = Vec::new();
    while let Some(frame) = pair.client.poll_output(NOW) {
        kinds.push(frame.kind);
        pair.to_server.push_back(frame);
    }
    kinds
}

/// Lets the gateway admit the link by what stands first in the queue.
fn admit(pair: &mut Pair) {
    let mut accept = Accept::new("gw.test".into(), Duration::from_secs(60));
    let hello = pair.to_server.pop_front().unwrap();
    accept.handle_hello(hello.as_ref(), 1_000).unwrap();
    accept.handle_device_key(&pair.key.verifying_key().to_bytes()).unwrap();
    let proof = pair.to_server.pop_front().unwrap();
    let admitted = accept.handle_proof(proof.as_ref(), &BINDING).unwrap();
    pair.server.attach(&admitted.hello, pair.ordered, false, 1_000, NOW);
}

fn is_answered(pair: &Pair, channel: u64) -> bool {
    let answer = &pair.answers[&channel];
    answer.ended && answer.status == Some(StatusCode::OK)
}

#[test]
fn what_may_run_twice_and_has_no_body_goes_out_behind_hello_and_the_rest_after_welcome() {
    for ordered in [true, false] {
        let mut pair = Pair::new(MuxConfig::default());
        pair.ordered = ordered;
        let (get, post) = (pair.send(Method::GET, b""), pair.send(Method::POST, b"pay"));
        let put = pair.send(Method::PUT, b"text");
        pair.greet();
        assert_eq!(said(&mut pair), [Kind::Hello, Kind::Proof, Kind::Request]);
        admit(&mut pair);
        pair.settle();
        assert!([get, post, put].iter().all(|channel| is_answered(&pair, *channel)), "ordered: {ordered}");
        assert!(pair.executed.values().all(|seen| seen.0 == 1));
        let later = pair.send(Method::GET, b"");
        pair.settle();
        assert!(is_answered(&pair, later), "the encoder goes on where it was");
    }
}

#[test]
fn no_more_goes_out_than_a_gateway_holds_for_a_stranger() {
    let mut pair = Pair::new(MuxConfig::default());
    let gets: Vec<u64> = (0..20).map(|_| pair.send(Method::GET, b"")).collect();
    pair.greet();
    assert_eq!(said(&mut pair).len(), 2 + EARLY_REQUESTS_MAX);
    admit(&mut pair);
    pair.settle();
    assert!(gets.iter().all(|channel| is_answered(&pair, *channel)));
}

#[test]
fn what_went_out_on_a_link_that_did_not_come_about_goes_out_again() {
    let mut pair = Pair::new(MuxConfig::default());
    let get = pair.send(Method::GET, b"");
    pair.greet();
    said(&mut pair);
    assert!(!pair.client.mux().is_unsent(get));
    pair.cut();
    assert!(pair.client.mux().is_unsent(get));
    pair.greet();
    assert_eq!(said(&mut pair), [Kind::Hello, Kind::Proof, Kind::Request]);
    admit(&mut pair);
    pair.settle();
    assert!(is_answered(&pair, get));
}

#[test]
fn an_answer_that_overtakes_welcome_is_kept_until_it_comes() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.ordered = false;
    let get = pair.send(Method::GET, b"");
    pair.greet();
    said(&mut pair);
    admit(&mut pair);
    let request = pair.to_server.pop_front().unwrap();
    pair.server.handle_frame(request.as_ref(), NOW).unwrap();
    pair.serve();
    let mut frames = Vec::new();
    while let Some(frame) = pair.server.poll_output(NOW) {
        frames.push(frame);
    }
    // WELCOME is on a stream of its own.
    frames.sort_by_key(|frame| frame.kind == Kind::Welcome);
    for frame in frames {
        pair.client.handle_frame(frame.as_ref(), NOW).unwrap();
    }
    pair.observe();
    assert!(is_answered(&pair, get));
}

#[test]
fn an_exchange_is_taken_back_only_while_no_carrier_has_it() {
    let mut pair = Pair::new(MuxConfig::default());
    let waiting = pair.send(Method::POST, b"pay");
    assert!(pair.client.mux().take_back(waiting));
    assert_eq!(pair.client.mux().running(), 0);
    pair.connect(false);
    let sent = pair.send(Method::POST, b"pay");
    pair.run(3).unwrap();
    assert!(!pair.client.mux().take_back(sent));
    pair.settle();
    assert!(is_answered(&pair, sent));
    assert!(!pair.client.mux().take_back(sent), "it is over");
}
