//! Merging and ranking.

use super::*;
use crate::{
    CarrierKind::{Quic, Tls, Ws},
    connect::{FailReason, Score},
};

#[test]
fn merging_keeps_each_candidate_once_under_its_most_trusted_source() {
    let merged = merge([
        (v4(1, Tls), Source::BuiltIn),
        (v4(2, Tls), Source::Dns),
        (v4(1, Tls), Source::List),
        (v4(3, Tls), Source::Config),
        (v4(2, Tls), Source::Dns),
    ]);
    let expected = [(3, Source::Config), (1, Source::List), (2, Source::Dns)];
    assert_eq!(merged, expected.map(|(host, source)| KnownCandidate { candidate: v4(host, Tls), source }));
}

#[test]
fn merging_drops_the_least_trusted_beyond_the_maximum() {
    let built_in = (0..=u8::MAX).map(|host| (v4(host, Tls), Source::BuiltIn));
    let merged = merge(built_in.chain([(v4(9, Quic), Source::List)]));
    assert_eq!(merged.len(), CANDIDATES_MAX);
    assert_eq!(merged[0].candidate, v4(9, Quic));
}

#[test]
fn a_list_keeps_its_order_and_built_in_seeds_are_shuffled_by_the_seed() {
    let hosts = |source, seed| {
        let known = merge((1..=8).map(|host| (v4(host, Tls), source)));
        candidates(&rank(&known, &Records::new(), seed, NOW))
    };
    let in_order: Vec<_> = (1..=8).map(|host| v4(host, Tls)).collect();
    assert_eq!(hosts(Source::List, 7), in_order);
    assert_eq!(hosts(Source::BuiltIn, 7), hosts(Source::BuiltIn, 7));
    let firsts: std::collections::BTreeSet<_> = (0..100).map(|seed| hosts(Source::BuiltIn, seed)[0]).collect();
    assert_eq!(firsts.len(), 8, "every seed address is somebody's first");
}

#[test]
fn families_alternate_until_a_record_prefers_one() {
    let known = list([v6(1, Tls), v6(2, Tls), v6(3, Tls), v4(1, Tls), v4(2, Tls)]);
    let mut records = Records::new();
    let alternating = [v6(1, Tls), v4(1, Tls), v6(2, Tls), v4(2, Tls), v6(3, Tls)];
    assert_eq!(candidates(&rank(&known, &records, 0, NOW)), alternating);

    records.observe(v6(9, Tls), failure(), NOW);
    records.observe(v4(9, Tls), success(20, false), NOW);
    let v4_first = [v4(1, Tls), v4(2, Tls), v6(1, Tls), v6(2, Tls), v6(3, Tls)];
    assert_eq!(candidates(&rank(&known, &records, 0, NOW)), v4_first);
}

#[test]
fn quic_and_tls_of_an_address_are_neighbours_until_a_carrier_is_learned() {
    let known = list((1..=2).flat_map(|host| [v4(host, Quic), v4(host, Tls)]));
    let mut records = Records::new();
    let together: Vec<_> =
        rank(&known, &records, 0, NOW).iter().map(|ranked| (ranked.candidate, ranked.with_previous)).collect();
    let expected = [(v4(1, Quic), false), (v4(1, Tls), true), (v4(2, Quic), false), (v4(2, Tls), true)];
    assert_eq!(together, expected);

    records.observe(v4(2, Tls), success(30, true), NOW);
    let ranked = rank(&known, &records, 0, NOW);
    assert_eq!(candidates(&ranked), [v4(2, Tls), v4(1, Tls), v4(1, Quic), v4(2, Quic)]);
    assert!(ranked.iter().all(|ranked| !ranked.with_previous));
    assert_eq!(ranked[0].srtt, Some(Duration::from_millis(30)));
}

#[test]
fn the_carrier_with_the_better_record_leads_its_neighbour() {
    let mut records = Records::new();
    records.observe(v4(1, Tls), success(30, false), NOW);
    let ranked = rank(&list([v4(1, Quic), v4(1, Tls)]), &records, 0, NOW);
    assert_eq!(candidates(&ranked), [v4(1, Tls), v4(1, Quic)]);
    assert!(ranked[1].with_previous);
}

#[test]
fn other_carriers_follow_the_addresses_of_a_race() {
    let known = list((1..=6).flat_map(|host| [v4(host, Tls), v4(host, Ws)]));
    let ranked = candidates(&rank(&known, &Records::new(), 0, NOW));
    let head = [v4(1, Tls), v4(2, Tls), v4(3, Tls), v4(4, Tls), v4(5, Tls), v4(1, Ws), v4(6, Tls), v4(2, Ws)];
    assert_eq!(ranked[..8], head);
    assert_eq!(ranked.len(), known.len());
}

#[test]
fn a_learned_carrier_that_no_candidate_speaks_leads_nothing() {
    let mut records = Records::new();
    records.observe(v4(9, Ws), success(20, true), NOW);
    let ranked = rank(&list([v4(1, Quic), v4(1, Tls)]), &records, 0, NOW);
    assert!(ranked[1].with_previous);
}

#[test]
fn good_records_lead_by_failures_then_srtt_with_unknown_ones_between() {
    let known = list((1..=6).map(|host| v4(host, Tls)));
    let mut records = Records::new();
    records.observe(v4(2, Tls), success(20, false), NOW);
    records.observe(v4(3, Tls), failure(), NOW);
    records.observe(v4(3, Tls), success(5, false), NOW);
    records.observe(v4(4, Tls), success(10, true), NOW);
    records.observe(v4(5, Tls), failure(), NOW);
    let ranked = candidates(&rank(&known, &records, 0, NOW));
    assert_eq!(ranked, [4, 1, 2, 6, 3, 5].map(|host| v4(host, Tls)));
}

#[test]
fn banned_candidates_go_last_and_are_all_there_is_if_need_be() {
    let known = list([v4(1, Tls), v4(2, Tls), v4(3, Quic)]);
    let mut records = Records::new();
    let mut now = NOW;
    for host in [2, 1] {
        for _ in 0..3 {
            records.observe(v4(host, Tls), failure(), now);
            now += crate::connect::record::SAMPLE_GAP;
        }
    }
    assert_eq!(candidates(&rank(&known, &records, 0, now)), [v4(3, Quic), v4(2, Tls), v4(1, Tls)]);
    assert_eq!(candidates(&rank(&known[..2], &records, 0, now)), [v4(2, Tls), v4(1, Tls)]);
}

#[test]
fn ranking_loses_and_repeats_no_candidate() {
    for seed in 0..200_u64 {
        let mut rng = Pcg32::seed_from_u64(seed);
        let mut records = Records::new();
        let mut now = NOW;
        let all: Vec<_> = (1..=7)
            .flat_map(|host| [Quic, Tls, Ws].map(|carrier| [v4(host, carrier), v6(host.into(), carrier)]))
            .collect();
        let all = all.concat();
        for _ in 0..below(&mut rng, 200) {
            let candidate = all[usize::try_from(below(&mut rng, 42)).unwrap()];
            let won = below(&mut rng, 3) == 0;
            let score = if below(&mut rng, 2) == 0 { failure() } else { success(below(&mut rng, 400), won) };
            records.observe(candidate, score, now);
            now += Duration::from_secs(below(&mut rng, 60));
        }
        let known = list(all.iter().copied().filter(|_| below(&mut rng, 3) > 0));
        let ranked = rank(&known, &records, seed, now);
        let mut expected: Vec<_> = known.iter().map(|known| known.candidate).collect();
        let mut got = candidates(&ranked);
        expected.sort();
        got.sort();
        assert_eq!(got, expected, "seed {seed}");
        for pair in ranked.windows(2).filter(|pair| pair[1].with_previous) {
            assert_eq!(pair[0].candidate.address, pair[1].candidate.address, "seed {seed}");
        }
    }
}

const NOW: Time = Time::from_origin(Duration::from_secs(1_000));

fn v4(host: u8, carrier: CarrierKind) -> Candidate {
    Candidate { address: ([192, 0, 2, host], 443).into(), carrier }
}

fn v6(host: u16, carrier: CarrierKind) -> Candidate {
    Candidate { address: ([0x2001, 0xdb8, 0, 0, 0, 0, 0, host], 443).into(), carrier }
}

fn list(candidates: impl IntoIterator<Item = Candidate>) -> Vec<KnownCandidate> {
    merge(candidates.into_iter().map(|candidate| (candidate, Source::List)))
}

fn candidates(ranked: &[RankedCandidate]) -> Vec<Candidate> {
    ranked.iter().map(|ranked| ranked.candidate).collect()
}

const fn failure() -> Score {
    Score::Failure(FailReason::TimedOut)
}

const fn success(rtt_ms: u64, won: bool) -> Score {
    Score::Success { rtt: Duration::from_millis(rtt_ms), won }
}
