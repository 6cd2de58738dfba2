//! The cluster for those who look at it: the page `/` and its JSON, `/api/cluster`.
//!
//! Owns when it is put together: once a second at most, and only while somebody asks. The segments come from the store,
//! their figures from the engines themselves ([`watch`]); what pairs come to is the knowledge of `moonrail-compat`.
//! Must not know: the engine, data paths. Whoever looks never delays the engines that register and look up: they only
//! share the lock of the store, for as long as its entries are copied.

mod asking;
mod cluster;
mod page;
mod pairs;
mod plot;
mod problems;
mod report;
mod segments;
mod text;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::listing;
use super::store::Store;
use cluster::Cluster;
use segments::{Reader, Segment};
use watch::{Target, Watch};

pub(super) use watch::FETCHES;

/// JSON Schema (draft 2020-12) of `/api/cluster`.
pub(super) const SCHEMA: &str = include_str!("../../../cluster.schema.json");
pub(super) const STYLE: &str = include_str!("../../../assets/status.css");
pub(super) const SCRIPT: &str = include_str!("../../../assets/status.js");

/// Pages put together at the same time.
pub(super) const VIEWS: usize = 4;
/// How long what was put together serves all who ask.
const REUSED: Duration = Duration::from_secs(1);

/// Puts the cluster together for those who look.
#[derive(Debug)]
pub(super) struct Status {
    watch: Watch,
    reader: Arc<Mutex<Reader>>,
    /// Held while a new one is made, so that all who ask meanwhile share it.
    latest: tokio::sync::Mutex<Option<Arc<Cluster>>>,
    views: tokio::sync::Semaphore,
}

impl Status {
    pub(super) fn new() -> Status {
        Status {
            watch: Watch::new(),
            reader: Arc::default(),
            latest: tokio::sync::Mutex::new(None),
            views: tokio::sync::Semaphore::new(VIEWS),
        }
    }

    /// The page, with only what has `filter` in its name; `None` if it could not be made.
    pub(super) async fn page(&self, store: &Mutex<Store>, filter: String) -> Option<String> {
        self.rendered(store, move |cluster| page::page(cluster, &filter)).await
    }

    /// The same for programs.
    pub(super) async fn json(&self, store: &Mutex<Store>) -> Option<String> {
        self.rendered(store, |cluster| serde_json::to_string(cluster).ok()).await?
    }

    async fn rendered<T: Send + 'static>(
        &self,
        store: &Mutex<Store>,
        render: impl FnOnce(&Cluster) -> T + Send + 'static,
    ) -> Option<T> {
        let _place = self.views.acquire().await.ok()?;
        let cluster = self.cluster(store).await?;
        tokio::task::spawn_blocking(move || render(&cluster)).await.ok()
    }

    async fn cluster(&self, store: &Mutex<Store>) -> Option<Arc<Cluster>> {
        let mut latest = self.latest.lock().await;
        if let Some(cluster) = latest.as_ref().filter(|cluster| cluster.made.elapsed() < REUSED) {
            return Some(Arc::clone(cluster));
        }
        let entries = listing::snapshot(&store.lock());
        let reader = Arc::clone(&self.reader);
        let segments = tokio::task::spawn_blocking(move || reader.lock().read(&entries)).await.ok()?;
        self.watch.round(segments.iter().filter_map(target).collect()).await;
        let (engines, points) = (self.watch.engines(), self.watch.points());
        let made =
            tokio::task::spawn_blocking(move || Cluster::new(&segments, &engines, &points)).await.ok()?;
        let made = Arc::new(made);
        *latest = Some(Arc::clone(&made));
        Some(made)
    }
}

/// Whom to ask for the figures of a segment, if anybody.
fn target(segment: &Segment) -> Option<Target> {
    let segments::Descriptor::Read(summary) = &segment.descriptor else { return None };
    let url = asking::endpoint(summary.metrics.as_ref()?, segment.is_here).ok()?;
    Some(Target { key: segment.key.clone(), url, epoch: format!("{:016x}", summary.epoch?) })
}
