//! How smoothly the first round trips of a connection went.

use std::time::Duration;

use crate::{CarrierKind, Time, connect::Candidate, quality::smooth_within};

/// What a connection showed of its way: whether anything took longer than where nothing is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    candidate: Candidate,
    dialed: Time,
    /// `None` until its handshake is complete.
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// The least round trip it showed.
    rtt: Duration,
    is_rough: bool,
    /// When HELLO was sent, while WELCOME is awaited.
    greeted: Option<Time>,
}

impl Passage {
    /// Begins with the first packet of a connection.
    pub(super) const fn new(candidate: Candidate, now: Time) -> Self {
        Self { candidate, dialed: now, open: None }
    }

    /// Returns where the connection leads.
    pub(super) const fn candidate(&self) -> Candidate {
        self.candidate
    }

    /// Takes in that the handshake is complete; `rtt` is what its first round trip took.
    pub(super) fn handle_open(&mut self, rtt: Duration, now: Time) {
        let took = now.since(self.dialed);
        // A SYN that was sent again made its round trip look longer than the rest of the handshake shows it.
        let rest = took.saturating_sub(rtt);
        let (round_trips, rtt) = match self.candidate.carrier {
            CarrierKind::Quic => (1, rtt),
            CarrierKind::Tls => (2, rtt.min(rest)),
            CarrierKind::Ws => (3, rtt.min(rest / 2)),
        };
        let is_rough = rtt <= RTT_MAX && took > smooth_within(rtt, round_trips);
        self.open = Some(Open { rtt, is_rough, greeted: None });
    }

    /// Takes in that HELLO was sent.
    pub(super) const fn handle_greeted(&mut self, now: Time) {
        if let Some(open) = &mut self.open {
            open.greeted = Some(now);
        }
    }

    /// Takes in that WELCOME came.
    pub(super) fn handle_welcomed(&mut self, now: Time) {
        self.handle_timeout(now);
        if let Some(open) = &mut self.open {
            open.greeted = None;
        }
    }

    /// Takes in that something was late.
    pub(super) fn handle_late(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_rough = open.rtt <= RTT_MAX;
        }
    }

    /// Takes in that another way is no smoother.
    pub(super) const fn forgive(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_rough = false;
        }
    }

    /// Takes in that time has passed; says whether WELCOME has become late with that.
    pub(super) fn handle_timeout(&mut self, now: Time) -> bool {
        let is_late = self.poll_timeout().is_some_and(|at| at <= now);
        if is_late {
            self.handle_late();
        }
        is_late
    }

    /// Returns when WELCOME is late.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let open = self.open.filter(|open| !open.is_rough && open.rtt <= RTT_MAX)?;
        Some(open.greeted? + smooth_within(open.rtt, 1))
    }

    /// Says whether the handshake goes on.
    pub(super) const fn is_dialing(&self) -> bool {
        self.open.is_none()
    }

    /// Says whether something was late.
    pub(super) fn is_rough(&self) -> bool {
        self.open.is_some_and(|open| open.is_rough)
    }

    /// Says whether the handshake is complete and nothing was late.
    pub(super) fn is_smooth(&self) -> bool {
        self.open.is_some_and(|open| !open.is_rough)
    }
}

/// Round trips beyond this say nothing of loss: on a slow network what is sent takes its time. 272 ms; DESIGN section 5, where a network
/// stops being good.
const RTT_MAX: Duration = Duration::from_millis(272);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    fn open(carrier: CarrierKind, rtt_ms: u64, took_ms: u64) -> Passage {
        let mut passage = Passage::new(Candidate { address: "192.0.2.1:443".parse().unwrap(), carrier }, at(0));
        assert!(passage.is_dialing());
        passage.handle_open(Duration::from_millis(rtt_ms), at(took_ms));
        passage
    }

    #[test]
    fn a_handshake_of_as_many_round_trips_as_it_takes_is_smooth_and_one_that_waited_is_not() {
        for (carrier, took_ms) in [(CarrierKind::Quic, 60), (CarrierKind::Tls, 120), (CarrierKind::Ws, 180)] {
            assert!(open(carrier, 60, took_ms).is_smooth(), "{carrier:?}");
            assert!(open(carrier, 60, 2 * took_ms + 101).is_rough(), "{carrier:?}");
        }
        assert!(open(CarrierKind::Tls, 1_060, 1_120).is_rough(), "its SYN was sent again");
    }

    #[test]
    fn a_welcome_that_is_late_makes_it_rough_and_one_in_time_does_not() {
        let mut passage = open(CarrierKind::Quic, 60, 60);
        passage.handle_greeted(at(100));
        assert_eq!(passage.poll_timeout(), Some(at(320)));
        let mut in_time = passage;
        in_time.handle_welcomed(at(319));
        assert!(in_time.is_smooth() && in_time.poll_timeout().is_none());
        assert!(!passage.handle_timeout(at(319)));
        assert!(passage.handle_timeout(at(320)) && passage.is_rough());
        passage.forgive();
        assert!(passage.is_smooth());
    }

    #[test]
    fn a_slow_network_is_never_rough() {
        let mut passage = open(CarrierKind::Quic, 1_300, 4_000);
        passage.handle_greeted(at(4_000));
        passage.handle_welcomed(at(9_000));
        passage.handle_late();
        assert!(passage.is_smooth());
    }
}
