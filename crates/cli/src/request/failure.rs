//! Why a request failed, as a line for people, and what they can do about it.

use ropeway::{Error, Phase, Step, Timeline, Way};

use super::report;
use crate::args::RequestArgs;
use crate::data_dir::{ClientFile, DataDir};
use crate::error::CommandError;

/// What a failure is told by, beside the error itself.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) args: &'a RequestArgs,
    /// What `up` left for the other commands.
    pub(super) file: &'a ClientFile,
    pub(super) data: &'a DataDir,
}

impl Asked<'_> {
    /// Tells of an error what fits on a line, and what the user can do about it.
    pub(super) fn failed(self, error: Error) -> CommandError {
        let text = self.text(&error);
        let hint = self.hint(&error, &text).map(|hint| format!("; {hint}")).unwrap_or_default();
        CommandError::Request { error: Box::new(error), text: text + &hint }
    }

    fn text(self, error: &Error) -> String {
        let mut text = error.to_string();
        if let (Error::Timeout { after, .. }, Some(max_time)) = (error, self.args.max_time) {
            // What was left for the request is nobody's number.
            text = text.replace(&in_ms(after.as_millis()), &in_ms(max_time.as_millis()));
        }
        let Some(timeline) = error.timeline() else { return text };
        // -v tells every way; here those that explain it are enough.
        text = text.replace(&format!(" ({timeline})"), "");
        if let Some(tried) = report::tried(timeline).filter(|_| is_unsent(error)) {
            return format!("{text}; {tried}");
        }
        match decisive(error, timeline).and_then(|step| step.error.as_deref()) {
            Some(last) if !last.contains(&text) && !text.contains(last) => format!("{text}; the last attempt: {last}"),
            Some(_) | None => text,
        }
    }

    /// Says what to do, where something can be done.
    fn hint(self, error: &Error, text: &str) -> Option<String> {
        let hosts = self.file.hosts.join(", ");
        if let Error::Untrusted { .. } = error {
            return Some(match &self.file.ca {
                Some(ca) => {
                    format!("only what {} vouches for is trusted: does another gateway listen there?", ca.display())
                }
                None => "only what this system's authorities vouch for is trusted".to_owned(),
            });
        }
        if let Error::PlainHttp { .. } = error {
            let served = if self.is_served() { String::new() } else { format!("the gateway serves {hosts} alone; ") };
            return Some(format!("{served}write https://, or let it cross the network in the clear with --plain-http"));
        }
        if let Error::Refused { .. } = error {
            return Some("`ropeway ticket` issues tickets, and `ropeway up` renews its own".to_owned());
        }
        if matches!(error, Error::NoList { .. })
            && self.file.pipe_keys.is_empty()
            && self.args.ways.contains(&Way::Pipe)
        {
            let path = self.data.client_path();
            let remedy = "`ropeway up` writes one, where its configuration does not turn the pipe off";
            return Some(format!("{} has no key of the sealed pipe: {remedy}", path.display()));
        }
        let found_no_way = matches!(error, Error::NoWay { .. });
        if found_no_way && self.is_served() {
            return text.contains("no link came up").then(|| "is `ropeway up` running?".to_owned());
        }
        let went_directly = found_no_way || matches!(error, Error::BrokeOff { .. });
        (went_directly && !self.is_served()).then(|| format!("the gateway serves {hosts}, so this was called directly"))
    }

    /// Says whether the gateway serves the host of the URL.
    fn is_served(self) -> bool {
        let host = self.args.url.split("://").nth(1).unwrap_or_default();
        let host = host.split(['/', '?', ':']).next().unwrap_or_default();
        self.file.hosts.iter().any(|served| match served.strip_prefix('*') {
            Some(end) => host.ends_with(end),
            None => served == host,
        })
    }
}

/// Says whether a request found no way, so that where it was tried is what explains it.
fn is_unsent(error: &Error) -> bool {
    matches!(error, Error::NoList { .. } | Error::NoWay { .. } | Error::Timeout { phase: Phase::Connect, .. })
}

/// Returns the step that explains an error which does not explain itself.
fn decisive<'a>(error: &Error, timeline: &'a Timeline) -> Option<&'a Step> {
    if let Error::OutcomeUnknown { .. } = error {
        // What became of a request is not explained by what never carried it.
        return timeline.unanswered();
    }
    let mut failed = timeline.steps().iter().rev().filter(|step| step.error.is_some());
    if matches!(error, Error::Refused { .. } | Error::Untrusted { .. }) {
        // What gateways said is not explained by how the ways around them failed.
        failed.find(|step| step.way == Way::Link)
    } else if is_unsent(error) || matches!(error, Error::NotExecuted { .. }) {
        failed.next()
    } else {
        None
    }
}

fn in_ms(ms: u128) -> String {
    format!("after {ms} ms")
}
