//! `ropeway request`: one HTTP request through the gateway, in the manner of curl.

mod input;
pub(crate) mod report;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use ropeway::{Builder, Client, Error, Event, Phase, Progress, Response, Step, Timeline, Way};
use serde_json::json;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout, timeout_at};

use crate::args::RequestArgs;
use crate::data_dir::{ClientFile, DataDir};
use crate::device;
use crate::error::CommandError;
use crate::output::Output;
use crate::stops::Stops;

/// Runs the command, from here to the goodbye within the time that it is given.
pub(crate) async fn run(args: &RequestArgs, data: &DataDir, output: Output) -> Result<(), CommandError> {
    let bound = args.max_time.map(Bound::new);
    let (mut builder, file) = device::builder(&args.device, data)?;
    for way in &args.ways {
        builder = builder.way(*way);
    }
    builder = device::with_list(builder, &file, data)?;
    let refusal = Arc::new(OnceLock::new());
    builder = watched(builder, Arc::clone(&refusal), args.verbose && !output.is_json(), output);
    let client = builder.allow_plain_http(args.plain_http).build()?;
    let mut stops = Stops::new(false).map_err(CommandError::Runtime)?;
    let progress = Progress::default();
    let result = tokio::select! {
        done = exchange(args, &client, &file, bound, &progress, output) => done,
        signal = stops.next() => {
            let phase = progress.phase();
            // The gateway may stop what nobody waits for; who wants to leave does not wait for that.
            let _ = timeout(END_MAX, client.close()).await;
            return Err(CommandError::GivenUp { signal, phase });
        }
    };
    if let (Ok(()), Some(detail)) = (&result, refusal.get()) {
        let hint = "another way was taken, which needs no ticket; `ropeway ticket` issues tickets";
        output.note(&format!("the gateway refused the link: {detail}; {hint}"));
    }
    // How the request ended is what counts.
    tokio::select! {
        _ = within(bound, device::close(&client)) => {}
        _ = stops.next() => {}
    }
    result
}

/// The time of the whole command.
#[derive(Clone, Copy)]
struct Bound {
    deadline: Instant,
    whole: Duration,
}

impl Bound {
    fn new(whole: Duration) -> Self {
        Self { deadline: Instant::now() + whole, whole }
    }

    /// Returns what a request may take that is sent now: it ends by itself, as it alone knows what became of it.
    fn for_request(self) -> Duration {
        let kept = (self.whole / END_SHARE).min(END_MAX);
        (self.deadline - kept).saturating_duration_since(Instant::now())
    }
}

/// Waits for something that is not the request.
async fn within<F: Future>(bound: Option<Bound>, something: F) -> Result<F::Output, CommandError> {
    let Some(Bound { deadline, whole }) = bound else { return Ok(something.await) };
    timeout_at(deadline, something).await.map_err(|_| CommandError::OutOfTime { after: whole })
}

/// Notes why a link was refused, and where that is wanted tells what becomes of access lists.
fn watched(builder: Builder, refusal: Arc<OnceLock<String>>, is_verbose: bool, output: Output) -> Builder {
    builder.on_event(move |event| {
        if let Event::Refused { detail, .. } = event {
            // The first says enough.
            let _ = refusal.set(detail);
        } else if let Event::Sources(event) = event
            && is_verbose
        {
            output.detail(&format!("* {event}"));
        }
    })
}

async fn exchange(
    args: &RequestArgs,
    client: &Client,
    file: &ClientFile,
    bound: Option<Bound>,
    progress: &Progress,
    output: Output,
) -> Result<(), CommandError> {
    let default_method = if args.data.is_some() { Method::POST } else { Method::GET };
    let method = args.method.clone().unwrap_or(default_method);
    let mut headers: HeaderMap = HeaderMap::new();
    for (name, value) in &args.headers {
        headers.append(name, value.clone());
    }
    let mut request = client.request(method, args.url.as_str()).progress(progress);
    if let Some(data) = &args.data {
        request = request.body(within(bound, input::open(data)).await??);
        // What curl says of a body of which it is told nothing.
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.entry(header::CONTENT_TYPE).or_insert(form);
    }
    if let Some(bound) = bound {
        request = request.timeout(bound.for_request());
    }
    let mut response = request.headers(headers).send().await.map_err(|error| {
        if let Some(timeline) = error.timeline().filter(|_| args.verbose && !output.is_json()) {
            report::timeline_lines(timeline).iter().for_each(|line| output.detail(line));
        }
        failure(error, &args.url, file, args.max_time)
    })?;
    head(args, &response, output)?;
    if args.fail && (response.status().is_client_error() || response.status().is_server_error()) {
        return Err(CommandError::Status(response.status()));
    }
    body(args, &mut response, bound, output).await.map_err(|error| match error {
        BodyError::Command(error) => error,
        BodyError::Request(error) => failure(error, &args.url, file, args.max_time),
    })
}

/// Tells what came before the body.
fn head(args: &RequestArgs, response: &Response, output: Output) -> Result<(), CommandError> {
    if output.is_json() {
        let object = json!({
            "event": "head",
            "status": response.status().as_u16(),
            "headers": report::headers_object(response.headers()),
            "timeline": report::timeline_object(response.timeline()),
        });
        return output.result("", &object);
    }
    if args.verbose {
        report::timeline_lines(response.timeline()).iter().for_each(|line| output.detail(line));
        let lines = report::head_lines(response.status(), response.headers(), "< ");
        lines.iter().for_each(|line| output.detail(line));
    }
    if args.include {
        let lines = report::head_lines(response.status(), response.headers(), "");
        output.bytes(format!("{}\n\n", lines.join("\n")).as_bytes())?;
    }
    Ok(())
}

enum BodyError {
    Command(CommandError),
    Request(Error),
}

/// Writes the body as it comes.
async fn body(
    args: &RequestArgs,
    response: &mut Response,
    bound: Option<Bound>,
    output: Output,
) -> Result<(), BodyError> {
    let mut sink = match &args.out {
        Some(path) => {
            let created = within(bound, create(path)).await.flatten();
            Sink::File(created.map_err(BodyError::Command)?, path.clone())
        }
        None => Sink::Output(output),
    };
    let mut bytes_total = 0;
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Request)? {
        bytes_total += chunk.len() as u64;
        within(bound, sink.write(&chunk)).await.flatten().map_err(BodyError::Command)?;
    }
    if output.is_json() {
        let trailers = response.trailers().map(report::headers_object);
        let object = json!({ "event": "end", "bytes": bytes_total, "trailers": trailers });
        return output.result("", &object).map_err(BodyError::Command);
    }
    let Some(trailers) = response.trailers() else { return Ok(()) };
    if args.verbose {
        report::field_lines(trailers, "< ").iter().for_each(|line| output.detail(line));
    }
    if args.include {
        let lines = report::field_lines(trailers, "");
        output.bytes(format!("{}\n", lines.join("\n")).as_bytes()).map_err(BodyError::Command)?;
    }
    Ok(())
}

/// Where the body goes.
enum Sink {
    File(File, PathBuf),
    Output(Output),
}

impl Sink {
    async fn write(&mut self, chunk: &[u8]) -> Result<(), CommandError> {
        match self {
            // Flushed each time: what came is to be there however the request ends, and tokio writes behind its back until then.
            Self::File(file, path) => {
                let written = async {
                    file.write_all(chunk).await?;
                    file.flush().await
                };
                written.await.map_err(|source| CommandError::Write { path: path.clone(), source })
            }
            // A reader that is slow must not hold up the link.
            Self::Output(output) if output.is_json() => {
                block_in_place(|| output.result("", &report::data_object(chunk)))
            }
            Self::Output(output) => block_in_place(|| output.bytes(chunk)),
        }
    }
}

async fn create(path: &std::path::Path) -> Result<File, CommandError> {
    File::create(path).await.map_err(|source| CommandError::Write { path: path.to_owned(), source })
}

/// Tells of an error what fits on a line, and what the user can do about it.
fn failure(error: Error, url: &str, file: &ClientFile, max_time: Option<Duration>) -> CommandError {
    let mut text = error.to_string();
    if let (Error::Timeout { after, .. }, Some(max_time)) = (&error, max_time) {
        // What was left for the request is nobody's number.
        text = text.replace(&format!("after {} ms", after.as_millis()), &format!("after {} ms", max_time.as_millis()));
    }
    let is_answer_late = matches!(error, Error::Timeout { phase: Phase::Answer, .. });
    if let Some(timeline) = error.timeline() {
        // -v tells every way; here the last one that failed is enough.
        text = text.replace(&format!(" ({timeline})"), "");
        let last = decisive(&error, timeline).and_then(|step| step.error.as_deref());
        if let Some(tried) = report::tried(timeline).filter(|_| is_unsent(&error)) {
            text = format!("{text}; {tried}");
        } else if let Some(last) = last.filter(|last| !is_answer_late && !last.contains(&text) && !text.contains(last))
        {
            text = format!("{text}; the last attempt: {last}");
        }
    }
    let host = url.split("://").nth(1).unwrap_or_default().split(['/', '?', ':']).next().unwrap_or_default();
    let is_served = file.hosts.iter().any(|served| match served.strip_prefix('*') {
        Some(end) => host.ends_with(end),
        None => served == host,
    });
    let found_no_way = matches!(error, Error::NoWay { .. });
    let went_directly = found_no_way || matches!(error, Error::BrokeOff { .. });
    let hint = if matches!(error, Error::Untrusted { .. }) {
        match &file.ca {
            Some(ca) => {
                format!("; only what {} vouches for is trusted: does another gateway listen there?", ca.display())
            }
            None => "; only what this system's authorities vouch for is trusted".to_owned(),
        }
    } else if found_no_way && is_served && text.contains("no link came up") {
        "; is `ropeway up` running?".to_owned()
    } else if matches!(error, Error::PlainHttp { .. }) {
        let hosts = file.hosts.join(", ");
        let elsewhere = if is_served { String::new() } else { format!(" (the gateway serves {hosts})") };
        format!("{elsewhere}; write https://, or let it cross the network in the clear with --plain-http")
    } else if went_directly && !is_served {
        format!("; the gateway serves {}, so this was called directly", file.hosts.join(", "))
    } else if matches!(error, Error::Refused { .. }) {
        "; `ropeway ticket` issues tickets, and `ropeway up` renews its own".to_owned()
    } else {
        String::new()
    };
    CommandError::Request { error: Box::new(error), text: text + &hint }
}

/// Says whether a request found no way, so that where it was tried is what explains it.
fn is_unsent(error: &Error) -> bool {
    matches!(error, Error::NoList { .. } | Error::NoWay { .. } | Error::Timeout { phase: Phase::Connect, .. })
}

/// Returns the step that explains an error best.
fn decisive<'a>(error: &Error, timeline: &'a Timeline) -> Option<&'a Step> {
    // What became of a request is not explained by what never carried it, nor what gateways said by the ways around them.
    if let Error::OutcomeUnknown { .. } = error {
        return timeline.unanswered();
    }
    let is_of_gateways = matches!(error, Error::Refused { .. } | Error::Untrusted { .. });
    let is_wanted = |step: &&Step| step.error.is_some() && (!is_of_gateways || step.way == Way::Link);
    timeline.steps().iter().rev().find(is_wanted)
}

/// What share of its time the command keeps from the request, to tell how that ended and to say goodbye: a tenth; our choice.
const END_SHARE: u32 = 10;

/// How much it keeps at most. 100 ms; our choice: a goodbye on a network that is not slow.
const END_MAX: Duration = Duration::from_millis(100);
