//! Places whose gateways have names of their own.

use super::*;

fn place(address: &str, carrier: CarrierKind, gateway: Option<&str>) -> Place {
    let candidate = Candidate { address: format!("{address}:443").parse().unwrap(), carrier };
    Place { candidate, source: Source::List, unit: None, gateway: gateway.map(Into::into) }
}

/// Returns what is dialed first, and by which names, when these are the places.
fn dialed(places: Vec<Place>, count: usize) -> Vec<(Candidate, Option<String>)> {
    let Client { mut keeper, mut now, generation, .. } = Client::new();
    let mut dialed = Vec::new();
    keeper.handle_prepared(generation, Prepared { places, ticket: None }, now);
    loop {
        while let Some(output) = keeper.poll_output(now) {
            if let KeeperOutput::Dial { candidate, gateway, .. } = output {
                dialed.push((candidate, gateway.as_deref().map(str::to_owned)));
            }
        }
        if dialed.len() >= count {
            dialed.sort();
            return dialed;
        }
        now = keeper.poll_timeout().unwrap();
        keeper.handle_timeout(now);
    }
}

#[test]
fn each_place_is_dialed_by_the_name_that_was_told_for_it_last() {
    let places = vec![
        place(A, CarrierKind::Tls, None),
        place(A, CarrierKind::Ws, None),
        place(B, CarrierKind::Tls, Some("old.test")),
        place(A, CarrierKind::Tls, Some("a.test")),
        place(B, CarrierKind::Tls, Some("b.test")),
        place(A, CarrierKind::Tls, None),
        place("192.0.2.3", CarrierKind::Tls, None),
    ];
    let dialed = dialed(places, 4);
    let names: Vec<_> = dialed.iter().map(|(_, name)| name.as_deref()).collect();
    assert_eq!(names, [Some("a.test"), Some("a.test"), Some("b.test"), None], "{dialed:?}");
}

#[test]
fn a_gateway_of_another_name_is_left_for_the_next_and_told_where_there_is_none() {
    let mut client = Client::new();
    client.prepare();
    let refusal = || (RefuseCode::WrongGateway, "this is c.test".to_owned(), Duration::ZERO);
    for address in [A, B] {
        assert_eq!(client.keeper.failure(), None);
        if client.dialing.values().all(|dialing| dialing.to_string() != address) {
            client.wait();
        }
        client.connect(address);
        let number = client.greeted.last().unwrap().0;
        client.keeper.handle_refused(number, refusal(), true, client.now);
        client.follow();
    }
    let expected = KeeperFailure::Refused { code: RefuseCode::WrongGateway, detail: "this is c.test".into() };
    assert_eq!(client.keeper.failure(), Some(&expected));
}
