//! Asking engines for their reports, each on a thread of its own: one that hangs delays nobody.
//!
//! Owns HTTP, and the list of engines that a metadata server's segments announce. Must not know: what is made of the answers.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use moonrail::Survey;

use super::endpoint::Endpoint;
use super::report::{Report, tame};
use crate::failure::Failure;

/// The longest report that is taken: a thousand peers have about a megabyte.
const LONGEST: u64 = 16 << 20;
/// To connect, and for a whole answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks at the metadata server's segments.
const RELIST: Duration = Duration::from_secs(5);

/// What a thread has found out.
pub(crate) enum News {
    /// An engine's report, or why there is none.
    Answer(Endpoint, Result<Box<Report>, String>),
    /// The engines that are announced, or why they cannot be listed.
    Listed(Result<Vec<Endpoint>, String>),
}

/// Asks for reports.
#[derive(Debug, Clone)]
pub(crate) struct Asker(ureq::Agent);

impl Asker {
    pub(crate) fn new() -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            // Engines are part of the cluster, and their addresses were given to us.
            .proxy(None)
            .user_agent(concat!("moonrail-top/", env!("CARGO_PKG_VERSION")));
        Self(config.build().new_agent())
    }

    pub(crate) fn ask(&self, at: &Endpoint) -> Result<Report, String> {
        let mut response = self.0.get(at.report()).call().map_err(|error| reason(&error))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(format!("HTTP status {status}: is this the address of MOONRAIL_METRICS?"));
        }
        let body = response.body_mut().with_config().limit(LONGEST).read_to_vec();
        Report::parse(&body.map_err(|error| reason(&error))?).map_err(|why| tame(&why))
    }
}

/// Where engines say, in their descriptors at the metadata server, that they can be asked.
pub(crate) struct Listing(Survey);

impl Listing {
    pub(crate) fn new(metadata: &str) -> Result<Self, Failure> {
        let cluster_id = std::env::var("MC_METADATA_CLUSTER_ID").ok().filter(|id| !id.is_empty());
        Survey::new(metadata, cluster_id.as_deref(), PATIENCE)
            .map(Self)
            .map_err(|error| Failure::engine("cannot look at the cluster", &error))
    }

    /// Segments that announce no address, genuine ones among them, are left out; so is one that vanishes meanwhile.
    pub(crate) fn list(&self) -> Result<Vec<Endpoint>, moonrail::Error> {
        let names = self.0.segments()?;
        let announced = names.iter().filter_map(|name| self.0.metrics(name).ok().flatten());
        Ok(announced.filter_map(|url| url.parse().ok()).collect())
    }
}

/// The threads that ask. They end soon after this is dropped.
pub(crate) struct Watch {
    asker: Asker,
    interval: Duration,
    news: Sender<News>,
    /// A thread goes on while its token is here.
    followed: BTreeMap<Endpoint, Arc<()>>,
}

impl Watch {
    pub(crate) fn new(interval: Duration, news: Sender<News>) -> Self {
        Self { asker: Asker::new(), interval, news, followed: BTreeMap::new() }
    }

    pub(crate) fn follow(&mut self, at: &Endpoint) -> Result<(), Failure> {
        if self.followed.contains_key(at) {
            return Ok(());
        }
        let token = Arc::new(());
        let (asker, interval, news, wanted) =
            (self.asker.clone(), self.interval, self.news.clone(), Arc::downgrade(&token));
        let place = at.clone();
        start(move || {
            while wanted.strong_count() > 0 {
                let answer = asker.ask(&place).map(Box::new);
                if news.send(News::Answer(place.clone(), answer)).is_err() {
                    return;
                }
                thread::sleep(interval);
            }
        })?;
        self.followed.insert(at.clone(), token);
        Ok(())
    }

    /// Follows no one any more whom `wanted` does not name.
    pub(crate) fn keep(&mut self, wanted: impl Fn(&Endpoint) -> bool) {
        self.followed.retain(|at, _| wanted(at));
    }

    /// Lists the announced engines from now on.
    pub(crate) fn list(&self, listing: Listing) -> Result<(), Failure> {
        let news = self.news.clone();
        start(move || {
            loop {
                let listed = listing.list().map_err(|error| tame(&error.to_string()));
                if news.send(News::Listed(listed)).is_err() {
                    return;
                }
                thread::sleep(RELIST);
            }
        })
    }
}

fn start(work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = thread::Builder::new().name("moonrail-top".to_owned()).spawn(work);
    thread.map(drop).map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))
}

/// The innermost cause, which is what helps.
fn reason(error: &ureq::Error) -> String {
    let mut inner: &dyn Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    tame(&inner.to_string())
}
