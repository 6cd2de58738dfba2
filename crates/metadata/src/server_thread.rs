//! One named thread with a single-threaded runtime, for the servers of this crate. Knows no protocol.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::thread::{self, JoinHandle};

use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// Resolves when the server is to end.
pub(crate) type Stop = oneshot::Receiver<()>;

/// Ends and joins its thread on drop; in a forked child, where that thread does not exist, drop does nothing.
#[derive(Debug)]
pub(crate) struct ServerThread {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
    /// The process that the thread belongs to.
    pid: u32,
}

impl ServerThread {
    /// Starts a thread and runs what `make` gives on it. `make` is called on that thread, inside the runtime; its
    /// error is returned here.
    pub(crate) fn start<M, F>(name: &str, blocking_threads: usize, make: M) -> io::Result<ServerThread>
    where
        M: FnOnce(Stop) -> io::Result<F> + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(blocking_threads)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let (report, started) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let made = {
                let _inside = runtime.enter();
                make(stopped)
            };
            match made {
                Ok(server) => {
                    // The caller waits for this very message and cannot be gone.
                    let _ = report.send(Ok(()));
                    let server: Pin<Box<F>> = Box::pin(server);
                    runtime.block_on(server);
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            }
            // Not waiting for blocking work: it has deadlines of its own and touches nothing of the server's.
            runtime.shutdown_background();
        })?;
        match started.recv() {
            Ok(Ok(())) => {
                Ok(ServerThread { running: Some(Running { stop, thread, pid: std::process::id() }) })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the server thread ended while starting")),
        }
    }

    /// Ends the server and waits for its thread. Does nothing the second time.
    pub(crate) fn stop(&mut self) {
        let Some(Running { stop, thread, pid }) = self.running.take() else { return };
        if pid != std::process::id() {
            // The parent's runtime shares its wake-up descriptor with us: leave it alone.
            std::mem::forget((stop, thread));
            return;
        }
        let _ = stop.send(());
        // A handler that drops the last owner of its own server must not wait for itself.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop();
    }
}
