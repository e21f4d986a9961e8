//! The port of a URL or of an address, which may be left out, and may be none at all.

use thiserror::Error;

/// Why what stands in the place of a port is none that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PortError {
    /// Nothing follows the colon.
    #[error("there is a colon and no port behind it")]
    Missing,
    /// It is no number, or a larger one than there are ports.
    #[error("`{0}` is no port: ports go from 1 to 65535")]
    NoPort(String),
    /// It is zero, which only a socket that listens can be given, to get any that is free.
    #[error("port 0 is none that can be connected to: ports go from 1 to 65535")]
    Zero,
}

/// Reads the port of `HOST` or `HOST:PORT`, where an IPv6 address stands in brackets; `None` where there is none.
///
/// # Errors
///
/// A [`PortError`] where there is a colon and no port behind it that can be connected to. A library that takes such a port for none
/// leads to the port of the scheme instead, where nobody wanted to go.
pub fn port_of(authority: &str) -> Result<Option<u16>, PortError> {
    let behind_host = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest);
    let Some((_, port)) = behind_host.split_once(':') else { return Ok(None) };
    if port.is_empty() {
        return Err(PortError::Missing);
    }
    let is_digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(0) => Err(PortError::Zero),
        Ok(number) if is_digits => Ok(Some(number)),
        Ok(_) | Err(_) => Err(PortError::NoPort(port.chars().take(SHOWN_MAX).collect())),
    }
}

/// Letters that are shown of what is no port. 16; our choice.
const SHOWN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_left_out_or_refused_with_its_reason() {
        for (authority, port) in [
            ("a.test", Ok(None)),
            ("a.test:1", Ok(Some(1))),
            ("a.test:65535", Ok(Some(65_535))),
            ("[::1]", Ok(None)),
            ("[::1]:8443", Ok(Some(8_443))),
            ("a.test:", Err(PortError::Missing)),
            ("[::1]:", Err(PortError::Missing)),
            ("a.test:0", Err(PortError::Zero)),
            ("a.test:000", Err(PortError::Zero)),
            ("a.test:65536", Err(PortError::NoPort("65536".into()))),
            ("a.test:99999", Err(PortError::NoPort("99999".into()))),
            ("a.test:+80", Err(PortError::NoPort("+80".into()))),
            ("a.test:https", Err(PortError::NoPort("https".into()))),
            ("a.test:1:2", Err(PortError::NoPort("1:2".into()))),
        ] {
            assert_eq!(port_of(authority), port, "{authority}");
        }
    }
}
