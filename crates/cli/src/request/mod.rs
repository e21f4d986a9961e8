//! `ropeway request`: one HTTP request through the gateway, in the manner of curl.

mod failure;
mod input;
pub(crate) mod report;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use ropeway::{Builder, Client, Error, Event, Progress, Response};
use serde_json::json;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout, timeout_at};

use self::failure::Asked;
use crate::args::RequestArgs;
use crate::data_dir::DataDir;
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
        done = exchange(Asked { args, file: &file, data }, &client, bound, &progress, output) => done,
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
    asked: Asked<'_>,
    client: &Client,
    bound: Option<Bound>,
    progress: &Progress,
    output: Output,
) -> Result<(), CommandError> {
    let args = asked.args;
    let default_method = if args.data.is_some() { Method::POST } else { Method::GET };
    let method = args.method.clone().unwrap_or(default_method);
    let mut headers: HeaderMap = HeaderMap::new();
    for (name, value) in &args.headers {
        headers.append(name, value.clone());
    }
    let mut request = client.request(method, args.url.as_str()).progress(progress);
    if !args.location {
        request = request.redirects(0);
    }
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
        asked.failed(error)
    })?;
    head(args, &response, output)?;
    if args.fail && (response.status().is_client_error() || response.status().is_server_error()) {
        return Err(CommandError::Status(response.status()));
    }
    body(args, &mut response, bound, output).await.map_err(|error| match error {
        BodyError::Command(error) => error,
        BodyError::Request(error) => asked.failed(error),
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

/// What share of its time the command keeps from the request, to tell how that ended and to say goodbye: a tenth; our choice.
const END_SHARE: u32 = 10;

/// How much it keeps at most. 100 ms; our choice: a goodbye on a network that is not slow.
const END_MAX: Duration = Duration::from_millis(100);
