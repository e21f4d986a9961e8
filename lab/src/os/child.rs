//! Programs that do not outlive the lab.

#![expect(unsafe_code, reason = "the signal must be asked for between fork and exec")]

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command},
    sync::{LazyLock, mpsc},
    thread,
};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Makes the kernel kill the program when the thread that starts it ends, as it does when the lab is killed.
///
/// It is the thread that counts (prctl(2), `PR_SET_PDEATHSIG`): start the program from the main thread or from one that
/// waits for it, or use [`spawn_for_lab`].
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

/// Starts a program that runs until it is killed or the process of the lab ends, whatever becomes of the calling thread.
///
/// # Errors
///
/// When the program, or the thread that starts such programs, cannot be started.
pub(crate) fn spawn_for_lab(mut command: Command) -> io::Result<Child> {
    dies_with_us(&mut command);
    let (answer, answered) = mpsc::sync_channel(1);
    let no_thread = || io::Error::other("no thread that starts programs");
    STARTER.as_ref().and_then(|starter| starter.send((command, answer)).ok()).ok_or_else(no_thread)?;
    answered.recv().map_err(|_| no_thread())?
}

/// A program to start, and whom to tell.
type Order = (Command, mpsc::SyncSender<io::Result<Child>>);

/// The thread that starts programs for the whole process and therefore never ends; `None` when it could not be started.
static STARTER: LazyLock<Option<mpsc::Sender<Order>>> = LazyLock::new(|| {
    let (starter, orders) = mpsc::channel::<Order>();
    let work = move || {
        for (mut command, answer) in orders {
            // Who has asked waits for it.
            let _ = answer.send(command.spawn());
        }
    };
    thread::Builder::new().name("lab-starter".to_owned()).spawn(work).ok().map(|_| starter)
});

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        path::PathBuf,
        process::Stdio,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn a_program_for_the_lab_outlives_the_thread_that_asked_for_it() {
        let asking = thread::spawn(|| {
            let mut command = Command::new("cat");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let task = PathBuf::from(format!("/proc/self/task/{}", rustix::thread::gettid().as_raw_nonzero()));
            (task, spawn_for_lab(command).expect("cat can be started"))
        });
        let (task, mut cat) = asking.join().expect("it does not panic");
        // Its children learn of its end a moment after `join` does.
        let until = Instant::now() + GONE_WITHIN;
        while task.exists() {
            assert!(Instant::now() < until, "a thread that was joined goes on");
            thread::yield_now();
        }
        let mut echoed = [0];
        cat.stdin.take().expect("a pipe").write_all(b"x").expect("it reads");
        cat.stdout.take().expect("a pipe").read_exact(&mut echoed).expect("it is alive");
        assert_eq!(echoed, *b"x");
        cat.wait().expect("it ends with its input");
    }
    /// How long a thread that was joined may still be seen. 10 s; it takes microseconds on an idle machine.
    const GONE_WITHIN: Duration = Duration::from_secs(10);
}
