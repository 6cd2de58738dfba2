//! The error reference: what a failure is called, how it reads, what it means and what mends it.
//!
//! Owns: the records (`records/*.toml`, one for each failure that users of a transfer engine meet), finding a record by
//! code, number or message, finding known messages in logs of any size, and the records as JSON and as pages.
//! Must not know: the engine. Records are data; this crate opens no socket and raises no error of its own kind.
//!
//! ```
//! let reference = moonrail_reference::Reference::shared();
//! let record = reference.by_key("PEER_GONE").expect("every code has a record");
//! println!("{}: {}", record.cause, record.fix);
//! ```

mod find;
mod frame;
mod line;
mod load;
mod matcher;
mod needle;
mod pages;
mod published;
mod record;
mod scan;
mod site;

pub use crate::frame::{Frame, STYLE, THEME};
pub use crate::load::{BadRecords, Reference};
pub use crate::matcher::Matcher;
pub use crate::record::{CodeFacts, ErrorType, Language, Record, Runs, Severity, Snippet};
pub use crate::scan::{Found, Report, Scan, scan};
pub use crate::site::{Answer, answer, export};

/// Version of the records' shape, in every one of them as `schemaVersion`.
pub const SCHEMA_VERSION: u32 = 2;

/// JSON Schema (draft 2020-12) of a published record.
pub const SCHEMA: &str = include_str!("../schema.json");
