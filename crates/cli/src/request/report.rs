//! How `request` tells what was tried and what came back.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use ropeway::{Step, Timeline};
use serde_json::{Value, json};

/// Writes the ways tried, one a line: what, over which carrier, where, when, for how long, and how it went. Columns are as wide as what
/// stands in them.
pub(super) fn timeline_lines(timeline: &Timeline) -> Vec<String> {
    let more = (timeline.left_out() > 0).then(|| format!("* and {} more", timeline.left_out()));
    let rows: Vec<_> = timeline.steps().iter().map(|step| columns(step, timeline.total())).collect();
    lines(&rows).into_iter().chain(more).collect()
}

fn lines(rows: &[([String; 5], String)]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|(cells, _)| cells[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4].map(width);
    let line = |(cells, outcome): &([String; 5], String)| {
        let [what, carrier, address, started, took] = cells;
        let [what_width, carrier_width, address_width, started_width, took_width] = widths;
        format!(
            "* {what:<what_width$} {carrier:<carrier_width$} {address:<address_width$} at {started:>started_width$}, took \
             {took:>took_width$}: {outcome}"
        )
    };
    rows.iter().map(line).collect()
}

/// Gives the cells of a line, and how it went. What went on beyond the request took all the time that was left of it.
fn columns(step: &Step, total: Duration) -> ([String; 5], String) {
    let what = format!("{} {}", step.way, step.action.as_str());
    let carrier = step.carrier.map(|carrier| carrier.to_string()).unwrap_or_default();
    let address = step.address.map(|address| address.to_string()).unwrap_or_default();
    let outcome = match (&step.error, step.status) {
        (Some(error), _) => error.clone(),
        (None, Some(status)) => status.to_string(),
        (None, None) => "ok".to_owned(),
    };
    let took = format!("{:.1} ms", ms(duration(step).unwrap_or_else(|| total.saturating_sub(step.started))));
    ([what, carrier, address, format!("{:.1} ms", ms(step.started)), took], outcome)
}

/// Says in a sentence which addresses were tried, and why each failed; nothing where there were none.
pub(super) fn tried(timeline: &Timeline) -> Option<String> {
    let places = timeline.failed_places();
    let more = places.len().saturating_sub(PLACES_TOLD_MAX);
    let mut told: Vec<_> =
        places.iter().take(PLACES_TOLD_MAX).map(|(address, why)| format!("{address} ({why})")).collect();
    if more > 0 {
        told.push(format!("{more} more"));
    }
    let last = told.pop()?;
    Some(if told.is_empty() { format!("tried {last}") } else { format!("tried {} and {last}", told.join(", ")) })
}

/// Addresses that an error names, of those that were tried. 4; our choice: a line that is still read.
const PLACES_TOLD_MAX: usize = 4;

/// Gives the ways tried for programs.
pub(crate) fn timeline_object(timeline: &Timeline) -> Value {
    timeline
        .steps()
        .iter()
        .map(|step| {
            json!({
                "way": step.way.as_str(),
                "action": step.action.as_str(),
                "address": step.address.map(|address| address.to_string()),
                "carrier": step.carrier,
                "started_ms": ms(step.started),
                "duration_ms": duration(step).map(ms),
                "error": step.error,
                "status": step.status.map(|status| status.as_u16()),
                "fate": step.fate.as_str(),
            })
        })
        .collect()
}

/// Gives headers for programs: in order, as names may come twice.
pub(super) fn headers_object(headers: &HeaderMap) -> Value {
    let pairs = headers.iter().map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]));
    pairs.collect()
}

/// Writes status and headers for people, each line after `mark`.
pub(super) fn head_lines(status: StatusCode, headers: &HeaderMap, mark: &str) -> Vec<String> {
    let mut lines = vec![format!("{mark}{status}")];
    lines.extend(field_lines(headers, mark));
    lines
}

/// Writes headers or trailers for people, each line after `mark`.
pub(super) fn field_lines(fields: &HeaderMap, mark: &str) -> Vec<String> {
    fields.iter().map(|(name, value)| format!("{mark}{name}: {}", String::from_utf8_lossy(value.as_bytes()))).collect()
}

/// Gives a part of a body for programs: as text where it is some.
pub(super) fn data_object(data: &[u8]) -> Value {
    match std::str::from_utf8(data) {
        Ok(text) => json!({ "event": "data", "text": text }),
        Err(_) => json!({ "event": "data", "base64": STANDARD.encode(data) }),
    }
}

fn duration(step: &Step) -> Option<Duration> {
    step.ended.map(|ended| ended.saturating_sub(step.started))
}

/// Gives milliseconds with one decimal.
fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_whatever_is_in_them() {
        let row = |what: &str, carrier: &str, address: &str, started: &str, took: &str| {
            ([what, carrier, address, started, took].map(str::to_owned), "ok".to_owned())
        };
        let rows = [
            row("link connect", "quic", "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535", "0.0 ms", "12345.6 ms"),
            row("original exchange", "", "192.0.2.1:1", "1234.5 ms", "-"),
        ];
        let lines = lines(&rows);
        assert_eq!(
            lines,
            [
                "* link connect      quic [2001:db8:1234:5678:9abc:def0:1234:5678]:65535 at    0.0 ms, took 12345.6 ms: ok",
                "* original exchange      192.0.2.1:1                                    at 1234.5 ms, took          -: ok",
            ]
        );
    }

    #[test]
    fn a_part_of_a_body_that_is_no_text_is_told_in_base64() {
        assert_eq!(data_object("é".as_bytes())["text"], "é");
        assert_eq!(data_object(&[0xff, 0])["base64"], "/wA=");
    }

    #[test]
    fn headers_keep_their_order_and_repetitions() {
        let mut headers = HeaderMap::new();
        for value in ["a", "b"] {
            headers.append("set-cookie", value.parse().expect("a value"));
        }
        assert_eq!(headers_object(&headers), json!([["set-cookie", "a"], ["set-cookie", "b"]]));
        assert_eq!(head_lines(StatusCode::OK, &headers, "< "), ["< 200 OK", "< set-cookie: a", "< set-cookie: b"]);
    }
}
