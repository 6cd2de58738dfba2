//! Looking ahead in a connection's stream: small requests that wait complete are found with one peek and received
//! with one scatter, instead of a system call each.
//!
//! Only what is plainly right is taken this way. A request that is cut off, or that would be refused, is left in
//! the socket for the ordinary way.

use std::cell::RefCell;
use std::io;

use moonrail_memory::io::HeldIov;
use moonrail_memory::{Hold, RegionTable, Want};
use moonrail_wire::data::{DataVersion, HEADER_LEN, Op, RequestHeader};

use crate::stream::Stream;

/// Bytes looked at.
const WINDOW: usize = 64 << 10;
/// Requests taken at once: two vectors each, within IOV_MAX.
const MOST: usize = 500;

thread_local! {
    /// One window for all connections of the data thread.
    static WINDOW_BYTES: RefCell<Vec<u8>> = RefCell::new(vec![0; WINDOW]);
}

/// A request with its range held.
pub(super) struct Taken {
    pub header: RequestHeader,
    pub hold: Hold,
}

/// Complete requests at the head of the stream, still in the socket.
pub(super) struct Waiting {
    requests: Vec<Taken>,
    bytes: usize,
}

impl Waiting {
    /// The complete requests that wait, `room` at most; `None` for fewer than two.
    pub(super) fn look(
        stream: &mut Stream,
        regions: &RegionTable,
        v1_writes: bool,
        room: usize,
    ) -> io::Result<Option<Self>> {
        WINDOW_BYTES.with_borrow_mut(|window| {
            let have = match stream.peek(window) {
                Ok(have) => have,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            let mut waiting = Self { requests: Vec::new(), bytes: 0 };
            while waiting.requests.len() < room.min(MOST) {
                let Some(taken) = next(&window[waiting.bytes..have], regions, v1_writes) else { break };
                waiting.bytes += stream_len(&taken.header);
                waiting.requests.push(taken);
            }
            Ok((waiting.requests.len() >= 2).then_some(waiting))
        })
    }

    /// Takes them out of the socket, payload straight to where it belongs. Returns the bytes taken and, of these,
    /// the bytes stored.
    pub(super) fn receive(&self, stream: &mut Stream) -> io::Result<(u64, u64)> {
        let mut headers = vec![[0; HEADER_LEN]; self.requests.len()];
        let mut iov = HeldIov::new();
        let mut stored = 0;
        for (request, header) in self.requests.iter().zip(&mut headers) {
            iov.push_bytes_mut(header);
            if request.header.op == Op::Write {
                iov.push_held(&request.hold, request.header.addr, request.header.size)
                    .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
                stored += request.header.size;
            }
        }
        let mut left = self.bytes;
        while left > 0 {
            stream.check()?;
            match stream.receive(&mut iov) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => {
                    left -= got;
                    iov.advance(got);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((self.bytes as u64, stored))
    }

    pub(super) fn into_requests(self) -> Vec<Taken> {
        self.requests
    }
}

/// The request at the head of `bytes`, if it is complete and will be served.
fn next(bytes: &[u8], regions: &RegionTable, v1_writes: bool) -> Option<Taken> {
    let header = RequestHeader::decode(bytes.first_chunk()?);
    let want = match header.op {
        Op::Read => Want::Read,
        Op::Write => Want::Write,
    };
    let barred = header.version == DataVersion::V1 && header.op == Op::Write && !v1_writes;
    if header.size == 0 || barred {
        return None;
    }
    if header.op == Op::Write && header.size > (bytes.len() - HEADER_LEN) as u64 {
        return None;
    }
    let hold = regions.hold(header.addr, header.size, want).ok().filter(|hold| !hold.region().guarded)?;
    Some(Taken { header, hold })
}

fn stream_len(header: &RequestHeader) -> usize {
    HEADER_LEN + if header.op == Op::Write { header.size as usize } else { 0 }
}
