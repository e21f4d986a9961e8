//! Many requests at once while links and gateways come and go.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use ropeway::{CarrierKind, Client, Error};
use ropeway_core::{session::Refusal, wire::message::RefuseCode};
use tokio::task::JoinHandle;

use crate::support::{Authority, TestGateway, builder, eventually, soon, world};

fn post_many(client: &Client, from: usize, to: usize) -> Vec<JoinHandle<Result<String, Error>>> {
    let post = |number: usize| {
        let request = client.post(format!("https://api.test/post/{number}")).body(vec![7; 1_000]);
        tokio::spawn(async move { request.send().await?.text().await })
    };
    (from..to).map(post).collect()
}

async fn all_answered(posts: Vec<JoinHandle<Result<String, Error>>>, from: usize) {
    for (at, post) in posts.into_iter().enumerate() {
        assert_eq!(soon(post).await.unwrap().unwrap(), format!("hello /post/{}", from + at));
    }
}

fn executions(gateways: &[&TestGateway]) -> BTreeMap<String, usize> {
    let mut executions = BTreeMap::new();
    for executed in gateways.iter().flat_map(|gateway| gateway.executed()) {
        *executions.entry(executed).or_default() += 1;
    }
    executions
}

#[tokio::test]
async fn posts_run_once_each_while_the_link_breaks_again_and_again() {
    for carrier in CarrierKind::ALL {
        let (gateway, client) = world(carrier).await;
        for round in 0..5 {
            // No more than a session keeps for a resume: 64 answers and 64 KiB.
            let posts = post_many(&client, round * 50, round * 50 + 50);
            let done = round * 50 + 10;
            eventually("some have run", || gateway.executed().len() >= done).await;
            gateway.kill_links();
            all_answered(posts, round * 50).await;
        }
        let executions = executions(&[&gateway]);
        assert_eq!(executions.len(), 250, "{carrier}");
        assert!(executions.values().all(|times| *times == 1), "{carrier}: {executions:?}");
    }
}

#[tokio::test]
async fn posts_run_once_each_while_one_gateway_stops_and_another_takes_over() {
    for carrier in CarrierKind::ALL {
        let authority = Authority::new();
        let (old, new) = (TestGateway::start(&authority).await, TestGateway::start(&authority).await);
        let client = builder(&authority, &[&old, &new], carrier).build().unwrap();
        let posts = post_many(&client, 0, 300);
        eventually("some have run", || old.executed().len() >= 20).await;
        old.refuse(Some(Refusal::new(RefuseCode::Draining, "this gateway is closing")));
        old.drain();
        old.stop();
        all_answered(posts, 0).await;
        all_answered(post_many(&client, 300, 310), 300).await;
        let executions = executions(&[&old, &new]);
        assert_eq!(executions.len(), 310, "{carrier}");
        assert!(executions.values().all(|times| *times == 1), "{carrier}: {executions:?}");
        eventually("the old link is closed", || old.links() == 0).await;
    }
}
