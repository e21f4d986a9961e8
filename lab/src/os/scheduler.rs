//! Real-time priority, without which a busy machine delays packets by tens of milliseconds.

#![expect(unsafe_code, reason = "the policy of a thread is set by a system call")]

use std::{io, num::NonZeroU64};

use rustix::thread::set_current_timer_slack;

/// Gives the calling thread real-time priority and timers without slack.
///
/// The priority is not passed on to threads and processes that it starts.
///
/// # Errors
///
/// When the system refuses; the thread then keeps its ordinary priority.
pub(crate) fn prefer_this_thread(priority: i32) -> io::Result<()> {
    set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS))?;
    let parameters = libc::sched_param { sched_priority: priority };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 means the calling thread, and `parameters` outlives the call, which only reads it.
    let done = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Priority of the emulator among real-time threads, of 1 to 99; the middle, as kernel threads for interrupts have it.
pub(crate) const EMULATOR: i32 = 50;

/// Priority of the threads that measure the emulator.
pub(crate) const PROBE: i32 = 40;

/// Nanoseconds by which timers may be late, the least there is; the default is 50 µs (prctl(2)).
const TIMER_SLACK_NS: u64 = 1;
