//! The calling side of the handshake port: one connection, one request, one reply, close.
//!
//! Genuine peers serve one connection at a time and give a silent one 5 s, so a call never leaves a connection idle
//! and closes as soon as it has the reply. Knows nothing of who keeps the descriptors it brings.

mod knock;
mod talk;
mod wire;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use moonrail_access::{AccessControl, Denied, Tls, TlsDenied};
use moonrail_wire::address::HostPort;
use moonrail_wire::auth::Port;
use moonrail_wire::handshake::{DEFAULT_MAX_LEN, Kind, Message, Notify, NotifyReply, PROBE_REQUEST};
use moonrail_wire::segment::{DescriptorError, SegmentDescriptor};

use self::talk::converse;
use self::wire::Wire;
use crate::deadline::Deadline;
use crate::dial;
use crate::error::{MetadataError, MetadataErrorKind, WaitStage};
use crate::{KEY_REQUIRED, TLS_REQUIRED};

/// The port of an address that names none.
pub const DEFAULT_HANDSHAKE_PORT: u16 = 12001;

/// A peer that is just being stopped or that has too many callers resets; it gets this long before the second try.
const PAUSE_AFTER_RESET: Duration = Duration::from_millis(20);

/// Calls handshake ports. Cheap to clone; may be used from any thread; each call blocks its caller.
#[derive(Debug, Clone)]
pub struct HandshakeClient {
    /// How long each call may wait.
    pub timeouts: HandshakeTimeouts,
    /// The longest message sent or taken, in bytes after the length field (Mooncake: `MC_HANDSHAKE_MAX_LENGTH`).
    pub max_len: usize,
    /// The port of an address that names none (Mooncake: `MC_HANDSHAKE_PORT`).
    pub default_port: u16,
    /// With it, peers have to prove the shared key, and are proven it. Not for probes, which trust nothing.
    pub access: Option<Arc<AccessControl>>,
    /// With it, peers are spoken to in TLS, and have to show a certificate for the host that they are called by.
    pub tls: Option<Arc<Tls>>,
}

/// Limits of one call. A call never takes longer than both together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeTimeouts {
    /// For resolving the name and connecting, over all of its addresses.
    pub connect: Duration,
    /// For sending the request and receiving the whole reply, from the moment of connection.
    pub reply: Duration,
}

/// What a probe found out. That it returned at all means the peer is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeOutcome {
    /// From the start of the call that succeeded until its reply, connecting included.
    pub round_trip: Duration,
    /// The peer knows no probe (Mooncake before 0.3.10.post2) and was seen alive by a metadata request.
    pub legacy: bool,
}

impl Default for HandshakeClient {
    fn default() -> Self {
        HandshakeClient {
            timeouts: HandshakeTimeouts::default(),
            max_len: DEFAULT_MAX_LEN,
            default_port: DEFAULT_HANDSHAKE_PORT,
            access: None,
            tls: None,
        }
    }
}

impl Default for HandshakeTimeouts {
    fn default() -> Self {
        HandshakeTimeouts { connect: Duration::from_secs(5), reply: Duration::from_secs(5) }
    }
}

impl HandshakeClient {
    /// A client with these limits, and port 12001 for addresses that name none.
    pub fn new(timeouts: HandshakeTimeouts, max_len: usize) -> HandshakeClient {
        HandshakeClient { timeouts, max_len, ..HandshakeClient::default() }
    }

    /// Gives the peer our descriptor and brings its own (message type 1; peer-to-peer mode only).
    ///
    /// # Errors
    /// [`MetadataErrorKind::Rejected`] where the peer works with a metadata server or refuses us,
    /// [`MetadataErrorKind::Protocol`] where its answer is no usable descriptor, and the failures of any call.
    pub fn exchange_metadata(
        &self,
        peer: &HostPort,
        own: &SegmentDescriptor,
    ) -> Result<SegmentDescriptor, MetadataError> {
        let request = Message { kind: Kind::Metadata, body: own.to_json() };
        let reply = self.call(peer, &request, Repeat::Always, self.deadline())?;
        let name = peer.to_string();
        if let Some((kind, reason)) = refusal(&reply.body) {
            return Err(MetadataError::new(kind, name, reason));
        }
        SegmentDescriptor::from_json(&reply.body).map_err(|error| {
            let kind = match error {
                DescriptorError::Absent => MetadataErrorKind::Rejected,
                _ => MetadataErrorKind::Protocol,
            };
            MetadataError::new(kind, name, error.to_string())
        })
    }

    /// Delivers a note to the peer (message type 2) and waits until it has taken it.
    ///
    /// Never sent twice: once the peer may have the whole note, a failure is reported and not repeated.
    ///
    /// # Errors
    /// [`MetadataErrorKind::Rejected`] where the peer does not take it, and the failures of any call.
    pub fn notify(&self, peer: &HostPort, note: &Notify) -> Result<(), MetadataError> {
        let request = Message { kind: Kind::Notify, body: note.to_json() };
        let reply = self.call(peer, &request, Repeat::UnlessSent, self.deadline())?;
        let reply = NotifyReply::from_json(&reply.body).map_err(|error| {
            let text = format!("unreadable answer to a notify: {error}");
            MetadataError::new(MetadataErrorKind::Protocol, peer.to_string(), text)
        })?;
        if reply.accepted {
            Ok(())
        } else {
            Err(MetadataError::new(
                MetadataErrorKind::Rejected,
                peer.to_string(),
                "the peer rejected the notify",
            ))
        }
    }

    /// Asks whether the peer is alive (message type 3). A peer that closes on that, as releases before 0.3.10.post2
    /// do, is asked for its descriptor instead, with `own` as ours.
    ///
    /// # Errors
    /// The failures of any call.
    pub fn probe(&self, peer: &HostPort, own: &SegmentDescriptor) -> Result<ProbeOutcome, MetadataError> {
        self.probe_with(peer, || own.to_json())
    }

    /// [`Self::probe`] with the body of the metadata request given as bytes.
    pub(crate) fn probe_with(
        &self,
        peer: &HostPort,
        metadata: impl FnOnce() -> Vec<u8>,
    ) -> Result<ProbeOutcome, MetadataError> {
        let client = HandshakeClient { access: None, ..self.clone() };
        let deadline = self.deadline();
        let started = Instant::now();
        let request = Message { kind: Kind::Probe, body: PROBE_REQUEST.to_vec() };
        match client.call(peer, &request, Repeat::Never, deadline) {
            Ok(_) => return Ok(ProbeOutcome { round_trip: started.elapsed(), legacy: false }),
            Err(e) if !matches!(e.kind, MetadataErrorKind::Reset | MetadataErrorKind::Protocol) => {
                return Err(e);
            }
            Err(_) => {}
        }
        let started = Instant::now();
        let request = Message { kind: Kind::Metadata, body: metadata() };
        client.call(peer, &request, Repeat::Always, deadline)?;
        Ok(ProbeOutcome { round_trip: started.elapsed(), legacy: true })
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeouts.connect.saturating_add(self.timeouts.reply))
    }

    /// One request and its reply, over each address of the peer in turn.
    fn call(
        &self,
        peer: &HostPort,
        request: &Message,
        repeat: Repeat,
        deadline: Deadline,
    ) -> Result<Message, MetadataError> {
        let name = peer.to_string();
        let length = request.frame_len();
        if length > self.max_len {
            let text = format!(
                "a message of {length} bytes is above the limit of {} (MC_HANDSHAKE_MAX_LENGTH, on both sides)",
                self.max_len
            );
            return Err(MetadataError::new(MetadataErrorKind::TooLarge, name, text));
        }
        let frame = request.encode();
        let connect_by = Deadline::after(self.timeouts.connect).min(deadline);
        let addresses = dial::resolve(&peer.host, peer.port.unwrap_or(self.default_port), &name, connect_by)?;
        let once = |connect_by| {
            self.round(&addresses, peer, &name, request.kind, &frame, repeat, connect_by, deadline)
        };
        match once(connect_by) {
            Ok(reply) => Ok(reply),
            Err(Failure { error, sent }) => {
                // A peer that closes on the key may also be one that has too many callers.
                let dropped = matches!(
                    error.kind,
                    MetadataErrorKind::Reset
                        | MetadataErrorKind::Denied(Denied::NotAsked)
                        | MetadataErrorKind::Tls(TlsDenied::NotOffered)
                );
                if !dropped || !repeat.allowed(sent) {
                    return Err(error);
                }
                thread::sleep(PAUSE_AFTER_RESET);
                once(Deadline::after(self.timeouts.connect).min(deadline)).map_err(|failure| failure.error)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call's state, used in one place")]
    fn round(
        &self,
        addresses: &[SocketAddr],
        peer: &HostPort,
        name: &str,
        kind: Kind,
        frame: &[u8],
        repeat: Repeat,
        connect_by: Deadline,
        deadline: Deadline,
    ) -> Result<Message, Failure> {
        let mut telling: Option<Failure> = None;
        for (index, address) in addresses.iter().enumerate() {
            let speak = |access: Option<&AccessControl>, tls: Option<&Tls>| {
                let unsent = |error| Failure { error, sent: false };
                let stream =
                    dial::connect(*address, addresses.len() - index, name, connect_by).map_err(unsent)?;
                let reply_by = Deadline::after(self.timeouts.reply).min(deadline);
                let wire = open(stream, peer, name, tls, reply_by).map_err(unsent)?;
                converse(wire, frame, kind, self.max_len, name, reply_by, access)
            };
            let (access, mut tls) = (self.access.as_deref(), self.tls.as_deref());
            let mut outcome = speak(access, tls);
            let ended_so = |outcome: &Result<Message, Failure>, kind| {
                outcome.as_ref().is_err_and(|failure| failure.error.kind == kind)
            };
            if ended_so(&outcome, MetadataErrorKind::Tls(TlsDenied::NotOffered))
                && tls.is_some_and(|tls| tls.allow().without_tls())
            {
                tls = None;
                outcome = speak(access, tls);
            }
            if ended_so(&outcome, MetadataErrorKind::Denied(Denied::NotAsked))
                && access.is_some_and(|access| access.allow().mooncake)
            {
                outcome = speak(None, tls);
            }
            let failure = match outcome {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let silent = matches!(
                failure.error.kind,
                MetadataErrorKind::Timeout { stage: WaitStage::Request | WaitStage::Reply }
            );
            if silent || (failure.sent && repeat == Repeat::UnlessSent) {
                return Err(failure);
            }
            // Of several failures the one that says more than "nobody there" is kept.
            if telling.as_ref().is_none_or(|kept| kept.error.kind == MetadataErrorKind::Refused) {
                telling = Some(failure);
            }
        }
        Err(telling.expect("invariant: resolve() gives at least one address"))
    }
}

/// What the conversation goes over.
fn open(
    stream: TcpStream,
    peer: &HostPort,
    name: &str,
    tls: Option<&Tls>,
    deadline: Deadline,
) -> Result<Wire, MetadataError> {
    let Some(tls) = tls else { return Ok(Wire::clear(stream)) };
    let channel = tls.initiator(Port::Handshake, tls.expected(&peer.host));
    let channel = channel.map_err(|fault| wire::broken(&fault, name))?;
    Wire::seal(stream, channel, name, deadline)
}

/// When a request may be sent again after a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Never,
    /// Only if the peer cannot have the whole request.
    UnlessSent,
    Always,
}

impl Repeat {
    fn allowed(self, sent: bool) -> bool {
        match self {
            Repeat::Never => false,
            Repeat::UnlessSent => !sent,
            Repeat::Always => true,
        }
    }
}

struct Failure {
    error: MetadataError,
    /// The whole request was handed to the kernel, so the peer may have acted on it.
    sent: bool,
}

/// What a Moonrail says that turns a caller away: `{"refused": …}`.
fn refusal(body: &[u8]) -> Option<(MetadataErrorKind, String)> {
    // Descriptors can be 1 MiB long; refusals are short.
    if body.len() > 4096 {
        return None;
    }
    let reply = serde_json::from_slice::<serde_json::Value>(body).ok()?;
    let reason = format!("refused: {}", reply.get("refused")?.as_str()?);
    let kind = match reply.get("code").and_then(serde_json::Value::as_str) {
        Some(KEY_REQUIRED) => MetadataErrorKind::Denied(Denied::KeyRequired),
        Some(TLS_REQUIRED) => MetadataErrorKind::Tls(TlsDenied::Required),
        _ => MetadataErrorKind::Rejected,
    };
    Some((kind, reason))
}
