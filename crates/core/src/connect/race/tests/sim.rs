//! A made-up network: what becomes of an attempt at each candidate, in virtual time.

use std::collections::BTreeMap;

use super::*;

/// What an attempt at a candidate meets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// A gateway at this distance: the handshake takes two round trips by QUIC, three by TLS, four by WebSocket.
    Answers { rtt: Duration },
    /// Nothing comes back.
    Blackhole,
    /// The device has no route there.
    NoRoute,
    /// A host at this distance on which nobody listens.
    Refuses { rtt: Duration },
}

/// Candidates not named are blackholes.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    pub(super) config: RaceConfig,
    fates: BTreeMap<Candidate, Fate>,
}

impl Network {
    pub(super) fn set(&mut self, candidate: Candidate, fate: Fate) {
        self.fates.insert(candidate, fate);
    }

    pub(super) fn candidates(&self) -> impl Iterator<Item = Candidate> {
        self.fates.keys().copied()
    }

    pub(super) fn run(&self, ranked: Vec<RankedCandidate>) -> Run {
        self.run_from(ranked, Time::ZERO)
    }

    /// Drives a race until nothing of it is under way.
    pub(super) fn run_from(&self, ranked: Vec<RankedCandidate>, began: Time) -> Run {
        let mut race = Race::new(self.config.clone(), ranked, began);
        let mut run = Run { began, outputs: Vec::new(), in_flight_max: 0 };
        let mut arriving: BTreeMap<(Time, AttemptId), Fate> = BTreeMap::new();
        let mut now = began;
        loop {
            while let Some(output) = race.poll_output() {
                if let RaceOutput::Start { attempt, candidate } = output {
                    let fate = self.fates.get(&candidate).copied().unwrap_or(Fate::Blackhole);
                    if let Some(delay) = fate.delay(candidate.carrier) {
                        arriving.insert((now + delay, attempt), fate);
                    }
                }
                run.outputs.push((now, output));
            }
            run.in_flight_max = run.in_flight_max.max(race.in_flight(now));
            let timeout = race.poll_timeout().map(|(at, _)| at);
            let arrival = arriving.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = timeout.into_iter().chain(arrival).min() else { break };
            assert!(next > now || arrival == Some(now), "time stands still at {now:?}");
            now = next;
            if timeout == Some(now) && arrival != Some(now) {
                race.handle_timeout(now);
            } else if let Some(((_, attempt), fate)) = arriving.pop_first() {
                match fate {
                    Fate::Answers { rtt } => race.handle_connected(attempt, rtt, now),
                    Fate::NoRoute => race.handle_failed(attempt, FailReason::Unreachable, now),
                    Fate::Refuses { .. } => race.handle_failed(attempt, FailReason::Refused, now),
                    Fate::Blackhole => unreachable!("nothing arrives from a blackhole"),
                }
            }
        }
        assert!(race.is_finished());
        run
    }
}

impl Fate {
    fn delay(self, carrier: CarrierKind) -> Option<Duration> {
        match self {
            Self::Answers { rtt } => Some(match carrier {
                Quic => rtt * 2,
                Tls => rtt * 3,
                Ws => rtt * 4,
            }),
            Self::Blackhole => None,
            Self::NoRoute => Some(Duration::ZERO),
            Self::Refuses { rtt } => Some(rtt),
        }
    }
}

/// What a race did, each output with its time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    began: Time,
    pub(super) outputs: Vec<(Time, RaceOutput)>,
    pub(super) in_flight_max: usize,
}

impl Run {
    pub(super) fn starts(&self) -> Vec<(Duration, Candidate)> {
        let start = |(at, output): &(Time, RaceOutput)| {
            let RaceOutput::Start { candidate, .. } = output else { return None };
            Some((at.since(self.began), *candidate))
        };
        self.outputs.iter().filter_map(start).collect()
    }

    pub(super) fn won(&self) -> Option<(Duration, Candidate)> {
        self.outputs.iter().find_map(|(at, output)| {
            let RaceOutput::Won { attempt } = output else { return None };
            Some((at.since(self.began), self.starts()[usize::try_from(attempt.0).unwrap()].1))
        })
    }

    pub(super) fn lost(&self) -> Option<&RaceError> {
        self.outputs.iter().find_map(|(_, output)| {
            let RaceOutput::Lost(error) = output else { return None };
            Some(error)
        })
    }

    pub(super) fn scores(&self) -> Vec<(Candidate, Score)> {
        let score = |(_, output): &(Time, RaceOutput)| {
            let RaceOutput::Scored { candidate, score } = output else { return None };
            Some((*candidate, *score))
        };
        self.outputs.iter().filter_map(score).collect()
    }

    pub(super) fn ended(&self) -> Duration {
        self.outputs.last().map_or(Duration::ZERO, |(at, _)| at.since(self.began))
    }
}

pub(super) fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], 443))
}

pub(super) fn candidate(host: u8, carrier: CarrierKind) -> Candidate {
    Candidate { address: address(host), carrier }
}

pub(super) fn unknown(host: u8, carrier: CarrierKind) -> RankedCandidate {
    RankedCandidate { candidate: candidate(host, carrier), srtt: None, with_previous: false }
}

pub(super) const fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}
