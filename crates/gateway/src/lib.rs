//! The access gateway.
