//! Pushes: shown once, in order, acknowledged, and told as a gap where they are lost.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ropeway::{CarrierKind, Client, LinkState, PushEvent};

use crate::support::{Authority, TestGateway, builder, eventually, soon, world};

fn id(event: Option<PushEvent>) -> String {
    match event.clone() {
        Some(PushEvent::Message(message)) => message.id,
        Some(PushEvent::Gap) => "gap".into(),
        Some(_) | None => panic!("{event:?}"),
    }
}

/// Waits until the client knows that its link is gone.
async fn lost(client: &Client) {
    let mut state = client.link_state();
    soon(state.wait_for(|state| !matches!(state, LinkState::Open { .. }))).await.unwrap();
}

#[tokio::test]
async fn messages_come_on_every_carrier_and_are_acknowledged_when_the_app_asks_for_more() {
    for carrier in CarrierKind::ALL {
        let (gateway, client) = world(carrier).await;
        let mut pushes = client.pushes();
        eventually("the link is up", || gateway.hellos().len() == 1).await;
        gateway.push("1", "");
        gateway.push("2", "");
        let Some(PushEvent::Message(first)) = soon(pushes.next()).await else { panic!("no message") };
        assert_eq!((first.id.as_str(), first.payload.as_ref(), first.redelivered), ("1", &b"payload of 1"[..], false));
        assert_eq!(id(soon(pushes.next()).await), "2");
        eventually("the first is acknowledged", || gateway.acked() == ["1"]).await;
        pushes.acknowledge();
        eventually("the second is too", || gateway.acked().contains(&"2".into())).await;
    }
}

#[tokio::test]
async fn topics_are_subscribed_before_and_after_the_link_is_up_and_again_after_a_break() {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let client = builder(&authority, &[&gateway], CarrierKind::Tls).topic("news").connect_now(true).build().unwrap();
    eventually("the topic is known", || gateway.topics() == ["news"]).await;
    client.subscribe("sport").unwrap();
    eventually("the second is known", || gateway.topics() == ["news", "sport"]).await;
    let mut pushes = client.pushes();
    gateway.push("1", "sport");
    gateway.push("2", "weather");
    gateway.push("3", "news");
    assert_eq!([id(soon(pushes.next()).await), id(soon(pushes.next()).await)], ["1", "3"]);
    client.unsubscribe("news");
    eventually("it is unknown", || gateway.topics() == ["sport"]).await;
    gateway.forget();
    gateway.kill_links();
    lost(&client).await;
    client.network_changed();
    eventually("the topics are told again", || gateway.topics() == ["sport"]).await;
}

#[tokio::test]
async fn after_a_break_what_was_not_taken_comes_once_and_nothing_twice() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let mut pushes = client.pushes();
    eventually("the link is up", || gateway.hellos().len() == 1).await;
    gateway.push("1", "");
    gateway.push("2", "");
    assert_eq!(id(soon(pushes.next()).await), "1");
    gateway.kill_links();
    gateway.push("3", "");
    lost(&client).await;
    client.network_changed();
    assert_eq!([id(soon(pushes.next()).await), id(soon(pushes.next()).await)], ["2", "3"]);
    pushes.acknowledge();
    eventually("all are acknowledged", || gateway.acked().contains(&"3".into())).await;
}

#[tokio::test]
async fn a_gateway_that_lost_its_memory_is_told_as_one_gap_and_shows_nothing_twice() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let mut pushes = client.pushes();
    eventually("the link is up", || gateway.hellos().len() == 1).await;
    gateway.push("1", "");
    assert_eq!(id(soon(pushes.next()).await), "1");
    gateway.forget();
    gateway.kill_links();
    lost(&client).await;
    client.network_changed();
    assert_eq!(id(soon(pushes.next()).await), "gap");
    gateway.push("1", "");
    gateway.push("2", "");
    assert_eq!(id(soon(pushes.next()).await), "2");
}

#[tokio::test]
async fn a_newer_stream_takes_the_place_of_the_older() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let mut old = client.pushes();
    let mut new = client.pushes();
    assert_eq!(soon(old.next()).await, None);
    eventually("the link is up", || gateway.hellos().len() == 1).await;
    gateway.push("1", "");
    assert_eq!(id(soon(new.next()).await), "1");
    soon(client.close()).await;
    assert_eq!(soon(new.next()).await, None);
}
