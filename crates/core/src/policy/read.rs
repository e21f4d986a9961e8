//! From the message to a [`Policy`] within its ranges, and back.

use std::{ops::RangeInclusive, time::Duration};

use super::{LadderStep, Policy, ROUTES_MAX, RoutePolicy, TRIES_MAX};
use crate::{
    request::Way,
    wire::list::{NAME_BYTES_MAX, message},
};

impl Policy {
    pub(crate) fn from_message(policy: message::Policy) -> Self {
        let routes = policy.routes.into_iter().filter_map(RoutePolicy::from_message);
        Self {
            epoch_ms: policy.epoch_ms,
            first_byte_base: duration(policy.first_byte_base_ms, &FIRST_BYTE_BASE_MS),
            first_byte_cap: duration(policy.first_byte_cap_ms, &WAIT_MS),
            rate_min_bytes_per_s: number(policy.rate_min_bytes_per_s, &RATE),
            gap: duration(policy.gap_ms, &WAIT_MS),
            stagger_max: duration(policy.stagger_max_ms, &STAGGER_MS),
            retry_budget_permille: number(policy.retry_budget_permille, &PERMILLE),
            retry_budget_start: number(policy.retry_budget_start, &BUDGET_START),
            routes: routes.take(ROUTES_MAX).collect(),
        }
    }

    pub(crate) fn to_message(&self) -> message::Policy {
        message::Policy {
            epoch_ms: self.epoch_ms,
            routes: self.routes.iter().map(RoutePolicy::to_message).collect(),
            first_byte_base_ms: self.first_byte_base.map(millis),
            first_byte_cap_ms: self.first_byte_cap.map(millis),
            rate_min_bytes_per_s: self.rate_min_bytes_per_s,
            gap_ms: self.gap.map(millis),
            stagger_max_ms: self.stagger_max.map(millis),
            retry_budget_permille: self.retry_budget_permille,
            retry_budget_start: self.retry_budget_start,
        }
    }
}

impl RoutePolicy {
    fn from_message(route: message::RoutePolicy) -> Option<Self> {
        let fits = !route.host.is_empty() && route.host.len() <= NAME_BYTES_MAX;
        let path_prefix = if route.path_prefix.is_empty() { "/".into() } else { route.path_prefix };
        if !fits || path_prefix.len() > PREFIX_BYTES_MAX {
            return None;
        }
        let mut ladder: Vec<LadderStep> = Vec::new();
        for rung in route.ladder {
            let Some(way) = ladder_way(rung.way()) else { continue };
            let tries = rung.tries.unwrap_or(1).min(u32::from(TRIES_MAX)) as u8;
            if ladder.iter().all(|known| known.way != way) {
                ladder.push(LadderStep { way, tries });
            }
        }
        Some(Self {
            host: route.host.to_ascii_lowercase(),
            path_prefix,
            ladder,
            server_time: duration(route.server_time_ms, &SERVER_TIME_MS),
            concurrency_max: number(route.concurrency_max, &CONCURRENCY),
            coalesce: route.coalesce,
            batch: route.batch,
            plain_http: route.plain_http,
            idempotency_keys: route.idempotency_keys,
        })
    }

    fn to_message(&self) -> message::RoutePolicy {
        let rung = |rung: &LadderStep| message::Rung { way: way(rung.way).into(), tries: Some(rung.tries.into()) };
        message::RoutePolicy {
            host: self.host.clone(),
            path_prefix: self.path_prefix.clone(),
            ladder: self.ladder.iter().map(rung).collect(),
            server_time_ms: self.server_time.map(millis),
            concurrency_max: self.concurrency_max,
            coalesce: self.coalesce,
            batch: self.batch,
            plain_http: self.plain_http,
            idempotency_keys: self.idempotency_keys,
        }
    }
}

const fn ladder_way(way: message::Way) -> Option<Way> {
    Some(match way {
        message::Way::Unspecified => return None,
        message::Way::Address => Way::Address,
        message::Way::Link => Way::Link,
        message::Way::Name => Way::Name,
        message::Way::Original => Way::Original,
        message::Way::Pipe => Way::Pipe,
        message::Way::Plain => Way::Plain,
    })
}

const fn way(way: Way) -> message::Way {
    match way {
        Way::Address => message::Way::Address,
        Way::Link => message::Way::Link,
        Way::Name => message::Way::Name,
        Way::Original => message::Way::Original,
        Way::Pipe => message::Way::Pipe,
        Way::Plain => message::Way::Plain,
    }
}

fn number(value: Option<u32>, range: &RangeInclusive<u32>) -> Option<u32> {
    value.map(|value| value.clamp(*range.start(), *range.end()))
}

fn duration(millis: Option<u32>, range: &RangeInclusive<u32>) -> Option<Duration> {
    number(millis, range).map(|millis| Duration::from_millis(millis.into()))
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Mars ships 12 s on Wi-Fi and 15 s on mobile networks (`stn/config.h`); a fifth and a multiple of them bound what may be asked.
const FIRST_BYTE_BASE_MS: RangeInclusive<u32> = 1_000..=60_000;

/// Mars caps the first byte at 22 s and 30 s, and the gap at 8 s and 12 s.
const WAIT_MS: RangeInclusive<u32> = 1_000..=120_000;

/// Mars counts on 12 KiB/s and 4 KiB/s; 256 B/s is what a busy 2G cell leaves.
const RATE: RangeInclusive<u32> = 256..=16 << 20;

/// RFC 8305 section 8 bounds the stagger at 100 ms and 2 s; WeChat's article has 4 s.
const STAGGER_MS: RangeInclusive<u32> = 100..=10_000;

/// From no resend to one for every request.
const PERMILLE: RangeInclusive<u32> = 0..=1_000;

/// As many as a client can save.
const BUDGET_START: RangeInclusive<u32> = 0..=100;

/// 10 min; a request that takes longer is a job to be asked about.
const SERVER_TIME_MS: RangeInclusive<u32> = 0..=600_000;

/// From one at a time to four times the channels of a link.
const CONCURRENCY: RangeInclusive<u32> = 1..=1_000;

/// Bytes of a path prefix. 1,024; our choice.
const PREFIX_BYTES_MAX: usize = 1_024;
