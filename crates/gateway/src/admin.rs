//! The admin API: push, health and metrics, on a port of its own.

use std::{fmt, sync::Arc};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Request, State, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use ropeway_cluster::{Bus, ContentType, Message, MessageId, PublishError, Status, Target};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tracing::warn;

use crate::{
    config::Config,
    gateway::{Shared, StartError},
};

/// Reads the bearer token of the admin API.
pub(crate) fn read_token(config: &Config) -> Result<String, StartError> {
    let path = config.admin_token_path();
    match std::fs::read_to_string(&path) {
        Ok(token) if !token.trim().is_empty() => Ok(token.trim().to_owned()),
        Ok(_) => Err(StartError::AdminToken { path, source: std::io::Error::other("the file is empty") }),
        Err(source) => Err(StartError::AdminToken { path, source }),
    }
}

/// Serves the admin API until the gateway is down.
pub(crate) async fn serve<B: Bus>(shared: Arc<Shared<B>>, listener: TcpListener, token: String) {
    let guarded = Router::new()
        .route("/v1/push", post(push::<B>))
        .route("/v1/push/{id}", get(status::<B>))
        .layer(middleware::from_fn_with_state(Arc::<str>::from(token), authorize));
    let app = Router::new()
        .route("/healthz", get(health::<B>))
        .route("/metrics", get(metrics::<B>))
        .merge(guarded)
        .fallback(|| async { Failure::new(StatusCode::NOT_FOUND, "not_found", "no such resource") })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::clone(&shared));
    let down = shared.down().clone();
    drop(shared);
    if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(down.cancelled_owned()).await {
        warn!(%error, "admin API ended");
    }
}

/// Body of `POST /v1/push`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Push {
    /// `all`, `user:NAME`, `device:ID` or `topic:NAME`.
    to: Target,
    /// The caller's id of the message; one is made without it.
    id: Option<String>,
    content_type: Option<String>,
    /// The payload as text, or …
    text: Option<String>,
    /// … as Base64.
    base64: Option<String>,
    /// Seconds after which the message is worth nothing.
    ttl_s: Option<u64>,
    collapse_key: Option<String>,
}

#[derive(Debug, Serialize)]
struct Pushed {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<bool>,
    /// Sessions of this gateway that the message is for and that have a link, when it was taken. One without may get it if it is
    /// resumed in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<usize>,
    status: String,
}

/// An answer that says what went wrong.
#[derive(Debug)]
struct Failure {
    status: StatusCode,
    error: &'static str,
    message: String,
}

impl Failure {
    fn new(status: StatusCode, error: &'static str, message: impl Into<String>) -> Self {
        Self { status, error, message: message.into() }
    }

    fn bad(error: &'static str) -> impl FnOnce(&dyn fmt::Display) -> Self {
        move |message| Self::new(StatusCode::BAD_REQUEST, error, message.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.error, "message": self.message });
        (self.status, Json(body)).into_response()
    }
}

async fn authorize(
    State(token): State<Arc<str>>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().as_bytes();
    let differing = given.iter().zip(token.as_bytes()).fold(0, |differing, (a, b)| differing | (a ^ b));
    if given.len() != token.len() || differing != 0 {
        let message = "send the token of the admin token file as `Authorization: Bearer TOKEN`";
        return Err(Failure::new(StatusCode::UNAUTHORIZED, "unauthorized", message));
    }
    Ok(next.run(request).await)
}

async fn push<B: Bus>(
    State(shared): State<Arc<Shared<B>>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Failure> {
    // Whatever the media type says: curl calls every body a form.
    let body = body.map_err(|error| match error.status() {
        status @ StatusCode::PAYLOAD_TOO_LARGE => Failure::new(status, "payload_too_large", error.body_text()),
        status => Failure::new(status, "bad_push", error.body_text()),
    })?;
    if body.trim_ascii_start().first() != Some(&b'{') {
        // serde would fill the fields of a struct from an array as well, by their place.
        return Err(Failure::bad("bad_push")(
            &"a push is a JSON object, such as {\"to\": \"all\", \"text\": \"hello\"}",
        ));
    }
    let push: Push = serde_json::from_slice(&body).map_err(|error| Failure::bad("bad_push")(&error))?;
    let payload = match (push.text, push.base64) {
        (Some(text), None) => Bytes::from(text),
        (None, Some(encoded)) => {
            STANDARD.decode(encoded).map(Bytes::from).map_err(|error| Failure::bad("bad_base64")(&error))?
        }
        (None, None) => Bytes::new(),
        (Some(_), Some(_)) => return Err(Failure::bad("bad_push")(&"give text or base64, not both")),
    };
    let id = push.id.unwrap_or_else(|| format!("{:032x}", u128::from_be_bytes(crate::random_bytes())));
    let id = MessageId::new(id).map_err(|error| Failure::bad("bad_id")(&error))?;
    let mut message = Message::new(id, push.to, payload);
    if let Some(content_type) = push.content_type {
        message.content_type =
            Some(ContentType::new(content_type).map_err(|error| Failure::bad("bad_content_type")(&error))?);
    }
    if let Some(key) = push.collapse_key {
        message.collapse_key = Some(key.parse().map_err(|error| Failure::bad("bad_collapse_key")(&error))?);
    }
    if let Some(seconds) = push.ttl_s {
        message.ttl = message.ttl.min(std::time::Duration::from_secs(seconds));
    }
    let sessions = shared.registry.sessions(&message.target);
    let sessions = sessions.iter().filter(|entry| entry.session().peek(|server| server.is_attached())).count();
    let accepted = shared.bus.publish(message).await.map_err(|error| match error {
        PublishError::TooLarge { .. } => {
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", error.to_string())
        }
        PublishError::NoRoom { .. } | _ => Failure::new(StatusCode::SERVICE_UNAVAILABLE, "no_room", error.to_string()),
    })?;
    let counters = &shared.counters;
    if accepted.duplicate { &counters.pushes_duplicate } else { &counters.pushes_accepted }.inc();
    let pushed = Pushed {
        id: accepted.id.to_string(),
        duplicate: Some(accepted.duplicate),
        sessions: (!accepted.duplicate).then_some(sessions),
        status: accepted.status.to_string(),
    };
    Ok((StatusCode::ACCEPTED, Json(pushed)).into_response())
}

async fn status<B: Bus>(State(shared): State<Arc<Shared<B>>>, Path(id): Path<String>) -> Result<Response, Failure> {
    let known = MessageId::new(id.as_str()).map_err(|error| Failure::bad("bad_id")(&error))?;
    let status: Option<Status> = shared.bus.status(&known).await;
    let code = if status.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let status = status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
    Ok((code, Json(Pushed { id, duplicate: None, sessions: None, status })).into_response())
}

async fn health<B: Bus>(State(shared): State<Arc<Shared<B>>>) -> Response {
    if shared.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    (StatusCode::OK, "ok\n").into_response()
}

async fn metrics<B: Bus>(State(shared): State<Arc<Shared<B>>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], shared.metrics.render()).into_response()
}

/// Largest request of the admin API: a push of 60 KiB in Base64, and room for larger limits set by configuration (24 MiB).
const BODY_BYTES_MAX: usize = 24 * 1024 * 1024;
