//! What holds for every race, and for races in a row that learn.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;

use super::*;
use crate::connect::{Records, Source, candidate};

#[test]
fn a_thousand_seeded_races_end_and_replay_alike() {
    for seed in 0..1_000_u64 {
        let (network, ranked) = made_up(seed);
        let run = network.run(ranked.clone());
        assert!(run.won().is_some() != run.lost().is_some(), "seed {seed}: either won or lost");
        assert!(run.in_flight_max <= 3, "seed {seed}: {} addresses in flight", run.in_flight_max);
        assert!(run.starts().len() <= 15, "seed {seed}");
        assert!(run.ended() <= ms(45_000), "seed {seed}: ended after {:?}", run.ended());
        assert_eq!(run, network.run(ranked), "seed {seed} replays");
    }
}

#[test]
fn a_good_network_takes_one_handshake_a_link_once_learned() {
    for seed in 0..100_u64 {
        let mut learner = Learner::new(seed);
        for host in 1..=4 {
            for carrier in [Quic, Tls, Ws] {
                learner.network.set(candidate(host, carrier), GOOD);
            }
        }
        learner.race();
        let handshakes: usize = (0..20).map(|_| learner.race().starts().len()).sum();
        assert!(handshakes <= 21, "seed {seed}: {handshakes} handshakes for 20 links");
    }
}

#[test]
fn a_network_that_swallows_udp_costs_quic_once() {
    let mut learner = Learner::new(1);
    for host in 1..=3 {
        learner.network.set(candidate(host, Tls), GOOD);
        learner.network.set(candidate(host, Quic), Fate::Blackhole);
    }
    let carriers = |run: &sim::Run| run.starts().iter().map(|(_, candidate)| candidate.carrier).collect::<Vec<_>>();
    assert_eq!(carriers(&learner.race()), [Quic, Tls]);
    assert_eq!(carriers(&learner.race()), [Tls]);
    learner.now += Duration::from_mins(30);
    assert!(carriers(&learner.race()).contains(&Quic), "after 20 min QUIC gets another chance");
}

#[test]
fn a_dead_first_try_is_made_once() {
    let mut learner = Learner::new(3);
    for host in 1..=3 {
        learner.network.set(candidate(host, Tls), if host == 3 { GOOD } else { Fate::Blackhole });
    }
    assert!(learner.race().won().unwrap().0 <= ms(600));
    let again = learner.race();
    assert_eq!(again.won(), Some((ms(60), candidate(3, Tls))));
    assert_eq!(again.starts().len(), 1);
}

proptest! {
    #[test]
    fn any_sequence_of_events_keeps_the_bounds_and_ends(
        seed in any::<u64>(),
        steps in prop::collection::vec((0_u8..7, 0_u32..12, 0_u64..4_000), 0..80),
    ) {
        let (network, ranked) = made_up(seed);
        let mut race = Race::new(network.config, ranked, Time::ZERO);
        let mut now = Time::ZERO;
        let mut seen = Seen::default();
        seen.drain(&mut race, now)?;
        for (verb, attempt, wait) in steps {
            now += ms(wait);
            let attempt = AttemptId(attempt);
            match verb {
                0 => race.handle_connected(attempt, ms(wait), now),
                1 => race.handle_failed(attempt, FailReason::Refused, now),
                2 => race.handle_failed(attempt, FailReason::Unreachable, now),
                3 => race.handle_hurry(now),
                4 => race.handle_alive(attempt, ms(wait), now),
                _ => race.handle_timeout(now),
            }
            seen.drain(&mut race, now)?;
        }
        for _ in 0..1_000 {
            let Some((at, _)) = race.poll_timeout() else { break };
            now = now.max(at);
            race.handle_timeout(now);
            prop_assert!(race.poll_timeout().is_none_or(|(next, _)| next > now), "a timer that does not move on");
            seen.drain(&mut race, now)?;
        }
        prop_assert!(race.is_finished());
        prop_assert_eq!(seen.decided, 1);
    }
}

/// What a race has put out so far.
#[derive(Default)]
struct Seen {
    candidates: BTreeMap<AttemptId, Candidate>,
    decided: usize,
    spares: usize,
}

impl Seen {
    fn drain(&mut self, race: &mut Race, now: Time) -> Result<(), TestCaseError> {
        while let Some(output) = race.poll_output() {
            match output {
                RaceOutput::Abandon { attempt, .. } => prop_assert!(self.candidates.contains_key(&attempt)),
                RaceOutput::KeepSpare { .. } => self.spares += 1,
                RaceOutput::Lost(error) => {
                    self.decided += 1;
                    prop_assert_eq!(error.attempts().len(), self.candidates.len());
                }
                RaceOutput::Scored { candidate, .. } => {
                    prop_assert!(self.candidates.values().any(|started| *started == candidate));
                }
                RaceOutput::Start { attempt, candidate } => {
                    prop_assert_eq!(self.decided, 0, "nothing starts after the end");
                    prop_assert_eq!(self.candidates.insert(attempt, candidate), None);
                }
                RaceOutput::Won { attempt } => {
                    self.decided += 1;
                    prop_assert!(self.candidates.contains_key(&attempt));
                }
            }
        }
        let addresses: std::collections::BTreeSet<_> =
            self.candidates.values().map(|candidate| candidate.address).collect();
        prop_assert!(race.in_flight(now) <= 3);
        prop_assert!(self.candidates.len() <= 15 && addresses.len() <= 5 && self.spares <= 1 && self.decided <= 1);
        Ok(())
    }
}

/// Makes up a network and a list of candidates: up to eight addresses with up to three carriers each.
fn made_up(seed: u64) -> (Network, Vec<RankedCandidate>) {
    let mut rng = Pcg32::seed_from_u64(seed);
    let mut network = Network::default();
    let mut ranked = Vec::new();
    for host in 1..=u8::try_from(rng.next_u32() % 8 + 1).unwrap() {
        for carrier in [Quic, Tls, Ws] {
            if rng.next_u32().is_multiple_of(4) {
                continue;
            }
            let rtt = ms(u64::from(rng.next_u32() % 1_500));
            network.set(
                candidate(host, carrier),
                match rng.next_u32() % 6 {
                    0 => Fate::Answers { rtt },
                    1 => Fate::Refuses { rtt },
                    2 => Fate::NoRoute,
                    _ => Fate::Blackhole,
                },
            );
            let srtt = rng.next_u32().is_multiple_of(2).then_some(rtt);
            let with_previous = rng.next_u32().is_multiple_of(2);
            ranked.push(RankedCandidate { candidate: candidate(host, carrier), srtt, with_previous });
        }
    }
    (network, ranked)
}

/// Races in a row on one network, a minute apart, that learn from each other.
struct Learner {
    network: Network,
    records: Records,
    now: Time,
    seed: u64,
}

impl Learner {
    fn new(seed: u64) -> Self {
        Self { network: Network::default(), records: Records::new(), now: Time::ZERO, seed }
    }

    fn race(&mut self) -> sim::Run {
        let known = candidate::merge(self.network.candidates().map(|candidate| (candidate, Source::List)));
        self.seed += 1;
        let run = self.network.run_from(candidate::rank(&known, &self.records, self.seed, self.now), self.now);
        for (candidate, score) in run.scores() {
            self.records.observe(candidate, score, self.now);
        }
        self.now += Duration::from_mins(1);
        run
    }
}
