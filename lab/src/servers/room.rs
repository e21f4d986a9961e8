//! A thread in a namespace that runs servers until it is told to end.

use std::{io, sync::mpsc, thread};

use tokio::{runtime, sync::oneshot};

use crate::os::namespace;

/// Servers that run in one namespace; dropping it ends them.
#[derive(Debug)]
pub(crate) struct Room {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Room {
    /// Runs `serve` in the named namespace; it starts the servers, and they run as the tasks it leaves behind.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered, or `serve` fails: an address may be taken.
    pub(crate) fn open<F>(name: &str, serve: impl FnOnce() -> F + Send + 'static) -> io::Result<Self>
    where
        F: Future<Output = io::Result<()>>,
    {
        let (stop, stopped) = oneshot::channel();
        let (opened, is_open) = mpsc::channel();
        let namespace = name.to_owned();
        let work = move || {
            let runtime =
                namespace::enter(&namespace).and_then(|()| runtime::Builder::new_current_thread().enable_all().build());
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(opened.send(Err(error))),
            };
            runtime.block_on(async {
                let result = serve().await;
                let is_serving = result.is_ok();
                if opened.send(result).is_ok() && is_serving {
                    // A room that was dropped sends nothing; either way it is the end.
                    let _ = stopped.await;
                }
            });
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(format!("{name}-room")).spawn(work)?;
        let room = Self { stop: Some(stop), thread: Some(thread) };
        // Without a word from the thread it has panicked.
        is_open.recv().unwrap_or_else(|_| Err(io::Error::other("the servers' thread ended")))?;
        Ok(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // It has ended already if it does not listen any more.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}
