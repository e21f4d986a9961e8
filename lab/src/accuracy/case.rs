//! What is measured of the emulator, and how far it may be off.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use ropeway_core::sim::{
    Trace,
    link::{Capacity, Direction, DirectionSpec, GilbertElliott, Outage},
};
use serde::Serialize;

use super::probe::{Arrival, Pace, Probe};

/// One property of a link, set and measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Property {
    /// Loss in bursts.
    Burst(GilbertElliott),
    /// Share of packets that arrives with a bit flipped, and so not at all.
    Corruption(f64),
    /// Delay one way.
    Delay(Duration),
    /// Share of packets that arrives twice.
    Duplication(f64),
    /// Delay one way and most that it differs from it.
    Jitter(Duration, Duration),
    /// Share of packets lost, each by itself.
    Loss(f64),
    /// An outage that begins and ends at these times.
    Outage(Outage, Duration, Duration),
    /// Rate, kbit/s.
    Rate(u64),
    /// Share of packets that others overtake.
    Reordering(f64),
    /// A trace that lets a packet leave at these milliseconds, again and again.
    Trace(&'static [u32]),
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// What was set.
    pub property: String,
    /// Which way.
    pub direction: &'static str,
    /// What was set, in `unit`.
    pub set: f64,
    /// What was measured, in `unit`.
    pub measured: f64,
    /// Least that is good enough, in `unit`.
    pub least: f64,
    /// Most that is good enough, in `unit`.
    pub most: f64,
    /// The unit.
    pub unit: &'static str,
    /// Packets sent for it.
    pub packets: u32,
}

impl Measured {
    /// Says whether it is good enough.
    #[must_use]
    pub fn is_good(&self) -> bool {
        (self.least..=self.most).contains(&self.measured)
    }
}

impl Property {
    /// What is measured, one after the other.
    pub(super) const ALL: &[Self] = &[
        Self::Delay(Duration::from_millis(5)),
        Self::Delay(Duration::from_millis(50)),
        Self::Delay(Duration::from_millis(420)),
        Self::Rate(20),
        Self::Rate(780),
        Self::Rate(10_000),
        Self::Rate(50_000),
        Self::Trace(&[0, 0, 3, 10, 11, 40, 41, 90, 300, 310, 311, 500]),
        Self::Loss(0.01),
        Self::Loss(0.05),
        Self::Loss(0.4),
        Self::Burst(GilbertElliott { to_bad: 0.02, to_good: 0.25, loss_good: 0.0, loss_bad: 0.8 }),
        Self::Jitter(Duration::from_millis(60), Duration::from_millis(20)),
        Self::Duplication(0.02),
        Self::Corruption(0.02),
        Self::Reordering(0.02),
        Self::Outage(Outage::Drop, Duration::from_millis(500), Duration::from_millis(1500)),
        Self::Outage(Outage::Hold, Duration::from_millis(500), Duration::from_millis(1500)),
    ];

    /// Describes a link with this property.
    pub(super) fn spec(self, direction: Direction) -> DirectionSpec {
        let mut spec = DirectionSpec::transparent(direction);
        spec.impairments.delay = BASE_DELAY;
        match self {
            Self::Burst(burst) => spec.impairments.burst = Some(burst),
            Self::Corruption(share) => spec.impairments.corrupt = share,
            Self::Delay(delay) => spec.impairments.delay = delay,
            Self::Duplication(share) => spec.impairments.duplicate = share,
            Self::Jitter(delay, jitter) => {
                spec.impairments.delay = delay;
                spec.impairments.jitter = jitter;
            }
            Self::Loss(share) => spec.impairments.loss = share,
            Self::Outage(..) => {}
            Self::Rate(kbit_per_s) => spec.capacity = Capacity::Rate { bits_per_s: kbit_per_s * 1000 },
            Self::Reordering(share) => spec.impairments.reorder = share,
            Self::Trace(moments_ms) => {
                let trace = Trace::new(moments_ms.to_vec()).expect("the traces of the cases are well formed");
                spec.capacity = Capacity::Trace(Arc::new(trace));
            }
        }
        spec
    }

    /// Gives how many lines of the table it takes in each direction.
    pub(super) fn lines(self) -> u64 {
        match self {
            Self::Delay(_) | Self::Jitter(..) | Self::Outage(..) => 2,
            Self::Burst(_)
            | Self::Corruption(_)
            | Self::Duplication(_)
            | Self::Loss(_)
            | Self::Rate(_)
            | Self::Reordering(_)
            | Self::Trace(_) => 1,
        }
    }

    /// Gives how packets are sent to measure it.
    pub(super) fn pace(self, effort: u32) -> Pace {
        let small = |packets, interval_ms| Pace { packets, interval: Duration::from_millis(interval_ms), bytes: 200 };
        match self {
            Self::Delay(_) => small(100 * effort, 10),
            // The interval lets jittered packets keep their own times, of which each else waits for the one before it.
            Self::Jitter(_, jitter) => small(50 * effort, u64::try_from(jitter.as_millis() * 2).unwrap_or(u64::MAX)),
            Self::Burst(_) | Self::Corruption(_) | Self::Duplication(_) | Self::Loss(_) | Self::Reordering(_) => {
                small(1000 * effort, 1)
            }
            Self::Outage(_, _, end) => small(u32::try_from(end.as_millis()).unwrap_or(u32::MAX) + 500, 1),
            Self::Rate(kbit_per_s) => saturating(kbit_per_s as f64 * 1e3, effort),
            Self::Trace(_) => match self.spec(Direction::Up).capacity {
                Capacity::Trace(trace) => saturating(trace.mean_bits_per_s(), effort),
                Capacity::Rate { .. } | Capacity::Unlimited => unreachable!("a trace makes a trace"),
            },
        }
    }

    /// Measures it in one direction of a link that has it, from `start` on.
    pub(super) fn measure(
        self,
        probe: &Probe,
        direction: Direction,
        effort: u32,
        start: Instant,
    ) -> io::Result<Vec<Measured>> {
        let pace = self.pace(effort);
        let arrivals = probe.send(direction, pace, start, PATIENCE)?;
        Ok(self.judge(direction, pace, &arrivals))
    }

    fn judge(self, direction: Direction, pace: Pace, arrivals: &[Arrival]) -> Vec<Measured> {
        let line = |property: &str, set: f64, measured: f64, (least, most): (f64, f64), unit| Measured {
            property: property.to_owned(),
            direction: name(direction),
            set,
            measured,
            least,
            most,
            unit,
            packets: pace.packets,
        };
        let share = |property, set: f64, count: usize| {
            let measured = count as f64 / f64::from(pace.packets);
            line(property, set * 100.0, measured * 100.0, binomial_percent(set, pace.packets), "%")
        };
        let lost = pace.packets as usize - arrivals.len().min(pace.packets as usize);
        match self {
            Self::Burst(burst) => {
                let (set, interval) = (burst.mean_loss(), burst_percent(&burst, pace.packets));
                let measured = lost as f64 / f64::from(pace.packets);
                vec![line("loss in bursts", set * 100.0, measured * 100.0, interval, "%")]
            }
            Self::Corruption(set) => vec![share("corruption", set, lost)],
            Self::Loss(set) => vec![share("loss", set, lost)],
            Self::Duplication(set) => vec![share("duplication", set, arrivals.len() - pace.packets as usize)],
            Self::Delay(set) => {
                let mut delays: Vec<f64> = arrivals.iter().map(|arrival| millis(arrival.delay())).collect();
                delays.sort_by(f64::total_cmp);
                let set = millis(set);
                let off = set * 0.02 + 1.0;
                [("delay, p50", 0.5), ("delay, p95", 0.95)]
                    .map(|(property, part)| line(property, set, quantile(&delays, part), (set - off, set + off), "ms"))
                    .to_vec()
            }
            Self::Jitter(delay, jitter) => {
                let delays = || arrivals.iter().map(|arrival| millis(arrival.delay()));
                let off = |set: f64| set * 0.02 + 1.0;
                let (first, last) = (millis(delay - jitter), millis(delay + jitter));
                let (least, most) = (delays().fold(f64::INFINITY, f64::min), delays().fold(0.0, f64::max));
                // The ends of an interval are come near to, not reached.
                let near = millis(jitter) * JITTER_UNREACHED;
                vec![
                    line("jitter, least delay", first, least, (first - off(first), first + off(first) + near), "ms"),
                    line("jitter, most delay", last, most, (last - off(last) - near, last + off(last)), "ms"),
                ]
            }
            Self::Reordering(set) => {
                let mut newest = None;
                let overtaken = arrivals.iter().filter(|arrival| {
                    let is_late = newest.is_some_and(|newest| arrival.number < newest);
                    newest = newest.max(Some(arrival.number));
                    is_late
                });
                vec![share("reordering", set, overtaken.count())]
            }
            Self::Rate(set) => {
                let set = set as f64;
                vec![line("rate", set, kbit_per_s(arrivals, pace), (set * 0.97, set * 1.03), "kbit/s")]
            }
            Self::Trace(_) => match self.spec(direction).capacity {
                Capacity::Trace(trace) => {
                    let set = trace.mean_bits_per_s() / 1e3;
                    let measured = kbit_per_s_of_periods(arrivals, pace, trace.period());
                    vec![line("trace", set, measured, (set * 0.97, set * 1.03), "kbit/s")]
                }
                Capacity::Rate { .. } | Capacity::Unlimited => Vec::new(),
            },
            Self::Outage(outage, begins, ends) => {
                let (before, after) = edges(direction, begins, arrivals);
                let kind = match outage {
                    Outage::Drop => "outage that drops",
                    Outage::Hold => "outage that holds",
                };
                [("begins", begins, before), ("ends", ends, after)]
                    .map(|(edge, set, measured)| {
                        let set = millis(set);
                        line(&format!("{kind}, {edge}"), set, measured, (set - EDGE_MS, set + EDGE_MS), "ms")
                    })
                    .to_vec()
            }
        }
    }
}

/// Finds when the radio stopped and started to carry packets: up it stands before the delay, down behind it.
fn edges(direction: Direction, begins: Duration, arrivals: &[Arrival]) -> (f64, f64) {
    let at_radio = |arrival: &Arrival| match direction {
        Direction::Down => arrival.arrived,
        // Held packets leave long after they were sent.
        Direction::Up => arrival.arrived.saturating_sub(BASE_DELAY),
    };
    let middle = begins + EDGE_MARGIN;
    let times = || arrivals.iter().map(at_radio);
    let before = times().filter(|time| *time < middle).max();
    let after = times().filter(|time| *time >= middle).min();
    (before.map_or(f64::NAN, millis), after.map_or(f64::NAN, millis))
}

/// Gives the rate at which packets arrived, from the first to the last.
fn kbit_per_s(arrivals: &[Arrival], pace: Pace) -> f64 {
    let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else { return 0.0 };
    let bits = (arrivals.len() - 1) * pace.bytes * 8;
    bits as f64 / 1e3 / last.arrived.saturating_sub(first.arrived).as_secs_f64()
}

/// Gives the rate at which packets arrived in as many whole periods as there were.
fn kbit_per_s_of_periods(arrivals: &[Arrival], pace: Pace, period: Duration) -> f64 {
    let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else { return 0.0 };
    let periods = last.arrived.saturating_sub(first.arrived).div_duration_f64(period).floor();
    let end = first.arrived + period.mul_f64(periods);
    // A packet that is a little late at the first or the last moment belongs to its own period.
    let packets = arrivals.partition_point(|arrival| arrival.arrived + PERIOD_MARGIN < end);
    (packets * pace.bytes * 8) as f64 / 1e3 / (period.as_secs_f64() * periods)
}

/// Sends a third faster than the link carries, for some seconds.
fn saturating(bits_per_s: f64, effort: u32) -> Pace {
    let interval = Duration::from_secs_f64(FULL_PACKET_BYTES as f64 * 8.0 / (bits_per_s * 1.33));
    let time = SATURATION * effort;
    let packets = (time.as_secs_f64() / interval.as_secs_f64()).ceil() as u32;
    Pace { packets, interval, bytes: FULL_PACKET_BYTES }
}

/// Gives the interval, in percent, in which 99 of 100 measurements of a share lie (normal approximation with the
/// correction for continuity).
fn binomial_percent(share: f64, packets: u32) -> (f64, f64) {
    let count = f64::from(packets);
    let off = Z_99 * (share * (1.0 - share) / count).sqrt() + 0.5 / count;
    ((share - off) * 100.0, (share + off) * 100.0)
}

/// The same for loss in bursts, which is less even: each packet's fate says something of those that follow it.
fn burst_percent(burst: &GilbertElliott, packets: u32) -> (f64, f64) {
    let mean = burst.mean_loss();
    let persistence = 1.0 - burst.to_bad - burst.to_good;
    let bad = burst.to_bad / (burst.to_bad + burst.to_good);
    let covariance = (burst.loss_bad - burst.loss_good).powi(2) * bad * (1.0 - bad);
    let variance = mean * (1.0 - mean) + 2.0 * covariance * persistence / (1.0 - persistence);
    let off = Z_99 * (variance / f64::from(packets)).sqrt() + 0.5 / f64::from(packets);
    ((mean - off) * 100.0, (mean + off) * 100.0)
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Down => "down",
        Direction::Up => "up",
    }
}

/// Delay of links whose other properties are measured.
const BASE_DELAY: Duration = Duration::from_millis(20);

/// How long to wait for a packet after the last; beyond every delay and outage that is set.
const PATIENCE: Duration = Duration::from_millis(1200);

/// How late a packet may be and still belong to its period of a trace.
const PERIOD_MARGIN: Duration = Duration::from_millis(2);

/// How far the edge of an outage may be off, milliseconds.
const EDGE_MS: f64 = 20.0;

/// What lies closer to the beginning of an outage than this belongs to the time before it.
const EDGE_MARGIN: Duration = Duration::from_millis(100);

/// Time for which a link is saturated, at the least effort.
const SATURATION: Duration = Duration::from_secs(2);

/// Bytes of a packet that fills the link.
const FULL_PACKET_BYTES: usize = 1500;

/// Part of the jitter by which the least and the most delay may stay inside: of 50 packets none lies in that outermost
/// tenth of the interval in 1 of 200 runs.
const JITTER_UNREACHED: f64 = 0.2;

/// The standard normal distribution lies within so many deviations with probability 0.99.
const Z_99: f64 = 2.576;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_good_inside_its_binomial_interval() {
        let (least, most) = binomial_percent(0.05, 2000);
        assert!((3.7..3.8).contains(&least) && (6.2..6.3).contains(&most), "{least} to {most}");
    }

    #[test]
    fn an_outage_is_seen_where_the_radio_stands() {
        let arrival = |sent, arrived| Arrival {
            number: 0,
            sent: Duration::from_millis(sent),
            arrived: Duration::from_millis(arrived),
        };
        let arrivals = [arrival(0, 20), arrival(999, 1019), arrival(2001, 2021)];
        let edges = |direction| {
            let (begins, ends) = edges(direction, Duration::from_secs(1), &arrivals);
            (begins.round(), ends.round())
        };
        assert_eq!(edges(Direction::Up), (999.0, 2001.0));
        assert_eq!(edges(Direction::Down), (1019.0, 2021.0));
    }
}
