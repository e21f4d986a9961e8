//! `ropeway listen`: prints what is pushed to a device, one message a line.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ropeway::{Error, Event, PushEvent, PushMessage, Retry};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::block_in_place;

use crate::args::ListenArgs;
use crate::data_dir::DataDir;
use crate::device;
use crate::error::CommandError;
use crate::output::Output;
use crate::stops::Stops;

/// Runs the command until it is interrupted, or has printed as many messages as were asked for.
pub(crate) async fn run(args: &ListenArgs, data: &DataDir, output: Output) -> Result<(), CommandError> {
    // Before anything is written: whoever reads that may send a signal at once.
    let mut stops = Stops::new(true).map_err(CommandError::Runtime)?;
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let (mut builder, _) = device::builder(&args.device, data)?;
    for topic in &args.topics {
        builder = builder.topic(topic.as_str());
    }
    // When they come faster than they are written, the latest are left out.
    let client = builder.on_event(move |event| drop(sender.try_send(event))).build()?;
    let mut pushes = client.pushes();
    output.note(&format!("listening as device {}; Ctrl-C ends it", client.device_id()));

    let mut left = args.count;
    let result = loop {
        if left == Some(0) {
            pushes.acknowledge();
            break Ok(());
        }
        let written = tokio::select! {
            biased;
            Some(event) = events.recv() => link_event(&event, client.device_id(), output),
            push = pushes.next() => match push {
                Some(PushEvent::Gap) => block_in_place(|| output.result("gap", &json!({ "event": "gap" }))),
                Some(PushEvent::Message(message)) => {
                    left = left.map(|left| left - 1);
                    block_in_place(|| output.result(&line(&message), &object(&message)))
                }
                Some(_) => Ok(()),
                None => break Ok(()),
            },
            _ = stops.next() => break Ok(()),
        };
        if written.is_err() {
            break written;
        }
    };
    device::close(&client).await;
    result
}

/// Tells what happened to the link; a refusal that stays one is an error.
fn link_event(event: &Event, device: &str, output: Output) -> Result<(), CommandError> {
    let (text, object) = match event {
        Event::AttemptFailed { address, carrier, reason } => (
            format!("{carrier} to {address} failed: {reason}"),
            json!({ "event": "attempt_failed", "carrier": carrier, "address": address.to_string(), "reason": reason }),
        ),
        Event::Draining { close_after } => (
            "the gateway is going away; moving".to_owned(),
            json!({ "event": "draining", "close_after_s": close_after.as_secs_f64() }),
        ),
        Event::LinkLost { reason } => {
            (format!("link lost: {reason}"), json!({ "event": "link_lost", "reason": reason }))
        }
        Event::LinkUp { address, carrier, resumed } => (
            format!("link {} over {carrier} to {address}", if *resumed { "resumed" } else { "up" }),
            json!({
                "event": "link_up",
                "carrier": carrier,
                "address": address.to_string(),
                "resumed": resumed,
                "device": device,
            }),
        ),
        Event::Refused { code, detail } => {
            let error = Error::Refused { code: *code, detail: detail.clone(), timeline: Box::default() };
            if error.retry() == Retry::Never {
                let text = error.to_string();
                return Err(CommandError::Request { error: Box::new(error), text });
            }
            (error.to_string(), json!({ "event": "refused", "detail": detail }))
        }
        Event::Sources(event) => {
            let text = event.to_string();
            let object = json!({ "event": "sources", "detail": text });
            (text, object)
        }
        Event::Tampered { address, way, reason } => (
            format!("an answer by {way} from {address} was changed on the way: {reason}"),
            json!({ "event": "tampered", "way": way.as_str(), "address": address.to_string(), "reason": reason }),
        ),
        _ => return Ok(()),
    };
    if output.is_json() {
        return block_in_place(|| output.result("", &object));
    }
    output.note(&text);
    Ok(())
}

/// Writes a message as one line: id, topic, payload.
fn line(message: &PushMessage) -> String {
    let topic = if message.topic.is_empty() { "-" } else { &message.topic };
    let payload = match std::str::from_utf8(&message.payload) {
        Ok(text) => text.chars().map(visible).collect(),
        Err(_) => format!("base64:{}", STANDARD.encode(&message.payload)),
    };
    format!("{} {topic} {payload}", message.id)
}

/// Writes what would break the line, or steer the terminal, as an escape.
fn visible(character: char) -> String {
    if character.is_control() { character.escape_default().to_string() } else { character.to_string() }
}

fn object(message: &PushMessage) -> Value {
    let mut object = json!({
        "event": "push",
        "id": message.id,
        "topic": message.topic,
        "content_type": message.content_type,
        "time_ms": message.time_ms,
        "redelivered": message.redelivered,
    });
    match std::str::from_utf8(&message.payload) {
        Ok(text) => object["text"] = text.into(),
        Err(_) => object["base64"] = STANDARD.encode(&message.payload).into(),
    }
    object
}

/// Events of the link that wait to be written.
const EVENTS_MAX: usize = 64;
