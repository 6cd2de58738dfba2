//! The initiator's side: lanes to peers and the exchanges on them.
//!
//! A call takes a lane for itself and does the socket work on its own thread, so that a small transfer needs
//! no hand-over; calls that find every lane taken wait for one.

mod drive;
mod exchange;
mod failure;
mod growth;
mod guards;
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
use moonrail_access::{AccessControl, Tls, Wallet};
use moonrail_transport::{Code, Control, Dialect, Failure, Path, Target, Work};
use moonrail_wire::TraceContext;
use parking_lot::RwLock;

use self::guards::Guards;
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
    guards: Guards,
    wallet: Arc<Wallet>,
    pools: RwLock<HashMap<Vec<SocketAddr>, Pools>>,
}

/// The lanes to one data endpoint, by what they speak and whom they found there: what a lane has said once it cannot unsay.
/// Almost always one.
type Pools = Vec<(Spoken, Arc<Pool>)>;

/// What is spoken on a lane, and the name that the peer has shown to have.
struct Spoken {
    dialect: Dialect,
    tls: Option<Arc<str>>,
}

impl Spoken {
    fn is_to(&self, target: &Target) -> bool {
        self.dialect == target.dialect && self.tls == target.tls
    }
}

impl TcpPath {
    /// A path that opens up to `lanes_per_peer` connections (at least 1) to each peer, on demand.
    #[must_use]
    pub fn new(lanes_per_peer: usize) -> Self {
        Self {
            lanes_per_peer: lanes_per_peer.max(1),
            guards: Guards::default(),
            wallet: Arc::default(),
            pools: RwLock::default(),
        }
    }

    /// The same path, on whose rail lanes both sides prove the shared key before anything else. Without
    /// `Allow::mooncake` it speaks nothing but rail.
    #[must_use]
    pub fn guarded(mut self, access: Option<Arc<AccessControl>>) -> Self {
        self.guards.access = access;
        self
    }

    /// The same path, that speaks TLS to every target with a [name](Target::tls), and to no other unless that is allowed.
    #[must_use]
    pub fn sealed(mut self, tls: Option<Arc<Tls>>) -> Self {
        self.guards.tls = tls;
        self
    }

    /// The same path, that presents the tokens in `wallet`.
    #[must_use]
    pub fn with_wallet(mut self, wallet: Arc<Wallet>) -> Self {
        self.wallet = wallet;
        self
    }

    /// The same path, that asks for checksums on its rail lanes.
    #[must_use]
    pub fn checking(mut self, checksum: bool) -> Self {
        self.guards.checksum = checksum;
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
            let pool = Arc::new(Pool::new(self.lanes_per_peer, self.guards.clone()));
            let spoken = Spoken { dialect: target.dialect, tls: target.tls.clone() };
            pools.push((spoken, Arc::clone(&pool)));
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
        opening::may_speak(&self.guards, target, work)?;
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
        for (_, pool) in pools.extract_if(.., |(spoken, _)| spoken.is_to(target)) {
            pool.close();
        }
        if pools.is_empty() {
            all.remove(&target.addresses);
        }
    }
}

fn of_dialect(pools: &Pools, target: &Target) -> Option<Arc<Pool>> {
    pools.iter().find(|(spoken, _)| spoken.is_to(target)).map(|(_, pool)| Arc::clone(pool))
}
