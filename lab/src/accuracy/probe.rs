//! Two sockets, one at the client and one at a site, between which packets are timed.
//!
//! Both ends are of one process and read one clock, so each direction is timed by itself.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    panic::resume_unwind,
    thread,
    time::{Duration, Instant},
};

use ropeway_core::sim::link::Direction;

use crate::{
    lab::Lab,
    os::{
        namespace,
        scheduler::{PROBE, prefer_this_thread},
    },
    topology::Place,
};

/// Two sockets that know each other.
#[derive(Debug)]
pub(crate) struct Probe {
    client: UdpSocket,
    server: UdpSocket,
    /// The client's address as the site sees it.
    seen_as: SocketAddr,
}

/// How packets are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How many.
    pub(crate) packets: u32,
    /// Time between two.
    pub(crate) interval: Duration,
    /// Bytes of each, IP and UDP headers included.
    pub(crate) bytes: usize,
}

/// A packet that arrived; times are since the first was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Its place in the order of sending, from 0.
    pub(crate) number: u32,
    /// When it was sent.
    pub(crate) sent: Duration,
    /// When it arrived.
    pub(crate) arrived: Duration,
}

impl Arrival {
    /// Gives how long it was under way.
    pub(crate) fn delay(&self) -> Duration {
        self.arrived.saturating_sub(self.sent)
    }
}

impl Probe {
    /// Opens the sockets and makes them known to each other.
    pub(crate) fn open(lab: &Lab) -> io::Result<Self> {
        let site = lab.plan().addresses().find(IpAddr::is_ipv4).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let bind = |place, address: SocketAddr| {
            namespace::inside(&place_of(lab, place), || UdpSocket::bind(address)).flatten()
        };
        let server = bind(Place::Server, SocketAddr::new(site, PORT))?;
        let client = bind(Place::Client, SocketAddr::from(([0, 0, 0, 0], 0)))?;
        client.connect(SocketAddr::new(site, PORT))?;
        server.set_read_timeout(Some(HELLO_WAIT))?;
        for _ in 0..HELLOS_MAX {
            client.send(&[0; RECORD_BYTES])?;
            if let Ok((_, seen_as)) = server.recv_from(&mut [0; RECORD_BYTES]) {
                return Ok(Self { client, server, seen_as });
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "no packet of the probe arrives"))
    }

    /// Sends packets one way and gives those that arrived, in the order they did.
    ///
    /// `start` is when the first is sent; it ends when nothing has arrived for `patience` after the last was sent.
    pub(crate) fn send(
        &self,
        direction: Direction,
        pace: Pace,
        start: Instant,
        patience: Duration,
    ) -> io::Result<Vec<Arrival>> {
        let receiver = match direction {
            Direction::Down => &self.client,
            Direction::Up => &self.server,
        };
        let end = start + pace.interval * pace.packets;
        thread::scope(|scope| {
            let received = scope.spawn(|| receive(receiver, start, end, patience));
            let sent = scope.spawn(|| self.send_all(direction, pace, start));
            let (sent, received) = (sent.join(), received.join());
            sent.unwrap_or_else(|panic| resume_unwind(panic))?;
            received.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn send_all(&self, direction: Direction, pace: Pace, start: Instant) -> io::Result<()> {
        // Without it the sender is less regular, and says when it sent.
        let _ = prefer_this_thread(PROBE);
        let mut packet = vec![0; pace.bytes.saturating_sub(HEADER_BYTES).max(RECORD_BYTES)];
        for number in 0..pace.packets {
            thread::sleep((start + pace.interval * number).saturating_duration_since(Instant::now()));
            let sent = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            packet[..4].copy_from_slice(&number.to_be_bytes());
            packet[4..RECORD_BYTES].copy_from_slice(&sent.to_be_bytes());
            let result = match direction {
                Direction::Down => self.server.send_to(&packet, self.seen_as),
                Direction::Up => self.client.send(&packet),
            };
            result?;
        }
        Ok(())
    }
}

fn receive(socket: &UdpSocket, start: Instant, end: Instant, patience: Duration) -> io::Result<Vec<Arrival>> {
    let _ = prefer_this_thread(PROBE);
    let mut arrivals = Vec::new();
    let mut buffer = [0; PACKET_BYTES_MAX];
    let mut last = end;
    loop {
        let left = (last + patience).saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(arrivals);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut buffer) {
            Ok(RECORD_BYTES..) => {
                let arrived = start.elapsed();
                let (number, rest) = buffer.split_first_chunk().expect("it is longer");
                let sent = u64::from_be_bytes(*rest.first_chunk().expect("it is longer"));
                let number = u32::from_be_bytes(*number);
                arrivals.push(Arrival { number, sent: Duration::from_nanos(sent), arrived });
                last = last.max(start + arrived);
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
}

fn place_of(lab: &Lab, place: Place) -> String {
    place.namespace(lab.number())
}

/// Port of the probe at the site.
const PORT: u16 = 7000;

/// Bytes of a packet that the probe uses: its number and when it was sent.
const RECORD_BYTES: usize = 12;

/// Bytes of the headers of IPv4 and UDP.
pub(crate) const HEADER_BYTES: usize = 28;

/// Largest packet of the probe.
const PACKET_BYTES_MAX: usize = 2048;

/// How long the probe waits for its own first packet before it sends another.
const HELLO_WAIT: Duration = Duration::from_secs(2);

/// First packets of the probe before it gives up.
const HELLOS_MAX: u32 = 10;
