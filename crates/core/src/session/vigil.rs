//! Watches a link while an answer is awaited.

use std::time::Duration;

use crate::{Time, quality::smooth_within};

/// Says when a link from which an awaited answer does not come is asked whether it lives, and when it is doubted.
///
/// The time it has follows the round trips it has shown and the bytes it was given. A link that is doubted is not given up: another
/// is sought beside it, and whichever speaks first goes on. One that has left questions unanswered for longer than an outage lasts is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vigil {
    /// Smoothed round-trip time of the link.
    srtt: Option<Duration>,
    /// Since when nothing came that was to be expected.
    quiet_since: Time,
    /// Bytes given to the link in that time.
    bytes: u64,
    /// When it was asked, while nothing has come since.
    asked: Option<Time>,
    /// When it was first asked since anything came, however often it was left alone.
    silent_since: Option<Time>,
    /// It was said that the reply is late.
    told_late: bool,
    doubted: bool,
    /// It was left alone once although it said nothing.
    put_off: bool,
    /// Questions answered since anything else came: a service that takes its time is not asked all the time.
    answered: u32,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Ask the link whether it lives.
    Ask,
    /// Give it up.
    Dead,
    /// Seek another beside it.
    Doubt,
    /// The reply takes longer than on a way that loses nothing.
    Late,
    /// Nothing yet.
    Nothing,
}

impl Vigil {
    /// Makes the watch of a link that begins now.
    pub(super) const fn new(now: Time) -> Self {
        Self {
            srtt: None,
            quiet_since: now,
            bytes: 0,
            asked: None,
            silent_since: None,
            told_late: false,
            doubted: false,
            put_off: false,
            answered: 0,
        }
    }

    /// Takes in a round-trip time of the link; smoothed by an eighth (RFC 6298 section 2).
    pub(super) fn handle_rtt(&mut self, sample: Duration) {
        self.srtt = Some(self.srtt.map_or(sample, |srtt| srtt * 7 / 8 + sample / 8));
    }

    /// Takes in that a request, or a part of one, was given to the link.
    pub(super) fn handle_sent(&mut self, bytes: usize, now: Time) {
        self.bytes += bytes as u64;
        if self.asked.is_none() {
            self.quiet_since = now;
            self.answered = 0;
        }
    }

    /// Takes in that something came, `pong` if it was only the answer to a question; says whether the link was doubted.
    pub(super) fn handle_received(&mut self, pong: bool, now: Time) -> bool {
        self.asked = None;
        self.silent_since = None;
        self.put_off = false;
        self.answered = if pong { self.answered.saturating_add(1) } else { 0 };
        self.quiet_since = now;
        self.bytes = 0;
        std::mem::take(&mut self.doubted)
    }

    /// Takes in that another link is sought.
    pub(super) const fn handle_doubted(&mut self) {
        self.doubted = true;
    }

    /// Takes in that the link is left alone although it says nothing: it is asked again, less and less often.
    pub(super) const fn handle_put_off(&mut self, now: Time) {
        self.asked = None;
        self.quiet_since = now;
        self.bytes = 0;
        self.put_off = true;
        self.answered = self.answered.saturating_add(1);
    }

    /// Says whether it was left alone, and has said nothing since.
    pub(super) const fn was_put_off(&self) -> bool {
        self.put_off
    }

    /// Says what is due while an answer is awaited.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Watch {
        if self.dead_at().is_some_and(|at| at <= now) {
            return Watch::Dead;
        }
        match self.asked {
            None if self.ask_at() <= now => {
                self.asked = Some(now);
                self.silent_since.get_or_insert(now);
                self.told_late = false;
                Watch::Ask
            }
            Some(asked) if !self.told_late && asked + self.smooth_within() <= now => {
                self.told_late = true;
                Watch::Late
            }
            Some(asked) if !self.doubted && asked + self.reply_within() <= now => Watch::Doubt,
            None | Some(_) => Watch::Nothing,
        }
    }

    /// Returns when something is due while an answer is awaited.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let next = match self.asked {
            None => Some(self.ask_at()),
            Some(asked) if !self.told_late => Some(asked + self.smooth_within()),
            Some(asked) => (!self.doubted).then(|| asked + self.reply_within()),
        };
        [next, self.dead_at()].into_iter().flatten().min()
    }

    fn dead_at(&self) -> Option<Time> {
        self.silent_since.map(|since| since + SILENCE_MAX)
    }

    fn ask_at(&self) -> Time {
        let patience = self.round_trips(PATIENCE_RTTS, PATIENCE_MIN, PATIENCE_MAX);
        let doublings = self.answered.min(ANSWERED_DOUBLINGS_MAX);
        self.quiet_since + patience.saturating_mul(1 << doublings) + self.transfer()
    }

    fn smooth_within(&self) -> Duration {
        self.srtt.map_or(Duration::MAX, |srtt| smooth_within(srtt, 1)).min(self.reply_within())
    }

    fn reply_within(&self) -> Duration {
        self.round_trips(REPLY_RTTS, REPLY_MIN, REPLY_MAX)
    }

    fn round_trips(&self, count: u32, min: Duration, max: Duration) -> Duration {
        self.srtt.map_or(min, |srtt| srtt.saturating_mul(count)).clamp(min, max)
    }

    /// Returns how long what the link was given may take to get across.
    fn transfer(&self) -> Duration {
        let srtt = self.srtt.unwrap_or(Duration::MAX);
        let known = RATES.iter().find(|(rtt_below, _)| srtt < *rtt_below);
        Duration::from_millis(self.bytes.saturating_mul(1_000) / known.map_or(RATE_MIN, |(_, rate)| *rate))
    }
}

/// Round trips after which an awaited answer is late. 4 round trips: one, and two losses that the transport makes good.
const PATIENCE_RTTS: u32 = 4;

/// The least time before a link is asked. 300 ms; decision 0022: TCP sends a lost segment again after 200 ms at least (Linux,
/// `TCP_RTO_MIN`), and 100 ms for the round trip.
const PATIENCE_MIN: Duration = Duration::from_millis(300);

/// The most. 8 s; Mars `longlink.cc`, reply to a noop.
const PATIENCE_MAX: Duration = Duration::from_secs(8);

/// Round trips the reply to a question may take. 3 round trips: one, and a loss that the transport makes good.
const REPLY_RTTS: u32 = 3;

/// The least time for the reply. 300 ms; as above.
const REPLY_MIN: Duration = Duration::from_millis(300);

/// The most. 8 s, as above.
const REPLY_MAX: Duration = Duration::from_secs(8);

/// How long a link may leave questions unanswered before it is given up. 30 s; our choice: on QUIC the heartbeat and its reply take 23 s,
/// and the longest outage of the scenarios in which a body goes on is the 23.1 s of a recorded subway ride (decision 0034).
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Bytes a second that a network with a round trip below this is taken to carry. The bounds of DESIGN section 5 between the five
/// grades of a network, each with the throughput of one grade less: 550, 150 and 50 kbit/s.
const RATES: [(Duration, u64); 3] =
    [(Duration::from_millis(100), 68_750), (Duration::from_millis(272), 18_750), (Duration::from_millis(1_420), 6_250)];

/// Bytes a second that every network is taken to carry. 2 KiB; our choice, the 2G profile of the scenarios (18 kbit/s).
const RATE_MIN: u64 = 2_048;

/// Doublings of the time between questions that were answered. 7: from 300 ms to 38 s, two heartbeats on QUIC.
const ANSWERED_DOUBLINGS_MAX: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    fn asked() -> Vigil {
        let mut vigil = Vigil::new(at(0));
        vigil.handle_rtt(Duration::from_millis(60));
        vigil.handle_sent(6_875, at(1_000));
        assert_eq!(vigil.handle_timeout(at(1_399)), Watch::Nothing);
        assert_eq!(vigil.poll_timeout(), Some(at(1_400)), "the least patience, and the time of the bytes");
        assert_eq!(vigil.handle_timeout(at(1_400)), Watch::Ask);
        assert_eq!(vigil.handle_timeout(at(1_619)), Watch::Nothing);
        assert_eq!(vigil.poll_timeout(), Some(at(1_620)), "two round trips and the slack");
        assert_eq!(vigil.handle_timeout(at(1_620)), Watch::Late);
        vigil
    }

    #[test]
    fn a_link_that_says_nothing_is_asked_and_then_doubted_once() {
        let mut vigil = asked();
        assert_eq!(vigil.handle_timeout(at(1_699)), Watch::Nothing);
        assert_eq!(vigil.handle_timeout(at(1_700)), Watch::Doubt);
        vigil.handle_doubted();
        assert_eq!(vigil.handle_timeout(at(9_000)), Watch::Nothing);
        assert!(vigil.handle_received(false, at(9_100)), "it was doubted");
        assert!(!vigil.handle_received(false, at(9_200)));
    }

    #[test]
    fn a_link_that_leaves_its_questions_unanswered_for_long_is_given_up() {
        let mut doubted = asked();
        doubted.handle_doubted();
        assert_eq!(doubted.poll_timeout(), Some(at(31_400)));
        assert_eq!(doubted.handle_timeout(at(31_399)), Watch::Nothing);
        assert_eq!(doubted.handle_timeout(at(31_400)), Watch::Dead);

        let mut left_alone = asked();
        assert_eq!(left_alone.handle_timeout(at(1_700)), Watch::Doubt);
        left_alone.handle_put_off(at(1_700));
        assert_eq!(left_alone.handle_timeout(at(2_300)), Watch::Ask);
        assert_eq!(left_alone.handle_timeout(at(31_400)), Watch::Dead, "since it was first asked");

        let mut alive = asked();
        assert!(!alive.handle_received(true, at(31_000)));
        assert_eq!(alive.handle_timeout(at(31_400)), Watch::Nothing);
    }

    #[test]
    fn a_link_that_is_left_alone_is_asked_again() {
        let mut vigil = asked();
        assert_eq!(vigil.handle_timeout(at(1_700)), Watch::Doubt);
        vigil.handle_put_off(at(1_700));
        assert_eq!(vigil.poll_timeout(), Some(at(2_300)));
        assert!(vigil.was_put_off());
        assert!(!vigil.handle_received(false, at(2_000)), "nobody was told of a doubt");
        assert!(!vigil.was_put_off());
    }

    #[test]
    fn a_service_that_takes_its_time_is_asked_less_and_less_often() {
        let mut vigil = asked();
        let mut now = 1_400;
        for gap in [600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 38_400] {
            now += 60;
            assert!(!vigil.handle_received(true, at(now)));
            now += gap;
            assert_eq!(vigil.handle_timeout(at(now - 1)), Watch::Nothing, "{now}");
            assert_eq!(vigil.handle_timeout(at(now)), Watch::Ask, "{now}");
        }
    }

    #[test]
    fn a_slow_network_and_a_large_body_have_their_time() {
        let mut vigil = Vigil::new(at(0));
        vigil.handle_rtt(Duration::from_millis(1_500));
        vigil.handle_sent(10_240, at(0));
        assert_eq!(vigil.poll_timeout(), Some(at(11_000)), "four round trips and five seconds for the bytes");
    }
}
