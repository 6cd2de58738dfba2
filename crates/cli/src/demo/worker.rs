//! The start of a worker process: read the role, carry it out, tell the router of a failure.

use std::io::{self, BufReader, StdinLock, Write};
use std::sync::{Arc, Mutex, PoisonError};

use moonrail::Engine;

use crate::demo::messages::{self, Event, Role};
use crate::demo::{decode, prefill};
use crate::endpoint::{self, Metadata};
use crate::failure::Failure;

/// What a worker reads its jobs from.
pub(super) type Jobs = BufReader<StdinLock<'static>>;

/// Where a worker's threads tell the router what happens.
#[derive(Clone)]
pub(super) struct Events(Arc<Mutex<io::Stdout>>);

impl Events {
    fn stdout() -> Self {
        Self(Arc::new(Mutex::new(io::stdout())))
    }

    pub(super) fn send(&self, event: &Event) -> Result<(), Failure> {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages::send(&mut *line, event)
    }
}

/// Ends when standard input does.
pub(crate) fn run() -> Result<(), Failure> {
    let mut jobs = BufReader::new(io::stdin().lock());
    let events = Events::stdout();
    let role = match messages::receive::<Role>(&mut jobs) {
        Ok(Some(role)) => role,
        Ok(None) => return Ok(()),
        Err(failure) => {
            return Err(Failure::usage(failure.to_string()).fix("this command is for `moonrail demo` only"));
        }
    };
    let outcome = match role {
        Role::Prefill { setup } => prefill::run(&setup, &mut jobs, &events),
        Role::Decode { setup } => decode::run(&setup, &mut jobs, &events),
    };
    outcome.or_else(|failure| {
        // The router prints it; where it is gone, standard error is left.
        let told = events.send(&Event::Failed { what: failure.to_string() });
        if told.is_err() { Err(failure) } else { Ok(()) }
    })?;
    io::stdout().flush()?;
    Ok(())
}

/// An engine of this host only.
pub(super) fn engine() -> Result<Engine, Failure> {
    let metadata = Metadata::p2p();
    endpoint::start(endpoint::config("127.0.0.1".to_owned(), &metadata)?)
}
