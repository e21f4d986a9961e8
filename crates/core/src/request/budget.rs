//! The budget of resends: a share of the recent requests, so that a failing service is not buried under repeats.

use crate::policy::Policy;

/// Pays for the resends of requests that may have run. What never left the client, or was never executed, is free.
#[derive(Clone, Debug)]
pub struct Budget {
    /// In thousandths of a resend.
    millis: u32,
    /// What one request earns, in thousandths of a resend.
    share_permille: u32,
    is_begun: bool,
}

impl Budget {
    /// Makes the budget of a client that has sent nothing yet: 10 resends.
    #[must_use]
    pub const fn new() -> Self {
        Self { millis: RESENDS_AT_START * RESEND, share_permille: SHARE_PERMILLE, is_begun: false }
    }

    /// Takes in what the gateways ask for. What they leave out has its default; the resends at the start count until the first request.
    pub fn handle_policy(&mut self, policy: &Policy) {
        self.share_permille = policy.retry_budget_permille.unwrap_or(SHARE_PERMILLE);
        if !self.is_begun {
            self.millis = policy.retry_budget_start.unwrap_or(RESENDS_AT_START).min(RESENDS_MAX) * RESEND;
        }
    }

    /// Takes in that a request was sent for the first time.
    pub fn handle_request(&mut self) {
        self.is_begun = true;
        self.millis = self.millis.saturating_add(self.share_permille).min(RESENDS_MAX * RESEND);
    }

    /// Pays for one resend; `false` if there is nothing left.
    pub const fn pay(&mut self) -> bool {
        let pays = self.millis >= RESEND;
        if pays {
            self.millis -= RESEND;
        }
        pays
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

/// Resends a client may make before it has sent anything; DESIGN section 5.
const RESENDS_AT_START: u32 = 10;

/// Resends that can be saved up: the 20 % of 500 requests. Our choice; a client that ran well all day must not repeat a day's
/// share within a minute.
const RESENDS_MAX: u32 = 100;

/// What one request earns: 20 % of a resend; DESIGN section 5, after linkerd's retry budgets.
const SHARE_PERMILLE: u32 = 200;

/// One resend, in the unit of the budget.
const RESEND: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_requests_may_be_sent_again_after_the_first_ten() {
        let mut budget = Budget::new();
        assert_eq!((0..20).filter(|_| budget.pay()).count(), 10);
        for _ in 0..100 {
            budget.handle_request();
        }
        assert_eq!((0..100).filter(|_| budget.pay()).count(), 20);
    }

    #[test]
    fn a_policy_sets_the_share_and_until_the_first_request_the_start() {
        let mut budget = Budget::new();
        let policy = |share, start| Policy {
            retry_budget_permille: Some(share),
            retry_budget_start: Some(start),
            ..Policy::default()
        };
        budget.handle_policy(&policy(500, 3));
        budget.handle_request();
        budget.handle_policy(&policy(500, 90));
        budget.handle_request();
        assert_eq!((0..20).filter(|_| budget.pay()).count(), 4);
        budget.handle_policy(&policy(0, 0));
        (0..100).for_each(|_| budget.handle_request());
        assert!(!budget.pay());
        budget.handle_policy(&Policy::default());
        (0..5).for_each(|_| budget.handle_request());
        assert!(budget.pay() && !budget.pay());
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let mut budget = Budget::new();
        for _ in 0..100_000 {
            budget.handle_request();
        }
        assert_eq!((0..1_000).filter(|_| budget.pay()).count(), 100);
    }
}
