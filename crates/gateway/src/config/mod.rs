//! The configuration: one TOML file in which every key is optional.
//!
//! A key is declared once, with its documentation, default and allowed values; reading, refusing, the commented sample
//! and the comparison for a reload all come from that declaration. A file with a mistake is refused whole, and the error
//! names file, line, column and what to write instead.
//!
//! ```
//! use ropeway_gateway::config::Config;
//!
//! let config = Config::parse("[gateway]\nname = \"edge.test\"\n", "ropeway.toml".as_ref()).expect("a good file");
//! assert_eq!(config.gateway.name, "edge.test");
//!
//! let refused = Config::parse("[gateway]\nnmae = \"edge.test\"\n", "ropeway.toml".as_ref()).expect_err("a bad key");
//! assert_eq!(refused.to_string(), "ropeway.toml:2:1: unknown key `nmae` in `[gateway]`; did you mean `name`?");
//! ```

mod lists;
mod load;
mod model;
mod nearest;
mod read;
mod reload;
mod sample;
mod section;
mod upstream;
mod value;

pub use lists::{
    AccessPointConfig, HostConfig, ListConfig, OperatorConfig, PolicyConfig, Prefix, RoutePolicyConfig, Slots, Speaks,
    UnitConfig,
};
pub use load::ConfigError;
pub use model::{
    AdminConfig, Config, GatewayConfig, IdempotencyConfig, LogConfig, LogFormat, PipeConfig, PlainHttpConfig,
    PushConfig, RouteConfig, TicketKey, TicketsConfig, TlsConfig,
};
pub use reload::{ReloadStatus, Watcher};
pub use sample::sample;
pub use upstream::{Builtin, KeySource, Upstream, UpstreamError, UpstreamScheme};
pub use value::{duration, is_filter, is_host_pattern};

#[cfg(test)]
mod tests;
