//! Gateways that refuse links.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ropeway::{Action, CarrierKind, Error, LinkState, PushEvent, RefuseCode, Retry, Side, way::Fate};
use ropeway_core::session::Refusal;

use crate::support::{Authority, TestGateway, builder, eventually, soon, world};

fn refusal(code: RefuseCode) -> Option<Refusal> {
    Some(Refusal::new(code, format!("because of {code:?}")))
}

#[tokio::test]
async fn a_refusal_that_nothing_heals_fails_at_once_until_there_is_another_ticket() {
    for code in [RefuseCode::TicketInvalid, RefuseCode::TicketForeignApp, RefuseCode::TicketUnbound] {
        let (gateway, client) = world(CarrierKind::Tls).await;
        gateway.refuse(refusal(code));
        for _ in 0..2 {
            let error = soon(client.get("https://api.test/").send()).await.unwrap_err();
            assert!(matches!(&error, Error::Refused { code: told, .. } if *told == code), "{error:?}");
            assert_eq!((error.side(), error.retry()), (Side::Local, Retry::Never));
        }
        assert_eq!(*client.link_state().borrow(), LinkState::Refused { code });
        gateway.refuse(None);
        client.set_ticket("another");
        let mut state = client.link_state();
        soon(state.wait_for(|state| matches!(state, LinkState::Open { .. }))).await.unwrap();
        soon(client.get("https://api.test/").send()).await.unwrap();
        assert_eq!(gateway.hellos()[0].ticket, "another");
    }
}

#[tokio::test]
async fn a_wrong_clock_is_told_at_once() {
    let (gateway, client) = world(CarrierKind::Ws).await;
    gateway.refuse(refusal(RefuseCode::ClockSkew));
    let error = soon(client.get("https://api.test/").send()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { code: RefuseCode::ClockSkew, .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::BeforeSend);
    let timeline = error.timeline().unwrap();
    let greeting = timeline.steps().iter().find(|step| step.action == Action::Greet).unwrap();
    assert_eq!(greeting.address, Some(gateway.address()), "{timeline}");
}

#[tokio::test]
async fn an_expired_ticket_is_fetched_anew() {
    let authority = Authority::new();
    let gateway = Arc::new(TestGateway::start(&authority).await);
    gateway.refuse(refusal(RefuseCode::TicketExpired));
    let asked = Arc::new(AtomicUsize::new(0));
    let source = {
        let (gateway, asked) = (Arc::clone(&gateway), Arc::clone(&asked));
        move || {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            if number == 1 {
                gateway.refuse(None);
            }
            std::future::ready(Ok::<_, std::convert::Infallible>(format!("ticket {number}")))
        }
    };
    let client = builder(&authority, &[&gateway], CarrierKind::Tls).ticket_source(source).build().unwrap();
    soon(client.get("https://api.test/").send()).await.unwrap();
    assert_eq!((asked.load(Ordering::Relaxed), gateway.hellos()[0].ticket.as_str()), (2, "ticket 1"));
}

#[tokio::test]
async fn a_ticket_source_that_fails_is_told() {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let source = || std::future::ready(Err::<String, _>("login first"));
    let client = builder(&authority, &[&gateway], CarrierKind::Tls).ticket_source(source).build().unwrap();
    let error = soon(client.get("https://api.test/").send()).await.unwrap_err();
    assert!(matches!(&error, Error::Ticket { reason, .. } if reason == "login first"), "{error:?}");
}

#[tokio::test]
async fn an_overloaded_gateway_is_left_alone_for_as_long_as_it_asks_and_another_is_tried() {
    let authority = Authority::new();
    let (busy, free) = (TestGateway::start(&authority).await, TestGateway::start(&authority).await);
    let overloaded = Refusal::new(RefuseCode::Overloaded, "too many links");
    busy.refuse(Some(Refusal { retry_after: Duration::from_secs(3_600), ..overloaded }));
    let client = builder(&authority, &[&busy, &free], CarrierKind::Tls).build().unwrap();
    let answer = soon(client.get("https://api.test/").send()).await.unwrap();
    assert_eq!(answer.timeline().answered().unwrap().address, Some(free.address()));
    assert!(answer.timeline().to_string().contains("too many links"), "{}", answer.timeline());

    let alone =
        builder(&authority, &[&busy], CarrierKind::Tls).link_wait(Duration::from_millis(1_500)).build().unwrap();
    let error = soon(alone.get("https://api.test/").send()).await.unwrap_err();
    assert!(matches!(error, Error::NoWay { .. }), "{error:?}");
    let timeline = error.timeline().unwrap();
    let greetings = timeline.steps().iter().filter(|step| step.action == Action::Greet).count();
    assert_eq!(greetings, 1, "one attempt in all that time: {timeline}");
}

#[tokio::test]
async fn a_gateway_of_another_name_is_left_for_the_next_and_told_where_there_is_none() {
    let authority = Authority::new();
    let (strange, good) = (TestGateway::start(&authority).await, TestGateway::start(&authority).await);
    strange.refuse(refusal(RefuseCode::WrongGateway));
    let client = builder(&authority, &[&strange, &good], CarrierKind::Tls).build().unwrap();
    let answer = soon(client.get("https://api.test/").send()).await.unwrap();
    assert_eq!(answer.timeline().answered().unwrap().address, Some(good.address()));

    let alone =
        builder(&authority, &[&strange], CarrierKind::Tls).link_wait(Duration::from_secs(3_600)).build().unwrap();
    let error = soon(alone.get("https://api.test/").send()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { code: RefuseCode::WrongGateway, .. }), "{error:?}");
}

#[tokio::test]
async fn a_session_the_gateway_does_not_take_back_is_a_gap_and_an_unknown_outcome() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let mut pushes = client.pushes();
    let post = tokio::spawn(client.post("https://api.test/hold").body("pay").send());
    eventually("it is under way", || gateway.running() == 1).await;
    gateway.refuse_resume();
    gateway.kill_links();
    let error = soon(post).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    assert_eq!(soon(pushes.next()).await, Some(PushEvent::Gap));
    soon(client.get("https://api.test/").send()).await.unwrap();
}

#[tokio::test]
async fn an_unknown_outcome_tells_of_the_link_that_the_request_was_on_and_of_none_that_came_later() {
    let authority = Authority::new();
    let (one, two) = (TestGateway::start(&authority).await, TestGateway::start(&authority).await);
    let client = builder(&authority, &[&one, &two], CarrierKind::Tls).build().unwrap();
    let post = tokio::spawn(client.post("https://api.test/hold").body("pay").send());
    eventually("it is under way", || one.running() + two.running() == 1).await;
    let (gone, other) = if one.running() == 1 { (&one, &two) } else { (&two, &one) };
    gone.refuse(refusal(RefuseCode::Overloaded));
    other.refuse_resume();
    gone.kill_links();
    let error = soon(post).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    let timeline = error.timeline().unwrap();
    let exchanges: Vec<_> = timeline.steps().iter().filter(|step| step.action == Action::Exchange).collect();
    let [exchange] = exchanges[..] else { panic!("{timeline}") };
    assert_eq!((exchange.address, exchange.fate), (Some(gone.address()), Fate::MayHaveRun), "{timeline}");
    assert!(exchange.error.as_deref().unwrap().starts_with("the link was lost"), "{timeline}");
    assert_eq!(timeline.unanswered(), Some(exchange));
}

#[tokio::test]
async fn a_request_that_was_sent_behind_a_hello_in_vain_is_told_of_each_time_it_was_sent() {
    let authority = Authority::new();
    let (busy, good) = (TestGateway::start(&authority).await, TestGateway::start(&authority).await);
    busy.refuse(refusal(RefuseCode::Overloaded));
    for carrier in CarrierKind::ALL {
        let client = builder(&authority, &[&busy, &good], carrier).served_host("api.test").build().unwrap();
        let answer = soon(client.get("https://api.test/").send()).await.unwrap();
        let steps = answer.timeline().steps().iter().filter(|step| step.action == Action::Exchange);
        let told: Vec<_> = steps.map(|step| (step.address, step.carrier, step.error.clone())).collect();
        let refused = told.iter().find(|(address, ..)| *address == Some(busy.address()));
        if let Some((_, on, error)) = refused {
            assert_eq!(*on, Some(carrier));
            let error = error.as_deref().unwrap();
            assert!(error.starts_with("given up behind HELLO: refused: because of Overloaded"), "{error}");
        }
        // Which of the two is tried first is drawn by lot.
        let greeted =
            answer.timeline().steps().iter().any(|step| {
                step.action == Action::Greet && step.address == Some(busy.address()) && step.error.is_some()
            });
        assert_eq!(refused.is_some(), greeted, "{}", answer.timeline());
        assert_eq!(told.last().unwrap(), &(Some(good.address()), Some(carrier), None), "{}", answer.timeline());
    }
}
