//! `ropeway push`: sends a message to devices by the admin API, or asks how far one got.

use std::io::{self, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use ropeway_cluster::MessageId;
use serde_json::{Value, json};

use crate::admin::Admin;
use crate::args::PushArgs;
use crate::data_dir::DataDir;
use crate::error::CommandError;
use crate::output::Output;

/// Runs the command.
pub(crate) async fn run(args: &PushArgs, data: &DataDir, output: Output) -> Result<(), CommandError> {
    let client = data.client()?;
    let admin = Admin::new(client.admin, &client.admin_token)?;
    match &args.status {
        Some(id) => status(&admin, id, output).await,
        None => push(&admin, args, output).await,
    }
}

async fn push(admin: &Admin, args: &PushArgs, output: Output) -> Result<(), CommandError> {
    let body = message(args)?;
    let answer = admin.call(Method::POST, "/v1/push", Some(&body), &[StatusCode::OK, StatusCode::ACCEPTED]).await?;
    output.result(answer["id"].as_str().unwrap_or_default(), &answer)?;
    output.note(&match answer["sessions"].as_u64() {
        None => "sent before; not sent again".to_owned(),
        Some(0) => "nobody it is for is connected here; only a session that is resumed gets it".to_owned(),
        Some(sessions) => format!("queued for {sessions} session(s); --status ID says how far it got"),
    });
    Ok(())
}

async fn status(admin: &Admin, id: &MessageId, output: Output) -> Result<(), CommandError> {
    // All characters of an id may stand in a path.
    let path = format!("/v1/push/{id}");
    let answer = admin.call(Method::GET, &path, None, &[StatusCode::OK, StatusCode::NOT_FOUND]).await?;
    output.result(answer["status"].as_str().unwrap_or("unknown"), &answer)
}

/// Writes the message as the admin API takes it.
fn message(args: &PushArgs) -> Result<Value, CommandError> {
    let target = args.to.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut message = json!({ "to": target });
    match payload(args.text.as_deref().unwrap_or_default())? {
        Ok(text) => message["text"] = text.into(),
        Err(bytes) => message["base64"] = STANDARD.encode(bytes).into(),
    }
    if let Some(id) = &args.id {
        message["id"] = id.as_str().into();
    }
    if let Some(content_type) = &args.content_type {
        message["content_type"] = content_type.as_str().into();
    }
    if let Some(ttl) = args.ttl {
        // A message that lives for less than a second is not one that lives for none.
        message["ttl_s"] = ttl.as_secs().max(1).into();
    }
    if let Some(key) = &args.collapse_key {
        message["collapse_key"] = key.as_str().into();
    }
    Ok(message)
}

/// Gives the payload: text, or bytes that are none.
fn payload(text: &str) -> Result<Result<String, Vec<u8>>, CommandError> {
    if text != "-" {
        return Ok(Ok(text.to_owned()));
    }
    let mut bytes = Vec::new();
    io::stdin().lock().take(PAYLOAD_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(CommandError::Input)?;
    if bytes.len() as u64 > PAYLOAD_BYTES_MAX {
        return Err(CommandError::Usage(format!("a message has at most {PAYLOAD_BYTES_MAX} bytes")));
    }
    Ok(String::from_utf8(bytes).map_err(std::string::FromUtf8Error::into_bytes))
}

/// Bytes that are read for a message: the most that `push.payload_bytes_max` can be set to.
const PAYLOAD_BYTES_MAX: u64 = 16 << 20;
