//! Gateways that ask their clients to move.

use ropeway::{CarrierKind, PushEvent};
use ropeway_core::{session::Refusal, wire::message::RefuseCode};

use crate::support::{Authority, TestGateway, builder, eventually, soon, world};

fn draining() -> Option<Refusal> {
    Some(Refusal::new(RefuseCode::Draining, "this gateway is closing"))
}

#[tokio::test]
async fn new_requests_move_on_and_those_under_way_finish_where_they_are() {
    for carrier in CarrierKind::ALL {
        let authority = Authority::new();
        let (old, new) = (TestGateway::start(&authority).await, TestGateway::start(&authority).await);
        let client = builder(&authority, &[&old, &new], carrier).build().unwrap();
        let held = tokio::spawn(client.post("https://api.test/hold").body("pay").send());
        eventually("it is under way at the first", || old.running() == 1).await;
        old.refuse(draining());
        old.drain();
        let mut state = client.link_state();
        soon(state.changed()).await.unwrap();
        let moved = soon(client.post("https://api.test/moved").body("pay").send()).await.unwrap();
        assert_eq!(moved.timeline().answered().unwrap().address, Some(new.address()), "{carrier}");
        assert_eq!(old.links(), 1, "something runs there");
        old.release();
        assert_eq!(soon(held).await.unwrap().unwrap().text().await.unwrap(), "held");
        eventually("the old link is closed", || old.links() == 0).await;
        assert_eq!((old.executed().len(), new.executed().len()), (1, 1));
    }
}

#[tokio::test]
async fn messages_that_both_gateways_bring_are_shown_once() {
    let authority = Authority::new();
    let (old, new) = (TestGateway::start(&authority).await, TestGateway::start(&authority).await);
    let client = builder(&authority, &[&old, &new], CarrierKind::Tls).topic("news").build().unwrap();
    let mut pushes = client.pushes();
    let held = tokio::spawn(client.get("https://api.test/hold").send());
    eventually("it is under way at the first", || old.running() == 1).await;
    old.refuse(draining());
    old.drain();
    eventually("the second has the topic", || new.topics() == ["news"]).await;
    for gateway in [&new, &old] {
        gateway.push("1", "news");
    }
    new.push("2", "news");
    old.push("3", "");
    let mut ids = Vec::new();
    while ids.len() < 3 {
        let Some(PushEvent::Message(message)) = soon(pushes.next()).await else { panic!("no message, or a gap") };
        ids.push(message.id);
    }
    pushes.acknowledge();
    ids.sort();
    assert_eq!(ids, ["1", "2", "3"]);
    eventually("the old one knows of both", || old.acked().contains(&"3".to_owned())).await;
    old.release();
    soon(held).await.unwrap().unwrap();
    eventually("the old link is closed", || old.links() == 0).await;
    new.push("4", "");
    let Some(PushEvent::Message(last)) = soon(pushes.next()).await else { panic!("no message, or a gap") };
    assert_eq!(last.id, "4");
}

#[tokio::test]
async fn while_no_gateway_takes_links_new_requests_wait() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    soon(client.get("https://api.test/").send()).await.unwrap();
    gateway.refuse(draining());
    gateway.drain();
    let mut state = client.link_state();
    soon(state.changed()).await.unwrap();
    let waiting = tokio::spawn(client.post("https://api.test/waited").body("pay").send());
    eventually("the old link is still there", || gateway.links() >= 1).await;
    gateway.refuse(None);
    let answer = soon(waiting).await.unwrap().unwrap();
    assert_eq!(answer.text().await.unwrap(), "hello /waited");
    assert_eq!(gateway.executed().len(), 2);
}
