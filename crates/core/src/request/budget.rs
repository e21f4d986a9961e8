//! The budget of resends: a share of the recent requests, so that a failing service is not buried under repeats.

/// Pays for the resends of requests that may have run. What never left the client, or was never executed, is free.
#[derive(Clone, Debug)]
pub struct Budget {
    /// In fifths of a token, so that 20 % is a whole number.
    fifths: u32,
}

impl Budget {
    /// Makes the budget of a client that has sent nothing yet: 10 resends.
    #[must_use]
    pub const fn new() -> Self {
        Self { fifths: TOKENS_AT_START * FIFTHS }
    }

    /// Takes in that a request was sent for the first time.
    pub fn handle_request(&mut self) {
        self.fifths = (self.fifths + 1).min(TOKENS_MAX * FIFTHS);
    }

    /// Pays for one resend; `false` if there is nothing left.
    pub const fn pay(&mut self) -> bool {
        let pays = self.fifths >= FIFTHS;
        if pays {
            self.fifths -= FIFTHS;
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
const TOKENS_AT_START: u32 = 10;

/// Resends that can be saved up: the 20 % of 500 requests. Our choice; a client that ran well all day must not repeat a day's
/// share within a minute.
const TOKENS_MAX: u32 = 100;

/// Requests that earn one resend: 20 %; DESIGN section 5, after linkerd's retry budgets.
const FIFTHS: u32 = 5;

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
    fn what_is_saved_up_is_bounded() {
        let mut budget = Budget::new();
        for _ in 0..100_000 {
            budget.handle_request();
        }
        assert_eq!((0..1_000).filter(|_| budget.pay()).count(), 100);
    }
}
