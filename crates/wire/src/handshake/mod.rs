//! Messages of the handshake port (Mooncake TE wire, handshake port protocol).
//!
//! One connection carries one request frame and one reply frame. Owns the frame and the JSON bodies; the body of a
//! metadata exchange is a [segment descriptor](crate::segment). Does not know sockets, deadlines or retries.

mod body;
mod frame;

pub use body::{ConnectionReply, Notify, NotifyReply, PROBE_REQUEST, ProbeReply};
pub use frame::{DEFAULT_MAX_LEN, Decoder, FrameError, Kind, MAX_MAX_LEN, Message};
