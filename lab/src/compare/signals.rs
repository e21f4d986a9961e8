//! The signals that end a comparison early.

use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

/// Gives a flag that is set by the first SIGINT or SIGTERM, so that runs end and their labs go; the second ends the process at
/// once, and leaves the labs to the next start.
pub(crate) fn stop_on_signal() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    thread::spawn(move || {
        // Without a runtime signals keep their default, which also ends the process.
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return;
            };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if flag.swap(true, Ordering::Relaxed) {
                    process::exit(super::EXIT_INTERRUPTED.into());
                }
            }
        });
    });
    stop
}
