//! Documents on their way to a client: the newest access list and the newest policy.

use bytes::Bytes;
use prost::Message as _;

use crate::wire::{Flags, Frame, Kind, message::Document};

/// The newest document of each kind that a link has yet to carry; a newer one takes the place of one that waits.
#[derive(Debug, Default)]
pub(super) struct Papers {
    list: Option<Frame>,
    policy: Option<Frame>,
}

impl Papers {
    pub(super) fn set_list(&mut self, document: &Bytes) {
        let fits = document.len() <= DOCUMENT_BYTES_MAX;
        self.list = Some(paper(Kind::List, if fits { document.clone() } else { Bytes::new() }));
    }

    pub(super) fn set_policy(&mut self, document: &Bytes) {
        let fits = document.len() <= DOCUMENT_BYTES_MAX;
        self.policy = fits.then(|| paper(Kind::Policy, document.clone()));
    }

    pub(super) fn poll_output(&mut self) -> Option<Frame> {
        // The policy is small and holds at once.
        self.policy.take().or_else(|| self.list.take())
    }
}

fn paper(kind: Kind, document: Bytes) -> Frame {
    Frame { kind, flags: Flags::IGNORABLE, channel: 0, payload: Document { document }.encode_to_vec().into() }
}

/// Bytes of a document that is sent in a frame of its own. 16 KiB, as for the frames of a body: no answer waits behind more.
pub(super) const DOCUMENT_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        Time,
        session::{
            Client, ClientConfig, ClientEvent, Cookie, HelloFacts, Machine as _, Server, ServerConfig, SessionId,
        },
        wire::message::{Hello, NetworkKind, SignedHello},
    };

    const NOW: Time = Time::ZERO;

    fn greet(client: &mut Client) -> Hello {
        let facts = HelloFacts {
            ticket: "t".into(),
            gateway: "gw.test".into(),
            network: NetworkKind::Wired,
            unix_ms: 1_000,
            nonce: [3; 16],
            trace_parent: String::new(),
            ordered: true,
            heartbeat: Duration::from_secs(270),
        };
        client.connect(facts, &|_| [0; 64], NOW);
        let hello: SignedHello = client.poll_output(NOW).unwrap().as_ref().message().unwrap();
        Hello::decode(hello.hello).unwrap()
    }

    #[test]
    fn list_and_policy_reach_the_client_behind_welcome_and_not_without_a_link() {
        let cookie = Cookie::new(SessionId(1), [1; 16]);
        let mut server = Server::new(Arc::new(ServerConfig::default()), cookie, [1; 32], NOW);
        let mut client = Client::new(ClientConfig::default(), NOW);
        server.send_list(&Bytes::from_static(b"lost"));
        client.set_list_epoch(7);
        let hello = greet(&mut client);
        assert_eq!(hello.list_epoch, 7);
        server.attach(&hello, true, false, 1_000, NOW);
        server.send_list(&Bytes::from_static(b"list"));
        server.send_policy(&Bytes::from_static(b"rules"));
        while let Some(frame) = server.poll_output(NOW) {
            client.handle_frame(frame.as_ref(), NOW).unwrap();
        }
        let events: Vec<_> = std::iter::from_fn(|| client.poll_event()).collect();
        let [ClientEvent::Welcome { .. }, ClientEvent::Policy(policy), ClientEvent::List(list)] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((&policy[..], &list[..]), (&b"rules"[..], &b"list"[..]));

        server.send_list(&Bytes::from_static(b"cut off"));
        server.handle_detached(NOW);
        server.attach(&greet(&mut client), true, true, 1_000, NOW);
        assert_eq!(server.poll_output(NOW).map(|frame| frame.kind), Some(Kind::Welcome));
        assert_eq!(server.poll_output(NOW), None);
    }

    fn documents(papers: &mut Papers) -> Vec<(Kind, Bytes)> {
        let frames = std::iter::from_fn(|| papers.poll_output());
        frames.map(|frame| (frame.kind, frame.as_ref().message::<Document>().unwrap().document)).collect()
    }

    #[test]
    fn of_several_lists_that_wait_the_newest_is_sent() {
        let mut papers = Papers::default();
        papers.set_list(&Bytes::from_static(b"one"));
        papers.set_list(&Bytes::from_static(b"two"));
        papers.set_policy(&Bytes::from_static(b"rules"));
        assert_eq!(documents(&mut papers), [(Kind::Policy, "rules".into()), (Kind::List, "two".into())]);
        assert_eq!(documents(&mut papers), []);
    }

    #[test]
    fn what_an_answer_would_wait_for_is_to_be_fetched() {
        let big = Bytes::from(vec![0; DOCUMENT_BYTES_MAX + 1]);
        let mut papers = Papers::default();
        papers.set_list(&big);
        papers.set_policy(&big);
        assert_eq!(documents(&mut papers), [(Kind::List, Bytes::new())]);
        papers.set_list(&big.slice(1..));
        assert_eq!(documents(&mut papers), [(Kind::List, big.slice(1..))]);
    }
}
