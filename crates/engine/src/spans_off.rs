//! Spans in a build without the feature `otlp`: there are none, and nothing of them is compiled.

use moonrail_tcp::TraceSink;
use moonrail_transport::{Error, Work};
use moonrail_wire::TraceContext;

use crate::config::Config;
use crate::request::Request;

/// Has no value.
pub(crate) enum Spans {}

/// Has no value.
pub(crate) enum TransferSpan {}

impl Spans {
    #[expect(clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(crate) fn open(_: &Config, _: &str) -> Result<Option<Self>, Error> {
        Ok(None)
    }

    pub(crate) fn sink(&self) -> TraceSink {
        match *self {}
    }

    pub(crate) fn begin(&self, _: &Request, _: &Work<'_>) -> TransferSpan {
        match *self {}
    }

    pub(crate) fn close(&self) {
        match *self {}
    }
}

impl TransferSpan {
    pub(crate) fn context(&self) -> TraceContext {
        match *self {}
    }

    pub(crate) fn tried(&mut self, _: &str) {
        match *self {}
    }

    pub(crate) fn end(self, _: &Result<(), Error>) {
        match self {}
    }
}
