//! The ways that a request may take, and where each leads.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use ropeway_core::{
    Time,
    policy::{LadderStep, RouteRules},
    request::{
        AtHand, HELD_BYTES_MAX, KEY_HEADER, LinkView, NoPlan, RequestFacts, Rung, Target, Way, is_idempotent, plan,
    },
};

use tokio::{sync::watch, time::timeout_at};

use super::Run;
use crate::{
    Error,
    shared::{View, changed},
    sources::{ListState, ListTrouble, PipeTarget, PlainTarget, Sources, Validity},
};

/// The ways of a request, and where they lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ways {
    pub(super) facts: RequestFacts,
    pub(super) rungs: Vec<Rung>,
    /// It is known whether the gateways serve the host.
    pub(super) is_known: bool,
    /// They serve it, as far as is known.
    pub(super) is_served: bool,
    /// Links that may be tried.
    pub(super) links_max: u32,
    /// What the service itself takes, where that is known.
    pub(super) server_time: Option<Duration>,
    /// Addresses of the host that the access list has.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) pipes: Vec<PipeTarget>,
    pub(super) plains: Vec<PlainTarget>,
}

impl Ways {
    /// Says whether others may be taken, or the request may be sent oftener or less often than before.
    pub(super) fn differ(&self, before: &Self) -> bool {
        let steps = |ways: &Self| -> Vec<_> { ways.rungs.iter().map(|rung| (rung.way, rung.is_last)).collect() };
        self.facts != before.facts || steps(self) != steps(before)
    }
}

impl Run {
    /// Returns the ways that the request may take, in their order, as far as is known by now.
    pub(super) fn ways(&self, view: &View) -> Result<Ways, Error> {
        let shared = self.handle.shared();
        let sources = shared.sources();
        let rules = self.rules();
        let (addresses, pipes, plains) =
            sources.map(|sources| sources.places(&self.host, self.port)).unwrap_or_default();
        let at_hand = AtHand {
            access_point: shared.config.seeks_links(),
            addresses: addresses.len(),
            pipes: pipes.len(),
            plains: plains.len(),
        };
        if let Some(sources) = sources.filter(|_| is_stuck(view) && rules.ladder.iter().any(|step| is_listed(step.way)))
        {
            sources.handle_needed();
        }
        let planned = plan(&self.target(), view.hosts.as_deref(), &rules, at_hand);
        let mut planned = planned.map_err(|none| self.no_plan(none))?;
        shared.detours().order(&self.host, &mut planned.steps, shared.clock.now());
        let is_served = match &view.hosts {
            Some(hosts) => hosts.serve(&self.host, self.port),
            None => at_hand.access_point,
        };
        let facts = RequestFacts { idempotent: self.is_idempotent(is_served, &rules), replayable: self.is_replayable };
        let link = planned.steps.iter().find(|step| step.way == Way::Link);
        let links_max = link.map_or(0, |step| step.tries.into());
        let rungs = self.rungs(&planned.steps, rules.server_time);
        Ok(Ways {
            facts,
            rungs,
            is_known: planned.is_known,
            is_served,
            links_max,
            server_time: rules.server_time,
            addresses,
            pipes,
            plains,
        })
    }

    /// Returns the ways that the request begins with. Where there is none yet, because the first access list is still on its way, that
    /// is waited for as long as a link would be.
    pub(super) async fn first_ways(
        &mut self,
        view: &View,
        changes: &mut Option<watch::Receiver<u64>>,
    ) -> Result<Ways, Error> {
        let shared = Arc::clone(self.handle.shared());
        let until = |wait: Duration| shared.clock.instant(self.began + wait);
        let (soon, late) = (until(self.list_wait_again()), until(self.list_wait()));
        loop {
            // Asked first: a list that comes in between is seen as a change.
            let awaited = shared.sources().filter(|sources| sources.list_state().is_awaited());
            let ways = self.ways(view);
            self.awaits_list = awaited.is_some() && ways.is_err();
            let Some(sources) = awaited.filter(|_| ways.is_err()) else { return ways };
            sources.handle_needed();
            // One that is refused is asked for again a few times, and not for as long as one that may be on its way.
            let has_come = timeout_at(soon, changed(changes)).await.is_ok()
                || !matches!(self.list_trouble(), Some(ListTrouble::Refused { .. }))
                    && timeout_at(late, changed(changes)).await.is_ok();
            if !has_come {
                // Why none came is known by now.
                return self.ways(view);
            }
        }
    }

    /// Returns until when an access list may name further ways, which the app wants; `None` where none is on its way. One that could not be
    /// had is asked for again a few times, and not waited for as long as one that may be on its way.
    pub(super) fn ways_until(&self) -> Option<Time> {
        let shared = self.handle.shared();
        shared.sources().filter(|sources| sources.list_state().is_awaited())?;
        let is_wanted = match self.options.way {
            Some(way) => is_listed(way),
            None => self.rules().ladder.iter().any(|step| is_listed(step.way)),
        };
        let wait = match self.list_trouble() {
            Some(_) => self.list_wait_again(),
            None => self.list_wait(),
        };
        is_wanted.then(|| self.began + wait)
    }

    /// Returns the rules of the request's route, without the ways that the app does not want.
    fn rules(&self) -> RouteRules {
        let allowed = &self.handle.shared().config.ways;
        let shared = self.handle.shared();
        let mut rules = shared.with_policy(|policy| {
            shared.budget().handle_policy(policy);
            policy.route(&self.host, self.head.uri().path())
        });
        rules.ladder.retain(|step| allowed.is_empty() || allowed.contains(&step.way));
        rules
    }

    /// Says whether the request may be executed twice, at whichever gateway.
    ///
    /// A key makes it so where its reader is the host itself. The gateways remember keys each for itself, so that behind them it does
    /// if the service remembers them.
    fn is_idempotent(&self, is_served: bool, rules: &RouteRules) -> bool {
        let has_key = self.head.headers().contains_key(KEY_HEADER);
        let is_key_known = !is_served || rules.idempotency_keys;
        self.options.idempotent || is_idempotent(self.head.method()) || (has_key && is_key_known)
    }

    fn target(&self) -> Target<'_> {
        Target {
            host: &self.host,
            port: self.port,
            encrypted: self.is_encrypted(),
            plain_http: self.options.plain_http || self.handle.shared().config.plain_http,
            forced: self.options.way,
            body_bytes: self.body_bytes,
        }
    }

    /// Returns how long a try of this number, from zero, may take to the first byte of its answer.
    pub(super) fn first_byte(&self, attempt: u32, server_time: Option<Duration>) -> Duration {
        self.handle.shared().pace.first_byte(self.body_bytes.unwrap_or(0), attempt, server_time, self.within())
    }

    /// Gives each try its time: the first of the request the shortest.
    fn rungs(&self, steps: &[LadderStep], server_time: Option<Duration>) -> Vec<Rung> {
        let tries = steps.iter().flat_map(|LadderStep { way, tries }| {
            // The ladder itself goes from one link to the next.
            let tries = if *way == Way::Link { 1 } else { *tries };
            (1..=tries).map(move |number| (*way, number, number == tries))
        });
        let rung = |(attempt, (way, number, is_last))| {
            let connect = CONNECT_WITHIN + CONNECT_LONGER * u32::from(number - 1);
            Rung { way, connect, first_byte: self.first_byte(attempt, server_time), is_last }
        };
        (0..).zip(tries).map(rung).collect()
    }

    /// Says why each way that the app wants, or that there is at all, cannot be taken.
    fn nothing_left(&self) -> String {
        let shared = self.handle.shared();
        let state = shared.sources().map_or(ListState::Unwanted, Sources::list_state);
        let no_list = self.no_list(state);
        let held = match self.body_bytes {
            Some(bytes) if bytes <= HELD_BYTES_MAX => no_list.clone(),
            Some(bytes) => format!("the body of {bytes} bytes is larger than the {HELD_BYTES_MAX} it takes"),
            None => "the length of the body is not known beforehand".to_owned(),
        };
        let wanted = if shared.config.ways.is_empty() { &Way::ALL[..] } else { &shared.config.ways };
        let rules = self.rules();
        let why = |way: &Way| {
            let why = match way {
                // What a route allows is known of the list.
                Way::Plain if !rules.plain_http && state == ListState::Held(Validity::Full) => {
                    "no route of the gateways allows it (`plain_http`)"
                }
                Way::Plain if state == ListState::Held(Validity::Addresses) => {
                    "what the access list allows has ended, and no newer one has come"
                }
                Way::Address => &no_list,
                Way::Pipe | Way::Plain => &held,
                Way::Link => "no gateway serves the host",
                Way::Name | Way::Original => "the policy of the gateways leaves it out",
            };
            format!("{way}: {why}")
        };
        let each: Vec<String> = wanted.iter().map(why).collect();
        format!("no way can be taken ({})", each.join("; "))
    }

    /// Says why the access list names nowhere to go.
    fn no_list(&self, state: ListState) -> String {
        let trouble = self.list_missing().map(|trouble| format!(": {trouble}")).unwrap_or_default();
        match state {
            ListState::Held(Validity::Gone) => {
                format!("the access list has expired, and no newer one has come{trouble}")
            }
            ListState::Held(Validity::Addresses | Validity::Full) => {
                "the access list names no gateway for it".to_owned()
            }
            ListState::Missing if matches!(self.list_trouble(), Some(ListTrouble::Refused { .. })) => {
                format!("no access list is believed{trouble}")
            }
            ListState::Missing => {
                format!("no access list has come within {} ms{trouble}", self.list_wait().as_millis())
            }
            ListState::Unwanted => "the app names no key of access lists (`Builder::list_key`)".to_owned(),
        }
    }

    /// Returns why there is no access list, where that is known.
    fn list_trouble(&self) -> Option<ListTrouble> {
        let sources = self.handle.shared().sources()?;
        sources.list_trouble().filter(|_| sources.list_state().is_awaited())
    }

    /// Returns why there is no access list, or who was asked for one and has not answered.
    pub(super) fn list_missing(&self) -> Option<ListTrouble> {
        self.list_trouble().or_else(|| self.handle.shared().sources()?.list_silence())
    }

    /// Adds to an error of a request for which no way was found that a list was refused, which might have named others. That nobody could
    /// be asked for one is left out: it is as with any network that is gone.
    pub(super) fn told_of_list(&self, error: Error) -> Error {
        let Error::NoWay { host, reason, timeline } = error else { return error };
        match self.list_trouble() {
            Some(trouble @ ListTrouble::Refused { .. }) => {
                let reason = format!("{reason}; {trouble}").into();
                Error::NoList { host, reason, trouble: Box::new(trouble), timeline }
            }
            Some(_) | None => Error::NoWay { host, reason, timeline },
        }
    }

    fn no_plan(&self, none: NoPlan) -> Error {
        let invalid = |reason: &str| Error::Invalid(reason.into());
        let (host, timeline) = (self.host.clone(), Box::default());
        let missing = |way: Way| {
            let trouble = self.list_trouble().filter(|_| is_listed(way))?;
            let reason = format!("the way {way} is asked for, and there is no access list: {trouble}");
            Some(Error::NoList {
                host: host.clone(),
                reason: reason.into(),
                trouble: Box::new(trouble),
                timeline: Box::default(),
            })
        };
        match none {
            NoPlan::NotAtHand(Way::Link) => invalid("the link is asked for, and there is no access point"),
            NoPlan::NotAtHand(way @ (Way::Pipe | Way::Plain)) => missing(way).unwrap_or_else(|| {
                Error::Invalid(format!(
                    "the way {way} is asked for, and no gateway is known that serves it, or the body is too large for it"
                ))
            }),
            NoPlan::NotAtHand(way) => missing(way).unwrap_or_else(|| {
                Error::Invalid(format!("the way {way} is asked for, and nothing is known that it leads to"))
            }),
            NoPlan::PlainHttp => {
                let wanted = self.options.way.filter(|way| *way == Way::Plain);
                wanted.and_then(missing).unwrap_or(Error::PlainHttp { host })
            }
            NoPlan::Policy => {
                let reason = self.nothing_left();
                match self.list_trouble() {
                    Some(trouble) => {
                        Error::NoList { host, reason: reason.into(), trouble: Box::new(trouble), timeline }
                    }
                    None => Error::NoWay { host, reason, timeline },
                }
            }
        }
    }
}

/// Says whether the access list names where a way leads.
const fn is_listed(way: Way) -> bool {
    match way {
        Way::Address | Way::Pipe | Way::Plain => true,
        Way::Link | Way::Name | Way::Original => false,
    }
}

/// Says whether there is trouble in getting a link, so that no link brings a list soon.
fn is_stuck(view: &View) -> bool {
    let has_failed = match view.link {
        LinkView::None => true,
        LinkView::Open { .. } => false,
        LinkView::Sought { is_exhausted, denied, .. } => is_exhausted || denied.is_some(),
    };
    has_failed || view.failure.is_some()
}

/// How long the first try of a way may take to get the request handed over, where another way is left. 2 s; our choice: a handshake
/// of three round trips at 500 ms, and one SYN lost on a faster network.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// How much longer each further try of the way may take. 2 s; our choice.
const CONNECT_LONGER: Duration = Duration::from_secs(2);
