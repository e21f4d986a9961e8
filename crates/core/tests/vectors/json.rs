//! Frames, control messages and field blocks as JSON, and back. Bytes are hexadecimal, defaults are left out.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use prost::Message;
use ropeway_core::{
    session::LinkError,
    wire::{
        Flags, Frame, FrameRef, Kind,
        fields::{Decoder, Encoder, FieldError, Mode},
        message::*,
    },
};
use serde_json::{Value, json};

/// Both halves of one direction of a link: what its blocks are read and written with.
pub(crate) struct Blocks {
    decoder: Decoder,
    encoder: Encoder,
}

impl Blocks {
    pub(crate) const fn new(mode: Mode) -> Self {
        Self { decoder: Decoder::new(), encoder: Encoder::new(mode) }
    }

    /// Says that the block of this channel was read; only on unordered carriers.
    pub(crate) fn acknowledge(&mut self, channel: u64) {
        self.encoder.acknowledge(channel);
    }

    /// Decodes the block of a REQUEST, RESPONSE or TRAILERS into its fields, in order.
    pub(crate) fn read(&mut self, kind: Kind, block: &[u8]) -> Result<Value, FieldError> {
        let mut fields = Vec::new();
        let mut add = |name: &str, value: &str| fields.push(json!([name, value]));
        let headers = if kind == Kind::Request {
            let head = self.decoder.decode_request(block)?;
            add(":method", head.method.as_str());
            add(":scheme", head.uri.scheme_str().unwrap());
            add(":authority", head.uri.authority().unwrap().as_str());
            add(":path", head.uri.path_and_query().unwrap().as_str());
            head.headers
        } else if kind == Kind::Response {
            let head = self.decoder.decode_response(block)?;
            add(":status", head.status.as_str());
            head.headers
        } else {
            self.decoder.decode_trailers(block)?
        };
        for (name, value) in &headers {
            fields.push(match value.is_sensitive() {
                true => json!([name.as_str(), value.to_str().unwrap(), "sensitive"]),
                false => json!([name.as_str(), value.to_str().unwrap()]),
            });
        }
        Ok(Value::Array(fields))
    }

    /// Encodes fields into the block of a REQUEST, RESPONSE or TRAILERS on `channel`.
    pub(crate) fn write(&mut self, kind: Kind, channel: u64, fields: &Value) -> Bytes {
        let field = |at: usize, part: usize| fields[at][part].as_str().unwrap();
        let pseudo =
            fields.as_array().unwrap().iter().filter(|field| field[0].as_str().unwrap().starts_with(':')).count();
        let mut headers = HeaderMap::new();
        for parts in &fields.as_array().unwrap()[pseudo..] {
            let mut value: HeaderValue = parts[1].as_str().unwrap().parse().unwrap();
            value.set_sensitive(parts.get(2).is_some());
            headers.append(HeaderName::from_bytes(parts[0].as_str().unwrap().as_bytes()).unwrap(), value);
        }
        let mut block = BytesMut::new();
        if kind == Kind::Request {
            let method: Method = field(0, 1).parse().unwrap();
            let uri = format!("{}://{}{}", field(1, 1), field(2, 1), field(3, 1)).parse().unwrap();
            self.encoder.encode_request(channel, &method, &uri, &headers, &mut block).unwrap();
        } else if kind == Kind::Response {
            let status: StatusCode = field(0, 1).parse().unwrap();
            self.encoder.encode_response(channel, status, &headers, &mut block).unwrap();
        } else {
            self.encoder.encode_trailers(channel, &headers, &mut block).unwrap();
        }
        block.freeze()
    }
}

/// Describes a frame with everything in it.
pub(crate) fn frame(frame: FrameRef<'_>, blocks: &mut Blocks) -> Result<Value, LinkError> {
    let mut bytes = Vec::new();
    frame.to_owned().encode(&mut bytes);
    let flags = [(Flags::END, "END"), (Flags::IGNORABLE, "IGNORABLE")];
    let flags: Vec<&str> =
        flags.iter().filter(|(flag, _)| frame.flags.contains(*flag)).map(|(_, name)| *name).collect();
    let mut described = json!({
        "bytes": hex(&bytes),
        "kind": name(frame.kind),
        "flags": flags,
        "channel": frame.channel,
    });
    if is_block(frame.kind) {
        described["block"] = blocks.read(frame.kind, frame.payload)?;
    } else if let Some(fields) = message(frame)? {
        described["message"] = fields;
    } else {
        described["payload"] = hex(frame.payload).into();
    }
    Ok(described)
}

/// Makes the frame that was described, from everything but its bytes.
pub(crate) fn described(value: &Value, blocks: &mut Blocks) -> Frame {
    let kind = kind(value["kind"].as_str().unwrap());
    let flag =
        |name: &str, flag: Flags| if value["flags"].as_array().unwrap().contains(&name.into()) { flag.0 } else { 0 };
    let flags = Flags(flag("END", Flags::END) | flag("IGNORABLE", Flags::IGNORABLE));
    let channel = value["channel"].as_u64().unwrap();
    let payload = match (value.get("block"), value.get("message")) {
        (Some(block), _) => blocks.write(kind, channel, block),
        (None, Some(message)) => encoded(kind, message),
        (None, None) => unhex(value["payload"].as_str().unwrap()).into(),
    };
    Frame { kind, flags, channel, payload }
}

/// Returns the name of a kind on paper.
pub(crate) fn name(kind: Kind) -> String {
    format!("{kind:?}").to_uppercase()
}

/// Returns the kind of this name.
pub(crate) fn kind(wanted: &str) -> Kind {
    Kind::ALL.into_iter().find(|kind| name(*kind) == wanted).unwrap()
}

pub(crate) const fn is_block(kind: Kind) -> bool {
    matches!(kind, Kind::Request | Kind::Response | Kind::Trailers)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "half a byte");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// A part of a message.
pub(crate) trait Part: Sized {
    fn to_json(&self) -> Value;
    fn from_json(value: &Value) -> Self;
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Part for $number {
            fn to_json(&self) -> Value {
                (*self).into()
            }

            fn from_json(value: &Value) -> Self {
                value.as_u64().and_then(|number| number.try_into().ok()).unwrap()
            }
        }
    )+};
}

numbers! { u32 u64 }

impl Part for bool {
    fn to_json(&self) -> Value {
        (*self).into()
    }

    fn from_json(value: &Value) -> Self {
        value.as_bool().unwrap()
    }
}

impl Part for Bytes {
    fn to_json(&self) -> Value {
        hex(self).into()
    }

    fn from_json(value: &Value) -> Self {
        unhex(value.as_str().unwrap()).into()
    }
}

impl Part for String {
    fn to_json(&self) -> Value {
        self.as_str().into()
    }

    fn from_json(value: &Value) -> Self {
        value.as_str().unwrap().into()
    }
}

impl<T: Part> Part for Option<T> {
    fn to_json(&self) -> Value {
        self.as_ref().map_or(Value::Null, Part::to_json)
    }

    fn from_json(value: &Value) -> Self {
        Some(T::from_json(value))
    }
}

impl<T: Part> Part for Vec<T> {
    fn to_json(&self) -> Value {
        self.iter().map(Part::to_json).collect()
    }

    fn from_json(value: &Value) -> Self {
        value.as_array().unwrap().iter().map(Part::from_json).collect()
    }
}

macro_rules! messages {
    ($($message:path { $($field:ident $(as $enumeration:tt)?),* })+) => {$(
        impl $crate::json::Part for $message {
            fn to_json(&self) -> Value {
                let mut object = serde_json::Map::new();
                let default = Self::default();
                $(if self.$field != default.$field {
                    object.insert(stringify!($field).into(), $crate::json::messages!(@write self.$field $(, $enumeration)?));
                })*
                object.into()
            }

            fn from_json(value: &Value) -> Self {
                let object = value.as_object().unwrap();
                let mut message = Self::default();
                $(if let Some(value) = object.get(stringify!($field)) {
                    message.$field = $crate::json::messages!(@read value $($enumeration)?);
                })*
                message
            }
        }
    )+};
    (@write $field:expr) => { $crate::json::Part::to_json(&$field) };
    (@write $field:expr, [$enumeration:ident]) => {
        $field.iter().map(|number| $enumeration::try_from(*number).unwrap().as_str_name()).collect::<Value>()
    };
    (@write $field:expr, $enumeration:ident) => { $enumeration::try_from($field).unwrap().as_str_name().into() };
    (@read $value:ident) => { $crate::json::Part::from_json($value) };
    (@read $value:ident [$enumeration:ident]) => {
        $value
            .as_array()
            .unwrap()
            .iter()
            .map(|name| $enumeration::from_str_name(name.as_str().unwrap()).unwrap().into())
            .collect()
    };
    (@read $value:ident $enumeration:ident) => {
        $enumeration::from_str_name($value.as_str().unwrap()).unwrap().into()
    };
}

pub(crate) use messages;

messages! {
    Ack { push_sequence, fields }
    Credit { bytes }
    Document { document }
    Drain { last_channel, close_after_ms }
    Hello {
        ticket, app, device, sdk, platform, network as NetworkKind, unit, unit_epoch, resume, push_sequence, unanswered,
        list_epoch, trace_parent, time_ms, nonce, gateway, channel_credit, link_credit, frame_bytes_max, topics
    }
    Proof { challenge, signature }
    Push { sequence, message_id, topic, content_type, payload, time_ms, redelivered }
    Redirect { unit, list }
    Refuse { code as RefuseCode, retry_after_ms, detail }
    Reset { code as ResetCode, detail }
    Settled { channel, state as Settlement, body_received, body_limit }
    SignedHello { hello, signature }
    Sync { sequence }
    Topics { topics }
    Unanswered { channel, head_received, body_received, body_limit }
    Welcome {
        resume, resumed, gap, push_sequence, settled, channel_credit, link_credit, frame_bytes_max, time_ms, heartbeat_min_ms,
        heartbeat_max_ms, hosts, gateway, channels_max
    }
}

/// Calls `$does` with the message that the kind carries, or gives `$else` where the payload is no message.
macro_rules! by_kind {
    ($kind:expr, $does:ident, $($argument:expr),+; $else:expr) => {
        match $kind {
            Kind::Ack => $does::<Ack>($($argument),+),
            Kind::Credit => $does::<Credit>($($argument),+),
            Kind::Drain => $does::<Drain>($($argument),+),
            Kind::Hello => $does::<SignedHello>($($argument),+),
            Kind::List | Kind::Policy => $does::<Document>($($argument),+),
            Kind::Proof => $does::<Proof>($($argument),+),
            Kind::Push => $does::<Push>($($argument),+),
            Kind::Redirect => $does::<Redirect>($($argument),+),
            Kind::Refuse => $does::<Refuse>($($argument),+),
            Kind::Reset => $does::<Reset>($($argument),+),
            Kind::Subscribe | Kind::Unsubscribe => $does::<Topics>($($argument),+),
            Kind::Sync => $does::<Sync>($($argument),+),
            Kind::Welcome => $does::<Welcome>($($argument),+),
            Kind::Body
            | Kind::Ping
            | Kind::Pong
            | Kind::Probe
            | Kind::Request
            | Kind::Response
            | Kind::Stream
            | Kind::Trailers => $else,
        }
    };
}

fn message(frame: FrameRef<'_>) -> Result<Option<Value>, LinkError> {
    fn read<M: Message + Default + Part>(frame: FrameRef<'_>) -> Result<Option<Value>, LinkError> {
        Ok(Some(frame.message::<M>()?.to_json()))
    }
    by_kind!(frame.kind, read, frame; Ok(None))
}

fn encoded(kind: Kind, message: &Value) -> Bytes {
    fn write<M: Message + Part>(message: &Value) -> Bytes {
        M::from_json(message).encode_to_vec().into()
    }
    by_kind!(kind, write, message; panic!("{kind:?} carries no message"))
}
