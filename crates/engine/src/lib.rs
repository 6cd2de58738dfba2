//! Moonrail, a transfer engine: registered memory moved one-sidedly between processes and hosts.
//!
//! [`Engine`] is the front door: it owns a handshake port, a data port and a table of registered memory, finds
//! peers, and moves batches to and from their memory. Everything else here is what it takes and gives.
//!
//! ```no_run
//! use moonrail::{Config, Engine, Entry, Opcode, Request};
//!
//! # fn main() -> Result<(), moonrail::Error> {
//! let engine = Engine::start(Config::new("127.0.0.1", "P2PHANDSHAKE"))?;
//! let local = engine.allocate(1 << 20)?;
//! let remote = engine.first_buffer("127.0.0.1:15123")?;
//! let entry = Entry { local, remote, len: 4096 };
//! engine.transfer(&Request::new("127.0.0.1:15123", Opcode::Write, vec![entry]))?;
//! # Ok(())
//! # }
//! ```
//!
//! Must not know: Python, C, the command line.

mod background;
mod capabilities;
mod collapse;
mod completion;
mod config;
mod descriptor;
mod engine;
mod environment;
mod errors;
mod events;
mod fetch;
mod handler;
mod limits;
mod listen;
mod local;
mod metrics;
mod notify;
mod peers;
mod registration;
mod report;
mod request;
mod route;
#[cfg(feature = "otlp")]
mod spans;
#[cfg(not(feature = "otlp"))]
#[path = "spans_off.rs"]
mod spans;
mod survey;
#[cfg(feature = "testkit")]
mod testkit;
mod tokens;
mod transfer;

pub use capabilities::{Capabilities, Capability, Kind, Missing, PeerCapabilities, capabilities, require};
pub use completion::Completion;
pub use config::{BadPaths, Config, Paths, Timeouts, V1Clients};
pub use engine::Engine;
pub use events::{Event, Subscriber};
pub use limits::Limit;
pub use moonrail_access::{Allow, KeySource, Rights, TlsSource, UnknownName};
/// What releases can do, and what pairs of them come to.
pub use moonrail_compat as compat;
pub use moonrail_memory::{Access, HugePages, MemoryRange, RangeError, RegionOptions};
pub use moonrail_metadata::{MetadataServer, ServerLimits};
pub use moonrail_sys::process::{ForkGuard, on_first_thread};
pub use moonrail_transport::{Code, Entry, Error, Opcode, Retry, Stage};
pub use moonrail_wire::{BadTraceparent, TraceContext};
pub use notify::Notify;
pub use report::{EngineReport, NamedRange, PeerReport, ProbeReport};
pub use request::Request;
pub use survey::{Sighting, Survey};

/// This release, as peers are told.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");
