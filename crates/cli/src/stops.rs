//! The signals that end the process.

use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Waits for the signals that end the process.
#[derive(Debug)]
pub(crate) struct Stops {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
    last: Last,
}

/// The last signal that counted.
#[derive(Debug, Default)]
struct Last(Option<(Instant, &'static str)>);

impl Stops {
    /// Takes over SIGINT and SIGTERM, and SIGHUP where it does not mean a reload: the terminal is gone then.
    pub(crate) fn new(with_hangup: bool) -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if with_hangup { Some(signal(SignalKind::hangup())?) } else { None },
            last: Last::default(),
        })
    }

    /// Waits for the next one and gives its name.
    ///
    /// A wrapper such as timeout(1) sends a signal to the process and to its group, so that it comes twice; that is one.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            let name = self.any().await;
            if self.last.is_followed_by(name, Instant::now()) {
                return name;
            }
        }
    }

    async fn any(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(signal) => signal.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = hangup => "SIGHUP",
        }
    }
}

impl Last {
    /// Says whether a signal is another than the last one, and not its echo.
    fn is_followed_by(&mut self, name: &'static str, now: Instant) -> bool {
        let is_echo = self.0.is_some_and(|(at, last)| last == name && now.duration_since(at) < ECHO_WITHIN);
        if !is_echo {
            self.0 = Some((now, name));
        }
        !is_echo
    }
}

/// A signal that comes again so soon is the same one. 200 ms; our choice: longer than a wrapper takes, shorter than an impatient hand.
const ECHO_WITHIN: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_twice_at_once_counts_once() {
        let (mut last, began) = (Last::default(), Instant::now());
        let mut heard = |name, ms| last.is_followed_by(name, began + Duration::from_millis(ms));
        assert!(heard("SIGTERM", 0));
        assert!(!heard("SIGTERM", 5));
        assert!(heard("SIGINT", 10));
        assert!(heard("SIGTERM", 15));
        assert!(!heard("SIGTERM", 214));
        assert!(heard("SIGTERM", 215));
    }
}
