//! Gateways with names of their own, which the access list tells.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use ropeway::{CarrierKind, Client, Error, LinkState};
use ropeway_core::{
    session::Refusal,
    wire::{
        list::{AccessPoint, Unit},
        message::RefuseCode,
    },
};
use tempfile::TempDir;

use crate::{
    sources::{kept, key, list, sealed, until},
    support::{Authority, TestGateway, builder, eventually, soon},
};

/// A gateway that the app named, one of another name in another unit, and a client that has both from a list of the first.
struct Fleet {
    north: TestGateway,
    south: TestGateway,
    client: Client,
    _folder: TempDir,
}

impl Fleet {
    /// Starts both, and gives the client the list, which calls them by these names.
    async fn start(carrier: CarrierKind, names: [&str; 2]) -> Self {
        let authority = Authority::new();
        let north = TestGateway::start(&authority).await;
        let south = TestGateway::start_as("south.test", &authority, SocketAddr::from(([127, 0, 0, 2], 0))).await;
        let folder = TempDir::new().unwrap();
        let base = builder(&authority, &[&north], carrier).list_key("k", key().verifying_key().to_bytes());
        let client = base.state_dir(folder.path()).build().unwrap();
        soon(client.get("https://api.test/greeting").send()).await.unwrap();
        let unit = |name: &str, gateway: &TestGateway, called: &str| Unit {
            name: name.into(),
            access_points: vec![AccessPoint {
                gateway: called.into(),
                ..AccessPoint::new(gateway.address(), [carrier])
            }],
            dispatch: Vec::new(),
        };
        let mut list = list();
        list.units = vec![unit("north", &north, names[0]), unit("south", &south, names[1])];
        north.send_list(&sealed(&list));
        until("the list is kept", || kept(folder.path())).await;
        Self { north, south, client, _folder: folder }
    }
}

#[tokio::test]
async fn where_a_gateway_is_gone_one_of_another_name_is_greeted_by_its_own() {
    for carrier in CarrierKind::ALL {
        let Fleet { north, south, client, .. } = Fleet::start(carrier, ["", "south.test"]).await;
        north.stay_silent();
        north.forget();
        north.kill_links();
        let moved = soon(client.get("https://api.test/greeting").send()).await.unwrap();
        assert_eq!(moved.timeline().answered().unwrap().address, Some(south.address()), "{carrier}");
        assert_eq!(south.hellos()[0].gateway, "south.test");
        assert_eq!(north.hellos()[0].gateway, "gw.test");
    }
}

#[tokio::test]
async fn a_gateway_that_drains_hands_its_clients_to_one_of_another_name() {
    for carrier in [CarrierKind::Quic, CarrierKind::Tls] {
        let Fleet { north, south, client, .. } = Fleet::start(carrier, ["gw.test", "south.test"]).await;
        let held = tokio::spawn(client.post("https://api.test/hold").body("pay").send());
        eventually("it is under way at the first", || north.running() == 1).await;
        north.refuse(Some(Refusal::new(RefuseCode::Draining, "this gateway is closing")));
        north.drain();
        let mut state = client.link_state();
        soon(state.changed()).await.unwrap();
        let moved = soon(client.post("https://api.test/moved").body("pay").send()).await.unwrap();
        assert_eq!(moved.timeline().answered().unwrap().address, Some(south.address()), "{carrier}");
        assert!(south.hellos()[0].resume.is_empty(), "another unit knows nothing of the session");
        north.release();
        assert_eq!(soon(held).await.unwrap().unwrap().text().await.unwrap(), "held");
    }
}

#[tokio::test]
async fn a_name_of_the_list_must_be_on_the_certificate_although_the_app_gave_the_address_another() {
    let Fleet { north, south, client, .. } = Fleet::start(CarrierKind::Tls, ["north.test", "gw.test"]).await;
    north.kill_links();
    let mut state = client.link_state();
    soon(state.wait_for(|state| !matches!(state, LinkState::Open { .. }))).await.unwrap();
    let error = soon(client.get("https://api.test/greeting").send()).await.unwrap_err();
    assert!(matches!(error, Error::Untrusted { .. }), "{error:?}");
    assert!(south.hellos().is_empty());
}
