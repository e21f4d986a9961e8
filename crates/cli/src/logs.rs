//! Logging to standard error.

use std::io;

use ropeway_gateway::config::LogFormat;
use tracing_subscriber::EnvFilter;

/// Starts to log what passes the filter. Only the first call in a process counts.
pub(crate) fn start(filter: &str, format: LogFormat) {
    let builder = tracing_subscriber::fmt().with_writer(io::stderr).with_env_filter(EnvFilter::new(filter));
    // A second start changes nothing, and there is no harm in that.
    let _ = match format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.try_init(),
    };
}
