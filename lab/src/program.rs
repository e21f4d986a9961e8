//! A program under test: started in the lab, waited for, and ended when the lab is asked to end.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::Child,
    runtime::{self, Runtime},
    signal::unix::{self, SignalKind, signal},
    time::{sleep_until, timeout},
};

/// What runs a program, and hears from its making on when the lab is asked to end.
///
/// Made before the lab, so that a signal never ends the process while there are namespaces to remove.
pub(crate) struct Runner {
    runtime: Runtime,
    signals: Signals,
}

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// The exit code, as a shell gives it.
    pub(crate) code: u8,
    /// How long the program ran.
    pub(crate) took: Duration,
    /// The signal by which the lab was asked to end meanwhile.
    pub(crate) stopped_by: Option<&'static str>,
}

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// It cannot be started, or waited for.
    #[error("cannot run the program: {0}")]
    Start(#[source] io::Error),
    /// The lab was asked to end before it was started.
    #[error("stopped by {0}")]
    Stopped(&'static str),
}

impl Runner {
    /// Takes over the signals that ask a process to end.
    pub(crate) fn new() -> Result<Self, RunError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Start)?;
        let signals = runtime.block_on(async { Signals::new() }).map_err(RunError::Start)?;
        Ok(Self { runtime, signals })
    }

    /// Starts a program at a moment and waits for its end.
    ///
    /// A signal that asks the lab to end is passed on; a program that does not heed it is killed.
    pub(crate) fn run_at(self, start: Instant, command: Command) -> Result<Ended, RunError> {
        let Self { runtime, mut signals } = self;
        runtime.block_on(async {
            tokio::select! {
                () = sleep_until(start.into()) => {}
                received = signals.next() => return Err(RunError::Stopped(received.name)),
            }
            let start = Instant::now();
            let mut child = tokio::process::Command::from(command).spawn().map_err(RunError::Start)?;
            let (status, stopped_by) = tokio::select! {
                biased;
                received = signals.next() => (end(&mut child, received, &mut signals).await, Some(received.name)),
                status = child.wait() => (status, None),
            };
            let status = status.map_err(RunError::Start)?;
            Ok(Ended { code: code(status), took: start.elapsed(), stopped_by })
        })
    }
}

/// Gives the exit code of a program as a shell does.
fn code(status: ExitStatus) -> u8 {
    let signalled = status.signal().map(|signal| SIGNALLED + signal);
    u8::try_from(status.code().or(signalled).unwrap_or(1)).unwrap_or(u8::MAX)
}

/// Ends a program after a signal: lets it end by itself, then asks, then kills; a second signal kills at once.
async fn end(child: &mut Child, received: Received, signals: &mut Signals) -> io::Result<ExitStatus> {
    // The terminal has sent its interrupt to the program as well; to send another would be to insist.
    let asks = [(!received.from_terminal).then_some(Signal::TERM), Some(Signal::TERM)];
    for ask in asks {
        if let (Some(signal), Some(process)) = (ask, child.id().and_then(|id| Pid::from_raw(id.cast_signed()))) {
            // It may have ended just now.
            let _ = kill_process(process, signal);
        }
        tokio::select! {
            status = timeout(GRACE, child.wait()) => if let Ok(status) = status { return status },
            _ = signals.next() => break,
        }
    }
    child.start_kill()?;
    child.wait().await
}

/// A signal that asks the lab to end.
#[derive(Clone, Copy, Debug)]
struct Received {
    name: &'static str,
    from_terminal: bool,
}

/// The signals that ask the lab to end.
struct Signals {
    hangup: unix::Signal,
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Received {
        tokio::select! {
            _ = self.hangup.recv() => Received { name: "SIGHUP", from_terminal: false },
            _ = self.interrupt.recv() => Received { name: "SIGINT", from_terminal: true },
            _ = self.terminate.recv() => Received { name: "SIGTERM", from_terminal: false },
        }
    }
}

/// How long a program that is asked to end may take before it is asked again, and then killed.
const GRACE: Duration = Duration::from_secs(2);

/// What a shell adds to the number of the signal by which a program ended.
const SIGNALLED: i32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Ended {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Runner::new().expect("a runner").run_at(Instant::now(), command).expect("sh can be started")
    }

    #[test]
    fn the_exit_code_is_the_program_s_or_tells_its_signal() {
        assert_eq!(run("exit 7").code, 7);
        assert_eq!(run("kill -KILL $$").code, 137);
        assert_eq!(run("true").stopped_by, None);
    }
}
