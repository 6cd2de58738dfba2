//! Rail clients that bring a shared key: its proof, and who is told what (docs/security.md).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use moonrail_access::prove::DOUBLE_LEN;
use moonrail_access::{AccessControl, Challenge, Denied, Offer, Target, nonce};
use moonrail_wire::auth::{FEATURE_KEY, KEY_ID_LEN, Opening, PROOF_LEN, Port};
use moonrail_wire::rail::{CHECKSUM, HELLO_LEN, Hello, VERSION, WELCOME_LEN, Welcome, WelcomeStatus};

use super::rail::MAX_PAYLOAD;
use crate::stream::Stream;

/// How long a lane goes on without a look at whether its key is still in force.
const LOOK: Duration = Duration::from_secs(1);

/// The key that a lane was opened with. Once it is in force no more, no further request of the lane is served.
pub(super) struct Admission {
    key: [u8; KEY_ID_LEN],
    looked: Instant,
    ended: bool,
}

impl Admission {
    /// By the key that a hello names.
    pub(super) fn of(hello: &[u8; HELLO_LEN], now: Instant) -> Self {
        Self { key: Opening::of(hello).key_id, looked: now, ended: false }
    }

    /// Looks whether the key is still in force, once a second at most.
    pub(super) fn look(&mut self, access: &AccessControl, now: Instant) {
        if !self.ended && now.duration_since(self.looked) >= LOOK {
            self.looked = now;
            self.ended = access.keys().find(self.key).is_none();
        }
    }

    /// Whether it was in force no more at a look.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }
}

/// What a client that is turned away is told before its connection ends.
type Told = Option<[u8; WELCOME_LEN]>;

/// Whether the client means to prove a key.
pub(super) fn brings_key(hello: &[u8; HELLO_LEN]) -> bool {
    Hello::decode(hello).is_ok_and(|hello| hello.features & FEATURE_KEY != 0)
}

/// The feature bits that this connection may have, of which the `known` ones any may. TLS checks bytes by itself.
pub(super) fn features(known: u32, sealed: bool) -> u32 {
    if sealed { known } else { known | CHECKSUM }
}

/// What a client is told that is turned away for want of what `status` says.
pub(super) fn welcome(epoch: u64, status: WelcomeStatus) -> [u8; WELCOME_LEN] {
    Welcome { version: VERSION, status, features: 0, epoch, max_payload: MAX_PAYLOAD }.encode()
}

/// Challenges the client of a hello.
pub(super) fn challenge(
    access: &AccessControl,
    (epoch, features): (u64, u32),
    hello: &[u8; HELLO_LEN],
    client: SocketAddr,
    stream: &Stream,
) -> Result<Challenge, Told> {
    let offer = Offer {
        port: Port::Data,
        epoch,
        features: self::features(features, stream.is_sealed()),
        max_payload: MAX_PAYLOAD,
        binding: stream.binding(),
    };
    let nonce = nonce().map_err(|error| {
        access.refuse("data", client, &format_args!("no random bytes for its challenge: {error}"));
        None
    })?;
    Target::challenge(offer, &access.keys(), hello, nonce).map_err(|(why, told)| {
        // A client that means an earlier run is no stranger: it asks for the descriptor anew.
        if why != Denied::Epoch {
            access.deny("data", client, why);
        }
        told
    })
}

/// Judges the client's proof, at the front of `bytes`.
pub(super) fn judge(
    access: &AccessControl,
    target: Target,
    bytes: &[u8; HELLO_LEN],
    client: SocketAddr,
) -> Result<[u8; DOUBLE_LEN], Told> {
    let mut proof = [0; PROOF_LEN];
    proof.copy_from_slice(&bytes[..PROOF_LEN]);
    match target.judge(&proof) {
        Ok((verdict, _)) => Ok(verdict),
        Err((why, told)) => {
            access.deny("data", client, why);
            Err(Some(told))
        }
    }
}
