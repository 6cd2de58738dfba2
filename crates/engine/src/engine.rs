//! The engine: what it owns, how it starts and how it ends.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use moonrail_access::{AccessControl, Tls, TokenIssuer, Wallet};
use moonrail_memory::{ManagedBuffers, RegionTable};
use moonrail_metadata::{
    Directory, FiguresServer, HandshakeClient, HandshakeServer, HandshakeTimeouts, Limits,
};
use moonrail_shm::{ShmPath, ShmServer};
use moonrail_sys::process::{self, ForkGuard};
use moonrail_tcp::{ServerOptions, TcpPath, TcpServer};
use moonrail_transport::{Code, Error, Stage};
use moonrail_wire::RpcMeta;
use moonrail_wire::auth::{FEATURE_KEY, FEATURE_TLS};
use moonrail_wire::rail;
use parking_lot::Mutex;
use tracing::{debug, info, warn};

use crate::background::Background;
use crate::collapse::Collapse;
use crate::config::{Config, V1Clients};
use crate::descriptor::OwnDescriptor;
use crate::errors;
use crate::events::{Events, Subscriber};
use crate::fetch::Fetches;
use crate::handler::Handler;
use crate::limits::{Limit, PeerLimits};
use crate::listen::{self, Ports};
use crate::metrics::{Metrics, Told};
use crate::notify::{Inbox, Notify};
use crate::peers::Peers;
use crate::report::EngineReport;
use crate::route::Routes;
use crate::spans::Spans;

/// A transfer engine. Clones share the same engine; it ends when [`Engine::shutdown`] is called or the last clone
/// is dropped. Every method may be called from any thread; in a forked child every one fails at once.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Owner>,
}

/// Ends the engine when the last front-door handle goes; background work may hold [`Inner`] a little longer.
struct Owner(Arc<Inner>);

pub(crate) struct Inner {
    pub config: Config,
    pub access: Option<Arc<AccessControl>>,
    pub tls: Option<Arc<Tls>>,
    pub issuer: Arc<TokenIssuer>,
    pub wallet: Arc<Wallet>,
    pub own: Arc<OwnDescriptor>,
    pub regions: Arc<RegionTable>,
    pub managed: ManagedBuffers,
    pub directory: Box<dyn Directory>,
    pub client: HandshakeClient,
    pub peers: Peers,
    pub fetches: Fetches,
    pub routes: Routes,
    pub background: Background,
    pub collapse: Option<Collapse>,
    pub inbox: Arc<Inbox>,
    pub events: Events,
    pub metrics: Option<Arc<Metrics>>,
    pub limits: PeerLimits,
    pub publishing: Mutex<()>,
    pub spans: Option<Spans>,
    servers: Mutex<Option<Servers>>,
    rpc_port: u16,
    fallbacks: Vec<String>,
    closed: AtomicBool,
    fork_guard: ForkGuard,
}

struct Servers {
    data: TcpServer,
    handshake: HandshakeServer,
    figures: Option<FiguresServer>,
    /// Held for its thread.
    _shm: Option<ShmServer>,
}

impl Engine {
    /// Opens the ports, takes the name, and serves peers from then on.
    ///
    /// # Errors
    /// [`Code::UnknownProtocol`], [`Code::NameResolution`], [`Code::ListenFailed`], [`Code::NameTaken`],
    /// [`Code::Metadata`], [`Code::ResourceLimit`], [`Code::InvalidArgument`] for a key or certificate that cannot be used;
    /// nothing is left behind then.
    pub fn start(config: Config) -> Result<Self, Error> {
        let fallbacks = check_protocol(&config)?;
        let guards = Guards::open(&config)?;
        // A cluster has many peers; what the process may not raise is found when descriptors run out.
        let _ = process::raise_nofile_limit();
        let timeouts =
            HandshakeTimeouts { connect: config.timeouts.connect, reply: config.timeouts.handshake };
        let client = HandshakeClient {
            access: guards.access.clone(),
            tls: guards.tls.clone(),
            ..HandshakeClient::new(timeouts, config.handshake_max_len)
        };
        let directory =
            moonrail_metadata::open(&config.metadata_server, config.cluster_id.as_deref(), client.clone())
                .map_err(|error| errors::publish(Stage::Initialize, &error))?;
        let ports =
            if directory.is_p2p() { listen::open_p2p(&config)? } else { listen::open_named(&config)? };
        let figures = listen::open_metrics(&config)?;
        let (listener, url) = figures.unzip();
        let inner = Arc::new(build(config, guards, directory, client, ports, fallbacks, url)?);
        let engine = Self { inner: Arc::new(Owner(Arc::clone(&inner))) };
        inner.tell_figures(listener)?;
        inner.announce()?;
        debug!("engine {} is up", inner.own.name);
        Ok(engine)
    }

    /// The name peers use: `host:port` of the handshake port in P2P mode, the segment name otherwise.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner().own.name
    }

    /// The handshake port.
    #[must_use]
    pub fn rpc_port(&self) -> u16 {
        self.inner().rpc_port
    }

    /// A random number of this run; peers tell a restart by it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.inner().own.epoch
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.inner().config
    }

    /// The notifications that peers left since the last call, in order of arrival.
    #[must_use]
    pub fn take_notifies(&self) -> Vec<Notify> {
        self.inner().inbox.take()
    }

    /// The engine's own state.
    ///
    /// # Errors
    /// When the engine was shut down or belongs to the parent of this process.
    pub fn report(&self) -> Result<EngineReport, Error> {
        self.usable()?.own_report()
    }

    /// Calls `subscriber` with each [`Event`](crate::Event) from now on, for the life of the engine.
    pub fn subscribe(&self, subscriber: Subscriber) {
        self.inner().events.subscribe(subscriber);
    }

    /// Sets what transfers with `peer` may take from now on, in place of [`Config::limit`]; those
    /// under way go on as they began. The peer need not be known yet, and nobody is asked.
    ///
    /// # Errors
    /// None but those of an engine that was shut down or forked.
    pub fn limit(&self, peer: &str, limit: Limit) -> Result<(), Error> {
        self.usable()?.limits.set(peer, limit);
        Ok(())
    }

    /// Closes both ports, takes the name back and refuses further calls. Transfers under way end with an error or
    /// as they would have; their memory stays held until then. The second call does nothing.
    pub fn shutdown(&self) {
        self.inner().shutdown();
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner.0
    }

    /// The engine, if it may be used here and now.
    pub(crate) fn usable(&self) -> Result<&Arc<Inner>, Error> {
        let inner = self.inner();
        if inner.fork_guard.forked() {
            return Err(errors::forked());
        }
        if inner.closed.load(Ordering::Acquire) {
            return Err(errors::closed());
        }
        Ok(inner)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.0.fork_guard.forked() {
            // A lock of the engine may have been held when the process was forked, so nothing may be taken apart.
            std::mem::forget(Arc::clone(&self.0));
            return;
        }
        self.0.shutdown();
    }
}

impl Inner {
    /// With a metadata server: takes the name there, then publishes the (still empty) segment.
    fn announce(&self) -> Result<(), Error> {
        let meta = RpcMeta { ip_or_host_name: self.own.data_host.clone(), rpc_port: self.rpc_port };
        self.directory
            .claim(&self.own.name, &meta)
            .and_then(|()| self.directory.publish(&self.own.full()))
            .map_err(|error| errors::publish(Stage::Initialize, &error))
    }

    pub(crate) fn own_report(&self) -> Result<EngineReport, Error> {
        let servers = self.servers.lock();
        let Servers { data, handshake, figures, .. } = servers.as_ref().ok_or_else(errors::closed)?;
        let counters = data.counters();
        let private = self.managed.why_private();
        let private =
            private.map(|why| format!("memory that this engine allocates cannot be mapped by peers: {why}"));
        Ok(EngineReport {
            name: self.own.name.clone(),
            epoch: self.own.epoch,
            handshake: handshake.local_addr(),
            data: data.address(),
            metrics: figures.as_ref().map(FiguresServer::local_addr),
            paths: self.routes.names(),
            fallbacks: self.fallbacks.iter().cloned().chain(private).collect(),
            regions: self.regions.count(),
            registered_bytes: self.regions.registered_bytes(),
            served: counters.requests.load(Ordering::Relaxed),
            refused: counters.refused.load(Ordering::Relaxed),
            bytes_in: counters.bytes_in.load(Ordering::Relaxed),
            huge_page_bytes: self.collapse.as_ref().map_or(0, Collapse::bytes),
            bytes_out: counters.bytes_out.load(Ordering::Relaxed),
        })
    }

    /// Serves the figures on `listener`, if there is one.
    fn tell_figures(self: &Arc<Self>, listener: Option<TcpListener>) -> Result<(), Error> {
        let Some((listener, metrics)) = listener.zip(self.metrics.clone()) else { return Ok(()) };
        let told = metrics.clone();
        self.events.subscribe(Box::new(move |event| told.heard(event)));
        let figures = Told { metrics, engine: Arc::downgrade(self) };
        let server = FiguresServer::start(listener, Arc::new(figures))
            .map_err(|error| errors::system(Stage::Initialize, "cannot serve the metrics port", &error))?;
        if let Some(servers) = &mut *self.servers.lock() {
            servers.figures = Some(server);
        }
        Ok(())
    }

    fn shutdown(&self) {
        if self.closed.swap(true, Ordering::AcqRel) || self.fork_guard.forked() {
            return;
        }
        if let Err(error) = self.directory.withdraw() {
            warn!("{} could not be taken back from the metadata server: {error}", self.own.name);
        }
        if let Some(collapse) = &self.collapse {
            collapse.close();
        }
        // Not with the lock held: one of the threads that are waited for may ask for a report.
        let servers = self.servers.lock().take();
        drop(servers);
        if let Some(spans) = &self.spans {
            spans.close();
        }
    }
}

fn build(
    mut config: Config,
    Guards { access, tls }: Guards,
    directory: Box<dyn Directory>,
    client: HandshakeClient,
    ports: Ports,
    mut fallbacks: Vec<String>,
    metrics_url: Option<String>,
) -> Result<Inner, Error> {
    let cannot = |what| move |error: std::io::Error| errors::system(Stage::Initialize, what, &error);
    let Ports { handshake: handshake_listener, data: data_listener, name, host } = ports;
    let rpc_port = handshake_listener.local_addr().map_err(cannot("cannot read the handshake port"))?.port();
    let data_port = data_listener.local_addr().map_err(cannot("cannot read the data port"))?.port();
    let regions = Arc::new(RegionTable::new());
    let epoch = new_epoch();
    // Who may copy on the same host is checked by the kernel, which knows neither key nor certificates.
    config.paths.shm &= config.allow.same_host || (access.is_none() && tls.is_none());
    let shm = start_shm(&config, &regions, epoch, &mut fallbacks);
    let contact = shm.as_ref().map(|shm| shm.contact().to_string());
    let spans = Spans::open(&config, &name)?;
    let known = rail::FEATURES & if spans.is_some() { !0 } else { !rail::TRACE };
    let key = if access.is_some() { FEATURE_KEY } else { 0 };
    let features = known | key | if tls.is_some() { FEATURE_TLS } else { 0 };
    let own = OwnDescriptor::new(name, (host, data_port), epoch, features, contact, Arc::clone(&regions));
    let metrics = metrics_url.is_some().then(|| Metrics::new(&own.name)).transpose();
    let metrics = metrics.expect("invariant: the names of the figures are valid").map(Arc::new);
    let own = own.refusing_v1(config.v1_clients == V1Clients::Refuse).telling_metrics(metrics_url);
    let (own, events) = (Arc::new(own), Events::default());
    let inbox = Arc::new(Inbox::new(config.max_notifies));
    let handler = Handler {
        descriptor: directory.is_p2p().then(|| Arc::clone(&own)),
        inbox: Arc::clone(&inbox),
        v1_clients: config.v1_clients,
        refused: AtomicU64::new(0),
        events: events.clone(),
    };
    let issuer = Arc::new(TokenIssuer::new().map_err(cannot("no random bytes"))?);
    let wallet = Arc::<Wallet>::default();
    let limits = Limits { max_len: config.handshake_max_len, ..Limits::default() };
    let options = ServerOptions {
        serve_v1_writes: config.v1_clients == V1Clients::Serve,
        epoch: own.epoch,
        access: access.clone(),
        tls: tls.clone(),
        tokens: Some(Arc::clone(&issuer)),
        traces: spans.as_ref().map(Spans::sink),
        ..ServerOptions::default()
    };
    let data = TcpServer::start(data_listener, Arc::clone(&regions), options)
        .map_err(cannot("cannot serve the data port"))?;
    let (listener, handler) = (handshake_listener, Arc::new(handler));
    let handshake = HandshakeServer::sealed(listener, handler, limits, access.clone(), tls.clone())
        .map_err(cannot("cannot serve the handshake port"))?;
    Ok(Inner {
        own,
        managed: ManagedBuffers::new(Arc::clone(&regions)),
        collapse: (config.huge_pages && config.paths.shm).then(|| Collapse::new(Arc::clone(&regions))),
        regions,
        directory,
        client,
        peers: Peers::default(),
        fetches: Fetches::default(),
        routes: Routes::new(
            config.paths.shm.then(ShmPath::new),
            TcpPath::new(config.lanes_per_peer)
                .guarded(access.clone())
                .sealed(tls.clone())
                .checking(config.checksum)
                .with_wallet(Arc::clone(&wallet)),
            events.clone(),
        ),
        events,
        metrics,
        limits: PeerLimits::new(config.limit),
        background: Background::new(),
        inbox,
        publishing: Mutex::new(()),
        spans,
        servers: Mutex::new(Some(Servers { data, handshake, figures: None, _shm: shm })),
        rpc_port,
        fallbacks,
        closed: AtomicBool::new(false),
        fork_guard: ForkGuard::new(),
        access,
        tls,
        issuer,
        wallet,
        config,
    })
}

/// Offers the memory to processes of this host. That it cannot is no failure: they come over TCP then.
fn start_shm(
    config: &Config,
    regions: &Arc<RegionTable>,
    epoch: u64,
    fallbacks: &mut Vec<String>,
) -> Option<ShmServer> {
    if !config.paths.shm {
        return None;
    }
    match ShmServer::start(Arc::clone(regions), epoch) {
        Ok(server) => Some(server),
        Err(error) => {
            let fallback =
                format!("processes of this host cannot reach the memory by the same-host path: {error}");
            info!("{fallback}");
            fallbacks.push(fallback);
            None
        }
    }
}

/// What keeps strangers out, where it was asked for.
struct Guards {
    access: Option<Arc<AccessControl>>,
    tls: Option<Arc<Tls>>,
}

impl Guards {
    fn open(config: &Config) -> Result<Self, Error> {
        let wrong = |text: String| errors::initialize(Code::InvalidArgument, text);
        let access = config.key.clone().map(|source| AccessControl::open(source, config.allow)).transpose();
        let access = access.map_err(|error| wrong(error.to_string()))?;
        let tls = config.tls.clone().map(|source| Tls::open(source, config.allow)).transpose();
        let tls = tls.map_err(|error| wrong(error.to_string()))?;
        Ok(Self { access: access.map(Arc::new), tls: tls.map(Arc::new) })
    }
}

fn check_protocol(config: &Config) -> Result<Vec<String>, Error> {
    match config.protocol.as_str() {
        "tcp" => Ok(Vec::new()),
        "rdma" if !config.strict => {
            let fallback = "protocol rdma was asked for; this build has no RDMA path and uses tcp".to_owned();
            warn!("{fallback} (MOONRAIL_STRICT=1 makes this an error)");
            Ok(vec![fallback])
        }
        "rdma" => Err(errors::initialize(
            Code::UnknownProtocol,
            "protocol rdma: this build has no RDMA path, and strict mode allows no other",
        )),
        other => Err(errors::initialize(
            Code::UnknownProtocol,
            format!("unknown protocol {other:?}: this build knows tcp, and rdma carried out over tcp"),
        )),
    }
}

/// Random enough to tell two runs apart; not a secret.
fn new_epoch() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    RandomState::new().hash_one((now.as_nanos(), std::process::id())).max(1)
}
