//! Which path carries a batch: the best one that reaches the peer.

use moonrail_shm::ShmPath;
use moonrail_tcp::TcpPath;
use moonrail_transport::{Code, Control, Failure, Path, Target, Work};
use tracing::info;

/// Batches of at least this many entries with a smaller mean length go over TCP also on one host: a cross-memory
/// copy costs the kernel about 0.3 µs for each piece, a rail frame less (docs/performance.md).
const FINE_GRAINED: (usize, u64) = (256, 2048);

/// The paths of one engine, best first.
pub(crate) struct Routes {
    shm: Option<ShmPath>,
    tcp: TcpPath,
    /// Carries what would go over TCP.
    #[cfg(feature = "testkit")]
    pub(crate) instead_of_tcp: std::sync::OnceLock<Box<dyn Path>>,
}

impl Routes {
    pub(crate) fn new(shm: Option<ShmPath>, tcp: TcpPath) -> Self {
        Self {
            shm,
            tcp,
            #[cfg(feature = "testkit")]
            instead_of_tcp: std::sync::OnceLock::new(),
        }
    }

    /// The names of the paths, best first.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.shm.iter().map(Path::name).chain([self.tcp.name()]).collect()
    }

    /// What a descriptor's same-host contact is worth to this engine: kept only if it is of this host.
    pub(crate) fn settle(&self, target: &mut Target) {
        if !self.shm.as_ref().is_some_and(|shm| shm.same_host(target)) {
            target.same_host = None;
        }
    }

    /// Carries the batch out on the best path. One that turns out not to work to this peer is passed over, and said so
    /// once; nothing was moved by it then.
    pub(crate) fn execute(
        &self,
        target: &Target,
        work: &Work<'_>,
        control: &Control<'_>,
    ) -> Result<(), Failure> {
        if let Some(shm) = self.usable_shm(target).filter(|_| !is_fine_grained(work)) {
            match shm.execute(target, work, control) {
                Err(failure) if failure.untouched && failure.error.code() == Code::UnsupportedPeer => {
                    info!(
                        "{} is on this host but is reached over tcp: {}",
                        target.name,
                        failure.error.message()
                    );
                }
                outcome => return outcome,
            }
        }
        #[cfg(feature = "testkit")]
        if let Some(path) = self.instead_of_tcp.get() {
            return path.execute(target, work, control);
        }
        self.tcp.execute(target, work, control)
    }

    /// The path that the next batch to the target takes, and why not a better one, if one was tried.
    pub(crate) fn chosen(&self, target: &Target) -> (&'static str, Option<String>) {
        match self.usable_shm(target) {
            Some(shm) => (shm.name(), None),
            None => {
                let tried = self.shm.as_ref().filter(|_| target.same_host.is_some());
                (self.tcp.name(), tried.and_then(|shm| shm.why_not(target)))
            }
        }
    }

    /// Gives up what is kept open to a target whose descriptor is out of date.
    pub(crate) fn forget(&self, target: &Target) {
        if let Some(shm) = &self.shm {
            shm.forget(target);
        }
        self.tcp.forget(target);
    }

    fn usable_shm(&self, target: &Target) -> Option<&ShmPath> {
        target.same_host.as_ref()?;
        self.shm.as_ref().filter(|shm| shm.why_not(target).is_none())
    }
}

fn is_fine_grained(work: &Work<'_>) -> bool {
    let (count, mean) = FINE_GRAINED;
    work.entries.len() >= count && work.bytes() / (work.entries.len() as u64) < mean
}
