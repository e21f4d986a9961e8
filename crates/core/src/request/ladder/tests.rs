use super::*;

const GET: RequestFacts = RequestFacts { idempotent: true, replayable: true };
const POST: RequestFacts = RequestFacts { idempotent: false, replayable: true };
const LINK: Rung =
    Rung { way: Way::Link, connect: Duration::from_secs(1), first_byte: Duration::from_secs(2), is_last: false };
const NAME: Rung =
    Rung { way: Way::Name, connect: Duration::from_secs(1), first_byte: Duration::from_secs(3), is_last: false };

/// A ladder with its budget and clock.
struct Climb {
    ladder: Ladder,
    budget: Budget,
    now: Time,
}

impl Climb {
    fn new(facts: RequestFacts, rungs: &[Rung], link: LinkView) -> Self {
        let mut budget = Budget::new();
        let ladder = Ladder::new(LadderConfig::default(), facts, rungs.to_vec(), link, &mut budget, Time::ZERO);
        Self { ladder, budget, now: Time::ZERO }
    }

    fn link(&mut self, link: LinkView) -> &mut Self {
        self.ladder.handle_link(link, &mut self.budget, self.now);
        self
    }

    fn end(&mut self, number: u32, end: TryEnd) -> &mut Self {
        self.ladder.handle_ended(TryId(number), end, &mut self.budget, self.now);
        self
    }

    /// Lets time pass to the next deadline and returns it, in milliseconds.
    fn wait(&mut self) -> Option<u128> {
        self.now = self.ladder.poll_timeout()?;
        self.ladder.handle_timeout(&mut self.budget, self.now);
        Some(self.now.since_origin().as_millis())
    }

    /// Returns what the ladder asks for: `+` starts a way, on a session where it is a link.
    fn asks(&mut self) -> Vec<String> {
        let told = |output| match output {
            LadderOutput::Fail(failure) => format!("{failure:?}"),
            LadderOutput::Late { session } => format!("late {session}"),
            LadderOutput::Recall(TryId(number)) => format!("recall {number}"),
            LadderOutput::Start { number: TryId(number), rung, session: None } => format!("{number}+{}", rung.way),
            LadderOutput::Start { number: TryId(number), rung, session: Some(on) } => {
                format!("{number}+{} {on}", rung.way)
            }
        };
        std::iter::from_fn(|| self.ladder.poll_output()).map(told).collect()
    }
}

const fn open(session: u64) -> LinkView {
    LinkView::Open { session, is_sure: true, can_move: false }
}

const fn unsure(session: u64) -> LinkView {
    LinkView::Open { session, is_sure: false, can_move: true }
}

const SOUGHT: LinkView = LinkView::Sought { since: None, alive_at: None, is_exhausted: false, denied: None };

#[test]
fn a_request_goes_over_the_link_once_there_is_one() {
    let mut climb = Climb::new(GET, &[LINK], SOUGHT);
    assert!(climb.asks().is_empty());
    assert!(climb.ladder.waits_for_link());
    assert_eq!(climb.link(open(7)).asks(), ["1+link 7"]);
    assert!(!climb.ladder.waits_for_link());
}

#[test]
fn without_any_link_to_expect_the_next_way_is_taken_at_once() {
    let mut climb = Climb::new(POST, &[LINK, NAME], LinkView::None);
    assert_eq!(climb.asks(), ["1+name"]);
    climb.link(open(7));
    assert_eq!(climb.end(1, TryEnd::NotSent).asks(), ["2+link 7"], "one has come meanwhile");
    assert_eq!(Climb::new(POST, &[LINK], LinkView::None).asks(), ["NotExecuted"]);
}

#[test]
fn a_link_that_takes_its_time_is_waited_for_beside_the_next_way() {
    let mut climb = Climb::new(POST, &[LINK, NAME], SOUGHT);
    assert_eq!(climb.wait(), Some(4_000));
    assert_eq!(climb.asks(), ["2+name"]);
    climb.end(2, TryEnd::NotSent);
    assert!(climb.asks().is_empty(), "the link may still come");
    assert_eq!(climb.link(open(7)).asks(), ["1+link 7"]);
}

#[test]
fn a_link_that_is_no_longer_to_be_expected_is_waited_for_no_longer() {
    let mut climb = Climb::new(POST, &[LINK], SOUGHT);
    assert_eq!(climb.link(LinkView::None).asks(), ["NotExecuted"]);
    let mut climb = Climb::new(POST, &[LINK, NAME], SOUGHT);
    assert_eq!(climb.link(LinkView::None).asks(), ["2+name"]);
    let mut early = Climb::new(GET, &[LINK], unsure(7));
    assert_eq!(early.asks(), ["1+link 7"]);
    assert_eq!(early.link(LinkView::None).asks(), ["recall 1"], "the gateway refused the link it went out on");
    assert_eq!(early.end(1, TryEnd::NotSent).asks(), ["NotExecuted"]);
}

#[test]
fn a_link_in_which_nothing_comes_further_is_not_waited_for_forever() {
    let mut climb = Climb::new(
        GET,
        &[LINK],
        LinkView::Sought {
            since: None,
            alive_at: Some(Time::from_origin(Duration::from_secs(3))),
            is_exhausted: false,
            denied: None,
        },
    );
    assert_eq!(climb.wait(), Some(13_000));
    assert_eq!(climb.asks(), ["NotExecuted"]);
}

#[test]
fn what_was_not_sent_or_not_executed_goes_on_at_once_whatever_its_method() {
    for end in [TryEnd::NotSent, TryEnd::NotExecuted] {
        let mut climb = Climb::new(POST, &[NAME, NAME], LinkView::None);
        while climb.budget.pay() {}
        assert_eq!(climb.asks(), ["1+name"]);
        assert_eq!(climb.end(1, end).asks(), ["2+name"], "{end:?}");
        assert_eq!(climb.end(2, end).asks(), ["NotExecuted"], "{end:?}");
    }
}

#[test]
fn what_may_have_run_goes_on_only_if_it_may_run_twice_and_is_paid_for() {
    let mut post = Climb::new(POST, &[NAME, NAME], LinkView::None);
    post.asks();
    assert_eq!(post.end(1, TryEnd::MayHaveRun).asks(), ["OutcomeUnknown"]);
    let mut get = Climb::new(GET, &[NAME, NAME, NAME], LinkView::None);
    get.asks();
    assert_eq!(get.end(1, TryEnd::MayHaveRun).asks(), ["2+name"]);
    while get.budget.pay() {}
    assert_eq!(get.end(2, TryEnd::MayHaveRun).asks(), ["OutcomeUnknown"]);
}

#[test]
fn an_answer_too_large_for_one_way_that_holds_it_is_not_asked_for_by_another() {
    let [pipe, plain] = [Way::Pipe, Way::Plain].map(|way| Rung { way, ..NAME });
    let mut get = Climb::new(GET, &[pipe, pipe, plain, NAME], LinkView::None);
    assert_eq!(get.asks(), ["1+pipe"]);
    assert_eq!(get.end(1, TryEnd::TooLarge).asks(), ["2+name"]);
    get.ladder.replace(GET, [pipe, plain, NAME, NAME], &mut get.budget, get.now);
    assert_eq!(get.end(2, TryEnd::NotSent).asks(), ["3+name"], "nor when more ways become known");
    let mut alone = Climb::new(GET, &[pipe, pipe, plain], LinkView::None);
    alone.asks();
    assert_eq!(alone.end(1, TryEnd::TooLarge).asks(), ["OutcomeUnknown"]);
    let mut post = Climb::new(POST, &[pipe, NAME], LinkView::None);
    post.asks();
    assert_eq!(post.end(1, TryEnd::TooLarge).asks(), ["OutcomeUnknown"], "it has run");
}

#[test]
fn what_may_have_run_by_one_way_is_not_said_not_to_have_run_because_of_the_last() {
    for last in [TryEnd::NotSent, TryEnd::NotExecuted] {
        let mut climb = Climb::new(GET, &[NAME, NAME], LinkView::None);
        climb.asks();
        assert_eq!(climb.end(1, TryEnd::MayHaveRun).asks(), ["2+name"]);
        assert_eq!(climb.end(2, last).asks(), ["OutcomeUnknown"], "{last:?}");
    }
}

#[test]
fn a_way_that_takes_its_time_is_joined_by_the_next_and_may_still_answer() {
    let mut climb = Climb::new(GET, &[LINK, NAME], open(7));
    assert_eq!(climb.asks(), ["1+link 7"]);
    assert_eq!(climb.wait(), Some(2_000));
    assert_eq!(climb.asks(), ["late 7", "2+name"]);
    assert_eq!((climb.wait(), climb.wait()), (Some(3_000), Some(5_000)));
    assert!(climb.asks().is_empty(), "nothing is left");
    assert_eq!(climb.wait(), None);
    assert!(climb.end(2, TryEnd::MayHaveRun).asks().is_empty(), "the first is still under way");
    assert_eq!(climb.end(1, TryEnd::MayHaveRun).asks(), ["OutcomeUnknown"]);
}

#[test]
fn an_answer_that_the_service_cannot_be_had_is_followed_by_the_next_way_if_it_may_run_twice_and_is_paid_for() {
    let mut get = Climb::new(GET, &[LINK, NAME, NAME], open(7));
    assert_eq!(get.asks(), ["1+link 7"]);
    assert!(get.ladder.may_climb(TryId(1), TryEnd::Unavailable));
    assert_eq!(get.end(1, TryEnd::Unavailable).asks(), ["2+name"], "not the same link again");
    assert_eq!(get.end(2, TryEnd::Unavailable).asks(), ["3+name"]);
    assert!(!get.ladder.may_climb(TryId(3), TryEnd::Unavailable), "the answer is the app's");
    assert_eq!(get.end(3, TryEnd::Unavailable).asks(), ["OutcomeUnknown"]);
    for (facts, has_budget) in [(POST, true), (RequestFacts { replayable: false, ..GET }, true), (GET, false)] {
        let mut once = Climb::new(facts, &[LINK, NAME], open(7));
        assert_eq!(once.asks(), ["1+link 7"]);
        while !has_budget && once.budget.pay() {}
        assert_eq!(once.ladder.may_climb(TryId(1), TryEnd::Unavailable), !has_budget, "{facts:?}");
        assert_eq!(once.end(1, TryEnd::Unavailable).asks(), ["OutcomeUnknown"], "{facts:?}");
    }
}

#[test]
fn an_answer_that_the_service_cannot_be_had_neither_moves_the_link_nor_waits_for_one() {
    for link in [LinkView::Open { session: 7, is_sure: true, can_move: true }, SOUGHT] {
        let mut climb = Climb::new(GET, &[LINK, NAME], open(7));
        climb.asks();
        climb.link(link).asks();
        assert_eq!(climb.end(1, TryEnd::Unavailable).asks(), ["2+name"], "{link:?}");
        assert!(!climb.ladder.waits_for_link(), "{link:?}");
    }
}

#[test]
fn an_answer_that_the_service_cannot_be_had_is_the_apps_in_time_though_another_way_is_silent() {
    let config = LadderConfig::timed(Duration::from_secs(32), None, Time::ZERO);
    let mut budget = Budget::new();
    let mut ladder = Ladder::new(config, GET, [NAME, NAME], LinkView::None, &mut budget, Time::ZERO);
    ladder.handle_ended(TryId(1), TryEnd::Unavailable, &mut budget, at(1));
    while let Some(at) = ladder.poll_timeout().filter(|due| *due < at(31)) {
        ladder.handle_timeout(&mut budget, at);
    }
    assert_eq!(ladder.poll_timeout(), Some(at(31)), "a 32nd is left");
    ladder.handle_timeout(&mut budget, at(31));
    let outputs: Vec<LadderOutput> = std::iter::from_fn(|| ladder.poll_output()).collect();
    assert_eq!(outputs.last(), Some(&LadderOutput::Fail(Failure::OutcomeUnknown)), "{outputs:?}");
    assert_eq!(ladder.poll_timeout(), None);
}

#[test]
fn beside_a_late_try_each_further_one_is_paid_for() {
    for end in [TryEnd::MayHaveRun, TryEnd::Unavailable] {
        let mut climb = Climb::new(GET, &[NAME, NAME, NAME, NAME], LinkView::None);
        climb.asks();
        climb.wait();
        climb.wait();
        assert_eq!(climb.asks(), ["recall 1", "2+name"], "{end:?}");
        while climb.budget.pay() {}
        assert!(climb.end(2, end).asks().is_empty(), "{end:?}: the late one may still answer");
        assert_eq!(climb.end(1, TryEnd::NotSent).asks(), ["3+name"], "{end:?}");
    }
}

#[test]
fn what_was_late_on_a_link_and_never_sent_waits_for_another_where_no_way_is_left() {
    for request in [GET, POST] {
        let mut climb = Climb::new(request, &[LINK], open(7));
        assert_eq!(climb.asks(), ["1+link 7"]);
        climb.wait();
        climb.asks();
        climb.link(SOUGHT).asks();
        assert_eq!(climb.end(1, TryEnd::NotSent).asks(), [""; 0], "it waits");
        assert_eq!(climb.link(open(8)).asks(), ["2+link 8"]);
    }
}

#[test]
fn what_may_not_run_twice_is_taken_back_where_it_can_be_and_left_where_not() {
    let mut climb = Climb::new(POST, &[LINK, NAME], open(7));
    climb.asks();
    climb.wait();
    assert_eq!(climb.asks(), ["late 7", "recall 1"]);
    assert_eq!(climb.wait(), None, "it was handed over: its outcome is awaited");
    assert_eq!(climb.end(1, TryEnd::NotSent).asks(), ["2+name"]);
}

#[test]
fn another_link_is_used_beside_the_old_one_by_what_may_run_twice() {
    let mut climb = Climb::new(GET, &[LINK], open(7));
    climb.asks();
    assert!(climb.link(unsure(7)).asks().is_empty());
    assert_eq!(climb.link(open(8)).asks(), ["2+link 8"]);
    assert!(climb.link(open(8)).asks().is_empty(), "it is there already");
    assert!(climb.end(2, TryEnd::MayHaveRun).asks().is_empty(), "the old link may still answer");
    let mut post = Climb::new(POST, &[LINK], open(7));
    post.asks();
    assert_eq!(post.link(open(8)).asks(), ["recall 1"]);
    assert_eq!(post.end(1, TryEnd::NotSent).asks(), ["2+link 8"]);
}

#[test]
fn what_may_not_run_twice_is_not_handed_to_a_doubted_link() {
    let mut climb = Climb::new(POST, &[LINK], unsure(7));
    assert!(climb.asks().is_empty());
    assert_eq!(climb.link(open(7)).asks(), ["1+link 7"]);
    assert_eq!(Climb::new(GET, &[LINK], unsure(7)).asks(), ["1+link 7"]);
    let mut patient = Climb::new(POST, &[LINK], unsure(7));
    assert_eq!(patient.wait(), Some(4_000));
    assert_eq!(patient.asks(), ["1+link 7"], "nothing better came");
}

#[test]
fn a_gateway_that_executes_nothing_is_left_for_another_unit_if_there_is_one() {
    let mut alone = Climb::new(POST, &[LINK], open(7));
    alone.asks();
    assert!(!alone.ladder.may_climb(TryId(1), TryEnd::NotExecuted), "the answer is the app's");
    let elsewhere = LinkView::Open { session: 7, is_sure: true, can_move: true };
    let mut climb = Climb::new(POST, &[LINK], elsewhere);
    climb.asks();
    assert!(climb.ladder.may_climb(TryId(1), TryEnd::NotExecuted));
    assert!(climb.end(1, TryEnd::NotExecuted).asks().is_empty());
    climb.link(SOUGHT);
    assert_eq!(climb.link(open(8)).asks(), ["2+link 8"]);
}

#[test]
fn a_session_that_is_over_sends_its_requests_to_the_next_a_few_times() {
    let mut climb = Climb::new(POST, &[LINK], open(1));
    for session in 1..3 {
        assert_eq!(climb.asks(), [format!("{session}+link {session}")]);
        assert_eq!(climb.link(SOUGHT).asks(), [format!("recall {session}")]);
        climb.end(u32::try_from(session).unwrap(), TryEnd::NotSent).link(open(session + 1));
    }
    assert_eq!(climb.asks(), ["3+link 3"]);
    assert_eq!(climb.end(3, TryEnd::NotSent).asks(), ["NotExecuted"]);
}

#[test]
fn what_a_link_did_not_take_is_offered_to_it_again_a_few_times() {
    let mut climb = Climb::new(POST, &[LINK], open(1));
    for number in 1..3 {
        assert_eq!(climb.asks(), [format!("{number}+link 1")]);
        climb.end(number, TryEnd::NotSent);
    }
    assert_eq!(climb.asks(), ["3+link 1"]);
    assert_eq!(climb.end(3, TryEnd::NotSent).asks(), ["NotExecuted"]);
}

#[test]
fn a_reset_is_final_unless_another_try_is_under_way() {
    let mut climb = Climb::new(GET, &[LINK, NAME], open(7));
    climb.asks();
    assert_eq!(climb.end(1, TryEnd::Reset).asks(), ["Reset"]);
    let mut climb = Climb::new(GET, &[LINK, NAME], open(7));
    climb.wait();
    climb.asks();
    assert!(climb.end(1, TryEnd::Reset).asks().is_empty());
}

#[test]
fn a_body_that_is_used_up_is_sent_once() {
    let mut climb = Climb::new(RequestFacts { replayable: false, ..GET }, &[LINK, NAME], open(7));
    climb.asks();
    assert!(!climb.ladder.may_climb(TryId(1), TryEnd::NotExecuted));
    assert_eq!(climb.end(1, TryEnd::MayHaveRun).asks(), ["OutcomeUnknown"]);
}

#[test]
fn what_must_not_run_twice_goes_to_a_link_that_comes_once_it_was_taken_back_elsewhere() {
    let beside = |climb: &mut Climb| {
        climb.wait();
        assert_eq!(climb.asks(), ["2+name"]);
        assert_eq!(climb.link(open(7)).asks(), ["recall 2"]);
    };
    let mut free = Climb::new(POST, &[LINK, NAME], SOUGHT);
    beside(&mut free);
    assert_eq!(free.end(2, TryEnd::NotSent).asks(), ["1+link 7"]);
    let mut handed_over = Climb::new(POST, &[LINK, NAME], SOUGHT);
    beside(&mut handed_over);
    while handed_over.wait().is_some() {}
    assert!(handed_over.asks().is_empty(), "its outcome is awaited");
    assert_eq!(handed_over.end(2, TryEnd::MayHaveRun).asks(), ["OutcomeUnknown"]);
    let mut get = Climb::new(GET, &[LINK, NAME], SOUGHT);
    get.wait();
    assert_eq!(get.asks(), ["2+name"]);
    assert_eq!(get.link(open(7)).asks(), ["1+link 7"], "whichever is first counts");
}

#[test]
fn a_way_that_does_not_get_the_request_handed_over_is_left_for_the_next_if_there_is_one() {
    for facts in [GET, POST] {
        let mut climb = Climb::new(facts, &[NAME, NAME], LinkView::None);
        while climb.budget.pay() {}
        climb.asks();
        assert_eq!(climb.wait(), Some(1_000));
        assert_eq!(climb.asks(), ["recall 1"]);
        assert_eq!(climb.end(1, TryEnd::NotSent).asks(), ["2+name"]);
        assert_eq!(climb.wait(), Some(2_000));
        assert!(climb.asks().is_empty(), "it is the last");
    }
}

#[test]
fn answers_that_say_that_nothing_ran_are_paid_for_from_the_second_on() {
    let mut climb = Climb::new(POST, &[NAME, NAME, NAME], LinkView::None);
    while climb.budget.pay() {}
    climb.asks();
    assert_eq!(climb.end(1, TryEnd::NotExecuted).asks(), ["2+name"]);
    assert_eq!(climb.end(2, TryEnd::NotExecuted).asks(), ["NotExecuted"]);
}

#[test]
fn tries_that_have_begun_do_not_begin_again_when_others_take_their_place() {
    let mut climb = Climb::new(GET, &[LINK, NAME], SOUGHT);
    climb.wait();
    assert_eq!(climb.asks(), ["2+name"]);
    let (facts, now) = (GET, climb.now);
    climb.ladder.replace(facts, [NAME, NAME, Rung { way: Way::Original, ..NAME }], &mut climb.budget, now);
    assert!(climb.asks().is_empty() && !climb.ladder.waits_for_link(), "the gateways do not serve the host");
    assert_eq!(climb.end(2, TryEnd::NotSent).asks(), ["3+name"]);
    assert_eq!(climb.end(3, TryEnd::NotSent).asks(), ["4+original"]);
}

#[test]
fn a_request_that_was_not_sent_waits_for_ways_that_may_become_known() {
    let config = LadderConfig { ways_until: Some(at(3)), ..LadderConfig::default() };
    let begin = |facts| {
        let mut climb = Climb::new(facts, &[NAME], LinkView::None);
        climb.ladder = Ladder::new(config.clone(), facts, [NAME], LinkView::None, &mut climb.budget, Time::ZERO);
        assert_eq!(climb.asks(), ["1+name"]);
        climb
    };
    let mut climb = begin(POST);
    assert!(climb.end(1, TryEnd::NotSent).asks().is_empty());
    let address = Rung { way: Way::Address, ..NAME };
    climb.ladder.replace(POST, [NAME, address], &mut climb.budget, at(1));
    climb.ladder.handle_ways_until(None, &mut climb.budget, at(1));
    assert_eq!(climb.asks(), ["2+address"]);
    assert_eq!(climb.end(2, TryEnd::NotSent).asks(), ["NotExecuted"]);

    let mut climb = begin(POST);
    climb.end(1, TryEnd::NotSent);
    assert_eq!(climb.wait(), Some(3_000));
    assert_eq!(climb.asks(), ["NotExecuted"]);

    let mut climb = begin(POST);
    climb.end(1, TryEnd::NotSent);
    climb.ladder.handle_ways_until(None, &mut climb.budget, at(1));
    assert_eq!(climb.asks(), ["NotExecuted"], "none become known");

    assert_eq!(begin(POST).end(1, TryEnd::MayHaveRun).asks(), ["OutcomeUnknown"]);
    assert_eq!(begin(GET).end(1, TryEnd::Unavailable).asks(), ["OutcomeUnknown"], "the answer there is need not wait");
}

#[test]
fn a_link_that_others_have_sought_for_long_is_given_little_more_time() {
    for (since, is_exhausted, late_at_ms) in
        [(0, false, 10_500), (8, false, 12_000), (10, false, 14_000), (10, true, 10_500), (2, true, 10_500)]
    {
        let link = LinkView::Sought { since: Some(at(since)), alive_at: None, is_exhausted, denied: None };
        let mut budget = Budget::new();
        let ladder = Ladder::new(LadderConfig::default(), POST, [LINK, NAME], link, &mut budget, at(10));
        assert_eq!(ladder.poll_timeout(), Some(Time::from_origin(Duration::from_millis(late_at_ms))));
    }
}

#[test]
fn an_attempt_that_comes_further_is_not_joined_by_other_handshakes() {
    let link = |alive_at| LinkView::Sought {
        since: Some(at(0)),
        alive_at: Some(at(alive_at)),
        is_exhausted: false,
        denied: None,
    };
    let mut climb = Climb::new(POST, &[LINK, NAME], link(1));
    assert_eq!(climb.ladder.poll_timeout(), Some(at(9)));
    climb.link(link(7));
    assert_eq!(climb.ladder.poll_timeout(), Some(at(15)));
    climb.ladder.set_first_byte(TryId(1), Duration::from_secs(20));
    assert_eq!(climb.link(open(7)).asks(), ["1+link 7"]);
    assert_eq!(climb.ladder.poll_timeout(), Some(at(20)));
}

#[test]
fn a_request_without_another_way_waits_less_where_every_place_refuses_since_it_began() {
    let denied = |alive_at: Option<u64>, refused_at: u64, why: Denial| LinkView::Sought {
        since: Some(Time::ZERO),
        alive_at: alive_at.map(at),
        is_exhausted: true,
        denied: Some(Denied { at: at(refused_at), why }),
    };
    let refused = |alive_at: Option<u64>, refused_at: u64| denied(alive_at, refused_at, Denial::Refused);
    let mut climb = Climb::new(POST, &[LINK], SOUGHT);
    assert_eq!(climb.ladder.poll_timeout(), Some(at(10)));
    assert_eq!(climb.link(refused(None, 1)).ladder.poll_timeout(), Some(at(3)));
    assert_eq!(climb.link(SOUGHT).ladder.poll_timeout(), Some(at(10)), "another attempt begins");
    assert_eq!(climb.link(refused(Some(2), 2)).ladder.poll_timeout(), Some(at(5)), "something had come back");
    assert_eq!(climb.link(refused(Some(2), 1)).ladder.poll_timeout(), Some(at(12)), "it came back since");
    climb.link(refused(None, 2)).wait();
    assert_eq!(climb.asks(), ["NotExecuted"]);
    // Who has time waits as long as places are silent, and not as long where there is no route to them.
    let config = LadderConfig { link_wait: Duration::from_secs(30), ..LadderConfig::default() };
    let mut patient = Ladder::new(config, POST, [LINK], SOUGHT, &mut Budget::new(), Time::ZERO);
    assert_eq!(patient.poll_timeout(), Some(at(30)));
    patient.handle_link(denied(None, 1, Denial::Unreachable), &mut Budget::new(), at(1));
    assert_eq!(patient.poll_timeout(), Some(at(10)));
    patient.handle_link(refused(None, 1), &mut Budget::new(), at(1));
    assert_eq!(patient.poll_timeout(), Some(at(3)));
    // What is known from before says nothing of now, and another way has time beside the link.
    let mut budget = Budget::new();
    let begun = |rungs: &[Rung], budget: &mut Budget| {
        Ladder::new(LadderConfig::default(), POST, rungs.to_vec(), refused(None, 19), budget, at(20))
    };
    assert_eq!(begun(&[LINK], &mut budget).poll_timeout(), Some(at(30)));
    let mut climb = Climb::new(POST, &[LINK, NAME], refused(None, 1));
    assert_eq!(climb.wait(), Some(500));
    assert_eq!(climb.asks(), ["2+name"]);
    climb.wait();
    assert!(climb.ladder.waits_for_link());
    assert_eq!(climb.end(2, TryEnd::NotSent).ladder.poll_timeout(), Some(at(3)), "nothing else is left");
}

const fn at(seconds: u64) -> Time {
    Time::from_origin(Duration::from_secs(seconds))
}

#[test]
fn a_service_that_breaks_off_behind_a_gateway_gets_one_more_try_whatever_the_ways() {
    for may_have_run in [true, false] {
        let end = TryEnd::BrokenOff { may_have_run };
        let [address, pipe] = [Way::Address, Way::Pipe].map(|way| Rung { way, ..NAME });
        let mut get = Climb::new(GET, &[LINK, address, address, pipe, pipe, NAME], open(7));
        assert_eq!(get.asks(), ["1+link 7"]);
        assert!(get.ladder.may_climb(TryId(1), end));
        assert_eq!(get.end(1, end).asks(), ["2+address"]);
        assert!(!get.ladder.may_climb(TryId(2), end), "the answer is the app's");
        assert_eq!(get.end(2, end).asks(), [if may_have_run { "OutcomeUnknown" } else { "NotExecuted" }]);
        assert_eq!(get.wait(), None);
    }
}

#[test]
fn a_service_that_broke_off_and_was_not_reached_by_the_next_way_is_asked_by_the_one_after() {
    let end = TryEnd::BrokenOff { may_have_run: true };
    let mut get = Climb::new(GET, &[NAME, NAME, NAME, NAME], LinkView::None);
    assert_eq!(get.asks(), ["1+name"]);
    assert_eq!(get.end(1, end).asks(), ["2+name"]);
    assert_eq!(get.end(2, TryEnd::NotSent).asks(), ["3+name"], "this one the service has not seen");
    assert_eq!(get.end(3, end).asks(), ["OutcomeUnknown"]);
}

#[test]
fn what_must_not_run_twice_goes_on_after_a_service_that_broke_off_only_if_it_did_not_run() {
    for (may_have_run, next) in [(true, "OutcomeUnknown"), (false, "2+name")] {
        let mut post = Climb::new(POST, &[NAME, NAME, NAME], LinkView::None);
        post.asks();
        assert_eq!(post.end(1, TryEnd::BrokenOff { may_have_run }).asks(), [next]);
    }
}

#[test]
fn a_late_try_beside_one_whose_service_broke_off_is_waited_for_and_none_follows() {
    let end = TryEnd::BrokenOff { may_have_run: true };
    let mut get = Climb::new(GET, &[NAME, NAME, NAME, NAME, NAME], LinkView::None);
    assert_eq!(get.asks(), ["1+name"]);
    while get.asks() != ["2+name"] {
        assert!(get.wait().is_some());
    }
    assert_eq!(get.end(2, end).asks(), ["3+name"]);
    assert!(get.ladder.may_climb(TryId(3), end), "the late one may still answer");
    assert!(get.end(3, end).asks().is_empty());
    assert_eq!(get.link(open(7)).asks(), [""; 0]);
    assert_eq!(get.end(1, TryEnd::MayHaveRun).asks(), ["OutcomeUnknown"]);
}
