//! How many requests of one route are under way at once: the others wait their turn.
//!
//! Dense concurrency lowers success: thinning an upload interface took iQIYI from 98.2 % with retries to 99.85 % (its article on
//! the success rate of mobile requests). The machine has no timers; how long a request waits is bounded by its own deadline.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

use super::RoutePattern;

/// Limits of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitConfig {
    /// Limits by route. By default none.
    pub rules: Vec<LimitRule>,
    /// Limit of each host that no rule names. By default none.
    pub per_host: Option<u32>,
    /// Requests that may wait, over all routes. By default 1,000, our choice: as many as may wait for a link.
    pub waiting_max: usize,
}

/// The limit of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRule {
    /// The route.
    pub route: RoutePattern,
    /// Requests under way at once, at least 1.
    pub in_flight_max: u32,
}

/// How urgent a request is. On a weak network the more urgent goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Nobody waits for it: prefetches, telemetry.
    Background,
    /// What the app cannot do without: logging in, sending, paying.
    Core,
    /// Everything else.
    #[default]
    Normal,
}

/// Names a request that counts against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(u64);

/// As many requests wait as may.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{waiting_max} requests wait already, this one for {route}")]
pub struct LimitFull {
    /// The route this one wanted.
    pub route: String,
    /// The bound.
    pub waiting_max: usize,
}

/// Lets requests go, route by route, in the order they came, and on a weak network by their priority.
#[derive(Debug)]
pub struct Limit {
    config: LimitConfig,
    weak: bool,
    next: u64,
    waiting: usize,
    places: BTreeMap<String, Place>,
    /// The place of each request that holds one or waits for one.
    routes: BTreeMap<LimitId, String>,
    granted: VecDeque<LimitId>,
}

#[derive(Debug)]
struct Place {
    in_flight_max: u32,
    in_flight: u32,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    id: LimitId,
    priority: Priority,
    /// How many that came later went first.
    overtaken: u32,
}

impl Limit {
    /// Makes the limits of a client that has nothing under way.
    #[must_use]
    pub const fn new(config: LimitConfig) -> Self {
        Self {
            config,
            weak: false,
            next: 0,
            waiting: 0,
            places: BTreeMap::new(),
            routes: BTreeMap::new(),
            granted: VecDeque::new(),
        }
    }

    /// Takes in that a request wants to go. `None` if nothing limits it; otherwise it goes once [`poll_output`](Self::poll_output)
    /// names it, and is told to [`handle_end`](Self::handle_end) when it is over.
    ///
    /// # Errors
    ///
    /// [`LimitFull`] if it would have to wait, and as many do as may.
    pub fn handle_request(
        &mut self,
        host: &str,
        port: u16,
        path: &str,
        priority: Priority,
    ) -> Result<Option<LimitId>, LimitFull> {
        let Some((route, in_flight_max)) = self.limit(host, port, path) else { return Ok(None) };
        let place = self.places.get(&route);
        let waits = place.is_some_and(|place| place.in_flight >= in_flight_max || !place.waiting.is_empty());
        if waits && self.waiting >= self.config.waiting_max {
            return Err(LimitFull { route, waiting_max: self.config.waiting_max });
        }
        let id = LimitId(self.next);
        self.next += 1;
        let place = self.places.entry(route.clone()).or_insert_with(|| Place::new(in_flight_max));
        place.waiting.push_back(Waiter { id, priority, overtaken: 0 });
        self.waiting += 1;
        self.grant(&route);
        self.routes.insert(id, route);
        Ok(Some(id))
    }

    /// Takes in that a request is over, or no longer waits.
    pub fn handle_end(&mut self, id: LimitId) {
        let Some(route) = self.routes.remove(&id) else { return };
        self.granted.retain(|granted| *granted != id);
        if let Some(place) = self.places.get_mut(&route) {
            match place.waiting.iter().position(|waiter| waiter.id == id) {
                Some(at) => {
                    place.waiting.remove(at);
                    self.waiting -= 1;
                }
                None => place.in_flight = place.in_flight.saturating_sub(1),
            }
        }
        self.grant(&route);
    }

    /// Takes in whether the network is weak, which is when priorities count.
    pub const fn handle_grade(&mut self, weak: bool) {
        self.weak = weak;
    }

    /// Replaces the rules. Requests under way go on, those that wait go by the new ones.
    pub fn handle_rules(&mut self, rules: Vec<LimitRule>) {
        self.config.rules = rules;
        let routes: Vec<String> = self.places.keys().cloned().collect();
        for route in routes {
            let rule = self.config.rules.iter().find(|rule| rule.route.label() == route);
            let in_flight_max = rule.map_or(u32::MAX, LimitRule::in_flight_max);
            let hosts_own = !route.contains('/');
            if let Some(place) = self.places.get_mut(&route).filter(|_| !hosts_own) {
                place.in_flight_max = in_flight_max;
            }
            self.grant(&route);
        }
    }

    /// Returns the next request that may go.
    pub fn poll_output(&mut self) -> Option<LimitId> {
        self.granted.pop_front()
    }

    /// Returns the place a request needs, and how many may be there.
    fn limit(&self, host: &str, port: u16, path: &str) -> Option<(String, u32)> {
        let rules = self.config.rules.iter().filter(|rule| rule.route.matches(host, port, path));
        // Of equally long ones the first.
        match rules.rev().max_by_key(|rule| rule.route.length()) {
            Some(rule) => Some((rule.route.label(), rule.in_flight_max())),
            None => self.config.per_host.map(|max| (format!("{}:{port}", host.to_ascii_lowercase()), max.max(1))),
        }
    }

    fn grant(&mut self, route: &str) {
        let Some(place) = self.places.get_mut(route) else { return };
        while place.in_flight < place.in_flight_max
            && let Some(id) = place.next(self.weak)
        {
            place.in_flight += 1;
            self.waiting -= 1;
            self.granted.push_back(id);
        }
        if place.in_flight == 0 && place.waiting.is_empty() {
            self.places.remove(route);
        }
    }
}

impl LimitRule {
    fn in_flight_max(&self) -> u32 {
        self.in_flight_max.max(1)
    }
}

impl Place {
    const fn new(in_flight_max: u32) -> Self {
        Self { in_flight_max, in_flight: 0, waiting: VecDeque::new() }
    }

    /// Takes out who goes next.
    fn next(&mut self, weak: bool) -> Option<LimitId> {
        let at = if weak { self.most_urgent() } else { 0 };
        self.waiting.iter_mut().take(at).for_each(|waiter| waiter.overtaken += 1);
        self.waiting.remove(at).map(|waiter| waiter.id)
    }

    fn most_urgent(&self) -> usize {
        if let Some(patient) = self.waiting.iter().position(|waiter| waiter.overtaken >= OVERTAKEN_MAX) {
            return patient;
        }
        let ranked = self.waiting.iter().enumerate();
        ranked.min_by_key(|(at, waiter)| (waiter.priority.rank(), *at)).map_or(0, |(at, _)| at)
    }
}

impl Priority {
    const fn rank(self) -> u8 {
        match self {
            Self::Core => 0,
            Self::Normal => 1,
            Self::Background => 2,
        }
    }
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self { rules: Vec::new(), per_host: None, waiting_max: WAITING_MAX }
    }
}

/// Requests that may wait, over all routes: 1,000; see [`LimitConfig::waiting_max`].
const WAITING_MAX: usize = 1_000;

/// How many later ones may go before a request: 16, our choice; the least urgent gets every seventeenth place and never starves.
const OVERTAKEN_MAX: u32 = 16;

/// Exchanges one host gets at once over HTTP/1.1: 6; what browsers open (Chromium `net/socket/client_socket_pool_manager.cc`).
pub const HTTP1_PER_HOST: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(in_flight_max: u32) -> Limit {
        let rule = LimitRule { route: RoutePattern::new("api.test", "/up"), in_flight_max };
        Limit::new(LimitConfig { rules: vec![rule], waiting_max: 50, ..LimitConfig::default() })
    }

    fn want(limit: &mut Limit, priority: Priority) -> LimitId {
        limit.handle_request("api.test", 443, "/up/1", priority).unwrap().unwrap()
    }

    fn gone(limit: &mut Limit) -> Vec<LimitId> {
        std::iter::from_fn(|| limit.poll_output()).collect()
    }

    #[test]
    fn what_no_rule_names_is_not_limited() {
        let mut limit = limit(1);
        for path in ["/", "/upper"] {
            assert_eq!(limit.handle_request("api.test", 443, path, Priority::Normal), Ok(None));
        }
    }

    #[test]
    fn never_more_than_the_limit_are_under_way_and_they_go_in_the_order_they_came() {
        let mut limit = limit(3);
        let ids: Vec<_> = (0..20).map(|_| want(&mut limit, Priority::Normal)).collect();
        let mut order = gone(&mut limit);
        assert_eq!(order.len(), 3);
        for at in 0..17 {
            limit.handle_end(order[at]);
            let next = gone(&mut limit);
            assert_eq!(next.len(), 1);
            order.extend(next);
        }
        assert_eq!(order, ids);
        order[17..].iter().for_each(|id| limit.handle_end(*id));
        assert!(limit.places.is_empty() && limit.routes.is_empty() && limit.waiting == 0);
    }

    #[test]
    fn priorities_count_on_a_weak_network_alone_and_nobody_starves() {
        for weak in [false, true] {
            let mut limit = limit(1);
            limit.handle_grade(weak);
            let first = want(&mut limit, Priority::Normal);
            let background = want(&mut limit, Priority::Background);
            let cores: Vec<_> = (0..40).map(|_| want(&mut limit, Priority::Core)).collect();
            let mut order = gone(&mut limit);
            for at in 0..41 {
                limit.handle_end(order[at]);
                order.extend(gone(&mut limit));
            }
            assert_eq!(order[0], first);
            let place = order.iter().position(|id| *id == background);
            assert_eq!(place, Some(if weak { 17 } else { 1 }));
            let urgent: Vec<_> = order.iter().copied().filter(|id| cores.contains(id)).collect();
            assert_eq!(urgent, cores);
        }
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_its_turn_to_the_next() {
        let mut limit = limit(1);
        let ids: Vec<_> = (0..3).map(|_| want(&mut limit, Priority::Normal)).collect();
        assert_eq!(gone(&mut limit), [ids[0]]);
        limit.handle_end(ids[1]);
        assert_eq!(gone(&mut limit), []);
        limit.handle_end(ids[0]);
        // It gives up between its turn and its going.
        limit.handle_end(ids[2]);
        assert_eq!(gone(&mut limit), []);
        assert_eq!(limit.waiting, 0);
        let next = want(&mut limit, Priority::Normal);
        assert_eq!(gone(&mut limit), [next]);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut limit = limit(1);
        let ids: Vec<_> = (0..51).map(|_| want(&mut limit, Priority::Normal)).collect();
        let refused = limit.handle_request("api.test", 443, "/up", Priority::Core);
        assert_eq!(refused, Err(LimitFull { route: "api.test/up".into(), waiting_max: 50 }));
        limit.handle_end(ids[50]);
        assert!(limit.handle_request("api.test", 443, "/up", Priority::Core).is_ok());
    }

    #[test]
    fn each_host_has_its_own_limit_where_there_is_one_for_hosts() {
        let mut limit = Limit::new(LimitConfig { per_host: Some(HTTP1_PER_HOST), ..LimitConfig::default() });
        for host in ["a.test", "b.test"] {
            for _ in 0..10 {
                limit.handle_request(host, 443, "/", Priority::Normal).unwrap();
            }
        }
        assert_eq!(gone(&mut limit).len(), 12);
    }

    #[test]
    fn new_rules_let_those_go_that_wait() {
        let mut limit = limit(1);
        for _ in 0..5 {
            want(&mut limit, Priority::Normal);
        }
        assert_eq!(gone(&mut limit).len(), 1);
        limit.handle_rules(vec![LimitRule { route: RoutePattern::new("api.test", "/up"), in_flight_max: 3 }]);
        assert_eq!(gone(&mut limit).len(), 2);
        limit.handle_rules(Vec::new());
        assert_eq!(gone(&mut limit).len(), 2);
        assert_eq!(limit.handle_request("api.test", 443, "/up", Priority::Normal), Ok(None));
    }
}
