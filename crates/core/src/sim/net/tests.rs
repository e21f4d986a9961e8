use super::*;

/// A network of Wi-Fi and cellular links of 20 and 80 ms, and a packet for the first address of its site.
fn network() -> (Network, Traces, Packet) {
    let text = "summary = 's'\nbasis = 'b'\nsource = 's'\naccess.wifi.rtt_ms = 20\naccess.cell.rtt_ms = 80\n";
    let scenario = Scenario::parse("two", text, None).unwrap();
    let mut traces = Traces::new(1);
    let network = Network::new(&scenario, 1, &mut traces, Time::ZERO).unwrap();
    let address = network.addresses.all().next().unwrap();
    let packet = Packet { flow: 1, server: SocketAddr::new(address, 443), content: Content::Reset };
    (network, traces, packet)
}

/// Waits for what arrives next, and says when.
fn next(network: &mut Network) -> Option<(Duration, Arrival)> {
    loop {
        let now = network.poll_timeout()?;
        if let Some(arrival) = network.poll(now) {
            return Some((now.since(Time::ZERO), arrival));
        }
    }
}

fn sent_from_wifi(change: Action) -> (Network, Option<(Duration, Arrival)>, Packet) {
    let (mut network, mut traces, packet) = network();
    let wifi = network.local_address().unwrap();
    network.apply(change, &mut traces, Time::ZERO).unwrap();
    network.send(packet.clone(), Source::Bound(wifi), Time::ZERO);
    let arrival = next(&mut network);
    (network, arrival, packet)
}

#[test]
fn what_is_bound_to_an_interface_that_is_down_is_heard_by_another_and_not_answered() {
    let (mut network, arrival, packet) = sent_from_wifi(Action::Interface { link: 0, is_up: false });
    let Some((after, Arrival::Server(_, mapping))) = arrival else { panic!("{arrival:?}") };
    assert_eq!(after, Duration::from_millis(40), "by the cellular link");
    network.answer(packet, mapping, Time::ZERO + after);
    assert!(next(&mut network).is_none());
}

#[test]
fn nothing_is_sent_from_an_address_that_is_gone() {
    let (_, arrival, _) = sent_from_wifi(Action::Address { link: 0 });
    assert!(arrival.is_none());
}
