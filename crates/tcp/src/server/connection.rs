//! One client's connection: requests in, answers out, in order.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use moonrail_access::tls::is_client_hello;
use moonrail_memory::io::HeldIov;
use moonrail_memory::{Hold, Want};
use moonrail_sys::errno;
use moonrail_wire::auth::Port;
use moonrail_wire::data::{
    DataVersion, HEADER_LEN, Op, RequestHeader, STATUS_OK, STATUS_REJECTED, encode_status,
};
use moonrail_wire::rail::MAGIC;

use super::Shared;
use super::rail::RailLane;
use super::reply::{Payload, Replies};
use super::turn::{TURN_BYTES, Turn, flush, nothing_yet, unreadable, untrusted};
use super::waiting::{Taken, Waiting};
use crate::stream::Stream;

/// Answers a connection may owe before its requests are left in the socket.
const MAX_REPLIES: usize = 512;
/// Payload up to which looking ahead in the stream costs less than a system call for each request.
const SMALL: u64 = 8 << 10;

/// The connection's place in the stream of requests.
enum Place {
    /// Inside a header: this many of its bytes are here.
    Header(usize),
    /// Inside the payload of a write.
    Payload(Incoming),
}

struct Incoming {
    hold: Hold,
    addr: u64,
    left: u64,
    version: DataVersion,
}

pub(super) struct Connection {
    stream: Stream,
    peer: SocketAddr,
    place: Place,
    header: [u8; HEADER_LEN],
    replies: Replies,
    /// The last request was a small one: more of them are probably waiting.
    small: bool,
    /// Whether the next header is the connection's first, and then whether it began a rail hello.
    first: bool,
    rail: bool,
    /// It has yet to show that it brings a shared key, or speaks TLS and rail.
    unproven: bool,
    /// No further request is taken; the connection ends when every answer is out.
    finishing: bool,
    /// When a byte last moved.
    pub last_progress: Instant,
}

impl Connection {
    pub(super) fn new(socket: TcpStream, peer: SocketAddr, now: Instant) -> Self {
        Self {
            stream: Stream::new(socket),
            peer,
            place: Place::Header(0),
            header: [0; HEADER_LEN],
            replies: Replies::default(),
            small: false,
            first: true,
            rail: false,
            unproven: false,
            finishing: false,
            last_progress: now,
        }
    }

    /// Between requests and with nothing owed: it may stay so for ever. Who has yet to prove a key may not.
    pub(super) fn at_rest(&self) -> bool {
        matches!(self.place, Place::Header(0))
            && self.replies.is_empty()
            && !self.unproven
            && !self.stream.wants_write()
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether memory that this connection is using is being unregistered.
    pub(super) fn revoked(&self) -> bool {
        matches!(&self.place, Place::Payload(incoming) if incoming.hold.revoked()) || self.replies.revoked()
    }

    pub(super) fn reset_on_close(&self) {
        self.stream.reset_on_close();
    }

    /// Moves what can be moved now, up to [`TURN_BYTES`].
    pub(super) fn turn(&mut self, shared: &Shared, now: Instant) -> Turn {
        let mut budget = TURN_BYTES;
        self.unproven = self.first && (shared.options.access.is_some() || shared.options.tls.is_some());
        loop {
            let got = match self.take_requests(shared, budget) {
                Ok(got) => got,
                Err(error) => {
                    untrusted(shared, self.peer, &error);
                    return Turn::Closed;
                }
            };
            let sent = match self.send_replies(shared, budget) {
                Ok(sent) => sent,
                Err(_) => return Turn::Closed,
            };
            // Who has yet to prove something has as long as a request may stand still, for all of it.
            if got + sent > 0 && !self.unproven {
                self.last_progress = now;
            }
            if self.rail {
                return Turn::Rail;
            }
            if self.finishing && self.replies.is_empty() {
                return Turn::Closed;
            }
            budget = budget.saturating_sub(got + sent);
            if budget == 0 || got + sent == 0 {
                let write = !self.replies.is_empty() || self.stream.wants_write();
                return Turn::Open { read: self.may_take(), write };
            }
        }
    }

    /// The connection as a rail lane.
    pub(super) fn into_rail(self, now: Instant) -> RailLane {
        RailLane::new(self.stream, self.peer, &self.header, now)
    }

    fn may_take(&self) -> bool {
        !self.finishing && !self.rail && self.replies.len() < MAX_REPLIES
    }

    fn take_requests(&mut self, shared: &Shared, budget: u64) -> io::Result<u64> {
        let mut total = 0;
        while total < budget && self.may_take() {
            let ahead = if self.small && matches!(self.place, Place::Header(0)) {
                self.take_waiting(shared)?
            } else {
                0
            };
            let got = match self.take_some(shared) {
                Ok(Some(0)) => {
                    self.finishing = true;
                    return Ok(total + ahead);
                }
                Ok(Some(got)) => got,
                Ok(None) => 0,
                Err(error) => return Err(error),
            };
            if got + ahead == 0 {
                break;
            }
            total += got + ahead;
        }
        Ok(total)
    }

    /// Small requests that wait complete in the socket, taken with two system calls for all of them.
    fn take_waiting(&mut self, shared: &Shared) -> io::Result<u64> {
        let room = MAX_REPLIES - self.replies.len();
        let Some(waiting) =
            Waiting::look(&mut self.stream, &shared.regions, shared.options.serve_v1_writes, room)?
        else {
            return Ok(0);
        };
        let (taken, stored) = waiting.receive(&mut self.stream)?;
        shared.counters.bytes_in.fetch_add(stored, Relaxed);
        for request in waiting.into_requests() {
            shared.counters.requests.fetch_add(1, Relaxed);
            self.answer(shared, request);
        }
        Ok(taken)
    }

    /// Queues the answer to a request that was taken whole.
    fn answer(&mut self, shared: &Shared, request: Taken) {
        let Taken { header, hold } = request;
        let status = (header.version == DataVersion::V2).then(|| encode_status(STATUS_OK));
        match header.op {
            Op::Read => {
                shared.counters.bytes_out.fetch_add(header.size, Relaxed);
                self.replies.push(status, Some(Payload { hold, addr: header.addr, len: header.size }));
            }
            Op::Write if status.is_some() => self.replies.push(status, None),
            Op::Write => {}
        }
    }

    /// One receive: the rest of a payload and the header behind it, or the rest of a header.
    /// `None`: the socket has nothing; 0: the client sends no more.
    fn take_some(&mut self, shared: &Shared) -> io::Result<Option<u64>> {
        if !self.may_take() {
            return Ok(None);
        }
        match &self.place {
            Place::Header(have) => {
                let have = *have;
                let got = self.stream.receive_bytes(&mut self.header[have..]);
                let Some(got) = nothing_yet(got)? else { return Ok(None) };
                if self.first && self.begins_tls(shared, have + got)? {
                    return Ok(Some(got as u64));
                }
                self.have_header(shared, have + got);
                Ok(Some(got as u64))
            }
            Place::Payload(_) => self.take_payload(shared),
        }
    }

    /// Whether the connection's first `have` bytes begin TLS. Then all that follows is taken from inside it.
    fn begins_tls(&mut self, shared: &Shared, have: usize) -> io::Result<bool> {
        let begun = &self.header[..have];
        let Some(tls) =
            shared.options.tls.as_ref().filter(|_| !self.stream.is_sealed() && is_client_hello(begun))
        else {
            return Ok(false);
        };
        self.stream.seal(tls.target(Port::Data)?, begun);
        self.place = Place::Header(0);
        Ok(true)
    }

    fn take_payload(&mut self, shared: &Shared) -> io::Result<Option<u64>> {
        let Place::Payload(incoming) = &mut self.place else { return Ok(None) };
        let mut iov = HeldIov::new();
        iov.push_held(&incoming.hold, incoming.addr, incoming.left)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        if !self.small {
            // The next header comes with it; small requests are looked for together instead.
            iov.push_bytes_mut(&mut self.header);
        }
        // Last of all, as this process may be stopped anywhere.
        self.stream.check()?;
        let got = match nothing_yet(self.stream.receive(&mut iov)) {
            Ok(Some(got)) => got as u64,
            Ok(None) => return Ok(None),
            Err(error) if errno::is_bad_address(&error) => {
                let version = incoming.version;
                let (addr, len) = (incoming.addr, incoming.left);
                self.place = Place::Header(0);
                self.refuse(
                    shared,
                    version,
                    format_args!("registered memory at {addr:#x}, {len} bytes, is not mapped"),
                );
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let stored = got.min(incoming.left);
        shared.counters.bytes_in.fetch_add(stored, Relaxed);
        incoming.addr += stored;
        incoming.left -= stored;
        if incoming.left == 0 {
            let version = incoming.version;
            self.place = Place::Header(0);
            shared.counters.requests.fetch_add(1, Relaxed);
            if version == DataVersion::V2 {
                self.replies.push(Some(encode_status(STATUS_OK)), None);
            }
            self.have_header(shared, (got - stored) as usize);
        }
        Ok(Some(got))
    }

    /// `have` bytes of the next header are in the buffer.
    fn have_header(&mut self, shared: &Shared, have: usize) {
        self.place = Place::Header(have);
        if have == HEADER_LEN {
            if std::mem::take(&mut self.first) && self.header.starts_with(&MAGIC) {
                self.rail = true;
                return;
            }
            if let Some(why) = shared.options.bars_mooncake(self.stream.is_sealed()) {
                self.bar(shared, why);
                return;
            }
            let header = RequestHeader::decode(&self.header);
            self.place = Place::Header(0);
            self.small = header.op == Op::Read || header.size <= SMALL;
            self.serve(shared, header);
        }
    }

    /// Ends a connection in a protocol that is not spoken here, at its first header: nothing is looked at.
    fn bar(&mut self, shared: &Shared, why: &'static str) {
        shared.counters.refused.fetch_add(1, Relaxed);
        shared.options.refuse(self.peer, &why);
        self.finishing = true;
        self.turn_down(RequestHeader::decode(&self.header).version);
    }

    /// Checks the request's range and holds it. A range must lie inside one registered region.
    fn serve(&mut self, shared: &Shared, header: RequestHeader) {
        let RequestHeader { size, addr, op, version } = header;
        let want = match op {
            Op::Read => Want::Read,
            Op::Write => Want::Write,
        };
        if version == DataVersion::V1 && op == Op::Write && !shared.options.serve_v1_writes {
            self.refuse(shared, version, format_args!("writes of data protocol v1 are refused here"));
            return;
        }
        if size == 0 {
            // Initiators up to 0.3.11 send such requests and expect no answer; v2 asks that they be refused.
            if version == DataVersion::V2 {
                self.refuse(shared, version, format_args!("{} of 0 bytes at {addr:#x}", verb(op)));
            }
            return;
        }
        let hold = match shared.regions.hold(addr, size, want) {
            Ok(hold) => hold,
            Err(error) => {
                self.refuse(
                    shared,
                    version,
                    format_args!("{} of {size} bytes at {addr:#x}: {error}", verb(op)),
                );
                return;
            }
        };
        if hold.region().guarded {
            let why = format_args!("{} at {addr:#x}: the region is only for those with a token", verb(op));
            self.refuse(shared, version, why);
            return;
        }
        match op {
            Op::Read => {
                shared.counters.requests.fetch_add(1, Relaxed);
                self.answer(shared, Taken { header, hold });
            }
            Op::Write => self.place = Place::Payload(Incoming { hold, addr, left: size, version }),
        }
    }

    /// Refuses a request and takes no further one: what follows it in the stream may be its payload.
    fn refuse(&mut self, shared: &Shared, version: DataVersion, why: std::fmt::Arguments<'_>) {
        shared.counters.refused.fetch_add(1, Relaxed);
        let told =
            if version == DataVersion::V2 { "told so" } else { "cannot be told so (data protocol v1)" };
        shared.warn(format_args!("refused a request of {}, which is {told}: {why}", self.peer));
        self.finishing = true;
        self.turn_down(version);
    }

    /// Says that the last request is refused, in the way of its protocol.
    fn turn_down(&mut self, version: DataVersion) {
        match version {
            DataVersion::V2 => self.replies.push(Some(encode_status(STATUS_REJECTED)), None),
            DataVersion::V1 => {
                self.stream.reset_on_close();
            }
        }
    }

    fn send_replies(&mut self, shared: &Shared, budget: u64) -> io::Result<u64> {
        let Self { stream, replies, .. } = self;
        let outcome = flush(budget, || if replies.is_empty() { Ok(0) } else { replies.send(stream) });
        outcome.inspect_err(|error| unreadable(shared, self.peer, error))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn verb(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
    }
}
