use std::{
    sync::atomic::{AtomicBool, Ordering},
    task::Wake,
    time::Duration,
};

use ropeway_core::{
    session::{Client, ClientConfig, HelloFacts},
    wire::{Kind, message::NetworkKind},
};

use super::*;

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn session() -> Session<Client> {
    let clock = Clock::new();
    Session::new(Client::new(ClientConfig::default(), clock.now()), clock)
}

fn hello(client: &mut Client, now: Time) {
    let facts = HelloFacts {
        ticket: String::new(),
        gateway: "gw.test".into(),
        network: NetworkKind::Wired,
        unix_ms: 0,
        nonce: [0; 16],
        trace_parent: String::new(),
        ordered: true,
        heartbeat: Duration::from_secs(60),
    };
    client.connect(facts, &|_| [0; 64], now);
}

#[test]
fn a_replaced_link_takes_nothing_of_what_the_new_one_is_to_send() {
    let session = session();
    let old = session.begin_link();
    let (new, ()) = session.begin_link_with(hello);
    assert_eq!((&session, old).poll_output(), None);
    assert_eq!((&session, new).poll_output().map(|frame| frame.kind), Some(Kind::Hello));
}

#[test]
fn a_frame_that_arrives_over_a_replaced_link_is_passed_over() {
    let session = session();
    let old = session.begin_link();
    let (new, ()) = session.begin_link_with(hello);
    let stray = Frame { kind: Kind::Ping, flags: Default::default(), channel: 0, payload: Bytes::new() };
    assert_eq!((&session, old).handle_frame(stray.as_ref(), false), Ok(()));
    assert!((&session, new).handle_frame(stray.as_ref(), false).is_err(), "PING before WELCOME");
}

#[test]
fn a_replaced_driver_that_wakes_up_late_does_not_take_the_place_of_the_new_one() {
    let session = session();
    let (old, new) = (session.begin_link(), session.begin_link());
    let (late, waiting) = (Arc::new(Flag::default()), Arc::new(Flag::default()));
    (&session, new).register(&Arc::clone(&waiting).into());
    (&session, old).register(&Arc::clone(&late).into());
    session.with(|_, _| ());
    assert!(waiting.0.load(Ordering::Relaxed), "the new driver is woken");
    assert!(!late.0.load(Ordering::Relaxed), "the old one is not");
}

#[test]
fn only_the_newest_link_can_end_the_attachment() {
    let session = session();
    let (old, new) = (session.begin_link(), session.begin_link());
    assert!(!session.end_link(old));
    assert!(session.end_link(new));
}
