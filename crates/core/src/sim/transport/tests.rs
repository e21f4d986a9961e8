use std::time::Duration;

use super::*;
use crate::{
    CarrierKind, Time,
    sim::link::{Capacity, Direction, DirectionSpec, LinkModel, Outage},
};

mod noq;

/// A client and a server with a link in each direction, and what the server answers: for each byte of a stream, so many.
struct Pair {
    carrier: CarrierKind,
    now: Time,
    client: Connection,
    server: Connection,
    up: LinkModel<Segment>,
    down: LinkModel<Segment>,
    arrived: Vec<(Duration, u64, usize)>,
    opened_after: Option<Duration>,
}

impl Pair {
    fn new(carrier: CarrierKind, rtt_ms: u64, change: impl Fn(&mut DirectionSpec), seed: u64) -> Self {
        let spec = |direction| {
            let mut spec = DirectionSpec::transparent(direction);
            spec.impairments.delay = Duration::from_millis(rtt_ms / 2);
            change(&mut spec);
            spec
        };
        Self {
            carrier,
            now: Time::ZERO,
            client: Connection::new(carrier, End::Client, Time::ZERO),
            server: Connection::new(carrier, End::Server, Time::ZERO),
            up: LinkModel::new(spec(Direction::Up), seed, Time::ZERO),
            down: LinkModel::new(spec(Direction::Down), seed + 1, Time::ZERO),
            arrived: Vec::new(),
            opened_after: None,
        }
    }

    /// Runs until a time, and writes what the server sends back for each byte that arrives.
    fn run(&mut self, until: Duration, answer: usize) {
        let until = Time::ZERO + until;
        loop {
            let transport = transport(self.carrier);
            while let Some(segment) = self.client.poll_transmit(self.now) {
                self.up.offer(segment.clone(), segment.ip_bytes(transport, false), self.now);
            }
            while let Some(segment) = self.server.poll_transmit(self.now) {
                self.down.offer(segment.clone(), segment.ip_bytes(transport, false), self.now);
            }
            let timeouts = [
                self.up.poll_timeout(),
                self.down.poll_timeout(),
                self.client.poll_timeout(),
                self.server.poll_timeout(),
            ];
            let Some(next) = timeouts.into_iter().flatten().min().filter(|next| *next <= until) else { return };
            self.now = next.max(self.now);
            while let Some(delivery) = self.up.poll_output(self.now) {
                self.server.handle_segment(delivery.payload, self.now);
            }
            while let Some(delivery) = self.down.poll_output(self.now) {
                self.client.handle_segment(delivery.payload, self.now);
            }
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            if self.client.is_open() {
                self.opened_after.get_or_insert(self.now.since(Time::ZERO));
            }
            while let Some((stream, data)) = self.server.read() {
                self.server.write(stream, Bytes::from(vec![0; data.len() * answer]));
            }
            while let Some((stream, data)) = self.client.read() {
                self.arrived.push((self.now.since(Time::ZERO), stream, data.len()));
            }
        }
    }

    fn bytes(&self) -> usize {
        self.arrived.iter().map(|(_, _, bytes)| bytes).sum()
    }

    fn finished(&self) -> Duration {
        self.arrived.last().unwrap().0
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn handshakes_take_their_round_trips() {
    // TLS over TCP two, WebSocket one more, QUIC one and the time for its keys. A server that has been there for a while need not wait
    // with its second packet.
    for (carrier, took_us) in [(CarrierKind::Quic, 100_600), (CarrierKind::Tls, 200_000), (CarrierKind::Ws, 300_000)] {
        let mut pair = Pair::new(carrier, 100, |_| {}, 1);
        pair.run(SECOND, 1);
        assert_eq!(pair.opened_after, Some(Duration::from_micros(took_us)), "{carrier}");
        assert_eq!(pair.client.rtt(), Duration::from_millis(100), "{carrier}");
    }
}

#[test]
fn slow_start_doubles_what_a_round_trip_brings() {
    let mut pair = Pair::new(CarrierKind::Tls, 100, |_| {}, 1);
    pair.client.write(0, Bytes::from_static(&[0; 100]));
    pair.run(5 * SECOND, 1_000);
    assert_eq!(pair.bytes(), 100_000);
    // Two for the handshake and one for the request; a first window brings 14 kB, then come 28, and what is left over half a round trip.
    let took = pair.finished();
    assert!((500..600).contains(&took.as_millis()), "{took:?}");
}

#[test]
fn everything_arrives_in_order_whatever_is_lost() {
    for carrier in CarrierKind::ALL {
        for seed in 0..20 {
            let lossy = |spec: &mut DirectionSpec| {
                spec.impairments.loss = 0.1;
                spec.impairments.duplicate = 0.05;
                spec.impairments.reorder = 0.05;
                spec.capacity = Capacity::Rate { bits_per_s: 2_000_000 };
            };
            let mut pair = Pair::new(carrier, 60, lossy, seed);
            pair.client.write(0, Bytes::from_static(&[0; 200]));
            pair.run(120 * SECOND, 500);
            assert_eq!(pair.bytes(), 100_000, "{carrier} {seed}");
            assert!(pair.finished() < 30 * SECOND, "{carrier} {seed}: {:?}", pair.finished());
        }
    }
}

#[test]
fn a_slow_link_is_filled() {
    let slow = |spec: &mut DirectionSpec| spec.capacity = Capacity::Rate { bits_per_s: 1_000_000 };
    for carrier in [CarrierKind::Quic, CarrierKind::Tls] {
        let mut pair = Pair::new(carrier, 60, slow, 1);
        pair.client.write(0, Bytes::from_static(&[0; 200]));
        pair.run(60 * SECOND, 1_000);
        assert_eq!(pair.bytes(), 200_000);
        let kbit = 200_000.0 * 8.0 / 1e3 / pair.finished().as_secs_f64();
        assert!((800.0..1_000.0).contains(&kbit), "{carrier}: {kbit} kbit/s");
    }
}

#[test]
fn what_one_stream_lost_holds_up_its_own_alone_over_quic() {
    let arrivals = |carrier| {
        let mut pair = Pair::new(carrier, 100, |_| {}, 1);
        pair.run(SECOND, 1);
        let begun = pair.now.since(Time::ZERO);
        pair.up.set_outage(Some(Outage::Drop), pair.now);
        pair.client.write(4, Bytes::from_static(b"lost"));
        let lost = pair.client.poll_transmit(pair.now).unwrap();
        pair.up.offer(lost, 100, pair.now);
        pair.up.set_outage(None, pair.now);
        pair.client.write(8, Bytes::from_static(b"fine"));
        pair.run(5 * SECOND, 1);
        pair.arrived.first().unwrap().0 - begun
    };
    assert_eq!(arrivals(CarrierKind::Quic).as_millis(), 100);
    assert!(arrivals(CarrierKind::Tls) > Duration::from_millis(200), "the second waits for the first");
}

#[test]
fn a_syn_is_sent_each_second_and_then_less_often() {
    let mut client = Connection::new(CarrierKind::Tls, End::Client, Time::ZERO);
    let mut sent = Vec::new();
    let mut now = Time::ZERO;
    while now <= Time::ZERO + 20 * SECOND {
        while client.poll_transmit(now).is_some() {
            sent.push(now.since(Time::ZERO).as_secs());
        }
        now = client.poll_timeout().unwrap();
        client.handle_timeout(now);
    }
    assert_eq!(sent, [0, 1, 2, 3, 4, 5, 7, 11, 19]);
}

#[test]
fn a_timeout_doubles_while_nothing_comes_back() {
    // QUIC asks with two packets each time, and from 2 s on doubles no more.
    for (carrier, packets) in [(CarrierKind::Quic, 10..=16), (CarrierKind::Tls, 6..=8)] {
        let mut pair = Pair::new(carrier, 100, |_| {}, 1);
        pair.run(SECOND, 1);
        pair.up.set_outage(Some(Outage::Drop), pair.now);
        pair.client.write(0, Bytes::from_static(b"into the lift"));
        let sent_before = pair.up.counts().offered;
        pair.run(11 * SECOND, 1);
        let sent = pair.up.counts().offered - sent_before;
        assert!(packets.contains(&sent), "{carrier}: {sent} packets in ten seconds");
        pair.up.set_outage(None, pair.now);
        pair.run(40 * SECOND, 1);
        assert_eq!(pair.bytes(), 13, "{carrier}");
    }
}

#[test]
fn what_was_lost_in_an_outage_follows_the_first_that_gets_through() {
    for carrier in [CarrierKind::Quic, CarrierKind::Tls] {
        let mut pair = Pair::new(carrier, 60, |spec| spec.capacity = Capacity::Rate { bits_per_s: 5_000_000 }, 1);
        pair.client.write(0, Bytes::from_static(&[0; 100]));
        pair.run(SECOND, 1);
        pair.up.set_outage(Some(Outage::Drop), Time::ZERO + SECOND);
        pair.down.set_outage(Some(Outage::Drop), Time::ZERO + SECOND);
        pair.now = Time::ZERO + SECOND;
        pair.client.write(0, Bytes::from(vec![0; 10_240]));
        pair.run(3 * SECOND, 1);
        pair.up.set_outage(None, Time::ZERO + 3 * SECOND);
        pair.down.set_outage(None, Time::ZERO + 3 * SECOND);
        pair.run(20 * SECOND, 1);
        assert_eq!(pair.bytes(), 100 + 10_240, "{carrier}");
        let first_after = pair.arrived[1].0;
        assert!(first_after > 3 * SECOND && first_after < 6 * SECOND, "{carrier}: {first_after:?}");
        // From the smallest window it takes three round trips more.
        let rest = pair.finished() - first_after;
        assert!((120..250).contains(&rest.as_millis()), "{carrier}: {rest:?}");
    }
}
