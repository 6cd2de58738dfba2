//! Events as plain lines on standard error: `moonrail LEVEL message`.
//!
//! The level comes from `MOONRAIL_LOG`, else `MC_LOG_LEVEL`, else it is WARNING: a healthy process says nothing.

use std::env;
use std::fmt::{self, Write};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, warn};

static START: Once = Once::new();

/// Turns events into lines from now on; later calls do nothing.
pub(crate) fn start() {
    START.call_once(|| {
        let (level, unknown) = level();
        // A program that embeds this and has its own subscriber keeps it.
        let _ = tracing::subscriber::set_global_default(Lines { level });
        if let Some((name, value)) = unknown {
            warn!("{name} is {value:?}; it takes TRACE, DEBUG, INFO, WARNING, ERROR or OFF");
        }
    });
}

fn level() -> (LevelFilter, Option<(&'static str, String)>) {
    for name in ["MOONRAIL_LOG", "MC_LOG_LEVEL"] {
        let Some(value) = env::var(name).ok().filter(|value| !value.is_empty()) else { continue };
        let level = match value.trim().to_ascii_lowercase().as_str() {
            "trace" => LevelFilter::TRACE,
            "debug" => LevelFilter::DEBUG,
            "info" => LevelFilter::INFO,
            "warning" | "warn" => LevelFilter::WARN,
            "error" | "fatal" | "critical" => LevelFilter::ERROR,
            "off" | "none" => LevelFilter::OFF,
            _ => return (LevelFilter::WARN, Some((name, value))),
        };
        return (level, None);
    }
    (LevelFilter::WARN, None)
}

struct Lines {
    level: LevelFilter,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let own = metadata.target().starts_with("moonrail") || metadata.target().starts_with("_moonrail");
        // What libraries tell below a warning is of use to nobody here.
        *metadata.level() <= self.level && (own || *metadata.level() <= Level::WARN)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let level = match *event.metadata().level() {
            Level::ERROR => "ERROR",
            Level::WARN => "WARNING",
            Level::INFO => "INFO",
            Level::DEBUG => "DEBUG",
            Level::TRACE => "TRACE",
        };
        let mut line = Line(format!("moonrail {level}"));
        event.record(&mut line);
        line.0.push('\n');
        write_line(line.0.as_bytes());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let start = self.0.len();
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        // One event is one line, whatever a peer put into a name.
        if self.0[start..].contains(['\n', '\r']) {
            let flat = self.0.split_off(start).replace(['\n', '\r'], " ");
            self.0.push_str(&flat);
        }
    }
}

/// One write a line, without the lock of Rust's standard error: a forked child may find that locked for ever.
fn write_line(line: &[u8]) {
    // SAFETY: the pointer and length are those of a live slice. A closed standard error is nothing to be told about.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
