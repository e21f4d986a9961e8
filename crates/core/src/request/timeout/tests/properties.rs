//! What holds after any history.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_time_leaves_its_bounds(history in history(), ask in ask(), now in 0_u64..100_000) {
        let timeouts = after(&history);
        let now = at(now);
        let policy = Policy::default();
        let taken = timeouts.first_byte(&ask.with(&policy), now);
        let (cap, queue) = (Class::of(timeouts.place.kind).cap, Class::of(timeouts.place.kind).queue);
        let cap = if timeouts.state(now) == NetworkState::Bad { cap * 3 / 2 } else { cap };
        let added = queue * u32::try_from(ask.in_flight.min(QUEUE_MAX)).expect("five") + ask.server_time.unwrap_or_default();
        prop_assert!(taken <= ask.left);
        prop_assert!(taken >= FIRST_BYTE_FLOOR.min(ask.left), "{taken:?}");
        prop_assert!(taken <= cap + added, "{taken:?} > {cap:?} + {added:?}");
        let gap = timeouts.gap(&policy, now);
        prop_assert!((GAP_FLOOR..=cap).contains(&gap), "{gap:?}");
    }

    #[test]
    fn more_to_do_never_leaves_less_time(history in history(), ask in ask(), more in ask(), now in 0_u64..100_000) {
        let timeouts = after(&history);
        let policy = Policy::default();
        let time = |ask: &Asked| timeouts.first_byte(&ask.with(&policy), at(now));
        let least = time(&ask);
        let longer = ask.server_time.map(|took| took + more.server_time.unwrap_or_default());
        let harder = [
            Asked { bytes: ask.bytes.saturating_add(more.bytes), ..ask },
            Asked { in_flight: ask.in_flight + more.in_flight, ..ask },
            Asked { attempt: ask.attempt + more.attempt, ..ask },
            Asked { server_time: longer, ..ask },
            Asked { left: ask.left + more.left, ..ask },
        ];
        for harder in harder {
            prop_assert!(least <= time(&harder), "{:?} of {:?}", least, harder);
        }
    }

    #[test]
    fn a_slower_network_never_has_less_time(history in history(), ask in ask(), rtt in 0_u64..5_000, more in 0_u64..60_000) {
        let policy = Policy::default();
        let with = |rtt| {
            let mut timeouts = after(&history);
            timeouts.handle_network("fresh", timeouts.place.kind, at(HISTORY_SECONDS));
            timeouts.handle_rtt(ms(rtt), at(HISTORY_SECONDS));
            let now = at(HISTORY_SECONDS);
            (timeouts.first_byte(&ask.with(&policy), now), timeouts.gap(&policy, now))
        };
        let (near, far) = (with(rtt), with(rtt + more));
        prop_assert!(near.0 <= far.0 && near.1 <= far.1, "{near:?} {far:?}");
    }

    #[test]
    fn a_bad_network_never_has_less_time_than_it_had(history in history(), ask in ask()) {
        let policy = Policy::default();
        let mut timeouts = after(&history);
        let now = at(HISTORY_SECONDS);
        let of = |timeouts: &Timeouts| (timeouts.first_byte(&ask.with(&policy), now), timeouts.gap(&policy, now));
        let before = of(&timeouts);
        for _ in 0..10 {
            timeouts.handle_failed(now);
        }
        let bad = of(&timeouts);
        prop_assert_eq!(timeouts.state(now), NetworkState::Bad);
        prop_assert!(before.0 <= bad.0 && before.1 <= bad.1, "{:?} {:?}", before, bad);
    }

    #[test]
    fn a_policy_is_obeyed_whatever_was_learned(history in history(), ask in ask(), base in 1_000_u64..60_000, cap in 1_000_u64..120_000, rate in 256_u32..1 << 24) {
        let policy = Policy {
            first_byte_base: Some(ms(base)),
            first_byte_cap: Some(ms(cap)),
            rate_min_bytes_per_s: Some(rate),
            ..Policy::default()
        };
        let ask = Asked { in_flight: 0, ..ask };
        let now = at(HISTORY_SECONDS);
        let learned = after(&history).first_byte(&ask.with(&policy), now);
        prop_assert_eq!(learned, Timeouts::new().first_byte(&ask.with(&policy), now));
    }
}

/// Something that happens to a client.
#[derive(Clone, Debug)]
enum Event {
    Answered(Answered),
    Failed,
    Network(u8, NetworkKind),
    Rtt(u64),
}

/// [`Ask`] without its policy.
#[derive(Clone, Copy, Debug)]
struct Asked {
    bytes: u64,
    in_flight: usize,
    attempt: u32,
    server_time: Option<Duration>,
    left: Duration,
}

impl Asked {
    const fn with(self, policy: &Policy) -> Ask<'_> {
        let Self { bytes, in_flight, attempt, server_time, left } = self;
        Ask { bytes, in_flight, attempt, server_time, left, policy }
    }
}

fn after(history: &[(u64, Event)]) -> Timeouts {
    let mut timeouts = Timeouts::new();
    let mut seconds = 0;
    for (pause, event) in history {
        seconds += pause;
        let now = at(seconds);
        match event {
            Event::Answered(answered) => timeouts.handle_answered(answered, now),
            Event::Failed => timeouts.handle_failed(now),
            Event::Network(label, kind) => drop(timeouts.handle_network(&label.to_string(), *kind, now)),
            Event::Rtt(rtt) => timeouts.handle_rtt(ms(*rtt), now),
        }
    }
    timeouts
}

fn history() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let kind = prop::sample::select(vec![
        NetworkKind::Unspecified,
        NetworkKind::Wired,
        NetworkKind::Wifi,
        NetworkKind::Cellular2g,
        NetworkKind::Cellular3g,
        NetworkKind::Cellular4g,
        NetworkKind::Cellular5g,
    ]);
    let answered = (0_u64..1 << 22, 0_u64..1 << 22, 0_u64..20_000, 0_u64..20_000).prop_map(
        |(sent_bytes, received_bytes, head, body)| Answered {
            sent_bytes,
            received_bytes,
            head_after: ms(head),
            ended_after: ms(head + body),
        },
    );
    let extreme = prop::sample::select(vec![
        Answered { sent_bytes: u64::MAX, received_bytes: u64::MAX, ..Answered::default() },
        Answered { sent_bytes: u64::MAX, received_bytes: 0, head_after: Duration::MAX, ended_after: Duration::ZERO },
    ]);
    let event = prop_oneof![
        8 => answered.prop_map(Event::Answered),
        1 => extreme.prop_map(Event::Answered),
        3 => Just(Event::Failed),
        1 => (0_u8..40, kind).prop_map(|(label, kind)| Event::Network(label, kind)),
        4 => (0_u64..10_000).prop_map(Event::Rtt),
    ];
    prop::collection::vec(
        (0_u64..HISTORY_SECONDS / HISTORY_EVENTS, event),
        0..usize::try_from(HISTORY_EVENTS).expect("60"),
    )
}

fn ask() -> impl Strategy<Value = Asked> {
    let bytes = prop_oneof![0_u64..1 << 20, any::<u64>()];
    let server_time = prop::option::of((0_u64..600_000).prop_map(ms));
    let left = (0_u64..600_000).prop_map(ms);
    (bytes, 0_usize..50, 0_u32..10, server_time, left).prop_map(|(bytes, in_flight, attempt, server_time, left)| {
        Asked { bytes, in_flight, attempt, server_time, left }
    })
}

/// Events of a history.
const HISTORY_EVENTS: u64 = 60;

/// When the longest history is over.
const HISTORY_SECONDS: u64 = 6_000;
