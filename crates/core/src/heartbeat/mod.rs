//! When a client asks whether its link still lives.

use std::time::Duration;

use crate::Time;

/// A heartbeat of one interval: a PING when nothing was sent for that long, and a verdict when nothing comes back.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    interval: Duration,
    reply_within: Duration,
    sent: Time,
    /// When the oldest unanswered PING went out.
    asked: Option<Time>,
    /// When a beat is due whatever was sent since.
    hurried: Option<Time>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing yet.
    Nothing,
    /// Send a PING.
    Ping,
    /// The link is dead.
    Dead,
}

impl Heartbeat {
    /// Makes a heartbeat whose first beat is due one interval from now.
    #[must_use]
    pub const fn new(interval: Duration, now: Time) -> Self {
        Self { interval, reply_within: REPLY_WITHIN, sent: now, asked: None, hurried: None }
    }

    /// Obeys the bounds the gateway gave.
    pub fn set_interval(&mut self, min: Duration, max: Duration) {
        self.interval = self.interval.clamp(min.min(max), max);
    }

    /// Something was sent: any traffic re-arms the timer.
    pub const fn handle_sent(&mut self, now: Time) {
        self.sent = now;
    }

    /// Something arrived: the link lives.
    pub const fn handle_received(&mut self) {
        self.asked = None;
    }

    /// Makes the next beat due at `now`, unless one is unanswered already.
    pub fn hurry(&mut self, now: Time) {
        self.hurried = Some(now);
    }

    /// Says what is due.
    pub fn handle_timeout(&mut self, now: Time) -> Due {
        if let Some(asked) = self.asked {
            return if now >= asked + self.reply_within { Due::Dead } else { Due::Nothing };
        }
        if now >= self.due_at() {
            self.asked = Some(now);
            self.sent = now;
            self.hurried = None;
            return Due::Ping;
        }
        Due::Nothing
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> (Time, &'static str) {
        match self.asked {
            Some(asked) => (asked + self.reply_within, "heartbeat unanswered"),
            None => (self.due_at(), "heartbeat due"),
        }
    }

    fn due_at(&self) -> Time {
        self.hurried.unwrap_or(self.sent + self.interval)
    }
}

/// 8 s; Mars `longlink.cc`, reply to a noop.
const REPLY_WITHIN: Duration = Duration::from_secs(8);

/// Interval on `tls` and `ws`: 4:30, the floor of the Mars article's search.
pub const INTERVAL_TCP: Duration = Duration::from_secs(270);

/// Interval on `quic`: 15 s, since UDP bindings die at 30 to 65 s (DESIGN section 5).
pub const INTERVAL_QUIC: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn any_traffic_puts_the_next_beat_off() {
        let mut heartbeat = Heartbeat::new(Duration::from_secs(10), at(0));
        heartbeat.handle_sent(at(9));
        assert_eq!(heartbeat.handle_timeout(at(10)), Due::Nothing);
        assert_eq!(heartbeat.handle_timeout(at(19)), Due::Ping);
        assert_eq!(heartbeat.handle_timeout(at(19)), Due::Nothing);
    }

    #[test]
    fn a_beat_without_reply_is_the_end_of_the_link() {
        let mut heartbeat = Heartbeat::new(Duration::from_secs(10), at(0));
        assert_eq!(heartbeat.handle_timeout(at(10)), Due::Ping);
        assert_eq!(heartbeat.poll_timeout(), (at(18), "heartbeat unanswered"));
        assert_eq!(heartbeat.handle_timeout(at(17)), Due::Nothing);
        assert_eq!(heartbeat.handle_timeout(at(18)), Due::Dead);
    }

    #[test]
    fn a_hurried_beat_is_due_at_once() {
        let mut heartbeat = Heartbeat::new(Duration::from_secs(10), at(20));
        heartbeat.hurry(at(21));
        assert_eq!(heartbeat.poll_timeout(), (at(21), "heartbeat due"));
        assert_eq!(heartbeat.handle_timeout(at(21)), Due::Ping);
        heartbeat.hurry(at(22));
        assert_eq!(heartbeat.handle_timeout(at(29)), Due::Dead);
    }

    #[test]
    fn whatever_arrives_answers_the_beat() {
        let mut heartbeat = Heartbeat::new(Duration::from_secs(10), at(0));
        assert_eq!(heartbeat.handle_timeout(at(10)), Due::Ping);
        heartbeat.handle_received();
        assert_eq!(heartbeat.handle_timeout(at(19)), Due::Nothing);
        assert_eq!(heartbeat.handle_timeout(at(20)), Due::Ping);
    }
}
