//! Exchanges that end before they are complete.

use super::*;

#[test]
fn what_is_there_of_an_answer_that_was_cut_goes_out_before_its_reset() {
    for ordered in [true, false] {
        for credit in [100, 256 * 1024] {
            let mut pair = Pair::new(MuxConfig { channel_credit: credit, ..MuxConfig::default() });
            (pair.echo, pair.ordered) = (false, ordered);
            pair.connect(false);
            let channel = pair.send(Method::GET, b"");
            let beside = pair.send(Method::GET, b"");
            pair.settle();
            let head = || ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() };
            for open in [channel, beside] {
                pair.server.mux().respond(open, head(), false);
            }
            let mut body = Bytes::from(vec![7; 40_000]);
            let length = body.len();
            assert!(pair.server.mux().write(channel, &mut body));
            let written = length - body.len();
            assert!(pair.server.mux().write(beside, &mut Bytes::from(vec![8; 100])));
            pair.server.mux().reset(channel, ResetCode::UpstreamCut, "cut");
            pair.settle();
            let answer = &pair.answers[&channel];
            assert_eq!((answer.status, answer.body.len(), answer.ended), (Some(StatusCode::OK), written, false));
            assert!(matches!(answer.closed, Some(Closed::Reset { code: ResetCode::UpstreamCut, .. })), "{answer:?}");
            assert_eq!((pair.server.mux().running(), pair.answers[&beside].body.len()), (1, 100));
        }
    }
}

#[test]
fn what_is_there_of_an_answer_that_was_cut_goes_on_over_the_next_link() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.echo = false;
    pair.connect(false);
    let channel = pair.send(Method::GET, b"");
    pair.settle();
    pair.server.mux().respond(channel, ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() }, false);
    assert!(pair.server.mux().write(channel, &mut Bytes::from(vec![7; 40_000])));
    pair.server.mux().reset(channel, ResetCode::UpstreamCut, "cut");
    pair.run(2).unwrap();
    assert!(pair.answers[&channel].closed.is_none(), "a part is still to come");
    pair.cut();
    pair.connect(true);
    pair.settle();
    let answer = &pair.answers[&channel];
    assert_eq!(answer.body.len(), 40_000);
    assert!(matches!(answer.closed, Some(Closed::Reset { code: ResetCode::UpstreamCut, .. })), "{answer:?}");
    assert_eq!(pair.server.mux().running(), 0);
}

#[test]
fn a_request_that_was_given_up_sends_nothing_more_over_the_next_link_than_its_reset() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.echo = false;
    pair.connect(false);
    pair.settle();
    let head =
        RequestHead { method: Method::POST, uri: Uri::from_static("https://api.test/"), headers: HeaderMap::new() };
    let channel = pair.client.mux().request(head, false).unwrap();
    assert!(pair.client.mux().write(channel, &mut Bytes::from_static(b"first")));
    pair.settle();
    assert!(pair.client.mux().write(channel, &mut Bytes::from_static(b"lost")));
    while pair.client.poll_output(NOW).is_some() {}
    pair.client.mux().reset(channel, ResetCode::Cancelled, "enough");
    pair.cut();
    pair.connect(true);
    pair.settle();
    assert_eq!(pair.executed[&channel].1, b"first");
    assert_eq!((pair.client.mux().running(), pair.server.mux().running()), (0, 0));
    assert_eq!(pair.client.mux().held_bytes(), 0);
}
