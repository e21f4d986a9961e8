//! What to do when a gateway refuses the link.

use crate::wire::message::RefuseCode;

/// What a client can do about a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Another access point may take the link; where none does, whoever waits for it is told if `is_told`.
    Elsewhere {
        /// It is something that the client or its list has wrong.
        is_told: bool,
    },
    /// Nothing here helps; whoever waits for the link is told.
    Fail {
        /// Time may help: it is worth asking again now and then. Otherwise only a new ticket or a new configuration is.
        heals: bool,
    },
    /// A new HELLO may be taken.
    Restart {
        /// The session is to be forgotten first.
        fresh_session: bool,
        /// A new ticket is to be fetched first.
        fresh_ticket: bool,
    },
}

/// What the client has to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// New tickets can be had.
    pub ticket_source: bool,
    /// How often this attempt to get a link began anew.
    pub restarts: u32,
}

/// Returns what to do about a refusal.
#[must_use]
pub const fn remedy(code: RefuseCode, means: Means) -> Remedy {
    let may_restart = means.restarts < RESTARTS_MAX;
    match code {
        RefuseCode::Draining | RefuseCode::HelloTimeout | RefuseCode::Internal | RefuseCode::Overloaded => {
            Remedy::Elsewhere { is_told: false }
        }
        // The list may have the name of one gateway wrong, and the others right.
        RefuseCode::WrongGateway => Remedy::Elsewhere { is_told: true },
        RefuseCode::Replayed if may_restart => Remedy::Restart { fresh_session: false, fresh_ticket: false },
        RefuseCode::ResumeRefused if may_restart => Remedy::Restart { fresh_session: true, fresh_ticket: false },
        RefuseCode::TicketExpired if may_restart && means.ticket_source => {
            Remedy::Restart { fresh_session: false, fresh_ticket: true }
        }
        // The clock may be set, the gateway be updated or its configuration corrected.
        RefuseCode::ClockSkew | RefuseCode::Protocol | RefuseCode::Replayed | RefuseCode::ResumeRefused => {
            Remedy::Fail { heals: true }
        }
        RefuseCode::TicketExpired => Remedy::Fail { heals: means.ticket_source },
        RefuseCode::BadSignature
        | RefuseCode::TicketForeignApp
        | RefuseCode::TicketInvalid
        | RefuseCode::TicketUnbound => Remedy::Fail { heals: false },
    }
}

/// How often one attempt to get a link may begin anew: once for the session and once for the ticket, and one to spare.
pub const RESTARTS_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const MEANS: Means = Means { ticket_source: true, restarts: 0 };

    #[test]
    fn a_refusal_that_new_credentials_cure_is_cured_a_few_times_and_then_told() {
        let expired = RefuseCode::TicketExpired;
        assert_eq!(remedy(expired, MEANS), Remedy::Restart { fresh_session: false, fresh_ticket: true });
        assert_eq!(remedy(expired, Means { restarts: RESTARTS_MAX, ..MEANS }), Remedy::Fail { heals: true });
        assert_eq!(remedy(expired, Means { ticket_source: false, ..MEANS }), Remedy::Fail { heals: false });
        let resume = remedy(RefuseCode::ResumeRefused, MEANS);
        assert_eq!(resume, Remedy::Restart { fresh_session: true, fresh_ticket: false });
    }

    #[test]
    fn a_gateway_that_closes_or_is_overloaded_sends_the_client_elsewhere() {
        for code in [RefuseCode::Draining, RefuseCode::Overloaded, RefuseCode::Internal, RefuseCode::HelloTimeout] {
            assert_eq!(remedy(code, MEANS), Remedy::Elsewhere { is_told: false }, "{code:?}");
        }
        assert_eq!(remedy(RefuseCode::WrongGateway, MEANS), Remedy::Elsewhere { is_told: true });
    }

    #[test]
    fn a_wrong_ticket_stays_wrong() {
        for code in [RefuseCode::TicketInvalid, RefuseCode::TicketForeignApp, RefuseCode::TicketUnbound] {
            assert_eq!(remedy(code, MEANS), Remedy::Fail { heals: false }, "{code:?}");
        }
    }
}
