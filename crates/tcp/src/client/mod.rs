//! The initiator's side: lanes to peers and the exchanges on them.
//!
//! A call takes a lane for itself and does the socket work on its own thread, so that a small transfer needs
//! no hand-over; calls that find every lane taken wait for one.

mod drive;
mod exchange;
mod failure;
mod growth;
mod joining;
mod lane;
mod opening;
mod pipelined;
mod pool;
mod presenting;
mod rail;
mod receive;
mod send;
#[cfg(test)]
mod simulation;
mod stripes;
mod v1;

use std::net::SocketAddr;
use std::sync::Arc;

use foldhash::HashMap;
use moonrail_access::{AccessControl, Wallet};
use moonrail_transport::{Code, Control, Dialect, Failure, Path, Target, Work};
use moonrail_wire::TraceContext;
use parking_lot::RwLock;

use self::pool::Pool;

/// Batches above this many bytes or entries are bulk: they never take a peer's last lane.
const BULK_BYTES: u64 = 1 << 20;
const BULK_ENTRIES: usize = 256;

/// Transfers over TCP: to a Moonrail in rail frames, to other peers in Mooncake's data protocol, v1 or v2.
///
/// Safe to call from any number of threads. A call does its work on the calling thread, but for large ones that are
/// striped over several lanes: those have a further thread for each further lane while they last.
pub struct TcpPath {
    lanes_per_peer: usize,
    access: Option<Arc<AccessControl>>,
    wallet: Arc<Wallet>,
    pools: RwLock<HashMap<Vec<SocketAddr>, Pools>>,
}

/// The lanes to one data endpoint, by dialect: what a lane has said once it cannot unsay. Almost always one.
type Pools = Vec<(Dialect, Arc<Pool>)>;

impl TcpPath {
    /// A path that opens up to `lanes_per_peer` connections (at least 1) to each peer, on demand.
    #[must_use]
    pub fn new(lanes_per_peer: usize) -> Self {
        Self {
            lanes_per_peer: lanes_per_peer.max(1),
            access: None,
            wallet: Arc::default(),
            pools: RwLock::default(),
        }
    }

    /// The same path, on whose rail lanes both sides prove the shared key before anything else. Without
    /// `Allow::mooncake` it speaks nothing but rail.
    #[must_use]
    pub fn guarded(mut self, access: Option<Arc<AccessControl>>) -> Self {
        self.access = access;
        self
    }

    /// The same path, that presents the tokens in `wallet`.
    #[must_use]
    pub fn with_wallet(mut self, wallet: Arc<Wallet>) -> Self {
        self.wallet = wallet;
        self
    }

    fn pool(&self, target: &Target) -> Arc<Pool> {
        if let Some(pool) =
            self.pools.read().get(&target.addresses).and_then(|pools| of_dialect(pools, target))
        {
            return pool;
        }
        let mut all = self.pools.write();
        let pools = all.entry(target.addresses.clone()).or_default();
        of_dialect(pools, target).unwrap_or_else(|| {
            let pool = Arc::new(Pool::new(self.lanes_per_peer, self.access.clone()));
            pools.push((target.dialect, Arc::clone(&pool)));
            pool
        })
    }

    /// Lanes that are open to the target now.
    #[must_use]
    pub fn lanes(&self, target: &Target) -> usize {
        let pools = self.pools.read();
        pools.get(&target.addresses).map_or(0, |pools| pools.iter().map(|(_, pool)| pool.open()).sum())
    }

    /// Closes every idle lane, to give descriptors back when the process ran out of them.
    fn shed_idle_lanes(&self) {
        for (_, pool) in self.pools.read().values().flatten() {
            pool.shed_idle();
        }
    }

    /// [`Path::execute`] for a call that is part of `trace`, which a Moonrail that traces is told.
    ///
    /// # Errors
    /// As [`Path::execute`].
    pub fn execute_in(
        &self,
        trace: Option<TraceContext>,
        target: &Target,
        work: &Work<'_>,
        control: &Control<'_>,
    ) -> Result<(), Failure> {
        if work.entries.iter().all(|entry| entry.len == 0) {
            return Ok(());
        }
        match self.execute_once(trace, target, work, control) {
            Err(failure) if failure.error.code() == Code::ResourceLimit && failure.untouched => {
                self.shed_idle_lanes();
                self.execute_once(trace, target, work, control)
            }
            outcome => outcome,
        }
    }

    fn execute_once(
        &self,
        trace: Option<TraceContext>,
        target: &Target,
        work: &Work<'_>,
        control: &Control<'_>,
    ) -> Result<(), Failure> {
        opening::may_speak(self.access.as_deref(), target, work)?;
        let pool = self.pool(target);
        if target.dialect == Dialect::MooncakeV1 {
            return v1::execute(&pool, target, work, control);
        }
        let bytes = work.bytes();
        if matches!(target.dialect, Dialect::Rail { .. }) && stripes::worth_it(bytes) {
            return stripes::execute(&pool, &self.wallet, trace, target, work, control);
        }
        let bulk = work.entries.len() > BULK_ENTRIES || bytes > BULK_BYTES;
        let mut lane = pool.acquire(target, work, bulk, control)?;
        presenting::catch_up(&mut lane, &self.wallet, target, work, control)
            .and_then(|()| joining::join(&mut lane, trace, target, work, control))
            .and_then(|()| drive::run(&mut lane, target, work, control))
            .inspect_err(|failure| pool.learn_failure(failure))?;
        lane.keep();
        Ok(())
    }
}

impl Path for TcpPath {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn execute(&self, target: &Target, work: &Work<'_>, control: &Control<'_>) -> Result<(), Failure> {
        self.execute_in(None, target, work, control)
    }

    fn forget(&self, target: &Target) {
        let mut all = self.pools.write();
        let Some(pools) = all.get_mut(&target.addresses) else { return };
        for (_, pool) in pools.extract_if(.., |(dialect, _)| *dialect == target.dialect) {
            pool.close();
        }
        if pools.is_empty() {
            all.remove(&target.addresses);
        }
    }
}

fn of_dialect(pools: &Pools, target: &Target) -> Option<Arc<Pool>> {
    pools.iter().find(|(dialect, _)| *dialect == target.dialect).map(|(_, pool)| Arc::clone(pool))
}
