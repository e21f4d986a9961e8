//! The static tables both ends know: names, and whole fields.

use http::{HeaderName, HeaderValue};

/// The number of a name in the name table, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameId(u8);

/// When the encoder puts a literal under this name into the dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Insert {
    /// At first sight: the values of this name usually repeat.
    Always,
    /// Never: a value of this name does not come twice.
    Never,
    /// At second sight: some values repeat, most do not.
    Repeated,
}

impl NameId {
    /// Finds the number of `name`, whose [`hash`] the caller knows already.
    pub(super) fn find(name: &[u8], name_hash: u32) -> Option<Self> {
        find_name(name, name_hash).map(Self)
    }

    /// Makes the number of a name if the table is that long.
    pub(super) fn new(number: usize) -> Option<Self> {
        u8::try_from(number).ok().filter(|n| (1..=NAMES_COUNT).contains(&usize::from(*n))).map(Self)
    }

    /// Returns the number as it travels.
    pub(super) fn number(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the name itself.
    pub(super) fn text(self) -> &'static str {
        NAMES[self.index()].0
    }

    /// Returns the header name, none for a pseudo-field.
    pub(super) fn header(self) -> Option<&'static HeaderName> {
        HEADER_NAMES[self.index()].as_ref()
    }

    /// Returns when values under this name enter the dictionary.
    pub(super) fn insert(self) -> Insert {
        NAMES[self.index()].1
    }

    /// Finds the static entry that has this name and `value`.
    pub(super) fn entry(self, value: &[u8]) -> Option<usize> {
        let mut entry = FIRST_ENTRY[self.index()];
        while entry != 0 {
            let index = usize::from(entry);
            if ENTRIES[index - 1].1.as_bytes() == value {
                return Some(index);
            }
            entry = NEXT_ENTRY[index - 1];
        }
        None
    }

    fn index(self) -> usize {
        usize::from(self.0) - 1
    }
}

/// Returns the static entry with this index, counted from 1: its name and its value.
pub(super) fn entry(index: usize) -> Option<(NameId, &'static HeaderValue)> {
    let at = index.checked_sub(1)?;
    Some((NameId(*ENTRY_NAMES.get(at)?), &HEADER_VALUES[at]))
}

/// Hashes a field name or a piece of one (FNV-1a, 32 bits).
pub(super) const fn hash(bytes: &[u8]) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}

const fn find_name(name: &[u8], name_hash: u32) -> Option<u8> {
    let mut at = bucket(name_hash);
    while NAME_BUCKETS[at] != 0 {
        let number = NAME_BUCKETS[at];
        if same(NAMES[number as usize - 1].0.as_bytes(), name) {
            return Some(number);
        }
        at = (at + 1) % NAME_BUCKETS_COUNT;
    }
    None
}

const fn bucket(name_hash: u32) -> usize {
    // The low bits of FNV-1a depend on the low bits of the bytes alone, so the high ones are folded in.
    ((name_hash >> 16) ^ name_hash) as usize % NAME_BUCKETS_COUNT
}

const fn same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut at = 0;
    while at < left.len() {
        if left[at] != right[at] {
            return false;
        }
        at += 1;
    }
    true
}

const fn name_buckets() -> [u8; NAME_BUCKETS_COUNT] {
    let mut buckets = [0; NAME_BUCKETS_COUNT];
    let mut number = 1;
    while number <= NAMES_COUNT {
        let mut at = bucket(hash(NAMES[number - 1].0.as_bytes()));
        while buckets[at] != 0 {
            at = (at + 1) % NAME_BUCKETS_COUNT;
        }
        buckets[at] = number as u8;
        number += 1;
    }
    buckets
}

const fn entry_names() -> [u8; ENTRIES_COUNT] {
    let mut names = [0; ENTRIES_COUNT];
    let mut at = 0;
    while at < ENTRIES_COUNT {
        let name = ENTRIES[at].0.as_bytes();
        names[at] = find_name(name, hash(name)).expect("every name of the entry table is in the name table");
        at += 1;
    }
    names
}

/// Links the entries of one name: the first entry of every name, and for every entry the next of the same name.
const fn entry_chains() -> ([u8; NAMES_COUNT], [u8; ENTRIES_COUNT]) {
    let mut first = [0; NAMES_COUNT];
    let mut next = [0; ENTRIES_COUNT];
    let mut at = ENTRIES_COUNT;
    while at > 0 {
        let name = ENTRY_NAMES[at - 1] as usize - 1;
        next[at - 1] = first[name];
        first[name] = at as u8;
        at -= 1;
    }
    (first, next)
}

const fn header_name(name: &'static str) -> Option<HeaderName> {
    if name.as_bytes()[0] == b':' { None } else { Some(HeaderName::from_static(name)) }
}

macro_rules! names {
    ($($insert:ident { $($name:literal)+ })+) => {
        /// How many names the name table holds. With the 64 slots behind them, every name reference of an inserting
        /// literal (5-bit prefix) fits two bytes: 31 + 127.
        pub(super) const NAMES_COUNT: usize = [$($($name),+),+].len();

        /// The name table. The first 14 take one byte in every literal, the first 30 in an inserting one.
        pub(super) static NAMES: [(&str, Insert); NAMES_COUNT] = [$($(($name, Insert::$insert)),+),+];
        static HEADER_NAMES: [Option<HeaderName>; NAMES_COUNT] = [$($(header_name($name)),+),+];
    };
}

macro_rules! entries {
    ($($name:literal: $($value:literal)|+;)+) => {
        /// How many entries the static table holds.
        pub(super) const ENTRIES_COUNT: usize = [$($($value),+),+].len();

        /// The static table: 1 to 61 as in RFC 7541 appendix A, then our own.
        pub(super) static ENTRIES: [(&str, &str); ENTRIES_COUNT] = [$($(($name, $value)),+),+];
        static HEADER_VALUES: [HeaderValue; ENTRIES_COUNT] = [$($(HeaderValue::from_static($value)),+),+];
    };
}

names! {
    Repeated { ":path" "content-length" "etag" "if-none-match" "location" "set-cookie" "if-modified-since" }
    Never { "traceparent" "idempotency-key" "x-request-id" "range" "content-range" "age" }
    Repeated { "tracestate" }
    Always {
        ":authority" "date" "authorization" "cookie" "content-type" "user-agent" "accept" "last-modified" "referer"
        "cache-control" "server" "accept-language" "origin" "accept-encoding" "expires" "vary"
    }
    Always {
        ":method" ":scheme" ":status" "accept-charset" "accept-ranges" "access-control-allow-credentials"
        "access-control-allow-headers" "access-control-allow-methods" "access-control-allow-origin"
        "access-control-expose-headers" "access-control-max-age" "access-control-request-headers"
        "access-control-request-method" "allow" "alt-svc" "content-disposition" "content-encoding" "content-language"
        "content-location" "content-security-policy" "early-data" "expect" "forwarded" "from" "grpc-accept-encoding"
        "grpc-encoding"
    }
    Repeated { "grpc-message" }
    Always { "grpc-status" }
    Repeated { "grpc-timeout" }
    Always {
        "host" "if-match" "if-range" "if-unmodified-since" "link" "max-forwards" "priority" "proxy-authenticate"
        "proxy-authorization" "refresh" "retry-after" "sec-ch-ua" "sec-ch-ua-mobile" "sec-ch-ua-platform"
        "sec-fetch-dest" "sec-fetch-mode" "sec-fetch-site" "sec-fetch-user"
    }
    Never { "sec-websocket-accept" }
    Always { "sec-websocket-extensions" }
    Never { "sec-websocket-key" }
    Always {
        "sec-websocket-protocol" "sec-websocket-version" "strict-transport-security" "te" "transfer-encoding"
        "upgrade-insecure-requests" "via" "www-authenticate" "x-content-type-options" "x-forwarded-for"
        "x-forwarded-proto" "x-frame-options" "x-requested-with"
    }
}

// From 62 on: what RFC 9204 appendix A found common on the web, then what APIs, gRPC and this protocol send. An index
// below 127 takes one byte.
entries! {
    ":authority": ""; ":method": "GET" | "POST"; ":path": "/" | "/index.html"; ":scheme": "http" | "https";
    ":status": "200" | "204" | "206" | "304" | "400" | "404" | "500";
    "accept-charset": ""; "accept-encoding": "gzip, deflate"; "accept-language": ""; "accept-ranges": "";
    "accept": ""; "access-control-allow-origin": ""; "age": ""; "allow": ""; "authorization": ""; "cache-control": "";
    "content-disposition": ""; "content-encoding": ""; "content-language": ""; "content-length": "";
    "content-location": ""; "content-range": ""; "content-type": ""; "cookie": ""; "date": ""; "etag": "";
    "expect": ""; "expires": ""; "from": ""; "host": ""; "if-match": ""; "if-modified-since": "";
    "if-none-match": ""; "if-range": ""; "if-unmodified-since": ""; "last-modified": ""; "link": ""; "location": "";
    "max-forwards": ""; "proxy-authenticate": ""; "proxy-authorization": ""; "range": ""; "referer": "";
    "refresh": ""; "retry-after": ""; "server": ""; "set-cookie": ""; "strict-transport-security": "";
    "transfer-encoding": ""; "user-agent": ""; "vary": ""; "via": ""; "www-authenticate": "";

    ":method": "PUT" | "DELETE" | "PATCH" | "HEAD" | "OPTIONS";
    ":status": "201" | "202" | "301" | "302" | "401" | "403" | "409" | "429" | "502" | "503" | "504";
    "accept": "application/json" | "text/event-stream" | "*/*"
        | "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"
        | "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    "accept-encoding": "gzip, deflate, br" | "gzip, deflate, br, zstd" | "gzip" | "br" | "zstd";
    "accept-ranges": "bytes";
    "access-control-allow-origin": "*";
    "cache-control": "no-cache" | "no-store" | "max-age=0" | "private" | "public, max-age=31536000"
        | "public, max-age=31536000, immutable";
    "content-encoding": "gzip" | "br" | "zstd";
    "content-length": "0";
    "content-type": "application/json" | "application/json; charset=utf-8" | "application/grpc"
        | "application/octet-stream" | "application/x-protobuf" | "application/x-www-form-urlencoded"
        | "text/event-stream" | "text/html; charset=utf-8" | "text/plain; charset=utf-8" | "image/jpeg" | "image/png"
        | "image/webp";
    "early-data": "1";
    "grpc-accept-encoding": "identity,deflate,gzip";
    "grpc-status": "0";
    "te": "trailers";
    "priority": "u=1, i";
    "upgrade-insecure-requests": "1";
    "vary": "Accept-Encoding" | "Origin";
    "x-content-type-options": "nosniff";
    "sec-fetch-site": "same-origin";
    "sec-fetch-mode": "cors" | "no-cors" | "navigate";
    "sec-fetch-dest": "empty";

    ":status": "100" | "101" | "103" | "303" | "307" | "308" | "405" | "408" | "410" | "412" | "413" | "415" | "416"
        | "421" | "422" | "425" | "501";
    "accept": "text/css,*/*;q=0.1" | "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,\
        image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7";
    "accept-encoding": "identity";
    "accept-language": "en" | "en-US,en;q=0.9" | "zh-CN,zh;q=0.9";
    "access-control-allow-credentials": "true" | "false";
    "access-control-allow-headers": "*" | "content-type";
    "access-control-allow-methods": "*" | "GET, POST, OPTIONS";
    "alt-svc": "clear";
    "cache-control": "public" | "max-age=604800" | "max-age=2592000" | "no-cache, no-store, must-revalidate"
        | "private, no-store";
    "content-encoding": "identity";
    "content-type": "application/grpc+proto" | "application/javascript" | "application/problem+json"
        | "application/xml" | "font/woff2" | "image/avif" | "image/gif" | "image/svg+xml" | "text/css"
        | "text/css; charset=utf-8" | "text/html" | "text/javascript" | "text/javascript; charset=utf-8"
        | "text/plain" | "text/plain;charset=UTF-8";
    "expect": "100-continue";
    "expires": "0" | "-1";
    "grpc-accept-encoding": "identity" | "gzip" | "identity, deflate, gzip";
    "grpc-encoding": "gzip" | "identity";
    "grpc-status": "1" | "2" | "3" | "4" | "5" | "7" | "8" | "12" | "13" | "14" | "16";
    "priority": "i" | "u=0, i" | "u=1" | "u=2" | "u=3" | "u=4" | "u=5";
    "range": "bytes=0-";
    "retry-after": "1";
    "sec-ch-ua-mobile": "?0" | "?1";
    "sec-ch-ua-platform": "\"Android\"" | "\"iOS\"";
    "sec-fetch-dest": "document" | "font" | "image" | "script" | "style";
    "sec-fetch-site": "cross-site" | "none" | "same-site";
    "sec-fetch-user": "?1";
    "sec-websocket-extensions": "permessage-deflate";
    "sec-websocket-version": "13";
    "server": "nginx";
    "strict-transport-security": "max-age=31536000" | "max-age=31536000; includeSubDomains";
    "vary": "accept-encoding" | "origin";
    "x-forwarded-proto": "http" | "https";
    "x-frame-options": "DENY" | "SAMEORIGIN";
    "x-requested-with": "XMLHttpRequest";
}

/// The buckets of the name lookup: a power of two, over twice the names.
const NAME_BUCKETS_COUNT: usize = 256;

static NAME_BUCKETS: [u8; NAME_BUCKETS_COUNT] = name_buckets();
static ENTRY_NAMES: [u8; ENTRIES_COUNT] = entry_names();
static FIRST_ENTRY: [u8; NAMES_COUNT] = entry_chains().0;
static NEXT_ENTRY: [u8; ENTRIES_COUNT] = entry_chains().1;
