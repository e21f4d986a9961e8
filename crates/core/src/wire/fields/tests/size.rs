//! The sizes of whole conversations beside those of HTTP/2: never more bytes, message by message.
//!
//! HTTP/2's side is an HPACK encoder that does what the best common ones do (shortest form, Huffman code where shorter,
//! the default table of 4,096 bytes), under the two policies met in practice. A foreign decoder reads what it writes.

use std::collections::VecDeque;

use super::*;

/// An ordered list of fields, pseudo-fields first.
type Fields = Vec<(&'static str, String)>;

/// Which fields an HPACK encoder keeps in its table.
#[derive(Clone, Copy, Debug)]
enum Policy {
    /// As the `h2` crate 0.4: no credentials, cookies, locations, validators, lengths, ages or paths.
    Careful,
    /// As `Careful`, but credentials and cookies are kept (Go's net/http2, and nghttp2 for cookies).
    Keen,
}

struct Hpack {
    policy: Policy,
    entries: VecDeque<(&'static str, String)>,
    bytes: usize,
}

impl Hpack {
    fn new(policy: Policy) -> Self {
        Self { policy, entries: VecDeque::new(), bytes: 0 }
    }

    fn encode(&mut self, fields: &Fields) -> BytesMut {
        let mut out = BytesMut::new();
        for (name, value) in fields {
            let known = |whole: bool| {
                let fixed = table::ENTRIES[..61].iter().copied();
                let own = self.entries.iter().map(|(name, value)| (*name, value.as_str()));
                fixed.chain(own).position(|entry| entry.0 == *name && (!whole || entry.1 == value)).map(|at| at + 1)
            };
            let size = entry_size(name.len(), value.len());
            if let Some(index) = known(true) {
                literal::write_integer(index, 7, 0x80, &mut out);
                continue;
            }
            let keep = self.keeps(name) && size <= 4096 * 3 / 4;
            let (prefix_bits, high) = if keep { (6, 0x40) } else { (4, 0) };
            let index = known(false).unwrap_or(0);
            literal::write_integer(index, prefix_bits, high, &mut out);
            if index == 0 {
                literal::write_string(name.as_bytes(), &mut out);
            }
            literal::write_string(value.as_bytes(), &mut out);
            if keep {
                self.bytes += size;
                self.entries.push_front((name, value.clone()));
                while self.bytes > 4096 {
                    let (name, value) = self.entries.pop_back().unwrap();
                    self.bytes -= entry_size(name.len(), value.len());
                }
            }
        }
        out
    }

    fn keeps(&self, name: &str) -> bool {
        match name {
            ":path" | "age" | "content-length" | "etag" | "if-modified-since" | "if-none-match" | "location"
            | "set-cookie" => false,
            "authorization" | "cookie" => matches!(self.policy, Policy::Keen),
            _ => true,
        }
    }
}

/// Encodes the fields as the message that they are.
fn ours(encoder: &mut Encoder, fields: &Fields) -> BytesMut {
    let pseudo = |wanted| fields.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str());
    let headers: HeaderMap = fields
        .iter()
        .filter(|(name, _)| !name.starts_with(':'))
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect();
    let mut out = BytesMut::new();
    if let Some(method) = pseudo(":method") {
        let uri: Uri =
            format!("https://{}{}", pseudo(":authority").unwrap(), pseudo(":path").unwrap()).parse().unwrap();
        encoder.encode_request(0, &method.parse().unwrap(), &uri, &headers, &mut out).unwrap();
    } else if let Some(status) = pseudo(":status") {
        encoder.encode_response(0, status.parse().unwrap(), &headers, &mut out).unwrap();
    } else {
        encoder.encode_trailers(0, &headers, &mut out).unwrap();
    }
    out
}

/// The header of our frame: kind, flags, channel and length.
fn frame_header_len(channel: usize, payload_len: usize) -> usize {
    let varint = |value: usize| match value {
        0..64 => 1,
        64..16384 => 2,
        _ => 4,
    };
    2 + varint(channel) + varint(payload_len)
}

/// Sends one direction of a conversation both ways and compares after each message.
fn compare(what: &str, messages: impl Iterator<Item = Fields>) {
    let messages: Vec<Fields> = messages.collect();
    assert!(messages.len() >= 20);
    for policy in [Policy::Careful, Policy::Keen] {
        let (mut hpack, mut hpack_decoder) = (Hpack::new(policy), fluke_hpack::Decoder::new());
        let mut encoder = Encoder::new(Mode::Ordered);
        let (mut ours_bytes, mut theirs_bytes) = (0, 0);
        for (number, fields) in messages.iter().enumerate() {
            let theirs = hpack.encode(fields);
            let pairs = hpack_decoder.decode(&theirs).unwrap();
            assert!(
                pairs
                    .iter()
                    .map(|(n, v)| (&n[..], &v[..]))
                    .eq(fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())))
            );
            let block = ours(&mut encoder, fields);
            // Channels are counted as streams are: odd numbers from a client.
            ours_bytes += frame_header_len(2 * number + 1, block.len()) + block.len();
            theirs_bytes += 9 + theirs.len();
            assert!(
                ours_bytes <= theirs_bytes,
                "{what}, {policy:?}: {ours_bytes} bytes after message {number}, HTTP/2 sent {theirs_bytes}"
            );
        }
        println!("{what}, {policy:?}: {ours_bytes} bytes, HTTP/2 {theirs_bytes}");
    }
}

fn fields(lines: &[(&'static str, &str)]) -> Fields {
    lines.iter().map(|&(name, value)| (name, value.to_owned())).collect()
}

/// A value of hexadecimal digits that differs for every number.
fn unique(number: usize, len: usize) -> String {
    let mut state = number as u64;
    let digit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from_digit((state >> 60) as u32, 16)
    };
    std::iter::repeat_with(digit).take(len).flatten().collect()
}

/// A date that moves on by a second every few messages.
fn date(number: usize) -> String {
    let second = number / 4;
    format!("Tue, 14 Oct 2025 09:{:02}:{:02} GMT", second / 60 % 60, second % 60)
}

#[test]
fn a_browsers_requests_are_no_larger_than_in_http2() {
    let kinds = ["style", "script", "image", "font"];
    compare("browser requests", (0..80).map(|number| {
        let page = number % 20 == 0;
        let (dest, mode) = if page { ("document", "navigate") } else { (kinds[number % 4], "no-cors") };
        let accept = match dest {
            "document" => "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8",
            "style" => "text/css,*/*;q=0.1",
            "image" => "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
            _ => "*/*",
        };
        let path = if page { format!("/shop/{number}?from=home") } else { format!("/assets/{}.{dest}", unique(number, 16)) };
        let cookie = format!("session={}; theme=dark; seen={}", unique(7, 32), number / 20);
        let mut list = fields(&[
            (":method", "GET"), (":scheme", "https"), (":authority", "shop.example.com"), (":path", &path),
            ("sec-ch-ua", "\"Chromium\";v=\"141\", \"Not?A_Brand\";v=\"8\""), ("sec-ch-ua-mobile", "?1"),
            ("sec-ch-ua-platform", "\"Android\""),
            ("user-agent", "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Mobile Safari/537.36"),
            ("accept", accept), ("sec-fetch-site", if page { "none" } else { "same-origin" }), ("sec-fetch-mode", mode),
            ("sec-fetch-dest", dest),
        ]);
        if page {
            list.extend(fields(&[("sec-fetch-user", "?1"), ("upgrade-insecure-requests", "1")]));
        } else {
            let referer = format!("https://shop.example.com/shop/{}?from=home", number / 20 * 20);
            list.extend(fields(&[("referer", &referer)]));
        }
        list.extend(fields(&[
            ("accept-encoding", "gzip, deflate, br, zstd"), ("accept-language", "de-DE,de;q=0.9,en;q=0.8"),
            ("cookie", &cookie), ("priority", if page { "u=0, i" } else { "u=2" }),
        ]));
        list
    }));
}

#[test]
fn a_sites_responses_are_no_larger_than_in_http2() {
    let kinds = ["text/css", "application/javascript", "image/webp", "font/woff2"];
    compare(
        "site responses",
        (0..80).map(|number| {
            let page = number % 20 == 0;
            let mut list = fields(&[
                (":status", if number % 11 == 5 { "304" } else { "200" }),
                ("server", "nginx/1.26.2"),
                ("date", &date(number)),
                ("content-type", if page { "text/html; charset=utf-8" } else { kinds[number % 4] }),
                ("content-length", &(1000 + number * 7919 % 90000).to_string()),
                (
                    "last-modified",
                    if number % 3 == 0 { "Mon, 06 Oct 2025 11:20:31 GMT" } else { "Wed, 01 Oct 2025 08:00:00 GMT" },
                ),
                ("etag", &format!("\"{}\"", unique(number, 20))),
                ("vary", "Accept-Encoding"),
                ("cache-control", if page { "private, no-cache" } else { "public, max-age=31536000, immutable" }),
                ("strict-transport-security", "max-age=63072000; includeSubDomains; preload"),
            ]);
            if page {
                let cookie = format!("session={}; Path=/; HttpOnly; Secure; SameSite=Lax", unique(number, 32));
                list.extend(fields(&[
                    ("set-cookie", &cookie),
                    ("content-encoding", "br"),
                    ("content-security-policy", "default-src 'self'; img-src 'self' data:; object-src 'none'"),
                ]));
            } else {
                list.extend(fields(&[
                    ("accept-ranges", "bytes"),
                    ("x-cache", if number % 2 == 0 { "HIT" } else { "MISS" }),
                ]));
            }
            list
        }),
    );
}

#[test]
fn an_apis_requests_are_no_larger_than_in_http2() {
    // Tokens as they come: 700 characters that change once, as when one is renewed.
    compare(
        "API requests",
        (0..120).map(|number| {
            let method = ["GET", "POST", "GET", "PUT", "GET", "DELETE"][number % 6];
            let path = match number % 6 {
                0 => "/v1/messages?after=".to_owned() + &unique(number, 12),
                1 => "/v1/orders".to_owned(),
                2 => "/v1/me".to_owned(),
                _ => format!("/v1/orders/{}", unique(number, 10)),
            };
            let mut list = fields(&[
                (":method", method),
                (":scheme", "https"),
                (":authority", "api.example.com"),
                (":path", &path),
                ("authorization", &format!("Bearer {}", unique(number / 70, 700))),
                ("user-agent", "ExampleApp/7.3.1 (Android 15; Pixel 8)"),
                ("accept", "application/json"),
                ("accept-encoding", "gzip"),
                ("accept-language", "pt-BR"),
                ("x-app-version", "7.3.1"),
                ("x-device-id", "0d8e5c1e-79f6-4a65-8d43-b1b2b3a7a9c5"),
                ("traceparent", &format!("00-{}-{}-01", unique(number, 32), unique(number + 1, 16))),
                ("x-request-id", &unique(number, 32)),
            ]);
            if matches!(method, "POST" | "PUT") {
                list.extend(fields(&[
                    ("content-type", "application/json"),
                    ("content-length", &(40 + number % 50).to_string()),
                    ("idempotency-key", &unique(number, 32)),
                ]));
            }
            list
        }),
    );
}

#[test]
fn an_apis_responses_are_no_larger_than_in_http2() {
    compare(
        "API responses",
        (0..120).map(|number| {
            let status = ["200", "201", "200", "200", "404", "204", "409", "429", "200", "200"][number % 10];
            let mut list = fields(&[
                (":status", status),
                ("date", &date(number)),
                ("content-type", "application/json; charset=utf-8"),
                ("content-length", &(2 + number * 37 % 900).to_string()),
                ("cache-control", "no-store"),
                ("x-request-id", &unique(number, 32)),
                ("x-ratelimit-limit", "600"),
                ("x-ratelimit-remaining", &(600 - number).to_string()),
                ("x-ratelimit-reset", "60"),
                ("x-content-type-options", "nosniff"),
                ("vary", "Origin"),
                ("server", "envoy"),
                ("x-envoy-upstream-service-time", &(3 + number * 13 % 40).to_string()),
            ]);
            if status == "201" {
                list.extend(fields(&[("location", &format!("/v1/orders/{}", unique(number, 10)))]));
            }
            if status == "429" {
                list.extend(fields(&[("retry-after", "2")]));
            }
            list
        }),
    );
}

#[test]
fn grpc_calls_are_no_larger_than_in_http2() {
    compare(
        "gRPC requests",
        (0..60).map(|number| {
            let method = ["GetMessages", "SendMessage", "MarkRead"][number % 3];
            fields(&[
                (":method", "POST"),
                (":scheme", "https"),
                (":authority", "grpc.example.com:443"),
                (":path", &format!("/chat.v1.ChatService/{method}")),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", "grpc-java-okhttp/1.75.0"),
                ("grpc-accept-encoding", "gzip"),
                ("grpc-timeout", &format!("{}u", 9_999_000 - number * 131)),
                ("authorization", &format!("Bearer {}", unique(1, 240))),
                ("x-tenant-bin", "AAECAwQFBgc"),
            ])
        }),
    );
    compare(
        "gRPC responses and trailers",
        (0..120).map(|number| {
            if number % 2 == 0 {
                let date = date(number);
                return fields(&[
                    (":status", "200"),
                    ("content-type", "application/grpc"),
                    ("grpc-encoding", "identity"),
                    ("grpc-accept-encoding", "gzip"),
                    ("date", &date),
                ]);
            }
            match number % 10 {
                9 => fields(&[("grpc-status", "5"), ("grpc-message", &format!("no message {}", unique(number, 8)))]),
                _ => fields(&[("grpc-status", "0")]),
            }
        }),
    );
}

#[test]
fn images_with_cookies_are_no_larger_than_in_http2() {
    let cookie = format!("sid={}; cart={}; consent=1; ab={}", unique(3, 64), unique(4, 200), unique(5, 40));
    compare(
        "image requests",
        (0..60).map(|number| {
            let mut list = fields(&[
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", "img.example.net"),
                (":path", &format!("/t/{}/{}.webp?w=320", number % 5, unique(number, 24))),
                ("user-agent", "ExampleApp/7.3.1 CFNetwork/1498.700.2 Darwin/23.6.0"),
                ("accept", "image/avif,image/webp,image/*;q=0.8"),
                ("accept-language", "fr-FR,fr;q=0.9"),
                ("accept-encoding", "gzip, deflate, br"),
                ("cookie", &cookie),
            ]);
            if number % 4 == 3 {
                list.extend(fields(&[
                    ("if-none-match", &format!("W/\"{}\"", unique(number, 16))),
                    ("if-modified-since", "Mon, 06 Oct 2025 11:20:31 GMT"),
                ]));
            }
            list
        }),
    );
    compare(
        "image responses",
        (0..60).map(|number| {
            fields(&[
                (":status", if number % 4 == 3 { "304" } else { "200" }),
                ("content-type", "image/webp"),
                ("content-length", &(3000 + number * 6151 % 60000).to_string()),
                ("date", &date(number)),
                ("etag", &format!("W/\"{}\"", unique(number, 16))),
                ("last-modified", "Mon, 06 Oct 2025 11:20:31 GMT"),
                ("cache-control", "public, max-age=604800, stale-while-revalidate=86400"),
                ("age", &(number * 311).to_string()),
                ("x-served-by", ["cache-fra-1", "cache-fra-2", "cache-muc-9"][number % 3]),
                ("via", "1.1 varnish"),
                ("access-control-allow-origin", "*"),
                ("timing-allow-origin", "*"),
            ])
        }),
    );
}

#[test]
fn an_upload_in_pieces_is_no_larger_than_in_http2() {
    compare(
        "upload requests",
        (0..40).map(|number| {
            let range = format!("bytes {}-{}/41943040", number * 1_048_576, (number + 1) * 1_048_576 - 1);
            fields(&[
                (":method", "PATCH"),
                (":scheme", "https"),
                (":authority", "up.example.com"),
                (":path", "/files/9f2c51b07d"),
                ("content-type", "application/offset+octet-stream"),
                ("content-length", "1048576"),
                ("content-range", &range),
                ("upload-offset", &(number * 1_048_576).to_string()),
                ("tus-resumable", "1.0.0"),
                ("user-agent", "tus-android/3.1"),
            ])
        }),
    );
    compare(
        "upload responses",
        (0..40).map(|number| {
            fields(&[
                (":status", "204"),
                ("upload-offset", &((number + 1) * 1_048_576).to_string()),
                ("tus-resumable", "1.0.0"),
                ("date", &date(number * 4)),
                ("cache-control", "no-store"),
                ("server", "tusd"),
            ])
        }),
    );
}
