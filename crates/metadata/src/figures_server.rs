//! The port on which an engine tells its figures: `GET /metrics` and `GET /report` (docs/observability.md).
//!
//! Owns the port, its limits and its thread. Must not know what the figures are.

mod connection;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::server_thread::ServerThread;

use self::connection::Connections;

/// Who knows the figures. Called on the server's thread; it should be quick.
pub trait Figures: Send + Sync + 'static {
    /// In Prometheus' text format; `None` when there are none any more.
    fn metrics(&self) -> Option<String>;
    /// As a JSON object; `None` likewise.
    fn report(&self) -> Option<String>;
}

/// A running server of figures. Dropping it stops it; in a forked child dropping it does nothing.
#[derive(Debug)]
pub struct FiguresServer {
    _thread: ServerThread,
    address: SocketAddr,
}

impl FiguresServer {
    /// Serves `listener` on a thread of its own, which sleeps while nobody asks.
    ///
    /// # Errors
    /// The thread, its epoll descriptor or the listener's mode could not be had.
    pub fn start(listener: TcpListener, figures: Arc<dyn Figures>) -> io::Result<FiguresServer> {
        let address = listener.local_addr()?;
        let thread = ServerThread::start("moonrail-http", 1, move |stop| {
            let connections = Connections::new(listener)?;
            let router = Router::new()
                .route("/metrics", get(metrics))
                .route("/report", get(report))
                .fallback(async || (StatusCode::NOT_FOUND, "there is /metrics and /report\n"))
                .with_state(figures);
            Ok(async move {
                let serving = axum::serve(connections, router);
                tokio::select! {
                    _ = stop => {}
                    // Never ends by itself: accepting outlives every error.
                    _ = std::future::IntoFuture::into_future(serving) => {}
                }
            })
        })?;
        Ok(FiguresServer { _thread: thread, address })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

async fn metrics(State(figures): State<Arc<dyn Figures>>) -> Response {
    answer("text/plain; version=0.0.4; charset=utf-8", figures.metrics())
}

async fn report(State(figures): State<Arc<dyn Figures>>) -> Response {
    answer("application/json", figures.report())
}

fn answer(kind: &'static str, text: Option<String>) -> Response {
    match text {
        Some(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the engine was shut down\n").into_response(),
    }
}
