//! The tables of `docs/protocol/link-v1.md` are those of the code.

use ropeway_core::{
    session::LinkError,
    wire::{
        FrameError, Kind,
        fields::FieldError,
        message::{RefuseCode, ResetCode, Settlement},
    },
};

use crate::json;

const DOCUMENT: &str = include_str!("../../../../docs/protocol/link-v1.md");

/// The cells of every row whose table begins with this heading.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let mut lines = DOCUMENT.lines().skip_while(|line| !line.starts_with(heading));
    assert!(lines.next().is_some(), "no table {heading}");
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn the_kinds_are_those_of_the_code() {
    let documented: Vec<_> =
        rows("| number | kind |").iter().map(|row| (row[0].to_owned(), row[1].to_owned())).collect();
    let ours: Vec<_> = Kind::ALL.iter().map(|kind| (format!("{:#04x}", *kind as u8), json::name(*kind))).collect();
    assert_eq!(documented, ours);
}

#[test]
fn the_codes_are_those_of_the_code() {
    let refusals = rows("| code | REFUSE_CODE_ |");
    for (number, row) in refusals.iter().enumerate() {
        let code = RefuseCode::try_from(number as i32).unwrap();
        assert_eq!(
            (row[0], format!("REFUSE_CODE_{}", row[1]).as_str()),
            (number.to_string().as_str(), code.as_str_name())
        );
    }
    assert!(RefuseCode::try_from(refusals.len() as i32).is_err());
    let resets = rows("| code | RESET_CODE_ |");
    for (number, row) in resets.iter().enumerate() {
        let code = ResetCode::try_from(number as i32).unwrap();
        assert_eq!(
            (row[0], format!("RESET_CODE_{}", row[1]).as_str()),
            (number.to_string().as_str(), code.as_str_name())
        );
    }
    assert!(ResetCode::try_from(resets.len() as i32).is_err());
    for row in rows("| state | meaning | the client |") {
        assert!(Settlement::from_str_name(row[0]).is_some(), "{}", row[0]);
    }
}

#[test]
fn the_errors_are_those_of_the_code() {
    let kind = Kind::Hello;
    let ours = [
        LinkError::Backlog,
        LinkError::Fields(FieldError::Truncated),
        LinkError::Frame(FrameError::BadPayload { kind }),
        LinkError::DuplicateChannel(1),
        LinkError::LinkCreditExceeded { excess: 1 },
        LinkError::Frame(FrameError::Oversized { length: 1, max: 0 }),
        LinkError::Silent,
        LinkError::Frame(FrameError::Truncated),
        LinkError::Unexpected { kind },
        LinkError::UnknownChannel(1),
        LinkError::Frame(FrameError::UnknownKind(0)),
    ];
    let documented: Vec<_> = rows("| name | reason |").iter().map(|row| row[0].trim_matches('`')).collect();
    assert_eq!(documented, ours.each_ref().map(LinkError::name));
}
