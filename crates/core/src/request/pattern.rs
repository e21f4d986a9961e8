//! Which requests a rule speaks of.

use super::Hosts;

/// An authority and a path prefix, as routes are written.
///
/// The authority as in [`Hosts`]: `api.test`, `api.test:8443`, `*.example.com` or `*`. The prefix is matched on whole segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePattern {
    authority: String,
    hosts: Hosts,
    prefix: String,
}

impl RoutePattern {
    /// Makes a pattern; `/` is every path.
    #[must_use]
    pub fn new(authority: &str, prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/').to_owned();
        Self { authority: authority.to_ascii_lowercase(), hosts: Hosts::new([authority]), prefix }
    }

    /// Says whether a request to this host, port and path is meant.
    #[must_use]
    pub fn matches(&self, host: &str, port: u16, path: &str) -> bool {
        let rest = path.strip_prefix(self.prefix.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) && self.hosts.serve(host, port)
    }

    /// Returns how much of a path the pattern names; of several that match, the longest one is meant.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.prefix.len()
    }

    /// Returns the pattern as it is written.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}{}", self.authority, if self.prefix.is_empty() { "/" } else { &self.prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_matched_on_whole_segments() {
        let pattern = RoutePattern::new("API.test", "/v1/");
        for (path, matches) in [("/v1", true), ("/v1/", true), ("/v1/a", true), ("/v10", false), ("/", false)] {
            assert_eq!(pattern.matches("api.test", 443, path), matches, "{path}");
        }
        assert!(!pattern.matches("other.test", 443, "/v1"));
        assert!(RoutePattern::new("*.test", "/").matches("a.test", 443, "/anything"));
        assert_eq!(pattern.label(), "api.test/v1");
        assert_eq!(RoutePattern::new("*", "/").label(), "*/");
    }
}
