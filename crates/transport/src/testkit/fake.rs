//! An in-memory path: the far side is another region table of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use moonrail_memory::{HoldSet, RegionTable, Want};
use parking_lot::Mutex;

use crate::{Code, Control, Entry, Error, Failure, Opcode, Path, Retry, Stage, Target, Work};

/// Bytes copied at a time.
const CHUNK: usize = 64 << 10;

/// What is to go wrong, call after call.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// The peer is gone before this entry is moved.
    pub gone_at: Option<usize>,
    /// The call finds its connection dead before anything is sent: untouched and stale.
    pub stale_first: usize,
    /// The call does not move until it is stopped or its deadline passes.
    pub stall: bool,
}

/// Moves bytes by copying between two region tables; fails as told.
pub struct FakePath {
    far: Arc<RegionTable>,
    faults: Mutex<Faults>,
    calls: AtomicUsize,
}

impl FakePath {
    /// A path to `far`.
    #[must_use]
    pub fn new(far: Arc<RegionTable>) -> Self {
        Self { far, faults: Mutex::default(), calls: AtomicUsize::new(0) }
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    /// How often it was executed.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn move_entry(&self, work: &Work<'_>, entry: &Entry) -> Result<(), String> {
        let want = if work.opcode == Opcode::Write { Want::Write } else { Want::Read };
        let far = self.far.hold(entry.remote, entry.len, want).map_err(|error| error.to_string())?;
        let near = find(work.holds, entry)?;
        let mut buffer = vec![0; CHUNK];
        let mut done = 0;
        while done < entry.len {
            let piece = &mut buffer[..CHUNK.min((entry.len - done) as usize)];
            let copied = match work.opcode {
                Opcode::Write => near
                    .copy_out(entry.local + done, piece)
                    .and_then(|()| far.copy_in(entry.remote + done, piece)),
                Opcode::Read => far
                    .copy_out(entry.remote + done, piece)
                    .and_then(|()| near.copy_in(entry.local + done, piece)),
            };
            copied.map_err(|error| error.to_string())?;
            done += piece.len() as u64;
        }
        Ok(())
    }
}

/// Waits as a path does whose peer says nothing.
fn stall(control: &Control<'_>, failed: &dyn Fn(Code, usize, &str, bool) -> Failure) -> Failure {
    let limit = Instant::now() + control.progress;
    loop {
        if (control.stop)().is_some() {
            return failed(Code::Cancelled, 0, "stopped", true);
        }
        let now = Instant::now();
        let Some(slice) = control.slice(now, limit) else {
            let code = if control.expired(now) { Code::DeadlineExceeded } else { Code::PeerTimeout };
            return failed(code, 0, "no byte moved", true);
        };
        std::thread::sleep(slice);
    }
}

fn find<'a>(holds: &'a HoldSet, entry: &Entry) -> Result<&'a moonrail_memory::Hold, String> {
    holds.find(entry.local, entry.len, &mut 0).ok_or_else(|| "the local range is not held".to_owned())
}

impl Path for FakePath {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn execute(&self, target: &Target, work: &Work<'_>, control: &Control<'_>) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let faults = {
            let mut faults = self.faults.lock();
            let now = faults.clone();
            faults.stale_first = faults.stale_first.saturating_sub(1);
            now
        };
        let failed = |code, index: usize, message: &str, untouched| {
            let error = Error::new(code, Stage::Transfer, Retry::Unsafe, message)
                .with_peer(&target.name)
                .with_index(index);
            Failure { error, untouched, stale: true }
        };
        if faults.stale_first > 0 {
            return Err(failed(Code::PeerGone, 0, "the connection was dead", true));
        }
        if faults.stall {
            return Err(stall(control, &failed));
        }
        for (index, entry) in work.entries.iter().enumerate().filter(|(_, entry)| entry.len > 0) {
            if faults.gone_at == Some(index) {
                return Err(failed(Code::PeerGone, index, "the peer went away", index == 0));
            }
            self.move_entry(work, entry)
                .map_err(|error| failed(Code::RemoteRefused, index, &error, index == 0))?;
        }
        Ok(())
    }

    fn forget(&self, _target: &Target) {}
}
