use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::sim::Trace;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Time {
    Time::from_origin(MS * u32::try_from(ms).unwrap())
}

fn spec(change: impl FnOnce(&mut DirectionSpec)) -> DirectionSpec {
    let mut spec = DirectionSpec::transparent(Direction::Up);
    change(&mut spec);
    spec
}

const fn rate(bits_per_s: u64) -> Capacity {
    Capacity::Rate { bits_per_s }
}

/// Drives a link until nothing is on it, from the time it wants to be called to the next.
fn drain<P: Clone>(link: &mut LinkModel<P>) -> Vec<Delivery<P>> {
    let mut deliveries = Vec::new();
    while let Some(due) = link.poll_timeout() {
        if let Some(delivery) = link.poll_output(due) {
            assert_eq!(delivery.due, due, "the link named the moment of its delivery");
            deliveries.push(delivery);
        }
    }
    deliveries
}

/// Sends so many packets, one each millisecond, and gives those that come out.
fn pass(spec: DirectionSpec, seed: u64, packets: u64) -> (Vec<Delivery<u64>>, LinkCounts) {
    let mut link = LinkModel::new(spec, seed, Time::ZERO);
    for number in 0..packets {
        link.offer(number, 100, at(number));
    }
    let deliveries = drain(&mut link);
    (deliveries, *link.counts())
}

/// Checks that so many hits of so many draws lie within the 99 % interval of the binomial distribution.
fn assert_binomial(hits: u64, draws: u64, share: f64) {
    let mean = draws as f64 * share;
    let deviation = (mean * (1.0 - share)).sqrt();
    assert!((hits as f64 - mean).abs() <= 2.576 * deviation, "{hits} of {draws}, expected {mean} ± {deviation}");
}

#[test]
fn the_delay_is_exact_in_both_directions() {
    for direction in [Direction::Down, Direction::Up] {
        let delayed = spec(|spec| {
            spec.direction = direction;
            spec.impairments.delay = 50 * MS;
        });
        let (deliveries, _) = pass(delayed, 1, 100);
        for delivery in deliveries {
            assert_eq!(delivery.due, at(delivery.payload + 50));
        }
    }
}

#[test]
fn the_rate_is_met_by_packets_of_any_length() {
    for length in [40, 576, 1_500] {
        let mut link = LinkModel::new(spec(|spec| spec.capacity = rate(1_000_000)), 1, Time::ZERO);
        let packets = 50_000 / length;
        for number in 0..packets {
            link.offer(number, length, Time::ZERO);
        }
        let deliveries = drain(&mut link);
        let took = deliveries.last().unwrap().due.since(Time::ZERO).as_secs_f64();
        let bits = (deliveries.len() * length * 8) as f64;
        assert!((bits / took / 1e6 - 1.0).abs() < 0.0001, "{} bit/s", bits / took);
    }
}

#[test]
fn a_rate_that_changes_counts_from_that_moment() {
    let mut link = LinkModel::new(spec(|spec| spec.capacity = rate(8_000)), 1, Time::ZERO);
    link.offer((), 1_000, at(0));
    link.set_spec(spec(|spec| spec.capacity = rate(80_000)), at(500));
    assert_eq!(drain(&mut link)[0].due, at(550));
}

#[test]
fn a_full_queue_drops_the_newest() {
    let narrow = spec(|spec| {
        spec.capacity = rate(8_000);
        spec.queue_bytes = 2_500;
    });
    let mut link = LinkModel::new(narrow, 1, Time::ZERO);
    for number in 0..4 {
        link.offer(number, 1_000, Time::ZERO);
    }
    link.offer(9, 500, Time::ZERO);
    let arrived: Vec<_> = drain(&mut link).iter().map(|delivery| delivery.payload).collect();
    assert_eq!(arrived, [0, 1, 9]);
    assert_eq!((link.counts().lost_queue, link.counts().queue_bytes_max), (2, 2_500));
}

#[test]
fn a_packet_larger_than_the_queue_passes_an_empty_one() {
    let mut link = LinkModel::new(spec(|spec| spec.queue_bytes = 100), 1, Time::ZERO);
    link.offer((), 1_500, Time::ZERO);
    assert_eq!(drain(&mut link).len(), 1);
}

#[test]
fn random_loss_lies_within_the_binomial_interval() {
    for (seed, share) in [(1, 0.01), (2, 0.05), (3, 0.4)] {
        let (deliveries, counts) = pass(spec(|spec| spec.impairments.loss = share), seed, 20_000);
        assert_binomial(counts.lost_random, 20_000, share);
        assert_eq!(deliveries.len() as u64 + counts.lost_random, 20_000);
    }
}

#[test]
fn burst_loss_has_the_mean_and_the_burst_length_of_its_theory() {
    let burst = GilbertElliott { to_bad: 0.02, to_good: 0.25, loss_good: 0.0, loss_bad: 0.8 };
    let (deliveries, counts) = pass(spec(|spec| spec.impairments.burst = Some(burst)), 5, 100_000);
    let share = counts.lost_burst as f64 / 100_000.0;
    assert!((share - burst.mean_loss()).abs() < 0.005, "{share} lost, theory {}", burst.mean_loss());
    assert!((burst.mean_loss() - 0.0593).abs() < 0.0001);
    let arrived: Vec<u64> = deliveries.iter().map(|delivery| delivery.payload).collect();
    let bursts = arrived.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
    // A burst ends when a packet of the bad channel survives or the channel turns good: 1 / (1 - 0.75 * 0.8) packets.
    let length = counts.lost_burst as f64 / bursts as f64;
    assert!((length - 2.5).abs() < 0.1, "{length} packets a burst");
}

#[test]
fn the_same_seed_loses_the_same_packets_whatever_else_happens() {
    let numbers = |deliveries: Vec<Delivery<u64>>| -> Vec<u64> {
        let mut numbers: Vec<_> = deliveries.into_iter().map(|delivery| delivery.payload).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    let lossy = spec(|spec| spec.impairments.loss = 0.1);
    let mut worse = lossy.clone();
    worse.impairments = Impairments { duplicate: 0.2, corrupt: 0.2, delay: 9 * MS, jitter: MS, ..worse.impairments };
    let (plain, _) = pass(lossy.clone(), 8, 1_000);
    assert_eq!(numbers(plain.clone()), numbers(pass(worse, 8, 1_000).0));
    assert_ne!(numbers(plain), numbers(pass(lossy, 9, 1_000).0));
}

#[test]
fn duplicates_come_as_often_as_set_and_are_the_packet_again() {
    let (deliveries, counts) = pass(spec(|spec| spec.impairments.duplicate = 0.1), 4, 20_000);
    assert_binomial(counts.duplicated, 20_000, 0.1);
    assert_eq!(deliveries.len() as u64, 20_000 + counts.duplicated);
    assert!(deliveries.windows(2).all(|pair| pair[0].payload <= pair[1].payload));
}

#[test]
fn corruption_names_a_bit_of_the_packet() {
    let (deliveries, counts) = pass(spec(|spec| spec.impairments.corrupt = 0.1), 4, 20_000);
    assert_binomial(counts.corrupted, 20_000, 0.1);
    let flipped: Vec<usize> = deliveries.iter().filter_map(|delivery| delivery.flipped_bit).collect();
    assert_eq!(flipped.len() as u64, counts.corrupted);
    assert!(flipped.iter().all(|&bit| bit < 800) && flipped.iter().any(|&bit| bit > 700));
}

#[test]
fn jitter_spreads_evenly_around_the_delay_and_keeps_the_order() {
    let jittery = spec(|spec| {
        spec.impairments.delay = 50 * MS;
        spec.impairments.jitter = 20 * MS;
    });
    let mut link = LinkModel::new(jittery, 6, Time::ZERO);
    let mut delays = Vec::new();
    for number in 0..2_000 {
        let sent = at(100 * number);
        link.offer((), 100, sent);
        delays.push(drain(&mut link)[0].due.since(sent));
    }
    let mean = delays.iter().sum::<Duration>() / 2_000;
    assert!(mean.abs_diff(50 * MS) < MS, "{mean:?}");
    assert!(delays.iter().all(|&delay| delay >= 30 * MS && delay <= 70 * MS));

    let dense = spec(|spec| {
        spec.impairments.delay = 50 * MS;
        spec.impairments.jitter = 20 * MS;
    });
    let (deliveries, _) = pass(dense, 6, 1_000);
    assert!(deliveries.windows(2).all(|pair| pair[0].payload < pair[1].payload && pair[0].due <= pair[1].due));
}

#[test]
fn reordered_packets_are_overtaken_and_the_others_keep_their_order() {
    for direction in [Direction::Down, Direction::Up] {
        let unordered = spec(|spec| {
            spec.direction = direction;
            spec.impairments.delay = 20 * MS;
            spec.impairments.reorder = 0.05;
        });
        let (deliveries, counts) = pass(unordered, 2, 20_000);
        assert_binomial(counts.reordered, 20_000, 0.05);
        let mut newest = 0;
        let mut overtaken = 0;
        for delivery in deliveries {
            overtaken += u64::from(delivery.payload < newest);
            newest = newest.max(delivery.payload);
        }
        // Behind the last ones there is nothing to overtake them.
        let held_back = counts.reordered;
        assert!((held_back - 3..=held_back).contains(&overtaken), "{overtaken} overtaken, {held_back} held back");
    }
}

#[test]
fn an_outage_that_drops_loses_what_is_sent_while_it_lasts() {
    let mut link = LinkModel::new(spec(|spec| spec.impairments.delay = 30 * MS), 1, Time::ZERO);
    let mut arrived = Vec::new();
    for ms in 0..100 {
        match ms {
            20 => link.set_outage(Some(Outage::Drop), at(ms)),
            60 => link.set_outage(None, at(ms)),
            _ => {}
        }
        link.offer(ms, 100, at(ms));
    }
    arrived.extend(drain(&mut link).iter().map(|delivery| delivery.payload));
    assert_eq!(arrived, (0..20).chain(60..100).collect::<Vec<_>>());
    assert_eq!(link.counts().lost_outage, 40);
}

#[test]
fn an_outage_on_the_way_down_strikes_at_the_phone() {
    let down = DirectionSpec { direction: Direction::Down, ..spec(|spec| spec.impairments.delay = 30 * MS) };
    let mut link = LinkModel::new(down, 1, Time::ZERO);
    for ms in 0..100 {
        match ms {
            40 => link.set_outage(Some(Outage::Drop), at(ms)),
            70 => link.set_outage(None, at(ms)),
            _ => {}
        }
        link.offer(ms, 100, at(ms));
    }
    let arrived: Vec<_> = drain(&mut link).iter().map(|delivery| delivery.payload).collect();
    assert_eq!(arrived, (0..=10).chain(41..100).collect::<Vec<_>>());
}

#[test]
fn an_outage_that_holds_gives_everything_back_at_the_pace_of_the_link() {
    let mut link = LinkModel::new(spec(|spec| spec.capacity = rate(800_000)), 1, Time::ZERO);
    link.set_outage(Some(Outage::Hold), at(0));
    for number in 0..10 {
        link.offer(number, 100, at(number));
    }
    assert_eq!(link.poll_timeout(), None);
    link.set_outage(None, at(1_000));
    let arrived: Vec<_> = drain(&mut link).iter().map(|delivery| (delivery.payload, delivery.due)).collect();
    assert_eq!(arrived, (0..10).map(|number| (number, at(1_001 + number))).collect::<Vec<_>>());
}

#[test]
fn a_held_packet_keeps_what_was_sent_of_it() {
    let mut link = LinkModel::new(spec(|spec| spec.capacity = rate(8_000)), 1, Time::ZERO);
    link.offer((), 100, at(0));
    link.set_outage(Some(Outage::Hold), at(40));
    link.set_outage(None, at(500));
    assert_eq!(drain(&mut link)[0].due, at(560));
}

#[test]
fn a_trace_takes_so_many_bytes_at_each_moment_and_wastes_those_nobody_uses() {
    let trace = Arc::new("10\n20\n20\n30\n".parse::<Trace>().unwrap());
    let mut link = LinkModel::new(spec(|spec| spec.capacity = Capacity::Trace(trace)), 1, Time::ZERO);
    for (payload, length) in [('a', 700), ('b', 800), ('c', 2_000), ('d', 1_500)] {
        link.offer(payload, length, at(1));
    }
    let arrived: Vec<_> = drain(&mut link).iter().map(|delivery| (delivery.payload, delivery.due)).collect();
    assert_eq!(arrived, [('a', at(10)), ('b', at(10)), ('c', at(20)), ('d', at(30))]);
    // The opportunity at 30 was used; those of the second round come at 40, 50, 50 and 60.
    link.offer('e', 100, at(30));
    link.offer('f', 1_500, at(45));
    let arrived: Vec<_> = drain(&mut link).iter().map(|delivery| (delivery.payload, delivery.due)).collect();
    assert_eq!(arrived, [('e', at(40)), ('f', at(50))]);
}

#[test]
fn a_trace_that_stays_goes_on_while_other_settings_change() {
    let trace = Arc::new("10\n30\n".parse::<Trace>().unwrap());
    let played = spec(|spec| spec.capacity = Capacity::Trace(trace));
    let mut link = LinkModel::new(played.clone(), 1, Time::ZERO);
    link.set_spec(DirectionSpec { queue_bytes: 5_000, ..played }, at(15));
    link.offer((), 1_500, at(15));
    assert_eq!(drain(&mut link)[0].due, at(30));
}

#[test]
fn a_synthetic_trace_carries_what_its_slots_allow() {
    let trace = crate::sim::trace::Radio::Drive.trace(Direction::Down, 1);
    let slots = trace.gaps(Duration::ZERO).count() as u64;
    let mut link = LinkModel::new(spec(|spec| spec.capacity = Capacity::Trace(Arc::new(trace))), 1, Time::ZERO);
    let mut due = Time::ZERO;
    while due < at(928_000) {
        while link.in_flight() < 50 {
            link.offer((), 1_500, due);
        }
        due = link.poll_timeout().unwrap();
        while link.poll_output(due).is_some() {}
    }
    let share = link.counts().delivered as f64 / slots as f64;
    assert!((share - 1.0).abs() < 0.001, "{share} of the slots used");
}

#[test]
fn a_late_caller_gets_the_times_at_which_packets_were_due() {
    let slow = || spec(|spec| spec.capacity = rate(80_000));
    let mut late = LinkModel::new(slow(), 1, Time::ZERO);
    let mut prompt = LinkModel::new(slow(), 1, Time::ZERO);
    for number in 0..5 {
        late.offer(number, 100, at(number));
        prompt.offer(number, 100, at(number));
    }
    late.handle_timeout(at(5_000));
    let late: Vec<_> = std::iter::from_fn(|| late.poll_output(at(5_000))).collect();
    assert_eq!(late, drain(&mut prompt));
}

proptest! {
    #[test]
    fn every_packet_is_delivered_or_counted_lost(
        seed: u64,
        lengths in proptest::collection::vec(1_usize..3_000, 1..200),
        shares in proptest::array::uniform5(0.0_f64..0.6),
        outages in proptest::collection::vec(proptest::option::of(any::<bool>()), 0..6),
        is_down: bool,
    ) {
        let [loss, duplicate, corrupt, reorder, to_bad] = shares;
        let burst = Some(GilbertElliott { to_bad, to_good: 0.3, loss_good: 0.01, loss_bad: 0.9 });
        let impairments = Impairments { delay: 30 * MS, jitter: 40 * MS, loss, burst, duplicate, corrupt, reorder };
        let direction = if is_down { Direction::Down } else { Direction::Up };
        let spec = DirectionSpec { capacity: rate(500_000), queue_bytes: 20_000, direction, impairments };
        let mut link = LinkModel::new(spec, seed, Time::ZERO);
        let mut deliveries = 0;
        let mut last = Time::ZERO;
        for (number, length) in lengths.iter().enumerate() {
            let now = at(number as u64 * 7);
            link.offer(number, *length, now);
            if let Some(outage) = outages.get(number / 10) {
                let outage = outage.map(|drops| if drops { Outage::Drop } else { Outage::Hold });
                link.set_outage(outage, now);
            }
            while let Some(delivery) = link.poll_output(now) {
                prop_assert!(delivery.due >= last && delivery.due <= now);
                last = delivery.due;
                deliveries += 1;
            }
        }
        link.set_outage(None, at(lengths.len() as u64 * 7));
        deliveries += drain(&mut link).len() as u64;
        let counts = link.counts();
        prop_assert_eq!(counts.offered + counts.duplicated, counts.delivered + counts.lost());
        prop_assert_eq!(counts.delivered, deliveries);
        prop_assert_eq!(link.in_flight(), 0);
    }
}
