//! How `request` tells what was tried and what came back.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use ropeway::{Step, Timeline};
use serde_json::{Value, json};

/// Writes the ways tried, one a line: what, over which carrier, where, when, for how long, and how it went.
pub(super) fn timeline_lines(timeline: &Timeline) -> Vec<String> {
    let more = (timeline.left_out() > 0).then(|| format!("* and {} more", timeline.left_out()));
    timeline.steps().iter().map(|step| format!("* {}", line(step))).chain(more).collect()
}

fn line(step: &Step) -> String {
    let what = format!("{} {}", step.way, step.action.as_str());
    let carrier = step.carrier.map(|carrier| carrier.to_string()).unwrap_or_default();
    let address = step.address.map(|address| address.to_string()).unwrap_or_default();
    let outcome = match (&step.error, duration(step)) {
        (Some(error), _) => error.as_str(),
        (None, Some(_)) => "ok",
        (None, None) => "given up",
    };
    let took = duration(step).map(|took| format!("{:.1} ms", ms(took))).unwrap_or_else(|| "-".to_owned());
    format!("{what:<13} {carrier:<4} {address:<21} at {:.1} ms, took {took}: {outcome}", ms(step.started))
}

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
