//! What holds for every ladder, whatever happens to its ways.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Something that happens to a ladder.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// One of the tries under way ends.
    Ends(usize, TryEnd),
    Link(LinkView),
    /// One of the tries under way is handed to its carrier, after which it cannot be taken back.
    HandedOver(usize),
    /// The next deadline comes.
    Waits,
}

fn happening() -> impl Strategy<Value = Happening> {
    let end = prop::sample::select(vec![
        TryEnd::BrokenOff { may_have_run: true },
        TryEnd::BrokenOff { may_have_run: false },
        TryEnd::MayHaveRun,
        TryEnd::NotExecuted,
        TryEnd::NotSent,
        TryEnd::Reset,
        TryEnd::TooLarge,
        TryEnd::Unavailable,
    ]);
    let link = prop_oneof![
        Just(LinkView::None),
        Just(LinkView::Sought { since: None, alive_at: None, is_exhausted: false, denied: None }),
        (1_u64..4, any::<bool>(), any::<bool>()).prop_map(|(session, is_sure, can_move)| LinkView::Open {
            session,
            is_sure,
            can_move
        }),
    ];
    prop_oneof![
        2 => (0_usize..4, end).prop_map(|(which, end)| Happening::Ends(which, end)),
        3 => link.prop_map(Happening::Link),
        3 => (0_usize..4).prop_map(Happening::HandedOver),
        3 => Just(Happening::Waits),
    ]
}

/// A ladder and its owner, who keeps the promises that a real one keeps.
struct Owner {
    ladder: Ladder,
    budget: Budget,
    now: Time,
    /// The tries under way, and whether each was handed over.
    tries: BTreeMap<TryId, bool>,
    started: usize,
    /// Handed over tries of which nobody can say that they did not run.
    ran: usize,
    failures: usize,
    is_idempotent: bool,
}

impl Owner {
    fn follow(&mut self) {
        while let Some(output) = self.ladder.poll_output() {
            match output {
                LadderOutput::Fail(_) => {
                    assert!(self.tries.is_empty(), "it fails while a try is under way");
                    self.failures += 1;
                }
                LadderOutput::Late { .. } => {}
                LadderOutput::Recall(number) => {
                    if self.tries.get(&number) == Some(&false) {
                        self.tries.remove(&number);
                        self.ladder.handle_ended(number, TryEnd::NotSent, &mut self.budget, self.now);
                    }
                }
                LadderOutput::Start { number, .. } => {
                    assert_eq!(self.failures, 0, "it goes on after it failed");
                    assert!(self.tries.insert(number, false).is_none(), "a number is used twice");
                    self.started += 1;
                    let under_way = self.tries.len();
                    assert!(under_way <= BESIDE_MAX + 1, "{under_way} tries at once");
                    assert!(self.is_idempotent || under_way == 1, "a second try of what must not run twice");
                }
            }
        }
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::Ends(which, end) => {
                let Some((number, was_handed_over)) = self.nth(which) else { return };
                // What was not handed over cannot have run.
                let end = if was_handed_over { end } else { TryEnd::NotSent };
                self.tries.remove(&number);
                self.ran += usize::from(!matches!(
                    end,
                    TryEnd::BrokenOff { may_have_run: false } | TryEnd::NotExecuted | TryEnd::NotSent
                ));
                self.ladder.handle_ended(number, end, &mut self.budget, self.now);
            }
            Happening::HandedOver(which) => {
                if let Some((number, _)) = self.nth(which) {
                    self.tries.insert(number, true);
                }
            }
            Happening::Link(link) => self.ladder.handle_link(link, &mut self.budget, self.now),
            Happening::Waits => {
                if let Some(at) = self.ladder.poll_timeout() {
                    self.now = self.now.max(at);
                    self.ladder.handle_timeout(&mut self.budget, self.now);
                }
            }
        }
        self.follow();
    }

    fn nth(&self, which: usize) -> Option<(TryId, bool)> {
        self.tries.iter().nth(which).map(|(number, handed_over)| (*number, *handed_over))
    }
}

proptest! {
    #[test]
    fn a_ladder_ends_and_hands_over_once_what_must_not_run_twice(
        is_idempotent: bool,
        replayable: bool,
        ways in prop::collection::vec(prop::sample::select(Way::ALL.to_vec()), 1..8),
        happenings in prop::collection::vec(happening(), 0..60),
    ) {
        let facts = RequestFacts { idempotent: is_idempotent, replayable };
        let seconds = Duration::from_secs;
        let rungs = ways.iter().map(|way| Rung { way: *way, connect: seconds(2), first_byte: seconds(9), is_last: false });
        let mut budget = Budget::new();
        let link = LinkView::Sought { since: None, alive_at: None, is_exhausted: false, denied: None };
        let ladder = Ladder::new(LadderConfig::default(), facts, rungs, link, &mut budget, Time::ZERO);
        let mut owner = Owner {
            ladder, budget, now: Time::ZERO, tries: BTreeMap::new(), started: 0, ran: 0, failures: 0,
            is_idempotent: is_idempotent && replayable,
        };
        owner.follow();
        for happening in happenings {
            owner.happens(happening);
        }
        prop_assert!(owner.is_idempotent || owner.ran <= 1, "it may have run {} times", owner.ran);
        // Then nothing else happens, and what is under way is given up.
        for _ in 0..1_000 {
            if owner.failures > 0 || (owner.tries.is_empty() && owner.ladder.poll_timeout().is_none()) {
                break;
            }
            owner.happens(Happening::Waits);
            if owner.ladder.poll_timeout().is_none() {
                owner.happens(Happening::Ends(0, TryEnd::NotSent));
            }
        }
        prop_assert!(owner.failures == 1, "it fails {} times", owner.failures);
        prop_assert!(owner.started <= RUNGS_MAX + LINKS_BOUND, "{} tries", owner.started);
    }
}

/// Tries over links at most: those of the configuration, and one that was passed over.
const LINKS_BOUND: usize = 5;
