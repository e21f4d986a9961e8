//! Programs that do not outlive the lab.

#![expect(unsafe_code, reason = "the signal must be asked for between fork and exec")]

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Makes the kernel kill the program when the thread that starts it ends, as it does when the lab is killed.
///
/// A program started from a thread of a pool dies with that thread (prctl(2), `PR_SET_PDEATHSIG`): start it from the main
/// thread, or from one that waits for it.
pub(crate) fn dies_with_us(command: &mut Command) -> &mut Command {
    let parent = rustix::process::getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Had the lab ended before the call, nobody would send the signal any more.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; this makes two system calls and allocates
    // nothing.
    unsafe { command.pre_exec(ask) }
}
