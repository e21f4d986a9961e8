//! The codings by name (RFC 9110 section 8.4.1).

use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue, header};

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Brotli,
    Deflate,
    Gzip,
    Zstd,
}

impl Coding {
    /// In the order browsers name them, which the static table of links has as one entry.
    const ALL: [Self; 4] = [Self::Gzip, Self::Deflate, Self::Brotli, Self::Zstd];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Deflate => "deflate",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Says whether it can be undone: whether its decoder was compiled in.
    const fn is_built(self) -> bool {
        match self {
            Self::Brotli => cfg!(feature = "brotli"),
            Self::Deflate | Self::Gzip => cfg!(feature = "gzip"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }

    fn built() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|coding| coding.is_built())
    }

    fn parse(name: &str) -> Option<Self> {
        // An older name of the same (RFC 9110 section 8.4.1.3).
        let name = if name.eq_ignore_ascii_case("x-gzip") { "gzip" } else { name };
        Self::built().find(|coding| coding.as_str().eq_ignore_ascii_case(name))
    }
}

/// Returns what `accept-encoding` says; `None` if no coding was compiled in.
pub(super) fn accepted() -> Option<HeaderValue> {
    static ACCEPTED: LazyLock<Option<HeaderValue>> = LazyLock::new(|| {
        let names: Vec<_> = Coding::built().map(Coding::as_str).collect();
        if names.is_empty() { None } else { HeaderValue::try_from(names.join(", ")).ok() }
    });
    ACCEPTED.clone()
}

/// Returns the codings that were applied to a body, in their order; `None` if there are none, or one of them cannot be undone.
pub(super) fn applied(headers: &HeaderMap) -> Option<Vec<Coding>> {
    let mut codings = Vec::new();
    for value in headers.get_all(header::CONTENT_ENCODING) {
        for name in value.to_str().ok()?.split(',').map(str::trim) {
            if name.is_empty() || name.eq_ignore_ascii_case("identity") {
                continue;
            }
            if codings.len() == CODINGS_MAX {
                return None;
            }
            codings.push(Coding::parse(name)?);
        }
    }
    (!codings.is_empty()).then_some(codings)
}

/// Codings on top of each other that are undone: 3. Our choice; more than two are not seen, and each costs a window.
const CODINGS_MAX: usize = 3;

#[cfg(test)]
#[cfg(all(feature = "brotli", feature = "gzip", feature = "zstd"))]
mod tests {
    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (header::CONTENT_ENCODING, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_is_asked_for_is_one_entry_of_the_static_table() {
        assert_eq!(accepted().unwrap(), "gzip, deflate, br, zstd");
    }

    #[test]
    fn codings_are_read_in_their_order_from_one_header_or_several() {
        assert_eq!(applied(&headers(&["x-GZip, br"])), Some(vec![Coding::Gzip, Coding::Brotli]));
        assert_eq!(applied(&headers(&["deflate", " zstd ,"])), Some(vec![Coding::Deflate, Coding::Zstd]));
        assert_eq!(applied(&headers(&["identity"])), None);
        assert_eq!(applied(&headers(&[])), None);
    }

    #[test]
    fn what_cannot_be_undone_as_a_whole_is_left_as_it_is() {
        assert_eq!(applied(&headers(&["compress"])), None);
        assert_eq!(applied(&headers(&["gzip, dcb"])), None);
        assert_eq!(applied(&headers(&["gzip, gzip, gzip"])).unwrap().len(), 3);
        assert_eq!(applied(&headers(&["gzip, gzip, gzip, gzip"])), None);
    }
}
