//! What is said on a rail lane before the first frame of a batch: TLS, the hello, and the proof of a shared key, where they are
//! asked for (docs/security.md).
//!
//! Owns the waiting between blocks that are awaited one by one.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use moonrail_access::prove::BLOCK_LEN;
use moonrail_access::{AccessControl, Denied, Initiator, Step, Tls, TlsFault, nonce};
use moonrail_sys::poll::{Interest, wait};
use moonrail_transport::{Code, Control, Dialect, Failure, Stage, Target, Work};
use moonrail_wire::auth::Port;
use moonrail_wire::rail::{Hello, VERSION, Welcome, WelcomeStatus};

use super::failure::{self, Reached, endpoint, failed};
use super::guards::Guards;
use crate::stream::Stream;

/// With access control or TLS, and unless they are allowed, protocols that know no key and bytes in clear are not spoken.
pub(super) fn may_speak(guards: &Guards, target: &Target, work: &Work<'_>) -> Result<(), Failure> {
    let keyless = !matches!(target.dialect, Dialect::Rail { .. });
    if keyless && guards.access.as_ref().is_some_and(|access| !access.allow().mooncake) {
        let message =
            "the peer speaks Mooncake's protocol, which knows no key (MOONRAIL_ALLOW=mooncake allows it)";
        return Err(refusal(target, work, Code::PeerUnproven, message.to_owned()));
    }
    let allowed = |tls: &Tls| if keyless { tls.allow().mooncake } else { tls.allow().without_tls() };
    if target.tls.is_none() && guards.tls.as_ref().is_some_and(|tls| !allowed(tls)) {
        let message = "the peer does not offer TLS, and nothing is said to it in clear (MOONRAIL_ALLOW=clear allows it)";
        return Err(refusal(target, work, Code::TlsNotOffered, message.to_owned()));
    }
    Ok(())
}

/// Has both sides show who they are. The peer may still find that it does not believe this one; it says so when it is heard next.
pub(super) fn seal(
    stream: &mut Stream,
    tls: Option<&Tls>,
    name: &str,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Failure> {
    let tls = tls.ok_or_else(|| failure::tls_required(target, work, Reached::NOTHING))?;
    let channel = tls
        .initiator(Port::Data, name)
        .map_err(|fault| failure::gone(target, work, Reached::NOTHING, Some(&fault.into())))?;
    stream.seal(channel, &[]);
    Readiness::new(stream, target, work, control).establish()
}

/// The hello and its welcome alone; the feature bits in force.
pub(super) fn greet(
    stream: &mut Stream,
    epoch: u64,
    features: u32,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<u32, Failure> {
    let mut ready = Readiness::new(stream, target, work, control);
    ready.send(&Hello { version: VERSION, features, target_epoch: epoch }.encode())?;
    match Welcome::decode(&ready.receive()?) {
        Ok(Welcome { status: WelcomeStatus::Open, features, .. }) => Ok(features),
        Ok(Welcome { status: WelcomeStatus::Epoch, .. }) => Err(denied(target, work, Denied::Epoch)),
        Ok(Welcome { status: WelcomeStatus::KeyRequired, .. }) => {
            Err(failure::key_required(target, work, Reached::NOTHING))
        }
        Ok(Welcome { status: WelcomeStatus::TlsRequired, .. }) => {
            Err(failure::tls_required(target, work, Reached::NOTHING))
        }
        _ => Err(denied(target, work, Denied::Malformed)),
    }
}

/// Proves the key to the run of the target that has `epoch`, and has it proven; the feature bits in force.
pub(super) fn prove(
    stream: &mut Stream,
    epoch: u64,
    features: u32,
    access: &AccessControl,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<u32, Failure> {
    let broken = |error: &io::Error| failure::gone(target, work, Reached::NOTHING, Some(error));
    let binding = stream.binding();
    let mut ready = Readiness::new(stream, target, work, control);
    let nonce = nonce().map_err(|error| broken(&error))?;
    let mut initiator = Initiator::new(Port::Data, &access.keys(), epoch, features, nonce).bound(binding);
    ready.send(initiator.hello())?;
    loop {
        let block = ready.receive()?;
        match initiator.take(&block).map_err(|why| denied(target, work, why))? {
            Step::Receive => {}
            Step::Send(proof) => ready.send(&proof)?,
            Step::Done(admitted) => return Ok(admitted.welcome.features),
        }
    }
}

fn denied(target: &Target, work: &Work<'_>, why: Denied) -> Failure {
    let (code, hint) = match why {
        Denied::Epoch => return failure::restarted(target, work, Reached::NOTHING),
        Denied::TlsRequired => return failure::tls_required(target, work, Reached::NOTHING),
        Denied::Version | Denied::Malformed => (Code::ProtocolError, ""),
        Denied::KeyRefused => (Code::KeyRefused, " (are the key files the same?)"),
        _ => (Code::PeerUnproven, ""),
    };
    refusal(target, work, code, format!("{}: {why}{hint}", endpoint(target)))
}

fn refusal(target: &Target, work: &Work<'_>, code: Code, message: String) -> Failure {
    failed(target, work, Reached::NOTHING, code, Stage::Connect, message)
}

/// A socket, and for how long it may be waited for.
pub(super) struct Readiness<'a> {
    stream: &'a mut Stream,
    target: &'a Target,
    work: &'a Work<'a>,
    control: &'a Control<'a>,
    limit: Instant,
}

impl<'a> Readiness<'a> {
    /// For as long as connecting may take.
    pub(super) fn new(
        stream: &'a mut Stream,
        target: &'a Target,
        work: &'a Work<'a>,
        control: &'a Control<'a>,
    ) -> Self {
        // A block is short; the lane may have been left waiting for more.
        stream.wake_at(1);
        Self { stream, target, work, control, limit: Instant::now() + control.connect }
    }

    fn establish(&mut self) -> Result<(), Failure> {
        loop {
            match self.stream.establish() {
                Ok(true) => return Ok(()),
                Ok(false) => self.wait(Interest::Write)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(Interest::Read)?,
                Err(error) => return Err(self.gone(Some(&error))),
            }
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.send_bytes(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(Interest::Write)?,
                // What the peer said before it closed can still be read, if that is why.
                Err(error) => match self.stream.receive_bytes(&mut [0]) {
                    Err(reason) if TlsFault::behind(&reason).is_some() => {
                        return Err(self.gone(Some(&reason)));
                    }
                    _ => return Err(self.gone(Some(&error))),
                },
            }
        }
        Ok(())
    }

    pub(super) fn receive(&mut self) -> Result<[u8; BLOCK_LEN], Failure> {
        let mut block = [0; BLOCK_LEN];
        let mut have = 0;
        while have < BLOCK_LEN {
            match self.stream.receive_bytes(&mut block[have..]) {
                Ok(0) => return Err(self.gone(None)),
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(Interest::Read)?,
                Err(error) => return Err(self.gone(Some(&error))),
            }
        }
        Ok(block)
    }

    fn gone(&self, cause: Option<&io::Error>) -> Failure {
        failure::gone(self.target, self.work, Reached::NOTHING, cause)
    }

    fn wait(&self, interest: Interest) -> Result<(), Failure> {
        let (target, work) = (self.target, self.work);
        if let Some(stop) = (self.control.stop)() {
            return Err(failure::stopped(target, work, Reached::NOTHING, stop));
        }
        let now = Instant::now();
        let Some(slice) = self.control.slice(now, self.limit) else {
            if self.control.expired(now) {
                return Err(failure::deadline(target, work, Reached::NOTHING, Stage::Connect));
            }
            let message = format!("{} does not answer what comes before a transfer", endpoint(target));
            return Err(refusal(target, work, Code::PeerTimeout, message));
        };
        let interest = if self.stream.wants_write() { Interest::Both } else { interest };
        wait(self.stream.as_fd(), interest, Some(slice)).map(drop).map_err(|error| self.gone(Some(&error)))
    }
}
