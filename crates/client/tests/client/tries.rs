//! Each try of a request goes somewhere else.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use ropeway::{Action, CarrierKind, Client, Error, Phase, Timeline, Way};
use ropeway_core::{
    policy::Policy,
    wire::list::{AccessPoint, Host as ListedHost},
};
use ropeway_net::{tls::Alpn, unix_ms};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::{
    direct::Host,
    sources::{Dispatcher, client_of, kept, key, list, sealed, until},
    support::{Authority, Relay, Tarpit, TestGateway, builder, soon},
};

/// A host behind relays that the access list names, and a client that has the list.
struct Scene {
    host: Host,
    relays: Vec<Relay>,
    client: Client,
    _gateway: TestGateway,
    _folder: TempDir,
}

impl Scene {
    async fn new(relays: usize) -> Self {
        Self::beside(relays, None).await
    }

    /// Has the list name one more address.
    async fn beside(relays: usize, other: Option<SocketAddr>) -> Self {
        let (authority, folder) = (Authority::new(), TempDir::new().unwrap());
        let gateway = TestGateway::start(&authority).await;
        let host = Host::start(Some(&authority), &[Alpn::H2]).await;
        let mut behind = Vec::new();
        for _ in 0..relays {
            behind.push(Relay::start(host.address).await);
        }
        let client = builder(&authority, &[&gateway], CarrierKind::Tls)
            .list_key("k", key().verifying_key().to_bytes())
            .state_dir(folder.path())
            .way(Way::Address)
            .build()
            .unwrap();
        soon(client.get("https://api.test/greeting").send()).await.unwrap();
        let mut list = list();
        list.units[0].access_points = vec![AccessPoint::new(gateway.address(), [CarrierKind::Tls])];
        let addresses = behind.iter().map(Relay::address).chain(other);
        let addresses = addresses.map(|address| address.to_string().parse().unwrap()).collect();
        list.hosts = vec![ListedHost { name: "localhost".into(), addresses, ..ListedHost::default() }];
        list.policy =
            Policy { epoch_ms: unix_ms(), first_byte_base: Some(Duration::from_secs(1)), ..Policy::default() };
        gateway.send_list(&sealed(&list));
        until("the list is kept", || kept(folder.path())).await;
        Self { host, relays: behind, client, _gateway: gateway, _folder: folder }
    }

    async fn get(&self) -> Result<(SocketAddr, Timeline), Error> {
        let request = self.client.get(self.host.url("https", "/")).way(Way::Address);
        let answer = soon(request.timeout(Duration::from_secs(10)).send()).await?;
        let timeline = answer.timeline().clone();
        let address = timeline.answered().unwrap().address.unwrap();
        answer.bytes().await?;
        Ok((address, timeline))
    }
}

fn exchanges(timeline: &Timeline) -> Vec<Option<SocketAddr>> {
    let exchanges = timeline.steps().iter().filter(|step| step.action == Action::Exchange);
    exchanges.map(|step| step.address).collect()
}

#[tokio::test]
async fn the_next_try_leaves_the_address_and_the_connection_on_which_nothing_came() {
    let scene = Scene::new(2).await;
    let (first, _) = scene.get().await.unwrap();
    let frozen = scene.relays.iter().find(|relay| relay.address() == first).unwrap();
    frozen.freeze();
    let (second, timeline) = scene.get().await.unwrap();
    assert_ne!(first, second);
    assert_eq!(exchanges(&timeline), [Some(first), Some(second)], "{timeline}");
}

#[tokio::test]
async fn where_one_address_is_known_the_next_try_goes_there_on_another_connection() {
    let scene = Scene::new(1).await;
    scene.get().await.unwrap();
    scene.relays[0].freeze();
    let (address, timeline) = scene.get().await.unwrap();
    assert_eq!(exchanges(&timeline), [Some(address); 2], "{timeline}");
}

#[tokio::test]
async fn a_request_that_ends_unanswered_tells_where_each_of_its_tries_was() {
    let scene = Scene::new(2).await;
    let request = || scene.client.get(scene.host.url("https", "/never")).way(Way::Address);
    let error = soon(request().timeout(Duration::from_secs(3)).send()).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let told: BTreeSet<_> = exchanges(error.timeline().unwrap()).into_iter().collect();
    assert_eq!(told, scene.relays.iter().map(|relay| Some(relay.address())).collect(), "{error}");
}

#[tokio::test]
async fn a_request_that_was_handed_over_may_have_run_whatever_its_last_try_is_at() {
    let tarpit = Tarpit::new();
    let scene = Scene::beside(1, Some(tarpit.address())).await;
    scene.get().await.unwrap();
    scene.relays[0].freeze();
    let request = scene.client.get(scene.host.url("https", "/")).way(Way::Address);
    let error = soon(request.timeout(Duration::from_secs(3)).send()).await.unwrap_err();
    let tried = exchanges(error.timeline().unwrap());
    assert_eq!(tried, [scene.relays[0].address(), tarpit.address()].map(Some), "{error}");
    assert!(matches!(error, Error::Timeout { phase: Phase::Answer, .. }), "{error}");
}

#[tokio::test]
async fn a_call_by_name_is_not_tried_again_on_the_connection_on_which_nothing_came() {
    let authority = Authority::new();
    let host = Host::start(Some(&authority), &[Alpn::H2]).await;
    let relay = Relay::start(host.address).await;
    let client = Client::builder().trust(authority.pem()).way(Way::Name).build().unwrap();
    let get = || client.get(format!("https://localhost:{}/", relay.address().port()));
    soon(get().send()).await.unwrap().bytes().await.unwrap();
    relay.freeze();
    let answer = soon(get().send()).await.unwrap();
    let timeline = answer.timeline();
    assert_eq!(exchanges(timeline), [Some(relay.address()); 2], "{timeline}");
}

#[tokio::test]
async fn what_an_access_list_names_is_tried_though_the_other_ways_failed_before_it_came() {
    let authority = Authority::new();
    let host = Host::start(Some(&authority), &[Alpn::H2]).await;
    let mut list = list();
    let address = host.address.to_string().parse().unwrap();
    list.hosts = vec![ListedHost { name: "localhost".into(), addresses: vec![address], ..ListedHost::default() }];
    let dispatcher = Dispatcher::new(sealed(&list)).await;
    let client = client_of(&dispatcher, Way::Name).way(Way::Address).trust(authority.pem()).build().unwrap();
    let refused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let request = client.get(format!("https://localhost:{}/", refused.port()));
    let answer = soon(request.timeout(Duration::from_secs(10)).send()).await.unwrap();
    assert_eq!(answer.timeline().answered().unwrap().way, Way::Address, "{}", answer.timeline());
    assert_eq!(answer.timeline().steps()[0].way, Way::Name, "{}", answer.timeline());
}
