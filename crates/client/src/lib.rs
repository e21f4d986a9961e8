//! The HTTP client that gets through on bad mobile networks.
