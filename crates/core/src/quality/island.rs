//! A gateway that can be reached while what is behind it cannot.

/// Notices that the requests on a link are not answered although the link itself is alive: its gateway is an island.
///
/// One slow service makes some requests late among others that are answered; on an island all of them are. So it takes [`LATE_MAX`]
/// different requests in a row, without one answer between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Island {
    late: u32,
}

impl Island {
    /// Makes one for a link that was just opened.
    #[must_use]
    pub const fn new() -> Self {
        Self { late: 0 }
    }

    /// Takes in that a request had no answer in its time. Says whether the gateway is to be left.
    pub const fn handle_late(&mut self) -> bool {
        self.late += 1;
        let is_island = self.late >= LATE_MAX;
        if is_island {
            self.late = 0;
        }
        is_island
    }

    /// Takes in an answer.
    pub const fn handle_answered(&mut self) {
        self.late = 0;
    }
}

/// Requests in a row without an answer in their time that make an island. 3; our choice, as many as failures make a ban.
pub const LATE_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_late_requests_in_a_row_make_an_island_and_one_answer_between_them_does_not() {
        let mut island = Island::new();
        assert!(!island.handle_late() && !island.handle_late());
        island.handle_answered();
        assert!(!island.handle_late() && !island.handle_late());
        assert!(island.handle_late());
        assert!(!island.handle_late(), "it begins anew");
    }
}
