use proptest::prelude::*;

use super::*;
use crate::sim::link::Direction;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_format_of_mahimahi_reads_with_its_repetition() {
    let trace: Trace = "0\n2\n2\n\n5\n".parse().unwrap();
    assert_eq!(trace.period(), Duration::from_millis(5));
    let moments: Vec<_> = (0..9).map(|opportunity| trace.moment(opportunity).as_millis()).collect();
    assert_eq!(moments, [0, 2, 2, 5, 5, 7, 7, 10, 10]);
    assert_eq!(trace.mean_bits_per_s(), 4.0 * 12_000.0 / 0.005);
}

#[test]
fn what_is_no_trace_is_refused_with_its_line() {
    let refused = |text: &str| text.parse::<Trace>().unwrap_err().to_string();
    assert_eq!(refused("1\n3\n2\n"), "line 3: 2 is less than the line above");
    assert_eq!(refused("1\nx\n"), "line 2: expected whole milliseconds up to 4294967295");
    assert_eq!(refused("0\n0\n"), "no moment after the start");
    assert_eq!(refused(""), "no moment after the start");
}

#[test]
fn synthetic_traces_have_the_statistics_of_the_recordings() {
    // Radio, mean down and up in Mbit/s, gaps above 1 s, the longest in seconds.
    let facts = [
        (Radio::Drive, 2.02, 0.94, 28, 5.8),
        (Radio::Elevator, 5.0, 6.0, 1, 10.0),
        (Radio::Subway, 4.98, 0.71, 2, 23.1),
        (Radio::Train, 1.17, 0.585, 0, 0.0),
        (Radio::Walk, 5.0, 6.0, 0, 0.0),
    ];
    for (radio, down, up, gaps, longest) in facts {
        for seed in 0..5 {
            for (direction, mean) in [(Direction::Down, down), (Direction::Up, up)] {
                let trace = radio.trace(direction, seed);
                let mbit = trace.mean_bits_per_s() / 1e6;
                assert!((mbit / mean - 1.0).abs() < 0.01, "{radio} {direction:?} {seed}: {mbit} Mbit/s");
                let found: Vec<f64> = trace.gaps(SECOND).map(|gap| gap.as_secs_f64()).collect();
                assert_eq!(found.len(), gaps, "{radio} {direction:?} {seed}: {found:?}");
                let most = found.iter().copied().fold(0.0, f64::max);
                assert!((most - longest).abs() <= 0.2, "{radio} {direction:?} {seed}: {most} s");
            }
        }
    }
}

#[test]
fn a_seed_makes_the_same_trace_again_and_another_seed_another() {
    for radio in Radio::ALL {
        let trace = |seed| radio.trace(Direction::Down, seed);
        assert_eq!(trace(3), trace(3));
        assert_ne!(trace(3), trace(4));
        assert_eq!(radio.to_string().parse(), Ok(radio));
    }
}

#[test]
fn rates_wander_over_seconds() {
    let trace = Radio::Walk.trace(Direction::Down, 1);
    let mut per_second = [0_u32; 120];
    for moment in &trace.moments_ms {
        per_second[(moment.saturating_sub(1) / 1000) as usize] += 1;
    }
    let (least, most) = (per_second.iter().min().unwrap(), per_second.iter().max().unwrap());
    assert!(*most > 3 * *least, "{least} to {most} opportunities in a second");
}

proptest! {
    #[test]
    fn the_first_opportunity_from_a_time_is_the_first(
        steps in proptest::collection::vec(0_u32..4, 1..20), micros in 0_u64..200_000,
    ) {
        let mut moments_ms: Vec<u32> = steps.iter().scan(0, |at, step| { *at += step; Some(*at) }).collect();
        moments_ms.push(moments_ms.last().unwrap() + 1);
        let trace = Trace::new(moments_ms).unwrap();
        let since_start = Duration::from_micros(micros);
        let first = trace.first_from(since_start);
        prop_assert!(trace.moment(first) >= since_start);
        prop_assert!(first == 0 || trace.moment(first - 1) < since_start);
    }
}

#[test]
fn what_leaves_in_a_span_is_counted_over_rounds() {
    let trace = Trace::new(vec![10, 10, 50, 100]).unwrap();
    let ms = Duration::from_millis;
    assert_eq!(trace.bytes_between(ms(0), ms(50)), 2 * OPPORTUNITY_BYTES);
    assert_eq!(trace.bytes_between(ms(50), ms(120)), 4 * OPPORTUNITY_BYTES);
    assert_eq!(trace.bytes_between(ms(20), ms(20)), 0);
}
